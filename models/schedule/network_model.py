"""Event-driven model of a whole all-reduce, message by message, for sizes that RTL cannot reach.

A schedule table is executed as the cards would: rows wait for their dependencies, each port sends
its ready rows in table order, messages cross links and switches as worms, sums are added in rank
order. Time is in cycles of the cards; packets, heads, buffers and the adder are counted.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradnic.interface.schedule_table import Table

from . import card_run, network_run
from .ethernet_cards import CONTROL, RAW, Codec, EthernetCards
from .in_network import computing
from .topology import Topology
from .traffic import Traffic
from .worms import DONE, FINAL, HEAD, PART, READY, RELEASE, Worms

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Network:
    """Times and sizes of links and cards.

    Parameters
    ----------
    link_bytes_per_cycle : float
        Of the slowest link; the others have their multiple of it.
    link_latency : int
        Cycles from the first beat's departure to its arrival, for links without their own.
    packet, head : int
        Payload bytes per packet, bytes per head.
    flow : str
        ``message``: one head per message; ``packet``: one per packet.
    reduce_per_cycle : float
        Floats that a node adds per cycle to one message or result, and to all of them together
        where it reads more than that. A switch that sums (`in_network`) adds, and reads, as fast as
        its links bring it, where that is more.
    merge_above : int
        Where a chunk gets more contributions than this, all but the last are added as they come.
    read_per_cycle, block : float, int
        Floats that a node reads from memory per cycle, once per contribution, for all its messages;
        and how many of one message before it turns to another: messages that start together wait
        for each other's first block, and have their share of the rate. block 0: without all that.
    wire_ratio, gather_ratio : float, float or None
        Bytes on the wire per byte of floats, 1 without a codec; of results on their way back, None:
        the same.
    fills : bool
        What is coded fills packets; else a coded packet goes for each raw one.
    engine : float
        Bytes of floats per cycle that a message's codec takes; heads pass beside it.
    buffer : int
        Bytes of the buffer at the end of each link, times its bandwidth: what its sender has
        credits for, and what a switch holds, of all messages together, while outputs are busy; see
        `worms`. Where that does not cover the round trip, a link leaves at full speed and waits
        for credits; with interfaces that ports share, buffers never fill, and links slow down to
        buffer / (2 latency).
    credit : int
        Cycles of the credits' way beside the two latencies: from a flit that spends one to the one
        that may spend it again.
    turn : int
        Cycles from one rank of a block to the next, where a row adds several: the adder's loop. 0:
        not counted. Above 0, all terminal rows of a node share one slot, too. Cards: see `of_card`.
    start, issue, receive, add : int
        Cycles until the first row may issue; from the last dependency to the first beat; from the
        last beat's arrival to its bookkeeping; more per contribution that is added while a row is
        sent. Measured on the cluster of RTL cards.
    window : int
        Messages of one port among which the first ready one is sent; 1: strictly in table order.
    order : str
        ``port``: a row that waits holds up later rows of its ports only; ``node``: it holds up all
        later rows of its node (one table, one reader).
    cards : EthernetCards or None
        Nodes are offload cards: the times and heads above are theirs instead. See
        `of_offload_card`.
    """

    link_bytes_per_cycle: float = 16
    link_latency: int = 150
    packet: int = 256
    head: int = 16
    flow: str = "message"
    reduce_per_cycle: float = 32
    merge_above: float = 4
    read_per_cycle: float = 32
    block: int = 256
    wire_ratio: float = 1.0
    gather_ratio: float | None = None
    fills: bool = True
    engine: float = math.inf
    buffer: int = 5088
    credit: int = 0
    start: int = 20
    issue: int = 19
    receive: int = 3
    add: int = 13
    turn: int = 0
    window: int = 1
    order: str = "node"
    cards: EthernetCards | None = None

    def __post_init__(self) -> None:
        for name in ("link_bytes_per_cycle", "packet", "reduce_per_cycle", "read_per_cycle",
                     "wire_ratio", "engine", "buffer"):  # fmt: skip
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("link_latency", "head", "start", "issue", "receive", "add", "turn", "block",
                     "credit"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.gather_ratio is not None and not self.gather_ratio > 0:
            raise ValueError(f"gather_ratio must be above 0, not {self.gather_ratio}")
        if self.window < 1:
            raise ValueError(f"window must be 1 or more, not {self.window}")
        if self.flow not in ("message", "packet"):
            raise ValueError(f"flow must be message or packet, not {self.flow!r}")
        if self.order not in ("port", "node"):
            raise ValueError(f"order must be port or node, not {self.order!r}")

    def wire_bytes(self, floats: np.ndarray, is_reduce: np.ndarray) -> np.ndarray:
        """Bytes on a link of messages with these numbers of floats, heads included.

        is_reduce : of each, that it goes to a sum: results may have another `gather_ratio`.
        """
        back = self.wire_ratio if self.gather_ratio is None else self.gather_ratio
        ratio = np.where(is_reduce, self.wire_ratio, back)
        payload = np.ceil(floats * (FLOAT_BYTES * ratio))
        raw = payload if self.fills else np.ceil(payload / np.minimum(ratio, 1.0))
        packets = np.ceil(raw / self.packet) if self.flow == "packet" else payload > 0
        return payload + packets * self.head


def lanes_of(topology: Topology) -> int:
    """Floats per word that flit cards get if nothing else is asked for: 8 per port, 32 at most."""
    n_ports = max(len(topology.out[v]) for v in range(topology.n_nodes))
    return next(size for size in (8, 16, 32) if size >= min(8 * n_ports, 32))


def of_card(n_lanes: int, **options: Any) -> Network:
    """The Network whose nodes are flit cards with words of `n_lanes` floats, 8, 16 or 32.

    Words narrower than 32 floats are written 2 cycles later. options : of Network.
    """
    receive = Network.receive + 2 * (n_lanes < 32)
    # turn: 16 cycles of the adder, and those of the slots' choice. credit: a cycle each of the
    # sender's slice, the landing buffer, its `credit`, and the sender's `room` (hdl/direct/link.py)
    options = {"turn": 19, "credit": 4} | options
    return Network(reduce_per_cycle=n_lanes, read_per_cycle=n_lanes, receive=receive, **options)


def of_offload_card(
    n_lanes: int, port_lanes: int | None = None, *, delay: int = 10, codec: Codec = RAW
) -> Network:
    """The Network whose nodes are offload cards with words of `n_lanes` floats, on Ethernet links
    of `port_lanes` (None: as many) floats a cycle, `delay` cycles long.
    """
    cards = EthernetCards.of(n_lanes, port_lanes or n_lanes, codec)
    return Network(
        link_bytes_per_cycle=cards.port_bytes, link_latency=delay, flow="packet", start=0, turn=1,
        packet=codec.sent(codec.packet), head=CONTROL, buffer=1 << 40, reduce_per_cycle=n_lanes,
        read_per_cycle=n_lanes, merge_above=math.inf, cards=cards, wire_ratio=codec.wire_ratio,
    )  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What one simulated all-reduce took.

    cycles : until the last chunk is final on the last node; busiest_link : bytes, heads included,
    that the most loaded link carried, over what it could have in that time; messages : sent;
    parked_bytes : most that one node held of contributions that waited for their row; overruns :
    frames for which an offload card's port had no room, on average: cards lose them, and send them
    again after the next PROBE.
    """

    cycles: int
    busiest_link: float
    messages: int
    parked_bytes: int
    overruns: int = 0


