// The per-cycle loop of a batch library, compiled once and linked with each circuit: `batch.h` says
// what it knows of that one. sim/engine/batch.py documents what a run does.

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "batch.h"

namespace {

struct Random {  // xorshift64*
	uint64_t state;
	explicit Random(uint64_t seed = 1) {  // splitmix64, so that neighboring seeds differ
		seed += 0x9e3779b97f4a7c15u;
		seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
		seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
		state = (seed ^ (seed >> 31)) | 1;
	}
	uint64_t operator()() {
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		return state * 0x2545f4914f6cdd1du;
	}
};

// As memcpy: most payloads are of a few bytes, and a call takes longer than they do.
inline void copy(uint8_t *to, const uint8_t *from, size_t size) {
	switch (size) {
	case 1: std::memcpy(to, from, 1); break;
	case 2: std::memcpy(to, from, 2); break;
	case 4: std::memcpy(to, from, 4); break;
	case 5: std::memcpy(to, from, 5); break;
	case 8: std::memcpy(to, from, 8); break;
	default: std::memcpy(to, from, size);
	}
}

size_t n_bytes(size_t bits) { return (bits + 7) / 8; }

void scramble(uint8_t *port, size_t bits, Random &random) {
	for (size_t at = 0; at < bits; at += 32) {
		uint32_t word = uint32_t(random() >> 32);
		if (bits - at < 32)
			word &= ~uint32_t(0) >> (32 - (bits - at));
		copy(port + at / 8, reinterpret_cast<uint8_t *>(&word), bits - at < 32 ? n_bytes(bits - at) : 4);
	}
}

enum Code : int64_t {
	DRAINED, STOPPED, TIMEOUT, VALID_DROPPED, PAYLOAD_CHANGED, VALID_IN_RESET, VALID_WAITS, UNSETTLED
};

}  // namespace

extern "C" {

struct Stall {  // `lead` once, then `pattern` over and over, or else a coin
	const uint8_t *lead;
	int64_t n_lead;
	const uint8_t *pattern;
	int64_t n_pattern;
	uint64_t threshold;  // of 2^64; all ones is always
};

struct Feed {
	const uint8_t *beats;
	int64_t n_beats;
	Stall stall;
};

struct Sink {
	Stall stall;
	int64_t until;  // beats; -1 is no limit
};

struct Level {  // one value a cycle, the last one held; none: as it was
	const uint8_t *values;
	int64_t n_values;
};

struct Job {
	const Feed *feeds;
	const Sink *sinks;
	const Level *levels;
	const uint8_t *traced;  // one flag per plain output
	int64_t reset_cycles, max_cycles, idle_cycles, probe_cycles;
	int64_t drain;
	uint64_t seed;
};

struct Result {
	int64_t code, port, cycle, cycles;
};

}  // extern "C"

namespace {

bool go(const Stall &stall, int64_t cycle, Random &random) {
	if (cycle < stall.n_lead)
		return stall.lead[cycle];
	if (stall.n_pattern)
		return stall.pattern[(cycle - stall.n_lead) % stall.n_pattern];
	return stall.threshold == ~uint64_t(0) || random() < stall.threshold;
}

struct Input {
	size_t bits, size;
	uint8_t *payload, *valid;
	const uint8_t *ready;
	bool offered = false, scrambled = false;
	int64_t next = 0;
	Random random, noise;
	std::vector<int64_t> taken;
};

struct Output {
	size_t size;
	const uint8_t *payload, *valid;
	uint8_t *ready;
	bool stalled = false, is_ready = false, early = false;
	std::vector<uint8_t> held;
	Random random;
	std::vector<uint8_t> beats;
	std::vector<int64_t> taken;
};

struct Plain {
	size_t size;
	uint8_t *at;
	std::vector<uint8_t> trace;
};

bool high(const uint8_t *wire) { return *wire & 1; }

struct Instance {
	Design *design = circuit_new();
	std::vector<Input> inputs;
	std::vector<Output> outputs;
	std::vector<Plain> levels, probes;

