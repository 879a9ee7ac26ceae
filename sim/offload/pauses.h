// Memories that pause, as AXI4 lets them: ready withheld, data and answers spaced, and all ports of
// a card behind one memory that serves whole bursts. Included by `cluster.cpp`.

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "traffic.h"

extern "C" {

struct Pauses {
	uint32_t seed;
	uint32_t aw, w, b, ar, r, all;  // a pause begins: shares of 2^32, in each cycle
	int32_t longest, longest_all;  // cycles of a pause: of a channel, of all that a card has
	int32_t order;  // see `Order`
	int32_t under_way;  // bursts of a port each way that are not answered, at most
	int32_t turns;  // bursts that one memory for all ports has taken on; 0: each port has its own
};

}  // extern "C"

namespace {

enum Order : int32_t { ADDRESS_FIRST, DATA_OFFERED, DATA_FIRST };  // of an address: what it waits for

// When a channel of a port pauses.
class Channel {
	uint32_t share = 0, longest = 1, state = 0;
	int64_t until = 0;
	bool holds = false;

	uint32_t draw() { return state = mixed(state + 0x9E3779B9u); }

public:
	void set(uint32_t of_time, int32_t at_most, uint32_t seed) {
		share = of_time, longest = std::max(at_most, 1), state = mixed(seed);
	}

	bool open(int64_t now) {  // once a cycle
		if (share && now >= until && draw() < share)
			until = now + 1 + draw() % longest;
		return now >= until;
	}

	// What is offered stays until it is taken.
	bool offers(bool any, bool open) { return holds = any && (holds || open); }

	bool holding() const { return holds; }

	void taken() { holds = false; }
};

// Whose burst one memory serves; what it has taken on, it serves in that order.
template <int N_PORTS>
class Turns {
	struct Turn { int port; bool writes; };
	std::deque<Turn> turns;
	bool granted[2 * N_PORTS] = {};  // turns whose address is to come: reads, writes of a port
	int last = 0;

	static int side(int port, bool writes) { return 2 * port + writes; }

public:
	bool expects(int port, bool writes) const { return granted[side(port, writes)]; }

	bool serves(int port, bool writes) const {
		return !turns.empty() && turns.front().port == port && turns.front().writes == writes;
	}

	void came(int port, bool writes) { granted[side(port, writes)] = false; }

	void served() { turns.pop_front(); }

	// The next one of those that wait, by turns. waiting : by `side`.
	void choose(const bool *waiting, size_t most) {
		for (int back = 1; back <= 2 * N_PORTS && turns.size() < most; back++) {
			int k = (last + back) % (2 * N_PORTS);
			if (waiting[k] && !granted[k]) {
				granted[k] = true, last = k;
				turns.push_back({k / 2, bool(k % 2)});
				return;
			}
		}
	}
};

}  // namespace