def simulate(
    table: Table,
    topology: Topology,
    n_bytes: int,
    network: Network,
    progress: Callable | None = None,
    *,
    compiled: bool | None = None,
) -> Result:
    """Run `table` on `topology` for a tensor of `n_bytes` (a multiple of 4); a Result.

    Chunks are ceil(elements / chunks) floats, rounded up to 16; the last may be short or empty.
    progress : called with the share of messages delivered, now and then. ValueError if some row
    never becomes ready. compiled : the event loop in C++, which gives the same figures; None: where
    a compiler is found and the messages are worth its seconds, or it has been compiled before.
    About 20 us per message without, 1 us with it. That of offload cards is C++ only: 2 us a packet,
    and the mean of three runs, see `_runs`.
    """
    if n_bytes < FLOAT_BYTES or n_bytes % FLOAT_BYTES:
        raise ValueError(f"bytes must be a multiple of {FLOAT_BYTES} above 0, not {n_bytes}")
    if table.n_nodes > topology.n_nodes:
        topology = computing(topology)
    n_floats = n_bytes // FLOAT_BYTES
    if network.cards:
        return _on_cards(table, topology, n_floats, network, progress)
    traffic = Traffic(table, topology, n_floats)
    state = _Run(traffic, topology, network)
    loop = None if compiled is False else network_run.loop(len(traffic.path), always=compiled)
    return loop(state, progress) if loop else state.run(progress)


