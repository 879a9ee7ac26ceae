// Event loop of `gradnic.models.schedule.card_run`, which explains it: offload cards, packet by packet.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <queue>
#include <tuple>
#include <vector>

namespace {

struct Input {  // as card_run.py lays it out
	int64_t n_messages, n_rows, n_links, n_nodes, n_free;
	int64_t packet, head, between, control, run, places, chunk;  // floats, bytes, packets, floats
	int64_t n_bytes, port_bytes, store;  // of a beat, and at a port; beats of a port's store
	int64_t locate, probe, per_probed, turn, first, row, answer, own, end;  // `CardTimes`
	int64_t cut, before, look, step, ahead, compare, spread;
	int64_t seed;
	const int64_t *path_start;  // n_paths + 1
	const int32_t *hops, *back;  // of each path: links, and those of the way back
	const double *speed, *latency;  // of links: bytes a cycle, cycles
	const int32_t *source, *path_of, *dst;  // of links: the node they leave; of messages
	const uint8_t *reduces;
	const int64_t *row_floats, *wait;
	int64_t *need;
	const int32_t *terminal;  // source of a terminal row, or -1
	const int32_t *node, *message_row;
	const int64_t *send_start, *feed_start;
	const int32_t *feeds, *feed_count;
	const int64_t *turn_start;  // n_nodes + 1
	const int64_t *free_rows;
	double *busy;  // of links: bytes that went
	int (*progress)(double share);
};

struct Output {
	double finish;
	int64_t delivered, parked;
};

enum Kind : int8_t { ENTER, WALK, READ, MADE, ANSWER, SENT, HOP, LOCATE, GOT, FREE, FINAL, DONE };

struct Run {
	int64_t row, m;  // m < 0: of a terminal row, to nobody
	int64_t n, last;  // packets, floats of the last one
	double due;
};

struct Frame {
	enum : int8_t { DATA, PROBE, STOP } kind;
	int64_t row, m, floats, place;  // of a PROBE: floats is the packets that it asks for
	double since;  // in its port's store
};

struct Event {
	double time;
	int64_t order;
	Kind kind;
	int64_t at, place, packet;  // node or link; of a walk; of a frame on its way: the hop
	Frame frame;
	bool operator>(const Event &other) const {
		return std::tie(time, order) > std::tie(other.time, other.order);
	}
};

struct Place {
	enum : int8_t { EMPTY, SENDING, WAITING } state = EMPTY;
	Run run{};
};

struct Card {
	std::deque<Run> cut;  // runs without a place
	std::deque<Frame> asked;  // packets that the walk passed on to the maker
	std::vector<Place> places;
	bool entering = false, walking = false, making = false, held = false, full = false;
	double cut_free = 0, located = 0;
	int64_t at = 0, walk_place = 0, walk_packet = 0;
	std::deque<std::pair<int32_t, Frame>> answers;  // behind a frame that a full store holds up
};

struct Port {
	std::deque<Frame> own, answers;
	int64_t words = 0;
	bool sends = false;
};

struct Loop {
	const Input &in;
	Output &out;
	std::vector<Card> cards;
	std::vector<Port> ports;
	std::vector<double> free, came;  // of links: when they have sent; when the last frame was in
	std::vector<int64_t> left, left_own;  // packets to come of a message; to sum of a row
	std::vector<int64_t> turn, parked;
	std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
	int64_t order = 0;
	double last_stop = 0;
	uint64_t drawn;

	Loop(const Input &in, Output &out)
	    : in(in), out(out), cards(in.n_nodes), ports(in.n_links), free(in.n_links),
	      came(in.n_links), left(in.n_messages), left_own(in.n_rows),
	      turn(in.turn_start, in.turn_start + in.n_nodes), parked(in.n_nodes), drawn(in.seed) {
		for (Card &card : cards) card.places.resize(in.places);
		out = {};
	}

	void push(double time, Kind kind, int64_t at, const Frame &frame = {}, int64_t place = 0,
	          int64_t packet = 0) {
		events.push({time, order++, kind, at, place, packet, frame});
	}

	double spread() {  // a draw of a linear congruential generator (Knuth's MMIX)
		drawn = drawn * 6364136223846793005u + 1442695040888963407u;
		return in.spread * (double(drawn >> 11) / double(1ull << 53) - 0.5);
	}

	static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }
	int64_t words(int64_t floats) const { return up(in.head + 4 * floats, in.n_bytes); }
	int64_t bytes(const Frame &f) const {
		return f.kind == Frame::DATA ? 4 * f.floats + in.head + in.between : in.control;
	}
	int64_t stored(const Frame &f) const { return words(f.kind == Frame::DATA ? f.floats : 0); }
	int64_t made(const Frame &f) const {
		if (f.kind != Frame::DATA) return 2;
		int64_t beats = up(4 * f.floats, in.n_bytes), parts = in.wait[f.row];
		return parts > 1 ? parts * std::max(beats, in.turn) : beats;
	}
	int32_t link(int64_t m, int64_t hop = 0) const {
		return in.hops[in.path_start[in.path_of[m]] + hop];
	}
	int32_t back(int64_t m, int64_t hop = 0) const {
		return in.back[in.path_start[in.path_of[m]] + hop];
	}
	int64_t n_hops(int64_t m) const {
		return in.path_start[in.path_of[m] + 1] - in.path_start[in.path_of[m]];
	}

