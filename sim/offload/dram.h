// When a memory of DRAM gives and takes beats. Each channel has queues of bursts, open rows, and a
// bus that turns round between reads and writes. Included by `cluster.cpp`.

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

extern "C" {

struct Timing {  // cycles of the cards, and bytes
	int64_t n_channels, granule;  // bytes of a channel before the next one follows; no channels: ideal
	double rate;  // of a channel, a cycle
	int64_t row_bytes, n_banks, row_miss, turn, refresh_every, refresh;
};

}  // extern "C"

namespace {

class Dram {
	static constexpr size_t WINDOW = 8;  // bursts of a queue that may overtake each other
	static constexpr int64_t HELD = 4096;  // bytes of writes that wait at a channel, at most
	static constexpr double BATCH = 2048;  // bytes one way while the other way waits, at least

	struct Access { uint64_t address; int64_t left; int *served; };  // in bytes; beats, of a read

	struct Channel {
		std::deque<Access> queues[2];  // reads, writes
		int64_t held = 0;
		double credit = 0, moved = 0;  // bytes; moved: since the bus turned
		bool writes = false;
		int64_t turned_at = 0;
		std::vector<int64_t> rows, ready_at;
	};

	Timing timing{};
	int64_t beat = 0;
	std::vector<Channel> channels;

	Channel &channel(uint64_t address) {
		return channels[address / timing.granule % timing.n_channels];
	}

	int64_t row(uint64_t address) const {  // rows of all banks, one behind the other
		int64_t stripe = timing.granule * timing.n_channels;
		return (address / stripe * timing.granule + address % timing.granule) / timing.row_bytes;
	}

	// Reads go first, until writes fill half of what a channel holds; then a batch of those.
	void choose(Channel &c, int64_t now) {
		bool any = !c.queues[c.writes].empty(), others = !c.queues[!c.writes].empty();
		bool due = c.writes || c.held >= HELD / 2;
		if (others && (!any || (due && c.moved >= BATCH)))
			c.writes = !c.writes, c.moved = 0, c.turned_at = now + timing.turn;
	}

	void serve(Channel &c, int64_t now) {
		auto &queue = c.queues[c.writes];
		std::vector<bool> claimed(timing.n_banks);
		for (size_t k = 0; k < std::min(queue.size(), WINDOW); k++) {
			Access &access = queue[k];
			int64_t bank = row(access.address) % timing.n_banks;
			int64_t row = this->row(access.address) / timing.n_banks;
			if (!claimed[bank] && c.rows[bank] != row)
				c.rows[bank] = row, c.ready_at[bank] = now + timing.row_miss;
			claimed[bank] = true;
			if (c.rows[bank] != row || now < c.ready_at[bank] || now < c.turned_at || c.credit < beat)
				continue;
			c.credit -= beat, c.moved += beat;
			if (access.served)
				++*access.served;
			else
				c.held -= beat;
			access.address += beat;
			if (--access.left == 0)
				queue.erase(queue.begin() + k);
			return;
		}
	}

public:
	void set(const Timing &now, int64_t n_bytes) {
		timing = now, beat = n_bytes;
		Channel one;
		one.rows.assign(std::max<int64_t>(timing.n_banks, 1), -1);
		one.ready_at.assign(one.rows.size(), 0);
		channels.assign(timing.n_channels, one);
	}

	void cycle(int64_t now) {
		for (size_t k = 0; k < channels.size(); k++) {
			Channel &c = channels[k];
			int64_t phase = now + int64_t(k) * timing.refresh_every / timing.n_channels;
			if (timing.refresh_every && phase % timing.refresh_every < timing.refresh)
				continue;
			choose(c, now);
			c.credit = std::min(c.credit + timing.rate, double(beat) + timing.rate);
			for (double before = -1; c.credit >= beat && c.credit != before;)
				before = c.credit, serve(c, now);
		}
	}

	// A burst to be read; `served` counts its beats.
	void read(uint64_t address, int length, int *served) {
		if (channels.empty())
			*served = length;
		else
			channel(address).queues[0].push_back({address, length, served});
	}

	bool takes(uint64_t address) { return channels.empty() || channel(address).held + beat <= HELD; }

	void write(uint64_t address) {  // a beat that it takes
		if (channels.empty())
			return;
		Channel &c = channel(address);
		c.held += beat;
		auto &queue = c.queues[1];
		if (!queue.empty() && queue.back().address + queue.back().left * beat == address &&
		    address % timing.granule)
			queue.back().left++;
		else
			queue.push_back({address, 1, nullptr});
	}
};

}  // namespace
