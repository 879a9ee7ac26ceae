"""What the receiver has written, and what that completes: its queues, and what enters them.

Part of `gradnic.hdl.transport.receiver`: `r` is the receiver, `w` what it works on.
"""

from types import SimpleNamespace

from amaranth.hdl import Mux, Signal
from amaranth.lib import wiring

from ..axi.bursts import Range
from ..stream.fifo import FIFO
from .completions import N_WRITES, Completions
from .receiver_checks import target_of
from .records import CHUNK_WIDTH, Destination


def made_queues(m, r):
    """What is to be written, and what that completes; ``room`` in all of them."""
    m.submodules.landing = landing = Completions()
    m.submodules.result = result = Completions()
    m.submodules.destination_queue = destinations = FIFO(Destination, N_WRITES, stops=True)
    m.submodules.landing_queue = landings = FIFO(Range(), N_WRITES, stops=True)
    m.submodules.result_queue = results = FIFO(Range(), N_WRITES, stops=True)
    for queue, port in (
        (destinations, r.destinations),
        (landings, r.landings),
        (results, r.results),
    ):
        wiring.connect(m, queue.o, wiring.flipped(port))
    wiring.connect(m, landing.events, wiring.flipped(r.added))
    beside, room_beside = _results(m, r, result)
    m.d.comb += [landing.stored.eq(r.landed), result.stored.eq(r.stored)]
    room = Signal()
    m.d.sync += room.eq(  # nobody else fills them, and it takes cycles between two entries
        destinations.i.ready & landings.i.ready & results.i.ready & room_beside
        & landing.entries.ready & result.entries.ready
    )  # fmt: skip
    return SimpleNamespace(
        landing=landing, result=result, destinations=destinations, landings=landings,
        results=results, beside=beside, room=room,
    )  # fmt: skip


def _results(m, r, result):
    """What is beside the queue of results: (queue of whose they are, its room); or, with roots,
    ((their queue, what they complete), room of both), and events of both are merged.
    """
    if not r.with_roots:
        m.submodules.source_queue = sources = FIFO(1, N_WRITES)
        wiring.connect(m, sources.o, wiring.flipped(r.sources))
        wiring.connect(m, result.events, wiring.flipped(r.finals))
        return sources, sources.i.ready
    m.submodules.root_queue = roots = FIFO(Range(), N_WRITES)
    m.submodules.root = root = Completions()
    m.submodules.final_queue = finals = FIFO(CHUNK_WIDTH, 4)
    wiring.connect(m, roots.o, wiring.flipped(r.roots))
    wiring.connect(m, finals.o, wiring.flipped(r.finals))
    first, second = root.events, result.events
    m.d.comb += [
        root.stored.eq(r.rooted),
        finals.i.valid.eq(first.valid | second.valid),
        finals.i.payload.eq(Mux(first.valid, first.payload, second.payload)),
        first.ready.eq(finals.i.ready),
        second.ready.eq(finals.i.ready & ~first.valid),
    ]
    return (roots, root), roots.i.ready & root.entries.ready


def write(m, r, w, queues):
    """Where the packet's values go, and what is complete with them."""
    head, own, is_own, place = w.head, w.own, w.is_own, w.place
    landing, result, landings = queues.landing, queues.result, queues.landings
    destinations, results = queues.destinations, queues.results
    done = Signal(Completions.Entry)
    target = target_of(m, r, Mux(is_own, own.offset, head.seq),
                          Mux(is_own, own.elems, head.elems), w.down, w.packed)  # fmt: skip
    m.d.comb += [
        done.event.eq(r.ledger.completes),
        done.chunk.eq(place.chunk),
        done.written.eq(~w.giving),
        landings.i.p.eq(target),
        results.i.p.eq(target),
        destinations.i.p.down.eq(w.down),
        destinations.i.p.keep.eq(w.keeps),
        destinations.i.valid.eq(w.to_destinations),
        landings.i.valid.eq(w.to_landings),
        landing.entries.valid.eq(w.to_landings | (w.closes & w.giving)),
        results.i.valid.eq(w.to_results),
        result.entries.valid.eq(w.to_results),
        landing.entries.p.eq(done),
        result.entries.p.eq(done),
    ]
    if r.with_roots:
        roots, root = queues.beside
        m.d.comb += [
            roots.i.p.eq(target),
            root.entries.p.eq(done),
            roots.i.valid.eq(w.to_roots),
            root.entries.valid.eq(w.to_roots),
        ]
    else:
        sources = queues.beside
        m.d.comb += [sources.i.payload.eq(is_own), sources.i.valid.eq(w.to_results)]
    flags = w.to_destinations, w.closes, w.to_landings, w.to_results, w.to_roots
    m.d.sync += [flag.eq(0) for flag in flags]