	// Rows

	void supply(int64_t source, double now) {
		for (int64_t i = in.feed_start[source]; i < in.feed_start[source + 1]; i++) {
			int64_t row = in.feeds[i];
			in.need[row] -= in.feed_count[i];
			if (!in.need[row]) wake(row, now);
		}
	}

	void wake(int64_t row, double now) {
		int32_t v = in.node[row];
		if (row != turn[v]) return;
		for (; row < in.turn_start[v + 1] && !in.need[row]; row = turn[v]) {
			turn[v] = row + 1;
			issue(row, now);
		}
	}

	void issue(int64_t row, double now) {
		int32_t v = in.node[row];
		parked[v] -= in.wait[row] * in.row_floats[row];
		bool ends = in.terminal[row] >= 0, empty = !in.row_floats[row];
		if (ends && empty) push(now, FINAL, in.terminal[row]);
		if (ends) left_own[row] = split(v, row, -1, now);
		for (int64_t m = in.send_start[row]; m < in.send_start[row + 1]; m++) {
			if (empty) push(now, DONE, m);
			left[m] = split(v, row, m, now);
		}
		enter(v, now);
	}

	int64_t split(int32_t v, int64_t row, int64_t m, double now) {  // its packets
		int64_t n_packets = 0;
		for (int64_t rest = in.row_floats[row]; rest > 0; rest -= in.chunk) {
			int64_t floats = std::min(rest, in.chunk);
			while (floats > 0) {
				int64_t taken = std::min(floats, in.run * in.packet), n = up(taken, in.packet);
				cards[v].cut.push_back({row, m, n, taken - (n - 1) * in.packet, now + in.before});
				floats -= taken;
				n_packets += n;
			}
		}
		return n_packets;
	}

	// The sender's places, and its walk

	void enter(int32_t v, double now) {
		Card &card = cards[v];
		if (card.entering || card.cut.empty() || empty_place(card) < 0) return;
		card.entering = true;
		push(std::max({now, card.cut.front().due, card.cut_free + in.cut}), ENTER, v);
	}

	static int64_t empty_place(const Card &card) {
		for (size_t k = 0; k < card.places.size(); k++)
			if (card.places[k].state == Place::EMPTY) return k;
		return -1;
	}

	void look(int32_t v, double now) {
		Card &card = cards[v];
		if (card.walking) return;
		double cost = 0;
		for (int64_t k = 1; k <= in.places; k++) {
			int64_t at = (card.at + k) % in.places;
			if (card.places[at].state == Place::EMPTY) continue;
			cost += in.look;
			if (card.places[at].state != Place::SENDING) continue;
			card.at = at;
			card.walking = true;
			push(now + cost, WALK, v, {}, at, 0);
			return;
		}
	}

	void walk(int32_t v, int64_t at, int64_t packet, double now) {
		Card &card = cards[v];
		Place &place = card.places[at];
		const Run run = place.run;
		if (int64_t(card.asked.size()) >= in.ahead) {
			card.held = true;
			card.walk_place = at;
			card.walk_packet = packet;
			return;
		}
		if (packet < run.n) {
			int64_t floats = packet + 1 < run.n ? in.packet : run.last;
			ask(v, {Frame::DATA, run.row, run.m, floats, at, now});
			push(now + in.step, WALK, v, {}, at, packet + 1);
		} else {
			card.walking = false;
			if (run.m < 0) {
				place.state = Place::EMPTY;
				enter(v, now);
			} else {
				ask(v, {Frame::PROBE, run.row, run.m, run.n, at, now});
				place.state = Place::WAITING;
			}
			look(v, now);
		}
	}

	// The maker, and a port's store

	void ask(int32_t v, Frame frame) {  // its values are there in a while
		int64_t floats = frame.kind == Frame::DATA ? frame.floats : in.packet;
		int64_t alone = up(4 * floats, in.n_bytes);
		frame.since += in.first + words(floats) - in.before - in.look - alone;
		cards[v].asked.push_back(frame);
		push(frame.since, READ, v);
	}

	void make(int32_t v, double now) {
		Card &card = cards[v];
		if (card.making || card.asked.empty()) return;
		Frame frame = card.asked.front();
		if (frame.since > now) return;
		if (frame.m >= 0) {
			Port &port = ports[link(frame.m)];
			card.full = port.words >= in.store;
			if (card.full) return;
			port.words += stored(frame);
			for (auto &[l, answer] : card.answers) put(l, answer, now);
			card.answers.clear();
		}
		card.asked.pop_front();
		card.making = true;
		push(now + made(frame), MADE, v, frame);
		if (card.held) {
			card.held = false;
			push(now, WALK, v, {}, card.walk_place, card.walk_packet);
		}
	}

