"""Mutation campaign of what counts a job's allowances: each output of each cycle."""

import numpy as np
from amaranth.hdl import Const, Shape
from gradnic.hdl.transport.allowance_walk import LATENCY, AllowanceWalk
from gradnic.hdl.transport.records import BYTES_WIDTH, N_NEIGHBORS, Allowance, Geometry, Places

from ..engine.amaranth_run import simulate

N_RANKS, BEGINS = 2, 3
MORE = (1 << BYTES_WIDTH) - 1  # than can come
MOST = 700  # chunks: more take minutes
ENABLE = Const.cast(Allowance.const({"enable": 1})).value
_RECORDINGS = []


def component():
    """The circuit under mutation, with two ranks."""
    return AllowanceWalk(N_RANKS)


def _cases():
    """(inputs that stay, senders of each chunk) of walks one after the other, and what they write:
    each bit of a share alone, few chunks and many, one walk after none.
    """
    rng = np.random.default_rng(1)
    shapes = [((1, 2, 5, 40)[k % 4], 1 << k) for k in range(16)]
    shapes += [(30, 0), (1, 0xFFFF), (MOST, 0xA5A5), (3, 0)]
    for k, (n_chunks, share) in enumerate(shapes):
        chunk, last = (int(rng.integers(1, n)) for n in (1 << 18, 1 << 22))
        thc = k % 3 == 2
        if n_chunks == MOST:
            chunk = 1 << 11
        if thc:
            last &= ~1
        settings = {"share": share, "last_elems": last, "thc": int(thc), "at_share": k // 3 % 2}
        settings["geometry"] = {"chunk": chunk, "last_chunk": n_chunks - 1, "packet": 255}
        few = N_NEIGHBORS if n_chunks < MOST else 2  # so many leaves that sums are the longest
        up = [
            [
                {"valid": int(rng.random() < 0.9), "neighbor": int(rng.integers(few)),
                 "leaves": int(rng.choice([1, 255, int(rng.integers(256))])) if few > 2 else 255,
                 "flow": 8191}
                for _ in range(N_RANKS)
            ]
            for _ in range(n_chunks)
        ]  # fmt: skip
        for row in up:  # a neighbor has one place in a chunk
            if row[0]["neighbor"] == row[1]["neighbor"]:
                row[1]["valid"] = 0
        want = []
        for neighbor in range(N_NEIGHBORS):
            elems = [chunk << 4] * (n_chunks - 1) + [last]
            total = sum(
                n * one["leaves"]
                for n, row in zip(elems, up, strict=True)
                for one in row if one["valid"] and one["neighbor"] == neighbor
            )  # fmt: skip
            total = total // 2 if thc else 4 * total
            may = total * share >> 16
            must = total - may if share else MORE
            want.append((neighbor, must if settings["at_share"] else may))
        yield settings, up, want


def record(settings, up, want):
    """Inputs and outputs of each cycle, of the circuit as it is: it must write what is wanted."""
    part, log = component(), {name: [] for name in ("start", "places", "chunk", "busy", "write")}
    senders = [Places(N_RANKS).const({"up": row}) for row in up]

    async def bench(ctx):
        for name, value in settings.items():
            ctx.set(getattr(part, name), value)
        asked, written = [0] * LATENCY, []
        for cycle in range(200_000):
            places = senders[asked[0] % len(senders)]
            start = int(cycle == BEGINS)
            ctx.set(part.start, start)
            ctx.set(part.places, places)
            *_, chunk, busy, write = await ctx.tick().sample(part.chunk, part.busy, part.write)
            asked = [*asked[1:], chunk]
            log["start"].append(start)
            log["places"].append(Const.cast(places).value)
            log["chunk"].append(chunk)
            log["busy"].append(busy)
            log["write"].append(Const.cast(write).value)
            if write.enable:
                written.append((write.index, write.bytes))
            if written and not busy:
                break
        assert written == want
        log["start"] += [0, 0]

    simulate(part, bench)
    return log


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        _RECORDINGS.extend(
            (settings, record(settings, up, want)) for settings, up, want in _cases()
        )
    return _RECORDINGS


def _rows(values, shape):
    size = -(-Shape.cast(shape).width // 8)
    return np.array(
        [np.frombuffer(int(value).to_bytes(size, "little"), np.uint8) for value in values]
    )


def test(model):
    """Each output in each cycle, one walk after the other."""
    instance = model.instance()
    for k, (settings, log) in enumerate(recordings()):
        geometry = Const.cast(Geometry.const(settings["geometry"])).value
        run = instance.run(
            signals={
                **{name: settings[name] for name in ("share", "last_elems", "thc", "at_share")},
                "geometry": _rows([geometry], Geometry), "start": np.array(log["start"]),
                "places": _rows(log["places"], Places(N_RANKS)),
            },
            trace=["chunk", "busy", "write"], drain=False, max_cycles=len(log["chunk"]),
            probe_cycles=0, reset=not k,
        )  # fmt: skip
        busy = np.array(log["busy"], bool)
        assert run.traces["busy"].astype(bool).tolist() == busy.tolist(), "busy"
        chunks = run.traces["chunk"].astype(int)
        busy[BEGINS + 1] = False  # where it ended the time before
        assert chunks[busy].tolist() == np.array(log["chunk"])[busy].tolist(), "chunk"
        got = [int(one) & ENABLE and int(one) for one in run.traces["write"]]
        assert got == [one & ENABLE and one for one in log["write"]], "write"


ARGUED = {
    r"const0 .*portbit 5[45] -wire term": "bytes times leaves are below 2**38, and a share "
    "has 16 bits, so these bits of a term are 0",
}
EXPLAINED = {}
