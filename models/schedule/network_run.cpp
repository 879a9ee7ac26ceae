// Compiled twin of the event loop in network_model.py and of worms.py: the same events in the same
// order, the same arithmetic in doubles, so the same cycles. Names are those of the Python files,
// which explain them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "loop.h"

namespace {

struct Own {  // as network_run.py lays it out
	int64_t n_places, n_pools;
	int64_t window, together, turn;
	double start, receive, credit;
	const int32_t *pools;  // the buffer behind each hop
	const double *rate;  // of paths
	const double *latency;  // of places
	double *room;  // of places
	const double *capacity;  // the same, at the start
	const double *credits, *round_trip;  // of places
	const uint8_t *mixed;  // of places
	const double *pool_size, *pool_grain;  // of buffers
	const int64_t *queue_start;  // n_places + 1: where a place's flags begin
	const int32_t *position;  // of messages
	double *cycles;
	const double *wire;
	const int64_t *lead, *adds, *adding, *merging, *sending, *work, *first_block;  // of rows
	const int64_t *n_slots;  // of nodes
};

struct Input : Counts, Own, Traffic {};

enum Kind : int32_t { RELEASE, PART, READY, HEAD, DONE, FINAL };

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

using Shares = std::deque<Share>;

struct Stage {
	int64_t m;
	int32_t hop, place, pool;
	double grain, left;
	Shares supply = {}, line = {};
	double share = 0, pace = 0, at = 0, have = 0, window = 0, most = 0, debt = 0, due = -1;
	bool begun = false, clear = false, on = false, halted = false;
};

constexpr double LEAST = 1e-6;  // bytes that are none

void insert(Shares &line, double since, double lasts, double part, double grain) {
	auto at = line.end();
	while (at != line.begin() && std::prev(at)->since > since) --at;
	if (at != line.begin()) {
		auto &[first, before, size] = *std::prev(at);
		double end = first + before;
		bool small = (size < grain || part < grain) && since <= end + 1;
		if (small || (since == end && before * part == lasts * size)) {
			before = std::max(end, since + lasts) - first, size += part;
			return;
		}
	}
	line.insert(at, {since, lasts, part});
}

void settle(Shares &line, double now) {
	double free = 0;
	while (!line.empty() && line.front().since + line.front().lasts <= now) {
		free += line.front().bytes;
		line.pop_front();
	}
	if (free) line.push_front({now, 0, free});
}

void own(Stage &stage, double since, double lasts, double part) {
	insert(stage.line, since, lasts, part, stage.grain);
	stage.have += part;
}

double draw(Stage &stage, double size) {
	double drawn = 0;
	while (!stage.line.empty() && drawn < size) {
		auto [since, lasts, part] = stage.line.front();
		stage.line.pop_front();
		double take = std::min(part, size - drawn);
		if (take < part) {
			double used = lasts * (take / part);
			stage.line.push_front({since + used, lasts - used, part - take});
		}
		drawn += take;
	}
	stage.have -= drawn;
	return drawn;
}

template <typename T> using Least = std::priority_queue<T, std::vector<T>, std::greater<T>>;

struct Run {
	const Input &in;
	Output &out;
	std::vector<double> speed;
	std::vector<std::deque<std::pair<int64_t, int32_t>>> waiting;
	std::vector<std::deque<Stage *>> halted;
	std::vector<Least<std::pair<int64_t, int64_t>>> ready;
	std::vector<int64_t> head_of, parked, turn;
	std::vector<uint8_t> started;
	std::vector<Shares> spent, free;
	std::vector<double> spare, again;
	std::vector<std::vector<Stage *>> sending;
	std::unordered_map<int64_t, std::vector<Stage>> worms;
	std::vector<int64_t> gone;  // of these, in this event
	std::vector<double> turns, backlog, summing, adder;
	Least<Event> events;

	Run(const Input &in, Output &out)
	    : in(in), out(out), speed(in.n_messages), waiting(in.n_places), halted(in.n_places),
	      ready(in.n_places), head_of(in.n_places), parked(in.n_nodes),
	      turn(in.turn_start, in.turn_start + in.n_nodes),
	      started(in.queue_start[in.n_places]), spent(in.n_places), free(in.n_pools),
	      spare(in.pool_size, in.pool_size + in.n_pools), again(in.n_pools, -1),
	      sending(in.n_pools), turns(in.n_nodes), backlog(in.n_nodes), summing(in.n_nodes),
	      adder(in.n_nodes) {
		for (int64_t p = 0; p < in.n_places; p++)
			if (in.credits[p]) spent[p].push_back({0, 0, in.credits[p]});
		for (int64_t p = 0; p < in.n_pools; p++) free[p].push_back({0, 0, in.pool_size[p]});
		for (int64_t m = 0; m < in.n_messages; m++) speed[m] = in.rate[in.path_of[m]];
		out = {};
	}