	void leave(const Frame &frame, double now) {  // the maker
		if (frame.m < 0) {
			if (--left_own[frame.row]) return;
			push(now + in.own, FINAL, in.terminal[frame.row]);
			return;
		}
		put(link(frame.m), frame, now);
	}

	void put(int32_t l, Frame frame, double now) {
		frame.since = now;
		(frame.kind == Frame::STOP ? ports[l].answers : ports[l].own).push_back(frame);
		send(l, now);
	}

	void send(int32_t l, double now) {
		Port &port = ports[l];
		if (port.sends) return;
		auto &own = port.own, &answers = port.answers;
		bool answer = !answers.empty() && (own.empty() || answers.front().since <= own.front().since);
		if (!answer && own.empty()) return;
		Frame frame = (answer ? answers : own).front();
		(answer ? answers : own).pop_front();
		port.sends = true;
		push(now + bytes(frame) / in.speed[l], SENT, l, frame);
		if (answer) return;
		port.words -= stored(frame);
		make(in.source[l], now);
	}

	// Links

	int32_t at_hop(const Frame &frame, int64_t hop) const {
		return frame.kind == Frame::STOP ? back(frame.m, hop) : link(frame.m, hop);
	}

	void pass(const Frame &frame, int64_t hop, double now) {  // the hop's link is through with it
		int32_t l = at_hop(frame, hop);
		in.busy[l] += bytes(frame);
		double time = bytes(frame) / in.speed[l];
		if (hop + 1 < n_hops(frame.m)) {
			push(now - time + in.latency[l], HOP, l, frame, 0, hop + 1);
			return;
		}
		// stored whole before it is looked at, behind the link's frames before it
		double in_words = double(bytes(frame) - in.between) / in.port_bytes;
		came[l] = std::max(came[l], now + in.latency[l] + in_words);
		push(came[l], LOCATE, l, frame);
	}

	void locate(const Frame &frame, double now) {
		int32_t from = in.node[frame.row], to = in.dst[frame.m];
		if (frame.kind == Frame::STOP) {
			push(now + in.compare * (frame.place + 2) + 8, FREE, from, frame, frame.place);
			return;
		}
		double &free = cards[to].located;
		bool data = frame.kind == Frame::DATA;
		free = std::max(free, now) + (data ? in.locate : in.probe + in.per_probed * frame.floats);
		if (data) {
			push(free + in.row - in.first + 2 * words(frame.floats) + spread(), GOT, frame.m);
		} else {
			Frame stop = frame;
			stop.kind = Frame::STOP;
			push(free + in.answer, ANSWER, to, stop);
		}
	}

	void done(int64_t m, double now) {
		if (in.reduces[m]) {
			int32_t v = in.dst[m];
			parked[v] += in.row_floats[in.message_row[m]];
			out.parked = std::max(out.parked, parked[v]);
		}
		supply(m, now);
	}

	void run() {
		for (int64_t i = 0; i < in.n_free; i++) wake(in.free_rows[i], 0);
		while (!events.empty()) {
			Event event = events.top();
			events.pop();
			double now = event.time;
			int64_t at = event.at;
			const Frame &frame = event.frame;
			switch (event.kind) {
			case ENTER: {
				Card &card = cards[at];
				card.entering = false;
				card.cut_free = now;
				card.places[empty_place(card)] = {Place::SENDING, card.cut.front()};
				card.cut.pop_front();
				look(at, now);
				enter(at, now);
				break;
			}
			case WALK: walk(at, event.place, event.packet, now); break;
			case MADE:
				cards[at].making = false;
				leave(frame, now);
				make(at, now);
				break;
			case READ: make(at, now); break;
			case ANSWER:
				if (cards[at].full)
					cards[at].answers.push_back({back(frame.m), frame});
				else
					put(back(frame.m), frame, now);
				break;
			case SENT:
				ports[at].sends = false;
				pass(frame, 0, now);
				send(at, now);
				break;
			case HOP: {
				int32_t l = at_hop(frame, event.packet);
				free[l] = std::max(free[l], now) + bytes(frame) / in.speed[l];
				pass(frame, event.packet, free[l]);
				break;
			}
			case LOCATE: locate(frame, now); break;
			case GOT:
				if (--left[at]) break;
				if (++out.delivered % 5'000 == 0)
					if (in.progress(double(out.delivered) / double(in.n_messages))) return;
				done(at, now);
				break;
			case FREE:
				cards[at].places[event.place].state = Place::EMPTY;
				last_stop = now;
				enter(at, now);
				break;
			case FINAL: supply(at, now); break;
			case DONE:
				out.delivered++;
				done(at, now);
				break;
			}
		}
		out.finish = last_stop + in.end;
	}
};

}  // namespace

extern "C" void card_run(const Input *in, Output *out) { Loop(*in, *out).run(); }