	Instance() {
		uint8_t *root = circuit_root(design);
		const Ports &ports = circuit_ports();
		for (size_t i = 0; i < ports.n_inputs; i++) {
			const StreamPort &port = ports.inputs[i];
			inputs.push_back({port.bits, n_bytes(port.bits), root + port.payload, root + port.valid,
			                  root + port.ready});
		}
		for (size_t i = 0; i < ports.n_outputs; i++) {
			const StreamPort &port = ports.outputs[i];
			outputs.push_back({n_bytes(port.bits), root + port.payload, root + port.valid,
			                   root + port.ready});
		}
		for (size_t i = 0; i < ports.n_levels; i++)
			levels.push_back({n_bytes(ports.levels[i].bits), root + ports.levels[i].at});
		for (size_t i = 0; i < ports.n_probes; i++)
			probes.push_back({n_bytes(ports.probes[i].bits), root + ports.probes[i].at});
	}
	Instance(const Instance &) = delete;
	~Instance() { circuit_delete(design); }

	bool reset(const Job &job, Result &result) {
		for (Input &in : inputs)
			*in.valid = 0;
		for (Output &out : outputs) {
			*out.ready = 0;
			out.stalled = false;
		}
		circuit_reset(design, 1);
		bool quiet = true;
		for (int64_t cycle = 0; cycle < job.reset_cycles; cycle++) {
			circuit_before_edge(design);
			for (size_t i = 0; cycle && i < outputs.size(); i++)
				if (quiet && high(outputs[i].valid)) {
					quiet = false;
					result = {VALID_IN_RESET, int64_t(i), cycle, cycle};
				}
			circuit_edge(design);
		}
		circuit_reset(design, 0);
		return quiet;
	}

	Result run(const Job &job) {
		Result result{STOPPED, -1, 0, 0};
		try {
			play(job, result);
		} catch (const std::runtime_error &) {  // Verilator's, of a loop that does not settle
			result.code = UNSETTLED;
		}
		return result;
	}

	void play(const Job &job, Result &result) {
		bool until = false;
		for (size_t i = 0; i < inputs.size(); i++) {
			Input &in = inputs[i];
			in.offered = in.scrambled = false;
			in.next = 0;
			in.random = Random(job.seed * 1000003 + 2 * i);
			in.noise = Random(job.seed * 1000003 + 2 * i + 1);
			in.taken.clear();
		}
		for (size_t i = 0; i < outputs.size(); i++) {
			Output &out = outputs[i];
			out.held.resize(out.size);
			out.random = Random(job.seed * 1000003 + 500009 + i);
			out.beats.clear();
			out.taken.clear();
			until |= job.sinks[i].until >= 0;
		}
		for (Plain &probe : probes)
			probe.trace.clear();
		apply_levels(job, 0);
		if (job.reset_cycles && !reset(job, result))
			return;

		int64_t quiet = 0;
		for (int64_t cycle = 0;; cycle++) {
			result.cycle = result.cycles = cycle;
			if (until) {
				bool reached = true;
				for (size_t i = 0; i < outputs.size(); i++)
					reached &= int64_t(outputs[i].taken.size()) >= job.sinks[i].until;
				if (reached) {
					result.code = DRAINED;
					return;
				}
			}
			if (job.drain && quiet >= job.idle_cycles) {
				result.code = until ? TIMEOUT : DRAINED;
				return;
			}
			if (cycle >= job.max_cycles) {
				result.code = job.drain ? TIMEOUT : STOPPED;
				return;
			}
			if (one_cycle(job, cycle, result))
				quiet++;
			else
				quiet = 0;
			if (result.code > TIMEOUT)
				return;
		}
	}

	void apply_levels(const Job &job, int64_t cycle) {
		for (size_t i = 0; i < levels.size(); i++) {
			const Level &level = job.levels[i];
			if (cycle < level.n_values)
				copy(levels[i].at, level.values + cycle * levels[i].size, levels[i].size);
		}
	}

