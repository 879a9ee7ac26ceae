// Streams around copies of a circuit. `circuit.cpp` has the gates and `ports.h` the streams,
// both generated; sim/bulk.py says what a run does.

#include "circuit.cpp"
#include "ports.h"

#include <tuple>
#include <utility>

#pragma GCC optimize("O3")

extern "C" {

struct Queue {  // of one stream: rows of every copy, and how many of them
	uint8_t *rows;          // [most][copy][4 * groups]
	int64_t most;
	int64_t *counts;        // inputs: beats to offer; outputs: beats seen
};

struct Job {
	Queue *inputs, *outputs;
	int64_t reset_cycles, max_cycles, idle_cycles;
	int64_t stalls;  // 0: none; n: each side of each port waits in one cycle of 2^n
	uint64_t seed;
};

}

namespace {

struct Coins {  // xorshift, one state a column pair
	V state;
	explicit Coins(uint64_t seed) {
		for (int c = 0; c < COLUMNS; c++)
			state[c] = uint32_t((seed * 64 + c + 1) * 0x9e3779b97f4a7c15u >> 32) | 1;
	}
	V operator()() {
		state ^= state << 13;
		state ^= state >> 17;
		state ^= state << 5;
		return state;
	}
	V go(int64_t n) {  // ones, but for one bit in 2^n
		V stop = ~V{};
		for (int64_t k = 0; k < n; k++) stop &= (*this)();
		return n ? ~stop : stop;
	}
};

template<class P> struct Input {
	Words<P::width> row;
	uint32_t next[COPIES] = {};
	V offered = {};

	void before(Machine &m, const Queue &queue, Coins &coins, int64_t stalls) {
		V left = {};
		for (int copy = 0; copy < COPIES; copy++) {
			uint32_t at = next[copy];
			bool has = at < queue.counts[copy];
			left[copy % COLUMNS] |= uint32_t(has) << copy / COLUMNS;
			auto from = reinterpret_cast<const uint32_t *>(queue.rows)
				+ (size_t(has ? at : 0) * COPIES + copy) * row.GROUPS;
			for (int g = 0; g < row.GROUPS; g++) row.at(g, copy) = from[g];
		}
		row.to_planes(&m.in[P::payload]);
		offered |= left & coins.go(stalls);
		m.in[P::valid] = offered;
	}

	void after(const Machine &m) {
		V taken = offered & m.out[P::ready];
		offered &= ~taken;
		for (int copy = 0; copy < COPIES; copy++)
			next[copy] += taken[copy % COLUMNS] >> copy / COLUMNS & 1;
	}
};

template<class P> struct Output {
	Words<P::width> row;

	void before(Machine &m, Coins &coins, int64_t stalls) {
		if constexpr (P::ready >= 0) m.in[P::ready] = coins.go(stalls);
	}

	bool after(const Machine &m, const Queue &queue) {
		V taken = m.out[P::valid];
		if constexpr (P::ready >= 0) taken &= m.in[P::ready];
		if (!any(taken)) return any(m.out[P::valid]);
		row.from_planes(&m.out[P::payload]);
		for (int copy = 0; copy < COPIES; copy++)
			if (taken[copy % COLUMNS] >> copy / COLUMNS & 1) {
				int64_t at = queue.counts[copy]++;
				if (at >= queue.most) continue;  // counted, and one too many
				auto to = reinterpret_cast<uint32_t *>(queue.rows)
					+ (size_t(at) * COPIES + copy) * row.GROUPS;
				for (int g = 0; g < row.GROUPS; g++) to[g] = row.at(g, copy);
			}
		return true;
	}
};

using Inputs = std::tuple<INPUTS>;
using Outputs = std::tuple<OUTPUTS>;

template<class T, class F> void each(T &tuple, F &&f) {
	int index = 0;
	std::apply([&](auto &...item) { (f(item, index++), ...); }, tuple);
}

}  // namespace

// Plays until no output has had a beat for `idle_cycles`; returns the cycles, or -1 where
// `max_cycles` were not enough.
extern "C" int64_t play_streams(const Job *job) {
	auto *machine = new Machine;
	Machine &m = *machine;
	auto inputs = new Inputs;
	auto outputs = new Outputs;
	Coins coins(job->seed);
	m.in[RST] = ~V{};
	for (int64_t cycle = 0; cycle < job->reset_cycles; cycle++) play(m);
	m.in[RST] = V{};
	int64_t cycle = 0, quiet = 0;
	for (; quiet < job->idle_cycles && cycle < job->max_cycles; cycle++) {
		each(*inputs, [&](auto &in, int k) { in.before(m, job->inputs[k], coins, job->stalls); });
		each(*outputs, [&](auto &out, int) { out.before(m, coins, job->stalls); });
		play(m);
		each(*inputs, [&](auto &in, int) { in.after(m); });
		bool busy = false;
		each(*outputs, [&](auto &out, int k) { busy |= out.after(m, job->outputs[k]); });
		quiet = busy ? 0 : quiet + 1;
	}
	delete outputs;
	delete inputs;
	delete machine;
	return quiet < job->idle_cycles ? -1 : cycle - quiet;
}