class _Run:
    """State of one simulation. A place is a link, or a network interface where ports bind."""

    def __init__(self, traffic, topology, network):
        self.traffic, self.network = traffic, network
        latency = topology.latencies(network.link_latency)
        unit = network.link_bytes_per_cycle
        covered = network.buffer / np.maximum(2 * latency, 1)  # a window per round trip
        self.speed = (topology.bandwidth * unit).tolist()  # of the links
        n_links, interfaces = topology.n_links, traffic.n_places - topology.n_links
        speed = topology.bandwidth * unit
        self.round_trip = [*(2 * latency + network.credit).tolist(), *([0] * interfaces)]
        self.credits = [0.0] * traffic.n_places  # bytes; 0: more than a round trip needs
        if interfaces:
            speed = np.minimum(speed, covered * topology.bandwidth)
        else:
            granted = network.buffer * topology.bandwidth
            short = granted < speed * (2 * latency + network.credit)
            self.credits = np.where(short, granted, 0.0).tolist()
        self.latency = [*latency.tolist(), *([0] * interfaces)]
        self.room = [*speed.tolist(), *([topology.ports * unit] * interfaces)]
        rate = [min(self.room[p] for p in path if p < n_links) for path in traffic.paths]
        if interfaces:
            rate = [min(r, unit) for r in rate]
        self.rate = rate
        bytes_on_wire = self.wire = network.wire_bytes(traffic.floats, traffic.is_reduce)
        coding = traffic.floats * (FLOAT_BYTES / network.engine)
        cycles = np.maximum(bytes_on_wire / np.array(rate)[traffic.path], coding)
        cycles = np.ceil(cycles - 1e-9).astype(np.int64)
        # sums are made while they are sent, a pass per contribution
        switch = traffic.node >= topology.n_owners
        merged = switch | (traffic.wait > network.merge_above)
        self.ranks = np.where(merged, np.minimum(traffic.wait, 1), traffic.wait)
        brought = np.bincount(topology.links[:, 1], topology.bandwidth * (unit / FLOAT_BYTES),
                              topology.n_vertices)  # fmt: skip
        brought = np.where(switch, brought[traffic.node], 0)  # floats a cycle
        add_rate = np.maximum(network.reduce_per_cycle, brought)
        adds = np.ceil(traffic.row_floats * self.ranks / add_rate).astype(np.int64)
        # what a node's one adder does for a row, and before that for each chunk but the last; one
        # that is as fast as reading has what it adds from there
        bound = ~switch & (network.reduce_per_cycle < network.read_per_cycle)
        self.adding = np.where(bound, adds, 0)
        chunk = traffic.row_floats / (traffic.count * network.reduce_per_cycle)
        self.merging = np.where(bound & merged, np.ceil(chunk), 0).astype(np.int64)
        if network.block:  # a block's sums go round the adder, rank by rank
            whole, part = np.divmod(traffic.row_floats, network.block)
            blocks = whole + ((whole > 0) & (part > 0))  # turns of a lone short one are in `add`
            adds = np.maximum(adds, blocks * self.ranks * network.turn * (self.ranks > 1))
        self.cycles = np.maximum(cycles, adds[traffic.message_row])
        self.adds = adds
        # from a row's turn to its first beat; rows over empty chunks vanish
        self.lead = (network.issue + network.add * self.ranks) * (traffic.row_floats > 0)
        passes = np.maximum(self.ranks, 1)
        read_rate = np.maximum(network.read_per_cycle, brought)
        self.work = np.ceil(traffic.row_floats * passes / read_rate).astype(np.int64)
        first = np.minimum(traffic.row_floats, network.block)
        self.first_block = np.ceil(first * passes / read_rate).astype(np.int64)
        self.n_slots = [len(topology.out[v]) for v in range(topology.n_nodes)]
        self.sending = np.ceil(traffic.row_floats * FLOAT_BYTES / unit)
        self.receive = network.receive
        self._buffers(topology, math.inf if interfaces else network.buffer)

    def _buffers(self, topology, buffer):
        """Which buffer lies behind each place of a path, and how large it is: `pools` of each path
        and hop, `pool_size`; and which places are `mixed`, with several of virtual channels.
        Fewer bytes than `pool_grain` are not told apart from what comes just before.

        One of `buffer` bytes, times the bandwidth, behind each link that leads on. Where messages
        could wait for each other in a circle, each link has one per hop of a path, as networks
        with virtual channels have. Nodes take what comes, as far as credits go.
        """
        paths, n_places = self.traffic.paths, self.traffic.n_places
        sizes = np.array([len(path) for path in paths])
        place = np.concatenate(paths).astype(np.int64)
        hop = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        last = hop + 1 == np.repeat(sizes, sizes)
        pairs = np.unique(place[:-1][~last[:-1]] * n_places + place[1:][~last[:-1]])
        circle = _circular(pairs // n_places, pairs % n_places, n_places)
        kinds = (place * (sizes.max() + 1) + hop * circle) * 2 + last
        kinds, pool = np.unique(kinds, return_inverse=True)
        self.pools = [part.tolist() for part in np.split(pool, np.cumsum(sizes)[:-1])]
        where, ends = kinds // 2 // (sizes.max() + 1), kinds % 2 == 1
        size = np.full(n_places, math.inf)
        size[: topology.n_links] = np.floor(buffer * topology.bandwidth)
        credits = np.floor(self.credits)
        held = np.where(ends, np.where(credits, credits, math.inf)[where], size[where])
        self.pool_size = held.tolist()
        self.pool_grain = np.minimum(self.network.link_bytes_per_cycle, held / 16).tolist()
        self.mixed = ((np.bincount(where, minlength=n_places) > 1) & circle).tolist()

    def run(self, progress):
        """The Result. One pass over a heap of (cycle, kind, message) events."""
        t, network = self.traffic, self.network
        lead, wait, row_floats = self.lead.tolist(), t.wait.tolist(), t.row_floats.tolist()
        adds, sending = self.adds.tolist(), self.sending.tolist()
        adding, merging = self.adding.tolist(), self.merging.tolist()
        dst, floats, reduces = t.dst.tolist(), t.floats.tolist(), t.is_reduce.tolist()
        need, terminal = t.need.tolist(), t.terminal_source.tolist()
        feeds, feed_count = t.feeds.tolist(), t.feed_count.tolist()
        feed_start = t.feed_start.tolist()
        send_start, message_row = t.send_start.tolist(), t.message_row.tolist()
        n_messages = len(dst)
        parked = [0] * t.n_nodes
        together = network.order == "node"
        node, turn = t.node.tolist(), t.first_rows.tolist()  # per node the next row to issue
        turn_end = [*turn[1:], len(need)]
        work, first_block = self.work.tolist(), self.first_block.tolist()
        n_slots = self.n_slots
        datapaths = _Datapaths(t.n_nodes, first_block, work)
        take, add, backlog = datapaths.take, datapaths.add, datapaths.backlog
        summing = [0] * t.n_nodes  # when a node's last terminal row is summed
        events = []
        finish = parked_most = delivered = 0

        def push(event):
            heapq.heappush(events, event)

        def merge(m, now):
            """Message m has come: meanwhile its chunks were added, but where it is the last."""
            for i in range(feed_start[m], feed_start[m + 1]):
                row = feeds[i]
                if merging[row] and need[row] > feed_count[i]:
                    add(node[row], merging[row] * feed_count[i], now - cycles[m])

        def read(m, now, idle):
            """Message m starts: it has its share of what its node reads and adds."""
            row = message_row[m]
            v = node[row]
            begin = take(v, row, now)
            share = min(backlog[v] - now, work[row] * n_slots[v])
            if adding[row]:
                share = max(share, add(v, adding[row], now) - now)
            cycles[m] = max(cycles[m], share) + (begin - now) * idle

        worms = Worms(self, push, read)
        cycles = worms.cycles

        def supply(source, now):
            """A message's chunks are in place, or a terminal row is done: rows wait for less."""
            for i in range(feed_start[source], feed_start[source + 1]):
                row = feeds[i]
                need[row] -= feed_count[i]
                if not need[row]:
                    wake(row, now)

        def wake(row, now):
            """A row has nothing to wait for any more."""
            if not together:
                issue_row(row, now)
                return
            v = node[row]
            if row != turn[v]:
                return
            end = turn_end[v]
            while row < end and not need[row]:
                turn[v] = row + 1
                issue_row(row, now)  # may wake, and issue, later rows of this node
                row = turn[v]

        def issue_row(row, now):
            nonlocal finish
            v = node[row]
            parked[v] -= wait[row] * row_floats[row]
            if terminal[row] >= 0:
                # its first words can leave again at once, if sums are not slower than links
                begin = take(v, row, now)
                if network.turn:  # one slot for all of a node's terminal rows
                    begin = max(begin, summing[v])
                    summing[v] = begin + lead[row] + adds[row]
                end = begin + lead[row] + adds[row]
                if adding[row]:
                    end = max(end, add(v, adding[row], now) + lead[row])
                finish = max(finish, end)
                push((end - min(adds[row], sending[row]), FINAL, terminal[row]))
            for m in range(send_start[row], send_start[row + 1]):
                if cycles[m]:
                    push((now + lead[row], READY, m))
                else:  # its chunks are empty: nothing to send
                    worms.leave(m)
                    push((now, DONE, m))

        for row in t.free_rows.tolist():
            wake(row, network.start)
        while events:
            now, kind, m, *where = heapq.heappop(events)
            if kind == RELEASE:
                worms.release(*where, now)
            elif kind == PART:
                worms.part(m, *where, now)
            elif kind == READY:
                worms.ready(m, now)
            elif kind == FINAL:
                supply(m, now)
            elif kind == HEAD:
                worms.head(m, *where, now)
            else:
                delivered += 1
                if progress and delivered % 50_000 == 0:
                    progress(delivered / n_messages)
                if not reduces[m]:
                    finish = max(finish, now)
                    supply(m, now)
                    continue
                v = dst[m]
                parked[v] += floats[m]
                parked_most = max(parked_most, parked[v])
                merge(m, now)
                supply(m, now)
        return self.result(finish, delivered, parked_most, worms.busy, need)

    def result(self, finish, delivered, parked, busy, need):
        """The Result of what a loop left; ValueError if some message never left."""
        return _result(self.traffic, self.speed, finish, delivered, parked, busy, need)


class _Datapaths:
    """When each node has read, and added, what it was asked for.

    first_block, work : of each row, cycles in which it reads its messages' first blocks, and all.
    backlog : by node, when all that it was asked for is read.
    """

    def __init__(self, n_nodes, first_block, work):
        self._first_block, self._work = first_block, work
        self._turns = [0] * n_nodes  # when the first blocks of all messages are read
        self.backlog = [0] * n_nodes
        self._adder = [0] * n_nodes  # when all sums are made

    def take(self, v, row, now):
        """When node v turns to a message of this row, due now."""
        begin = max(now, self._turns[v])
        self._turns[v] = begin + self._first_block[row]
        self.backlog[v] = max(self.backlog[v], now) + self._work[row]
        return begin

    def add(self, v, cycles, now):
        """When the adder of node v, asked now, has worked for so many more cycles."""
        self._adder[v] = end = max(self._adder[v], now) + cycles
        return end


def _circular(before, behind, n_places):
    """Whether what waits for a place from another one can wait for itself: pairs in a circle."""
    while len(before):
        leads_on = np.bincount(before, minlength=n_places)[behind] > 0
        if leads_on.all():
            return True
        before, behind = before[leads_on], behind[leads_on]
    return False


def _on_cards(table, topology, n_floats, network, progress):
    """The Result of offload cards: of the norms' all-reduce, where there are any, and of that of
    the values behind it.
    """
    codec = network.cards.codec
    if codec.block:
        raw = replace(network, cards=replace(network.cards, codec=RAW))
        norms = _on_cards(table, topology, -(-n_floats // codec.block), raw, None)
        n_floats = -(-n_floats // codec.unit) * codec.unit
    traffic = Traffic(table, topology, n_floats, unit=codec.unit)
    speed = (topology.bandwidth * network.link_bytes_per_cycle).tolist()
    runs = []
    for one in _runs(network, progress):
        *found, overruns = card_run.run(traffic, topology, *one)
        runs.append(replace(_result(traffic, speed, *found, codec.value), overruns=overruns))
    values = _mean(runs)
    return _together(norms, values) if codec.block else values


def _together(first, then):
    """Of two rounds, one after the other."""
    cycles = first.cycles + then.cycles
    busy = first.busiest_link * first.cycles + then.busiest_link * then.cycles
    parked = max(first.parked_bytes, then.parked_bytes)
    messages, overruns = first.messages + then.messages, first.overruns + then.overruns
    return Result(cycles, busy / cycles, messages, parked, overruns)


def _runs(network, progress):
    """Networks whose links are a cycle shorter, as long as said, and a cycle longer, and whom to
    tell the share done.

    A cycle decides which of two frames goes first, in RTL and in the model, and rows behind them
    come some percent sooner or later: no single run says what such a network takes.
    """
    least = max(network.link_latency - 1, 0)
    for k in range(3):
        tell = progress and (lambda share, k=k: progress((k + share) / 3))
        yield replace(network, link_latency=least + k), tell


def _mean(results):
    """Of runs of one table."""
    return replace(
        results[0],
        cycles=round(sum(one.cycles for one in results) / len(results)),
        busiest_link=sum(one.busiest_link for one in results) / len(results),
        parked_bytes=max(one.parked_bytes for one in results),
        overruns=math.ceil(sum(one.overruns for one in results) / len(results)),
    )


def _result(traffic, speed, finish, delivered, parked, busy, need, value=FLOAT_BYTES):
    """value : bytes of one in memory."""
    n_messages = len(traffic.path)
    if delivered != n_messages:
        stuck = next(row for row, left in enumerate(need) if left > 0)
        raise ValueError(f"{n_messages - delivered} messages never left: row {stuck} waits")
    finish = math.ceil(finish)
    busiest = max(went / rate for went, rate in zip(busy, speed, strict=False))
    return Result(finish, float(busiest / max(finish, 1)), n_messages, int(parked * value))
