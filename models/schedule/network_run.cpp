// Compiled twin of the event loop in network_model.py: the same events in the same order, the same
// arithmetic in doubles, so the same cycles. Names are those of the Python file, which explains them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace {

struct Input {  // as network_run.py lays it out
	int64_t n_messages, n_rows, n_places, n_nodes, n_free;
	int64_t window, together, turn;
	double start, receive;
	const int64_t *path_start;  // n_paths + 1
	const int32_t *hops;
	const double *rate;  // of paths
	const int64_t *held;  // of paths
	const double *latency;  // of places
	double *room;  // of places
	const double *credits, *round_trip;  // of places
	const int64_t *queue_start;  // n_places + 1: where a place's flags begin
	const int32_t *path_of, *dst, *position, *message_row;
	const uint8_t *reduces;
	double *cycles;  // of messages
	const double *wire;  // of messages
	const int64_t *lead, *adds, *sending, *work, *first_block, *row_floats, *wait;  // of rows
	int64_t *need;
	const int32_t *terminal;  // source of a terminal row, or -1
	const int32_t *node;
	const int64_t *send_start, *feed_start;
	const int32_t *feeds, *feed_count;
	const int64_t *turn_start;  // n_nodes + 1
	const int64_t *n_slots;
	const int64_t *free_rows;
	double *busy;  // of places: bytes that went
	int (*progress)(double share);
};

struct Output {
	double finish;
	int64_t delivered, parked;
};

enum Kind : int32_t { RELEASE, READY, HEAD, DONE, FINAL };

struct Event {
	double time;
	int32_t kind, place;
	int64_t m;
	double mine;
	bool operator>(const Event &other) const {
		return std::tie(time, kind, m, place, mine) >
		       std::tie(other.time, other.kind, other.m, other.place, other.mine);
	}
};

struct Share {
	double since, lasts, bytes;
};

struct Worm {
	int64_t hop;
	double since, mine, lasts;
};

template <typename T> using Least = std::priority_queue<T, std::vector<T>, std::greater<T>>;

struct Run {
	const Input &in;
	Output &out;
	std::vector<double> speed;
	std::vector<std::deque<int64_t>> waiting;
	std::vector<Least<std::pair<int64_t, int64_t>>> ready;
	std::vector<int64_t> head_of, parked, turn;
	std::vector<uint8_t> started;
	std::vector<std::deque<Share>> spent;
	std::unordered_map<int64_t, Worm> worms;
	std::vector<double> turns, backlog, summing;
	Least<Event> events;

	Run(const Input &in, Output &out)
	    : in(in), out(out), speed(in.n_messages), waiting(in.n_places), ready(in.n_places),
	      head_of(in.n_places), parked(in.n_nodes),
	      turn(in.turn_start, in.turn_start + in.n_nodes),
	      started(in.queue_start[in.n_places]), spent(in.n_places), turns(in.n_nodes),
	      backlog(in.n_nodes), summing(in.n_nodes) {
		for (int64_t p = 0; p < in.n_places; p++)
			if (in.credits[p]) spent[p].push_back({0, 0, in.credits[p]});
		for (int64_t m = 0; m < in.n_messages; m++) speed[m] = in.rate[in.path_of[m]];
		out = {};
	}

	int32_t place_of(int64_t m, int64_t hop) {
		return in.hops[in.path_start[in.path_of[m]] + hop];
	}

	void leave(int32_t place, int64_t at) {
		uint8_t *flags = started.data() + in.queue_start[place];
		flags[at] = 1;
		while (flags[head_of[place]]) head_of[place]++;
	}

	double take(int32_t v, int64_t row, double now) {
		double begin = std::max(now, turns[v]);
		turns[v] = begin + in.first_block[row];
		backlog[v] = std::max(backlog[v], now) + in.work[row];
		return begin;
	}

	double spend(int32_t place, int64_t m, double now, double time) {
		auto &line = spent[place];
		double pace = time / in.wire[m], free = 0;
		while (!line.empty() && line.front().since + line.front().lasts <= now) {
			free += line.front().bytes;
			line.pop_front();
		}
		if (free) line.push_front({now, 0, free});
		double left = in.wire[m], at = now;
		while (left > 0) {
			auto [since, lasts, share] = line.front();
			line.pop_front();
			double part = std::min(left, share);
			if (part < share) {
				double used = lasts * (part / share);
				line.push_front({since + used, lasts - used, share - part});
				lasts = used;
			}
			double begin = std::max(at, since);
			at = std::max(begin + part * pace, since + lasts);
			line.push_back({begin + in.round_trip[place], at - begin, part});
			left -= part;
		}
		return std::ceil(at - now - 1e-6);
	}