	int64_t n_hops(int64_t m) {
		return in.path_start[in.path_of[m] + 1] - in.path_start[in.path_of[m]];
	}

	int32_t pool_of(int64_t m, int64_t hop) {
		return in.pools[in.path_start[in.path_of[m]] + hop];
	}

	int32_t place_of(int64_t m, int64_t hop) {
		return in.hops[in.path_start[in.path_of[m]] + hop];
	}

	void leave(int64_t m) {
		int32_t place = place_of(m, 0);
		uint8_t *flags = started.data() + in.queue_start[place];
		flags[in.position[m]] = 1;
		while (flags[head_of[place]]) head_of[place]++;
	}

	double take(int32_t v, int64_t row, double now) {
		double begin = std::max(now, turns[v]);
		turns[v] = begin + in.first_block[row];
		backlog[v] = std::max(backlog[v], now) + in.work[row];
		return begin;
	}

	double add(int32_t v, int64_t cycles, double now) {
		return adder[v] = std::max(adder[v], now) + cycles;
	}

	void merge(int64_t m, double now) {
		for (int64_t i = in.feed_start[m]; i < in.feed_start[m + 1]; i++) {
			int64_t row = in.feeds[i];
			if (in.merging[row] && in.need[row] > in.feed_count[i])
				add(in.node[row], in.merging[row] * in.feed_count[i], now - in.cycles[m]);
		}
	}

	void read(int64_t m, double now, bool idle) {
		int64_t row = in.message_row[m];
		int32_t v = in.node[row];
		double begin = take(v, row, now);
		double share = std::min(backlog[v] - now, double(in.work[row] * in.n_slots[v]));
		if (in.adding[row]) share = std::max(share, add(v, in.adding[row], now) - now);
		in.cycles[m] = std::max(in.cycles[m], share) + (idle ? begin - now : 0);
	}

	void serve(int32_t place, double now, int64_t fresh = -1) {
		auto &stopped = halted[place];
		while (!stopped.empty()) {
			Stage &stage = *stopped.front();
			if (in.room[place] + 1e-9 < stage.share) return;
			stopped.pop_front();
			stage.halted = false;
			in.room[place] -= stage.share;
			stage.on = true;
			go(stage, now);
		}
		auto &line = waiting[place];
		std::vector<int32_t> without;
		for (size_t i = 0; i < line.size();) {
			auto [m, hop] = line[i];
			if (in.room[place] + 1e-9 < speed[m] / 2) return;
			int32_t pool = pool_of(m, hop);
			if (std::find(without.begin(), without.end(), pool) != without.end() ||
			    !affords(pool, m, place, now)) {
				if (!in.mixed[place]) return;
				without.push_back(pool);
				i++;
				continue;
			}
			line.erase(line.begin() + i);
			start(m, hop, now, false);
		}
		auto &mine = ready[place];
		while (!mine.empty()) {
			auto [at, m] = mine.top();
			if (in.room[place] + 1e-9 < speed[m] / 2) return;
			if (at >= head_of[place] + in.window) return;
			if (n_hops(m) > 1 && !affords(pool_of(m, 0), m, place, now)) return;
			mine.pop();
			leave(m);
			start(m, 0, now, m == fresh);
		}
	}

	bool affords(int32_t pool, int64_t m, int32_t place, double now) {
		double least = std::min(std::min(in.wire[m], speed[m]), in.pool_size[pool]);
		if (spare[pool] + LEAST < least) return false;
		double since = free[pool].front().since;
		if (since <= now) return true;
		call(pool, place, since);
		return false;
	}

	void call(int32_t pool, int32_t place, double time) {
		if (again[pool] == time) return;
		again[pool] = time;
		events.push({time, RELEASE, place, -1, 0});
	}

