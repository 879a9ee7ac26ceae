// Event loop of `gradnic.models.schedule.card_run`, which explains it: offload cards, packet by packet.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <queue>
#include <tuple>
#include <vector>

#include "loop.h"

namespace {

struct Own {  // as card_run.py lays it out
	int64_t n_links;
	int64_t packet, head, between, whole, run, chunk;  // floats, bytes, packets, floats
	int64_t n_bytes, port_bytes, store, room;  // of a beat, and at a port; beats of a port's stores
	int64_t first, turn, own;  // `CardTimes`
	int64_t due, lead, next_peer, next_run, places, frees, look, step, compare, heard;  // `PartTimes`
	int64_t inside, reads, ranges, adding, tell, control, gate, divide, located, judge, hear, scan;
	int64_t scan_down, per_packet;
	int64_t told, burst, land, taken, end, heads, addressed, skip, ahead, freed;
	int64_t known, behind;  // of packets whose values are asked for: `PartTimes`
	int64_t kept;  // packets whose sums wait for the framer
	int64_t coded, compress, sized, seen, plan, restore, image, verdicts, credit;  // of INCEPTIONN; `CoderTimes`
	int64_t sizes;  // known ones of each number of leaves, one for `UNIT` floats; 0: by ratio
	double probe;  // cycles between PROBEs of a run
	double value, leaf, ratio;  // bytes of a value in memory, and of a leaf's; and over those sent
	const int32_t *back;  // of each path: links of the way back
	const double *speed, *latency;  // of links: bytes a cycle, cycles
	const int32_t *source, *port;  // of links: the node they leave, the port they come to
	const int64_t *cutting, *starts;  // of rows; starts : floats before the first chunk
	const int32_t *size, *leaves;  // bytes of payloads; of rows: leaves in their sums, 0: a result
};

struct Input : Counts, Own, Traffic {};

const int64_t UNIT = 16;  // floats, of which chunks and packets but the last are multiples
const double UNSIZED = 1e300;  // of a head whose packet is not coded yet
const double QUEUED = 2e300;  // of a PROBE behind packets of a root, which have no heads
const int64_t PATIENCE = 100;  // times between PROBEs without a packet or an end of a run
const int64_t HEARD = 3;  // cycles of the receiver behind a codec's verdict, which takes one itself

enum Kind : int8_t { ENTER, WALK, LATE, READ, MADE, ANSWER, SENT, HOP, LOCATE, GOT, HEAR, FINAL, DONE, CAME, TAKE, HEAD, FRAMED };

struct Run {
	int64_t row, m;  // m < 0: of a terminal row, to nobody
	int64_t n, last;  // packets, floats of the last one
	double due;  // its row at the splitter, which takes `lead` for the first run
	int64_t lead, behind;  // behind the run before
	int64_t number;  // of this run among all
	int64_t start;  // floats of the tensor before it
};

struct Frame {
	enum : int8_t { DATA, PROBE, STOP, BITMAP } kind;
	int32_t row, m, floats, place;  // of a PROBE: floats is the packets that it asks for
	int32_t run, packet;  // its run among all, and of data, the packet in it
	int64_t start = 0;  // of data: floats of the tensor before it
	double since = 0;  // its values, or its head, are there
	double stamp = 0;  // of a PROBE and its answer: when it left; of a root's: when it is decided on
	uint64_t wanted = 0;  // packets that a BITMAP asks for
	bool answers() const { return kind == STOP || kind == BITMAP; }
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
	uint64_t mask = 0;  // packets to send
	double probed = 0, asked = 0;  // when its last PROBE left, and the first behind its last packet
	bool fresh = true, heard = false;  // packets were sent since then; an answer will end its wait
};

struct Entry {  // what keeps a port's frames on the way in
	std::deque<Frame> frames;
	double from = 0, until = 0;  // when its last frame goes in
	double full = 0;  // until when what comes finds no room
	bool owed = false;  // that is so until a frame goes in
};

struct Card {
	std::deque<Run> cut;  // runs without a place
	std::deque<Frame> asked;  // packets that the walk passed on, not summed yet
	std::deque<Frame> told, answers, heads;  // frames to come; heads : that the framer has
	std::deque<double> sums;  // of told ones: when they were made
	std::vector<Place> places;
	bool entering = false, walking = false, held = false;
	bool summing = false, framing = false, open = false;
	int64_t raw = 0;  // packets of sums that are no frames yet
	int64_t added = 0;  // beats of contributions in the sums under way
	std::deque<double> made;  // when the sums of the last packets had gone
	double cut_free = 0, looked = 0, framed = 0;
	std::vector<Entry> entries;  // by port
	size_t port = 0;
	bool taking = false;
	double chunk = 0, place = 0;  // when the locator's steps are free
	double passed = 0, planned = 0;  // when coded values are in, and the last unit is judged
	std::deque<double> verdicts;  // when the receiver took the last ones
	double judged = 0, landed = 0, written = 0;  // by receiver, at the writer, in memory
	std::deque<double> roots;  // when packets of a root were decided on whose sums are to come
	std::deque<Frame> arrived;  // data that wait for those before them
	double summed = 0, results = 0;  // when the writer of results had a root's sums, and others
	std::deque<double> located;  // when the receiver took the last packets
	std::deque<double> heard;  // when the sender is through with the last answers
	int64_t at = 0, walk_place = 0, walk_packet = 0;
	double late = 0;  // when a PROBE is looked for that has to go again
};

struct Port {
	std::deque<Frame> own;
	int64_t words = 0, last = 0;  // beats stored, and of the frame that it sends
	double since = 0;
	bool sends = false;
};

struct Loop {
	const Input &in;
	Output &out;
	std::vector<Card> cards;
	std::vector<Port> ports;
	std::vector<double> free, came;  // of links: when they have sent; when the last frame was in
	std::vector<int64_t> left, left_own;  // packets to come of a message; to sum of a row
	std::vector<uint64_t> missing;  // packets of each run that have not come
	std::vector<int64_t> turn, parked;
	std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
	int64_t order = 0;
	double last_stop = 0, moved = 0;  // a run ended; that, or a packet came