	void start(int64_t m, int64_t hop, double now, bool idle) {
		int32_t path = in.path_of[m], place = place_of(m, hop);
		if (!hop) {
			int64_t row = in.message_row[m];
			int32_t v = in.node[row];
			double begin = take(v, row, now);
			double share = std::min(backlog[v] - now, double(in.work[row] * in.n_slots[v]));
			in.cycles[m] = std::max(in.cycles[m], share) + (idle ? begin - now : 0);
		}
		if (in.room[place] + 1e-9 < speed[m]) {
			in.cycles[m] = std::ceil(in.cycles[m] * speed[m] / in.room[place]);
			speed[m] = in.room[place];
		}
		double time = in.cycles[m], mine = speed[m];
		in.room[place] -= mine;
		in.busy[place] += time * mine;
		if (in.credits[place]) time = spend(place, m, now, time);
		if (hop) time = std::max(time, worms[m].lasts);
		bool last = hop + 1 == in.path_start[path + 1] - in.path_start[path];
		bool fits = time <= in.held[path];
		if (last)
			events.push({now + in.latency[place] + time + in.receive, DONE, 0, m, 0});
		else
			events.push({now + in.latency[place] + 1, HEAD, 0, m, 0});
		if (last || fits) events.push({now + time, RELEASE, place, m, mine});
		if (hop && !fits) {
			int32_t before = place_of(m, hop - 1);
			const Worm &worm = worms[m];
			double tail = std::max(worm.since + time,
			                       now - in.latency[before] + time - in.held[path]);
			events.push({std::max(tail, now), RELEASE, before, m, worm.mine});
		}
		if (!last)
			worms[m] = {hop, now, mine, time};
		else if (hop)
			worms.erase(m);
	}

	void serve(int32_t place, double now, int64_t fresh = -1) {
		auto &line = waiting[place];
		auto &mine = ready[place];
		while (!line.empty() && in.room[place] + 1e-9 >= speed[line.front()] / 2) {
			int64_t m = line.front();
			line.pop_front();
			start(m, worms[m].hop + 1, now, false);
		}
		while (!mine.empty() && line.empty()) {
			auto [at, m] = mine.top();
			if (in.room[place] + 1e-9 < speed[m] / 2 || at >= head_of[place] + in.window) break;
			mine.pop();
			leave(place, at);
			start(m, 0, now, m == fresh);
		}
	}

	void supply(int64_t source, double now) {
		for (int64_t i = in.feed_start[source]; i < in.feed_start[source + 1]; i++) {
			int64_t row = in.feeds[i];
			in.need[row] -= in.feed_count[i];
			if (!in.need[row]) wake(row, now);
		}
	}

	void wake(int64_t row, double now) {
		if (!in.together) return issue_row(row, now);
		int32_t v = in.node[row];
		if (row != turn[v]) return;
		for (; row < in.turn_start[v + 1] && !in.need[row]; row = turn[v]) {
			turn[v] = row + 1;
			issue_row(row, now);
		}
	}

	void issue_row(int64_t row, double now) {
		int32_t v = in.node[row];
		parked[v] -= in.wait[row] * in.row_floats[row];
		if (in.terminal[row] >= 0) {
			double begin = take(v, row, now);
			if (in.turn) {
				begin = std::max(begin, summing[v]);
				summing[v] = begin + in.lead[row] + in.adds[row];
			}
			begin += in.lead[row];
			out.finish = std::max(out.finish, begin + in.adds[row]);
			double after = double(std::max<int64_t>(0, in.adds[row] - in.sending[row]));
			events.push({begin + after, FINAL, 0, in.terminal[row], 0});
		}
		for (int64_t m = in.send_start[row]; m < in.send_start[row + 1]; m++) {
			if (in.cycles[m]) {
				events.push({now + in.lead[row], READY, 0, m, 0});
			} else {
				leave(place_of(m, 0), in.position[m]);
				events.push({now, DONE, 0, m, 0});
			}
		}
	}

	void run() {
		for (int64_t i = 0; i < in.n_free; i++) wake(in.free_rows[i], in.start);
		while (!events.empty()) {
			Event event = events.top();
			events.pop();
			double now = event.time;
			int64_t m = event.m;
			if (event.kind == RELEASE) {
				in.room[event.place] += event.mine;
				serve(event.place, now);
			} else if (event.kind == READY) {
				int32_t first = place_of(m, 0);
				ready[first].push({in.position[m], m});
				serve(first, now, m);
			} else if (event.kind == FINAL) {
				supply(m, now);
			} else if (event.kind == HEAD) {
				int32_t ahead = place_of(m, worms[m].hop + 1);
				waiting[ahead].push_back(m);
				serve(ahead, now);
			} else {
				if (++out.delivered % 50'000 == 0)
					if (in.progress(double(out.delivered) / double(in.n_messages))) return;
				if (!in.reduces[m]) {
					out.finish = std::max(out.finish, now);
				} else {
					int32_t v = in.dst[m];
					parked[v] += in.row_floats[in.message_row[m]];
					out.parked = std::max(out.parked, parked[v]);
				}
				supply(m, now);
			}
		}
	}
};

}  // namespace

extern "C" void network_run(const Input *in, Output *out) { Run(*in, *out).run(); }