	void start(int64_t m, int32_t hop, double now, bool idle) {
		int32_t place = place_of(m, hop);
		int64_t n = n_hops(m);
		if (!hop) read(m, now, idle);
		if (in.room[place] + 1e-9 < speed[m]) {
			in.cycles[m] = std::ceil(in.cycles[m] * speed[m] / in.room[place]);
			speed[m] = in.room[place];
		}
		double time = in.cycles[m], share = speed[m], size = in.wire[m];
		in.room[place] -= share;
		in.busy[place] += time * share;
		if (n == 1) {
			if (in.credits[place]) time = spend(place, size, now, time);
			events.push({now + time, RELEASE, place, m, share});
			events.push({now + in.latency[place] + time + in.receive, DONE, 0, m, 0});
			return;
		}
		if (!hop) {
			auto &stages = worms[m];
			for (int32_t i = 0; i < n; i++)
				stages.push_back({m, i, place_of(m, i), pool_of(m, i),
				                  in.pool_grain[pool_of(m, i)], size});
			stages[0].supply.push_back({now, 0, size});
		}
		Stage &stage = worms[m][hop];
		stage.begun = stage.on = true;
		stage.at = now, stage.pace = time / size, stage.share = share;
		int32_t pool = stage.pool;
		auto &line = free[pool];
		double most = in.pool_size[pool] * std::min(share / in.capacity[place], 1.0);
		stage.most = most < size ? std::min(size, std::max(1.0, std::floor(most))) : size;
		sending[pool].push_back(&stage);
		settle(line, now);
		while (!line.empty() && stage.window < stage.most) {
			auto [since, lasts, part] = line.front();
			line.pop_front();
			double take = std::min(part, stage.most - stage.window);
			if (take < part) {
				double used = lasts * (take / part);
				line.push_front({since + used, lasts - used, part - take});
				lasts = used;
			}
			spare[pool] -= take;
			stage.window += take;
			own(stage, since, lasts, take);
		}
		look_ahead(m, hop, now);
		go(stage, now);
	}