	// Plays one cycle; true if nothing moved, nothing is offered and nothing is left to offer.
	bool one_cycle(const Job &job, int64_t cycle, Result &result) {
		bool quiet = true;
		if (cycle)
			apply_levels(job, cycle);
		for (size_t i = 0; i < inputs.size(); i++) {
			Input &in = inputs[i];
			const Feed &feed = job.feeds[i];
			if (!in.offered && in.next < feed.n_beats) {
				quiet = false;
				if (go(feed.stall, cycle, in.random)) {
					copy(in.payload, feed.beats + in.next * in.size, in.size);
					*in.valid = 1;
					in.offered = true;
					in.scrambled = false;
				}
			} else if (in.offered)
				quiet = false;
			if (!in.offered && !in.scrambled) {  // a payload without valid means nothing
				scramble(in.payload, in.bits, in.noise);
				*in.valid = 0;
				in.scrambled = true;
			}
		}
		bool probe = job.probe_cycles && cycle % job.probe_cycles == 0;
		if (probe) {  // which outputs are valid while nobody is ready?
			for (Output &out : outputs)
				*out.ready = 0;
			circuit_before_edge(design);
			for (Output &out : outputs)
				out.early = high(out.valid);
		}
		for (size_t i = 0; i < outputs.size(); i++) {
			Output &out = outputs[i];
			*out.ready = out.is_ready = go(job.sinks[i].stall, cycle, out.random);
		}
		circuit_before_edge(design);
		for (Input &in : inputs) {
			if (in.offered && high(in.ready)) {
				in.taken.push_back(cycle);
				in.next++;
				in.offered = false;
			}
		}
		for (size_t i = 0; i < outputs.size(); i++) {
			Output &out = outputs[i];
			bool valid = high(out.valid);
			auto broken = [&](Code code) {
				if (result.code <= TIMEOUT)
					result = {code, int64_t(i), cycle, cycle + 1};
			};
			if (out.stalled && !valid)
				broken(VALID_DROPPED);
			if (probe && valid && !out.early)
				broken(VALID_WAITS);
			if (valid) {
				quiet = false;
				const uint8_t *now = out.payload;
				if (out.stalled && std::memcmp(now, out.held.data(), out.size))
					broken(PAYLOAD_CHANGED);
				if (out.is_ready) {
					out.beats.insert(out.beats.end(), now, now + out.size);
					out.taken.push_back(cycle);
				} else
					copy(out.held.data(), now, out.size);
			}
			out.stalled = valid && !out.is_ready;
		}
		for (size_t i = 0; i < probes.size(); i++) {
			Plain &plain = probes[i];
			if (job.traced[i])
				plain.trace.insert(plain.trace.end(), plain.at, plain.at + plain.size);
		}
		circuit_edge(design);
		return quiet;
	}
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void *batch_new() { return new Instance; }
void batch_delete(void *self) { delete static_cast<Instance *>(self); }

void batch_run(void *self, const Job *job, Result *result) {
	*result = static_cast<Instance *>(self)->run(*job);
}

int64_t batch_in_taken(void *self, int64_t port, const int64_t **cycles, int64_t *offered) {
	Input &in = static_cast<Instance *>(self)->inputs[port];
	*cycles = in.taken.data();
	*offered = in.offered;
	return in.taken.size();
}

int64_t batch_out_taken(void *self, int64_t port, const int64_t **cycles, const uint8_t **beats) {
	Output &out = static_cast<Instance *>(self)->outputs[port];
	*cycles = out.taken.data();
	*beats = out.beats.data();
	return out.taken.size();
}

int64_t batch_trace(void *self, int64_t port, const uint8_t **bytes) {
	std::vector<uint8_t> &trace = static_cast<Instance *>(self)->probes[port].trace;
	*bytes = trace.data();
	return trace.size();
}

// Value of a plain output as the design shows it now, its plain inputs unchanged; whether it does.
bool batch_read(void *self, int64_t port, uint8_t *bytes) {
	Instance &instance = *static_cast<Instance *>(self);
	try {
		circuit_before_edge(instance.design);
	} catch (const std::runtime_error &) {
		return false;
	}
	copy(bytes, instance.probes[port].at, instance.probes[port].size);
	return true;
}

}  // extern "C"

#pragma GCC visibility pop
