// Links between the switches of a network: each carries one frame after the other, at its speed,
// and has room for all that wait. Included by `cluster.cpp`.

#pragma once

#include <algorithm>
#include <cmath>
#include <queue>
#include <vector>

#include "switch.h"

namespace {

struct Port;

struct Transit {  // a frame that comes to the next link of its way
	Arrival frame;
	const std::vector<int32_t> *way;
	size_t step;
	Port *port;  // behind the way's last switch
	bool operator<(const Transit &other) const { return frame < other.frame; }
};

struct Fabric {
	size_t n_nodes = 0;
	std::vector<double> speeds, free_at;  // of ports; cycles
	std::vector<std::vector<int32_t>> ways;  // from node v to u
	std::priority_queue<Transit> coming;

	const std::vector<int32_t> &way(size_t from, size_t to) const {
		static const std::vector<int32_t> none;
		return ways.empty() ? none : ways[from * n_nodes + to];
	}
	void enter(Arrival frame, const std::vector<int32_t> &way, Port &port) {
		coming.push({std::move(frame), &way, 0, &port});
	}
	// Frames that are at a link by now take it, in the order in which they came: each ends there
	// when it has come whole, and not before the link has carried what was there before and it.
	// leave(port, time, bytes) has those behind their last switch.
	template <typename Leave>
	void pass(int64_t now, double port_bytes, int64_t delay, Leave leave) {
		while (!coming.empty() && coming.top().frame.at <= now) {
			Transit one = coming.top();
			coming.pop();
			int32_t link = (*one.way)[one.step++];
			double cycles = (one.frame.bytes.size() + WIRE_MORE) / (port_bytes * speeds[link]);
			free_at[link] = std::max(double(one.frame.at), free_at[link] + cycles);
			one.frame.at = int64_t(std::ceil(free_at[link])) + delay;
			if (one.step < one.way->size())
				coming.push(std::move(one));
			else
				leave(*one.port, one.frame.at, std::move(one.frame.bytes));
		}
	}
};

}  // namespace