	double spend(int32_t place, double size, double now, double time) {
		auto &line = spent[place];
		double pace = time / size;
		settle(line, now);
		double left = size, at = now;
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

	void look_ahead(int64_t m, int32_t hop, double now) {
		auto &stages = worms[m];
		for (; hop >= 0; hop--) {
			Stage &stage = stages[hop];
			if (!stage.begun || stage.clear || stage.left <= LEAST) return;
			if (hop + 1 == int32_t(stages.size())) {
				stage.clear = std::isinf(in.pool_size[stage.pool]);
			} else {
				Stage &ahead = stages[hop + 1];
				double trip = (2 * in.latency[stage.place] + 1 + in.credit) / stage.pace;
				bool enough = stage.window + LEAST >= std::min(trip, in.wire[m]);
				stage.clear = ahead.clear && enough && ahead.pace <= stage.pace * (1 + 1e-12);
			}
			if (!stage.clear) return;
			go(stage, now);
		}
	}

	void go(Stage &stage, double now) {
		int32_t place = stage.place;
		while (stage.left > LEAST && !stage.supply.empty() &&
		       (!stage.line.empty() || stage.debt)) {
			double begin = std::max(stage.at, stage.supply.front().since);
			if (!stage.debt) begin = std::max(begin, stage.line.front().since);
			if (begin > now) {
				if (begin > stage.at && in.mixed[place] && !give_way(stage, now)) begin = stage.at;
				look_at(stage, begin);
				return;
			}
			if (!stage.on) {
				if (stage.halted) return;
				if (in.room[place] + 1e-9 < stage.share) {
					stage.halted = true;
					halted[place].push_back(&stage);
					return;
				}
				in.room[place] -= stage.share;
				stage.on = true;
			}
			pass(stage, now);
		}
		if (stage.left > LEAST && in.mixed[place] && !give_way(stage, now))
			look_at(stage, stage.at);
	}

	void look_at(Stage &stage, double time) {
		if (stage.due == time) return;
		stage.due = time;
		events.push({time, PART, stage.hop, stage.m, 0});
	}

	bool give_way(Stage &stage, double now) {
		if (stage.at > now) return false;
		if (stage.on) {
			stage.on = false;
			events.push({now, RELEASE, stage.place, stage.m, stage.share});
		}
		return true;
	}

	void pass(Stage &stage, double now) {
		int64_t m = stage.m;
		int32_t hop = stage.hop;
		auto [since, lasts, part] = stage.supply.front();
		stage.supply.pop_front();
		double end = since + lasts;
		if (stage.clear) {
			stage.debt += part - draw(stage, part);
		} else {
			auto [first, until, credit] = stage.line.front();
			stage.line.pop_front();
			if (credit < part) {
				double used = lasts * (credit / part);
				stage.supply.push_front({since + used, lasts - used, part - credit});
				end = since + used, part = credit;
			} else if (part < credit) {
				double used = until * (part / credit);
				stage.line.push_front({first + used, until - used, credit - part});
				until = used;
			}
			stage.have -= part;
			end = std::max(end, first + until);
		}
		end = std::max(end, now + part * stage.pace);
		bool fresh = stage.left == in.wire[m];
		stage.left -= part;
		stage.at = end;
		auto &stages = worms[m];
		bool last = hop + 1 == int32_t(stages.size()), ended = stage.left <= LEAST;
		if (ended) finish(stage, last, now);
		if (last) {
			if (!std::isinf(in.pool_size[stage.pool]))
				give(stage, now + in.round_trip[stage.place], end - now, part, now);
		} else {
			Stage &ahead = stages[hop + 1];
			double comes = now + in.latency[stage.place] + 1;
			insert(ahead.supply, comes, end - now, part, in.pool_grain[stage.pool]);
			if (fresh) events.push({comes, HEAD, hop + 1, m, 0});
			if (ahead.begun) go(ahead, now);
		}
		if (hop) {
			Stage &back = stages[hop - 1];
			double from = now + in.latency[back.place] + in.credit;
			give(back, from, end - now, part, now);
		}
		if (ended && last) gone.push_back(m);
	}

	void finish(Stage &stage, bool last, double now) {
		double end = now + std::ceil(stage.at - now - 1e-6);
		events.push({end, RELEASE, stage.place, stage.m, stage.share});
		if (last)
			events.push({end + in.latency[stage.place] + in.receive, DONE, 0, stage.m, 0});
		auto &those = sending[stage.pool];
		those.erase(std::find(those.begin(), those.end(), &stage));
		while (!stage.line.empty()) {
			Share share = stage.line.front();
			stage.line.pop_front();
			share_out(stage.pool, stage.place, share, now);
		}
	}

	void give(Stage &stage, double since, double lasts, double part, double now) {
		if (stage.debt) {
			double paid = std::min(stage.debt, part);
			stage.debt -= paid;
			double used = lasts * (paid / part);
			since += used, lasts -= used, part -= paid;
		}
		double keep = std::min(part, std::max(stage.left - stage.have, 0.0));
		double used = part ? lasts * (keep / part) : 0;
		if (keep > 0) own(stage, since, used, keep);
		if (part > keep) {
			stage.window -= part - keep;
			share_out(stage.pool, stage.place, {since + used, lasts - used, part - keep}, now);
		}
		if (keep > 0) go(stage, now);
	}

	void share_out(int32_t pool, int32_t place, Share share, double now) {
		auto [since, lasts, part] = share;
		auto those = sending[pool];
		for (Stage *one : those) {
			if (part <= 0) return;
			Stage &stage = *one;
			double take =
			    std::min(std::min(part, stage.most - stage.window), stage.left - stage.have);
			if (take <= 0) continue;
			double used = lasts * (take / part);
			own(stage, since, used, take);
			stage.window += take;
			since += used, lasts -= used, part -= take;
			look_ahead(stage.m, stage.hop, now);
			go(stage, now);
		}
		if (part > 0) {
			insert(free[pool], since, lasts, part, in.pool_grain[pool]);
			spare[pool] += part;
			if (!waiting[place].empty() || !ready[place].empty())
				call(pool, place, std::max(since, now));
		}
	}

	void wake(int64_t row, double now) {
		if (in.together) return issue_in_turn(*this, row, now);
		issue(row, now);
	}

	void issue(int64_t row, double now) {
		int32_t v = in.node[row];
		parked[v] -= in.wait[row] * in.row_floats[row];
		if (in.terminal[row] >= 0) {
			double begin = take(v, row, now);
			if (in.turn) {
				begin = std::max(begin, summing[v]);
				summing[v] = begin + in.lead[row] + in.adds[row];
			}
			double end = begin + in.lead[row] + in.adds[row];
			if (in.adding[row]) end = std::max(end, add(v, in.adding[row], now) + in.lead[row]);
			out.finish = std::max(out.finish, end);
			int64_t over = std::min(in.adds[row], in.sending[row]);
			events.push({end - double(over), FINAL, 0, in.terminal[row], 0});
		}
		for (int64_t m = in.send_start[row]; m < in.send_start[row + 1]; m++) {
			if (in.cycles[m]) {
				events.push({now + in.lead[row], READY, 0, m, 0});
			} else {
				leave(m);
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
			} else if (event.kind == PART) {
				auto found = worms.find(m);
				if (found == worms.end()) continue;
				Stage &stage = found->second[event.place];
				if (stage.due != now) continue;
				stage.due = -1;
				go(stage, now);
			} else if (event.kind == READY) {
				int32_t first = place_of(m, 0);
				ready[first].push({in.position[m], m});
				serve(first, now, m);
			} else if (event.kind == FINAL) {
				supply(*this, m, now);
			} else if (event.kind == HEAD) {
				int32_t ahead = place_of(m, event.place);
				waiting[ahead].push_back({m, event.place});
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
					merge(m, now);
				}
				supply(*this, m, now);
			}
			for (int64_t one : gone) worms.erase(one);
			gone.clear();
		}
	}
};

}  // namespace

extern "C" void network_run(const Input *in, Output *out) { Run(*in, *out).run(); }