	Loop(const Input &in, Output &out)
	    : in(in), out(out), cards(in.n_nodes), ports(in.n_links), free(in.n_links),
	      came(in.n_links), left(in.n_messages), left_own(in.n_rows),
	      turn(in.turn_start, in.turn_start + in.n_nodes), parked(in.n_nodes) {
		for (Card &card : cards) card.places.resize(in.places);
		out = {};
		out.finish = -1;
	}

	void push(double time, Kind kind, int64_t at, const Frame &frame = {}, int64_t place = 0,
	          int64_t packet = 0) {
		events.push({time, order++, kind, at, place, packet, frame});
	}

	static int64_t up(int64_t n, int64_t by) { return (n + by - 1) / by; }
	int64_t held(const Frame &f) const {  // bytes of its values in memory
		bool leaf = f.m >= 0 && in.reduces[f.m] && !in.wait[f.row];
		return std::ceil((leaf ? in.leaf : in.value) * f.floats);
	}
	int64_t beats(const Frame &f) const { return up(held(f), in.n_bytes); }
	int64_t payload(const Frame &f) const {
		if (f.kind == Frame::BITMAP) return up(f.floats, 8);
		if (f.kind != Frame::DATA) return 0;
		if (in.sizes) return in.size[in.leaves[f.row] * in.sizes + f.start / UNIT];
		return std::ceil(held(f) / in.ratio);
	}
	int64_t bytes(const Frame &f) const { return in.whole + payload(f); }
	int64_t stored(const Frame &f) const { return up(in.head + payload(f), in.n_bytes); }
	int64_t made(const Frame &f) const {
		int64_t parts = in.wait[f.row], each = std::max(beats(f), in.turn);
		// the last sum needs no turn; why a chunk's short last packet has one: card_times.md
		bool turns = f.floats < in.packet && in.chunk > in.packet;
		if (parts > 1) return (parts - 1) * each + (turns ? each : beats(f));
		return beats(f) + (in.coded && f.m >= 0);  // the compressor sees one out before the next
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

	static uint64_t all(int64_t n) { return ~uint64_t(0) >> (64 - n); }  // packets

	// Rows

	void wake(int64_t row, double now) { issue_in_turn(*this, row, now); }

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
		bool opens = m < 0 || m == in.send_start[row];
		int64_t n_packets = 0, start = in.starts[row];
		for (int64_t rest = in.row_floats[row]; rest > 0; rest -= in.chunk) {
			int64_t floats = std::min(rest, in.chunk);
			while (floats > 0) {
				int64_t taken = std::min(floats, in.run * in.packet), n = up(taken, in.packet);
				bool begins = !n_packets, first = opens && begins;
				cards[v].cut.push_back({row, m, n, taken - (n - 1) * in.packet, now + in.due,
				                        first ? in.lead + in.cutting[row] : 0,
				                        first ? 2 : begins ? in.next_peer : in.next_run,
				                        int64_t(missing.size()), start});
				missing.push_back(all(n));
				floats -= taken;
				start += taken;
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
		const Run &run = card.cut.front();
		push(std::max(now, std::max(run.due, card.cut_free + run.behind) + run.lead), ENTER, v);
	}

	static int64_t empty_place(const Card &card) {
		for (size_t k = 0; k < card.places.size(); k++)
			if (card.places[k].state == Place::EMPTY) return k;
		return -1;
	}

	// at runs in turn, up to the next one that has packets to send, or whose PROBE goes again
	void look(int32_t v, double now) {
		Card &card = cards[v];
		if (card.walking) return;
		double end = card.looked, late = UNSIZED;
		for (int64_t k = 1; k <= 2 * in.places; k++) {
			int64_t at = (card.at + k) % in.places;
			const Place &place = card.places[at];
			if (place.state == Place::EMPTY) continue;
			double begin = end;  // when its age is seen
			end += in.look;
			bool waits = place.state == Place::WAITING;
			if (waits && begin < place.probed + in.probe) {
				late = std::min(late, place.probed + in.probe);
				continue;
			}
			if (waits && begin > now) {  // its answer may come before the look
				late = begin;
				break;
			}
			card.at = at;
			card.walking = true;
			push(std::max(now, end), WALK, v, {}, at, waits ? place.run.n : 0);
			return;
		}
		if (late < UNSIZED && late != card.late) push(card.late = late, LATE, v);
	}

	void stroll(Card &card, double now) {  // from one run that waits to the next, until now
		if (card.walking) return;
		int64_t n = std::max(0.0, (now - card.looked) / in.look), used = 0;
		card.looked += n * in.look;
		for (const Place &place : card.places) used += place.state != Place::EMPTY;
		for (n = used ? n % used : 0; n; n--)
			do card.at = (card.at + 1) % in.places;
			while (card.places[card.at].state == Place::EMPTY);
	}

	Frame about(const Run &run, int64_t at, int64_t packet) const {  // of data, or its PROBE
		bool data = packet < run.n;
		int64_t floats = !data ? run.n : packet + 1 < run.n ? in.packet : run.last;
		return {data ? Frame::DATA : Frame::PROBE, int32_t(run.row), int32_t(run.m), int32_t(floats),
		        int32_t(at), int32_t(run.number), int32_t(packet), run.start + packet * in.packet};
	}

	void walk(int32_t v, int64_t at, int64_t packet, double now) {
		Card &card = cards[v];
		Place &place = card.places[at];
		const Run run = place.run;
		int64_t begin = packet;
		while (packet < run.n && !(place.mask >> packet & 1)) packet++;
		if (packet > begin) {
			push(now + (packet - begin) * in.skip, WALK, v, {}, at, packet);
			return;
		}
		if (!room(card)) {
			card.held = true;
			card.walk_place = at;
			card.walk_packet = packet;
			return;
		}
		Frame next = about(run, at, packet);
		next.stamp = now;
		if (packet < run.n) {
			ask(v, next, now);
			place.fresh = true;
			push(now + in.step, WALK, v, {}, at, packet + 1);
		} else {
			card.walking = false;
			card.looked = now;
			if (run.m < 0) {
				place.state = Place::EMPTY;
				enter(v, now);
			} else {
				ask(v, next, now);
				place.state = Place::WAITING;
				place.probed = now;
				if (place.fresh) place.asked = now;
				place.fresh = false;
			}
			look(v, now);
		}
	}

	// An answer does something while its run waits for it, unless its PROBE is just about to go
	// again. What a BITMAP asks for may be under way if packets left behind the PROBE.
	bool believed(const Place &place, const Frame &frame) const {
		return place.state == Place::WAITING && !place.heard && place.run.number == frame.run &&
		       (frame.kind == Frame::STOP || frame.stamp >= place.asked);
	}

	void hear(int32_t v, const Frame &frame, double now) {
		Card &card = cards[v];
		Place &place = card.places[frame.place];
		stroll(card, now);
		place.heard = false;
		if (card.walking && card.at == frame.place) return;
		if (frame.kind == Frame::STOP) {
			place.state = Place::EMPTY;
			last_stop = moved = now;
			enter(v, now + in.frees);
		} else {
			place.state = Place::SENDING;
			place.mask = frame.wanted;
			look(v, now);
		}
	}

	int64_t contributed(const Frame &frame) const {  // beats
		return beats(frame) * in.wait[frame.row];
	}

	// PROBEs pass packets that wait for their sums; others wait until all their contributions are
	// asked for, which are read ahead
	bool room(const Card &card) const {
		return before(card, card.asked.size()) < in.inside;
	}

	// of the first n packets that the walk passed on: those that wait
	int64_t before(const Card &card, size_t n) const {
		int64_t summed = 0, before = 0, reads = card.summing ? card.added : 0;
		for (size_t k = 0; k < n; k++) {
			const Frame &frame = card.asked[k];
			bool data = frame.kind == Frame::DATA;
			reads += data ? contributed(frame) : 0;
			int64_t most = in.reads + in.ranges * beats(frame);
			if (summed < in.adding && (!data || reads <= most))
				summed += data;
			else if (before || data)
				before++;
		}
		return before;
	}

	void hand(int32_t v, double now) {  // to the framer: PROBEs that none waits before any more
		Card &card = cards[v];
		for (Frame &told : card.told) {
			if (told.since != QUEUED) continue;
			size_t k = 0;
			auto is_it = [&](const Frame &one) {
				return one.kind == Frame::PROBE && one.run == told.run;
			};
			while (k < card.asked.size() && !is_it(card.asked[k])) k++;
			if (k < card.asked.size() && before(card, k)) return;
			told.since = now + in.tell;
			push(told.since, HEAD, v);
		}
	}

	void ask(int32_t v, Frame frame, double now) {  // its values are there in a while
		Card &card = cards[v];
		bool data = frame.kind == Frame::DATA;
		if (frame.m >= 0) {
			frame.since = !data ? QUEUED : in.coded ? UNSIZED : now + in.tell;
			card.told.push_back(frame);
			if (frame.since < UNSIZED) push(frame.since, HEAD, v);
		}
		if (!data && card.asked.empty()) return hand(v, now);
		if (frame.m < 0) card.roots.push_back(frame.stamp = decided(card, now));
		frame.since = now + in.first + up(in.head, in.n_bytes) - in.taken - in.look;
		card.asked.push_back(frame);
		if (data) push(frame.since, READ, v);
		hand(v, now);
	}

	// The receiver decides on a root's packet before its sums are there, behind what it is at.
	double decided(const Card &card, double now) const {
		auto next = std::find_if(card.located.begin(), card.located.end(),
		                         [&](double turn) { return turn >= now; });
		return std::max(now, next == card.located.end() ? card.judged : *next) + in.judge;
	}

	void make(int32_t v, double now) {
		Card &card = cards[v];
		if (card.summing || card.asked.empty()) return;
		Frame frame = card.asked.front();
		if (frame.since > now || (frame.m >= 0 && card.raw == in.kept)) return;
		if (int64_t(card.made.size()) == in.known) {  // its values were asked for behind those
			if (card.made.front() + in.behind > now) return push(card.made.front() + in.behind, READ, v);
			card.made.pop_front();
		}
		card.raw += frame.m >= 0;
		do card.asked.pop_front();
		while (!card.asked.empty() && card.asked.front().kind != Frame::DATA);
		card.summing = true;
		card.added = contributed(frame);
		double ends = now + made(frame);  // last sums of a root go where the receiver said
		if (frame.m < 0) ends = std::max(ends, std::max(frame.stamp, card.results) + beats(frame));
		card.made.push_back(ends);
		hand(v, now);
		push(ends, MADE, v, frame);
		if (card.held) {
			card.held = false;
			push(now, WALK, v, {}, card.walk_place, card.walk_packet);
		}
	}

	void leave(const Frame &frame, double now) {  // the sums
		int32_t v = in.node[frame.row];
		Card &card = cards[v];
		if (frame.m < 0) {
			card.judged = std::max(card.judged, now) + in.judge;
			card.roots.pop_front();
			card.summed = now;
			settle(card);
			double own = in.own + in.coded * in.image;
			if (!--left_own[frame.row]) push(now + own, FINAL, in.terminal[frame.row]);
			return;
		}
		double ends = now + 1;  // the payload's last beat at the framer
		if (in.coded) {  // the payload waits for the last sum, and its head for its size
			ends = now + in.compress + up(payload(frame), in.n_bytes);
			auto told = card.told.begin();
			while (told->since != UNSIZED) told++;
			told->since = now + in.sized;
			push(told->since, HEAD, v);
		}
		if (card.open) {
			card.open = false;
			push(std::max(card.framed, ends), FRAMED, v, frame);
		} else {
			card.sums.push_back(ends);
		}
	}

	void address(int32_t v, double now) {  // the framer takes heads ahead, answers first
		Card &card = cards[v];
		while (int64_t(card.heads.size()) < in.heads) {
			bool answers = !card.answers.empty();
			if (!answers && (card.told.empty() || card.told.front().since > now)) return;
			auto &from = answers ? card.answers : card.told;
			card.heads.push_back(from.front());
			from.pop_front();
			card.heads.back().since = now + in.addressed;
			push(now + in.addressed, HEAD, v);
		}
	}

	void frame(int32_t v, double now) {  // the next one
		Card &card = cards[v];
		address(v, now);
		if (card.framing || card.heads.empty() || card.heads.front().since > now) return;
		Frame next = card.heads.front();
		int32_t l = at_hop(next, 0);
		Port &port = ports[l];
		card.heads.pop_front();
		address(v, now);
		card.framing = true;
		port.words += stored(next);
		double beat = in.n_bytes / in.speed[l];  // the store gives room as its port sends
		double goes = port.sends ? std::max(0.0, port.last - (now - port.since) / beat) : 0;
		double room = now + beat * (port.words + goes - in.store);
		if (next.kind != Frame::DATA) {
			push(std::max(now + in.control, room), FRAMED, v, next);
			return;
		}
		card.framed = std::max(now + stored(next), room);
		card.open = card.sums.empty();
		if (card.open) return;
		push(std::max(card.framed, card.sums.front()), FRAMED, v, next);
		card.sums.pop_front();
	}

	void put(int32_t l, const Frame &frame, double now) {
		ports[l].own.push_back(frame);
		send(l, now);
	}

	void send(int32_t l, double now) {
		Port &port = ports[l];
		if (port.sends || port.own.empty()) return;
		Frame next = port.own.front();
		port.own.pop_front();
		port.sends = true;
		port.since = now;
		port.last = stored(next);
		port.words -= port.last;
		push(now + bytes(next) / in.speed[l], SENT, l, next);
	}

	// Links

	int32_t at_hop(const Frame &frame, int64_t hop) const {
		return frame.answers() ? back(frame.m, hop) : link(frame.m, hop);
	}

	void pass(const Frame &frame, int64_t hop, double now) {  // the hop's link is through with it
		int32_t l = at_hop(frame, hop);
		in.busy[l] += bytes(frame);
		double time = bytes(frame) / in.speed[l];
		if (hop + 1 < n_hops(frame.m)) {
			push(now - time + in.latency[l], HOP, l, frame, 0, hop + 1);
			return;
		}
		// stored whole before it is looked at, behind the link's frames before it; beats leave at
		// whole cycles
		double in_words = double(bytes(frame) - in.between) / in.port_bytes;
		double begins = std::ceil(now - time) + std::floor(time);
		came[l] = std::max(came[l], begins + in.latency[l]) + in_words;
		Frame whole = frame;
		whole.since = came[l];
		push(came[l], CAME, l, whole);
	}

	// Way in: a frame of each port in turn. Where none is under way the port whose turn it was
	// may begin at once, and another a cycle later; all that come in a cycle are seen together.

	void take(int32_t v, double now, bool ends = false) {
		Card &card = cards[v];
		if (card.taking) return;
		size_t n = card.entries.size(), chosen = n;
		auto offers = [&](size_t k, double since) {
			const auto &frames = card.entries[(card.port + k) % n].frames;
			return !frames.empty() && frames.front().since <= since;
		};
		for (size_t k = 1; ends && k < n && chosen == n; k++)  // in the cycle of the last beat
			if (offers(k, now - 1)) chosen = k;
		bool at_once = chosen < n || offers(0, now);
		for (size_t k = 0; k < n && chosen == n; k++)
			if (offers(k, now)) chosen = k;
		if (chosen == n) return;
		card.port = (card.port + chosen) % n;
		Entry &entry = card.entries[card.port];
		Frame frame = entry.frames.front();
		entry.frames.pop_front();
		card.taking = true;
		entry.from = now + !at_once;
		entry.until = entry.from + stored(frame);
		if (entry.owed) entry.full = entry.from + in.freed;
		entry.owed = false;
		push(entry.from + std::max(stored(frame), in.control), LOCATE, v, frame);
	}

	// A frame has come whole: whether its port had room for all of it. Beats of one that had not
	// stay until the next beat has gone, and what begins to come before that is lost, too.
	bool fits(Entry &entry, const Frame &frame, double now) const {
		double beat = double(in.n_bytes) / in.port_bytes, begin = now - beat * stored(frame);
		if (entry.owed || begin < entry.full) return false;
		double gone = now - in.freed;  // what went in by then
		double beats = std::clamp(entry.until - gone, 0.0, entry.until - entry.from);
		for (const Frame &one : entry.frames) beats += stored(one);
		double more = beats + stored(frame) - in.room - in.ahead;
		double stops = now - beat * more;  // the first beat without room
		if (more > 0 && stops > begin) {
			entry.owed = entry.until + in.freed <= stops;
			if (!entry.owed) entry.full = std::max(stops, entry.from + in.freed);
		}
		return more <= 0;
	}

	// Results and a root's sums are written in the order in which they were decided on; what comes
	// behind a result waits, too.
	void settle(Card &card) {
		while (!card.arrived.empty()) {
			Frame frame = card.arrived.front();
			bool result = !in.reduces[frame.m];
			if (result && !card.roots.empty() && card.roots.front() <= frame.stamp) return;
			card.arrived.pop_front();
			card.landed = std::max(frame.since, card.landed);
			if (result) card.landed = std::max(card.landed, card.summed);
			// a burst goes on once it is whole
			double leaves = std::max(card.landed + std::min(in.burst, beats(frame)), card.written);
			card.landed += beats(frame);
			card.written = leaves + beats(frame);
			if (result) card.results = card.landed;
			push(card.written + in.land, GOT, frame.m);
		}
	}

	void locate(const Frame &frame, double now) {
		int32_t from = in.node[frame.row], to = in.dst[frame.m];
		bool data = frame.kind == Frame::DATA, answer = frame.answers();
		Card &card = cards[answer ? from : to];
		// two steps of the locator, then the receiver
		card.chunk = std::max(now + in.gate, card.chunk) + (answer ? 1 : in.divide);
		card.chunk = std::max(card.chunk, card.place);
		double turn = card.chunk + (data ? in.divide : 1);
		if (int64_t(card.located.size()) == in.located) {  // all wait for the receiver
			turn = std::max(turn, card.located.front());
			card.located.pop_front();
		}
		card.chunk++;
		card.place = turn + 1;
		turn = std::max(turn, card.judged);
		card.located.push_back(turn);
		if (data) {
			card.judged = turn + in.judge;
			Frame values = frame;
			values.since = 0;
			if (in.coded) {  // its verdict, then its values
				card.passed = std::max(now + in.gate + in.seen, card.passed);
				double begins = std::max(card.passed + in.plan, card.planned);
				if (int64_t(card.verdicts.size()) == in.verdicts) {
					begins = std::max(begins, card.verdicts.front() + in.credit);
					card.verdicts.pop_front();
				}
				card.planned = begins + beats(frame);
				card.passed += up(payload(frame), in.n_bytes);
				card.judged = std::max(card.judged - HEARD, card.planned) + HEARD + 1;
				card.verdicts.push_back(card.judged - HEARD - 1);
				values.since = card.planned + in.restore;
			}
			values.since = std::max(values.since, card.judged);
			values.stamp = card.judged;
			missing[frame.run] &= ~(uint64_t(1) << frame.packet);
			moved = now;
			card.arrived.push_back(values);
			settle(card);
		} else if (answer) {
			auto &heard = card.heard;
			card.judged = turn + in.hear;
			if (int64_t(heard.size()) == in.heard) {
				card.judged = std::max(card.judged, heard.front());
				heard.pop_front();
			}
			double begin = heard.empty() ? card.judged : std::max(card.judged, heard.back());
			Place &place = card.places[frame.place];
			bool meant = believed(place, frame);  // else it is compared with all
			heard.push_back(begin + in.compare * (meant ? frame.place + 1 : in.places) + 2);
			if (!meant) return;
			place.heard = true;
			push(heard.back() + 1, HEAR, from, frame);
		} else {
			Frame answer = frame;
			answer.wanted = missing[frame.run];
			answer.kind = answer.wanted ? Frame::BITMAP : Frame::STOP;
			int64_t scan = in.reduces[frame.m] ? in.scan : in.scan_down;
			card.judged = turn + scan + in.per_packet * frame.floats;
			push(card.judged + in.told, ANSWER, to, answer);
		}
	}

	void done(int64_t m, double now) {
		if (in.reduces[m]) {
			int32_t v = in.dst[m];
			parked[v] += in.row_floats[in.message_row[m]];
			out.parked = std::max(out.parked, parked[v]);
		}
		supply(*this, m, now);
	}

	void run() {
		for (int64_t i = 0; i < in.n_free; i++) wake(in.free_rows[i], 0);
		while (!events.empty()) {
			Event event = events.top();
			events.pop();
			double now = event.time;
			if (now - moved > PATIENCE * in.probe) return;  // PROBEs go sooner than answers come
			int64_t at = event.at;
			const Frame &frame = event.frame;
			switch (event.kind) {
			case ENTER: {
				Card &card = cards[at];
				card.entering = false;
				card.cut_free = now;
				stroll(card, now);
				const Run &run = card.cut.front();
				card.places[empty_place(card)] = {Place::SENDING, run, all(run.n)};
				card.cut.pop_front();
				look(at, now);
				enter(at, now);
				break;
			}
			case WALK: walk(at, event.place, event.packet, now); break;
			case LATE:
				if (now != cards[at].late) break;  // another one is due
				cards[at].late = 0;
				stroll(cards[at], now);
				look(at, now);
				break;
			case MADE:
				cards[at].summing = false;
				leave(frame, now);
				make(at, now);
				break;
			case READ: make(at, now); break;
			case HEAD: this->frame(at, now); break;
			case FRAMED:
				cards[at].framing = false;
				cards[at].raw -= frame.kind == Frame::DATA;
				put(at_hop(frame, 0), frame, now);
				make(at, now);
				this->frame(at, now);
				break;
			case ANSWER:
				cards[at].answers.push_back(frame);
				this->frame(at, now);
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
			case CAME: {
				int32_t v = frame.answers() ? in.node[frame.row] : in.dst[frame.m];
				auto &entries = cards[v].entries;
				if (int64_t(entries.size()) <= in.port[at]) entries.resize(in.port[at] + 1);
				if (!fits(entries[in.port[at]], frame, now)) {
					out.overruns++;
					break;
				}
				entries[in.port[at]].frames.push_back(frame);
				if (!cards[v].taking) push(now, TAKE, v);
				break;
			}
			case TAKE: take(at, now); break;
			case LOCATE:
				cards[at].taking = false;
				locate(frame, now);
				take(at, now, true);
				break;
			case GOT:
				if (--left[at]) break;
				if (++out.delivered % 5'000 == 0)
					if (in.progress(double(out.delivered) / double(in.n_messages))) return;
				done(at, now);
				break;
			case HEAR: hear(at, frame, now); break;
			case FINAL: supply(*this, at, now); break;
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
