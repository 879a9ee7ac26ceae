// Traffic that is not the cards' own: frames of other programs, checked where they end. Included by
// `cluster.cpp`.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using Frame = std::vector<uint8_t>;

inline uint32_t mixed(uint32_t x) {  // MurmurHash3's finalizer, as in models/offload_cluster.py
	x = (x ^ x >> 16) * 0x85EBCA6Bu;
	x = (x ^ x >> 13) * 0xC2B2AE35u;
	return x ^ x >> 16;
}

inline void put(Frame &frame, size_t at, uint32_t value, int n) {
	for (int k = 0; k < n; k++)
		frame[at + k] = value >> 8 * (n - 1 - k);
}

inline uint32_t get(const Frame &frame, size_t at, int n) {
	uint32_t value = 0;
	for (int k = 0; k < n; k++)
		value = value << 8 | frame[at + k];
	return value;
}

constexpr size_t WIRE_MORE = 24;  // FCS, preamble, gap
constexpr uint32_t LOCAL = 0x88B5;  // EtherType for experiments

// Frame number `n` of the program at `from`, for the one at `to`.
inline Frame foreign_frame(int from, int to, uint32_t n, int least, int most) {
	uint32_t h = mixed(mixed(uint32_t(from) << 16 | to) ^ n);
	Frame frame(least + h % uint32_t(most - least + 1));
	put(frame, 0, 0x0200, 2), put(frame, 2, to, 4);
	put(frame, 6, 0x0200, 2), put(frame, 8, from, 4);
	put(frame, 12, LOCAL, 2), put(frame, 14, n, 4);
	for (size_t k = 18; k < frame.size(); k++)
		frame[k] = (h = h * 1664525u + 1013904223u) >> 24;
	return frame;
}

// One port's programs: what they send to one other port, and what came from there.
struct Programs {
	int self = 0, peer = -1, least = 60, most = 1514;
	double load = 0, tokens = 0;  // share of the link; bytes that may be sent
	uint32_t n_made = 0, n_good = 0, n_wrong = 0;
	std::vector<int64_t> left_at;  // when the last byte of each was on the link

	bool due(double link_bytes) {
		tokens = std::min(tokens + load * link_bytes, 0.0);
		return load > 0 && tokens >= 0;
	}
	Frame make() {
		Frame frame = foreign_frame(self, peer, n_made++, least, most);
		tokens -= frame.size() + WIRE_MORE;
		return frame;
	}
	void got(const Frame &frame) {
		if (peer >= 0 && frame == foreign_frame(peer, self, n_good, least, most))
			n_good++;
		else
			n_wrong++;
	}
};

// Writes the IPv4 header's checksum, as the rest of the header asks for.
inline void sign(Frame &frame) {
	if (frame.size() < 34)
		return;
	put(frame, 24, 0, 2);
	uint32_t sum = 0;
	for (int k = 14; k < 34; k += 2)
		sum += get(frame, k, 2);
	sum = (sum & 0xFFFF) + (sum >> 16);
	put(frame, 24, ~(sum + (sum >> 16)) & 0xFFFF, 2);
}

}  // namespace
