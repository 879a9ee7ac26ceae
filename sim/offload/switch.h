// A switch's port towards a card: as models/egress.py, in bytes. Included by `cluster.cpp`.

#pragma once

#include <deque>
#include <queue>

#include "traffic.h"

namespace {

struct Arrival {  // a frame on its way
	int64_t at, order;
	Frame bytes;
	bool operator<(const Arrival &other) const {
		return at != other.at ? at > other.at : order > other.order;
	}
};

struct Egress {
	static constexpr int N_QUEUES = 8;
	std::priority_queue<Arrival> coming;
	std::deque<Frame> queues[N_QUEUES];  // 0 goes first
	int64_t used[N_QUEUES] = {};
	int64_t n_dropped = 0, n_marked = 0;
	double credit = 0;

	// Its class selector says the queue; what is not IPv4 is never dropped.
	void enqueue(Frame frame, int64_t limit, int64_t threshold) {
		bool ip = frame.size() >= 34 && get(frame, 12, 2) == 0x0800;
		int queue = ip ? 7 - (frame[15] >> 5) : 0, ecn = ip ? frame[15] & 3 : 3;
		int64_t depth = used[queue] + frame.size();
		if (ip && (depth > limit || (depth > threshold && ecn == 0))) {
			n_dropped++;
			return;
		}
		if (ip && depth > threshold && ecn != 3) {
			n_marked++;
			frame[15] |= 3;
			sign(frame);
		}
		used[queue] = depth;
		queues[queue].push_back(std::move(frame));
	}
	bool dequeue(Frame &frame) {
		for (int k = 0; k < N_QUEUES; k++)
			if (!queues[k].empty()) {
				frame = std::move(queues[k].front());
				queues[k].pop_front();
				used[k] -= frame.size();
				return true;
			}
		return false;
	}
};

}  // namespace
