// What the event loops beside this file have in common: traffic as compiled_loop.py lays it out, and
// rows that wait for what comes.
#include <cstdint>

struct Counts {
	int64_t n_messages, n_rows, n_nodes, n_free;
};

struct Traffic {
	const int64_t *path_start;  // n_paths + 1
	const int32_t *hops;  // of each path
	const int32_t *path_of, *dst, *message_row;  // of messages
	const uint8_t *reduces;
	const int64_t *row_floats, *wait;
	int64_t *need;
	const int32_t *terminal;  // source of a terminal row, or -1
	const int32_t *node;
	const int64_t *send_start, *feed_start;
	const int32_t *feeds, *feed_count;
	const int64_t *turn_start;  // n_nodes + 1
	const int64_t *free_rows;
	double *busy;  // of links or places: bytes that went
	int (*progress)(double share);
};

struct Output {
	double finish;
	int64_t delivered, parked;
	int64_t overruns;  // frames that found no room
};

// A message, or a terminal row, is there: rows wait for less.
template <class Loop> void supply(Loop &loop, int64_t source, double now) {
	for (int64_t i = loop.in.feed_start[source]; i < loop.in.feed_start[source + 1]; i++) {
		int64_t row = loop.in.feeds[i];
		loop.in.need[row] -= loop.in.feed_count[i];
		if (!loop.in.need[row]) loop.wake(row, now);
	}
}

// A row has nothing to wait for: it leaves with those behind it, if its node's turn has come to it.
template <class Loop> void issue_in_turn(Loop &loop, int64_t row, double now) {
	int32_t v = loop.in.node[row];
	if (row != loop.turn[v]) return;
	for (; row < loop.in.turn_start[v + 1] && !loop.in.need[row]; row = loop.turn[v]) {
		loop.turn[v] = row + 1;
		loop.issue(row, now);
	}
}
