"""Compressor and decompressor in a chain, and floats in bulk through it, all of them checked."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.compressor import SIZE, UNCODED_UNIT, Compressor
from gradnic.hdl.inceptionn.decompressor import VERDICT, Decompressor
from gradnic.hdl.stream.beats import Beat, FrameBeat, UnitBeat
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.stream.slice import Fork
from gradnic.models import inceptionn

from ..engine import encoding, stimulus
from ..engine.bulk import COPIES, Bulk

N_FLOATS = 336  # of most packets, as at MTU 1500
N_UNITS = 64  # a copy and round
IDLE = 200  # cycles without a beat after which all is through


class Chain(wiring.Component):
    """What a compressor codes goes to a decompressor at once, and can be watched on its way.

    Members
    -------
    units, floats : In(stream.Signature(UNCODED_UNIT)), In(stream.Signature(UnitBeat(32 * n_lanes)))
    sizes, coded : Out, streams of the compressor: what it says and sends to the decompressor.
    verdicts, restored : Out, streams of the decompressor.
    """

    def __init__(self, n_lanes):
        self.compressor, self.decompressor = Compressor(n_lanes), Decompressor(n_lanes)
        super().__init__(
            {
                "units": In(stream.Signature(UNCODED_UNIT)),
                "floats": In(stream.Signature(UnitBeat(32 * n_lanes))),
                "sizes": Out(stream.Signature(SIZE)),
                "coded": Out(stream.Signature(FrameBeat(4 * n_lanes))),
                "verdicts": Out(stream.Signature(VERDICT)),
                "restored": Out(stream.Signature(Beat(32 * n_lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.compressor = coder = self.compressor
        m.submodules.decompressor = decoder = self.decompressor
        m.submodules.units = units = Fork(UNCODED_UNIT, 2)
        m.submodules.known = known = FIFO(UNCODED_UNIT, 64)
        m.submodules.sizes = sizes = Fork(SIZE, 2)
        m.submodules.coded = coded = Fork(FrameBeat(coder.n_bytes), 2)
        size, unit, announced = sizes.o[1], known.o, decoder.units
        for source, sink in (
            (wiring.flipped(self.units), units.i),
            (units.o[0], coder.units),
            (units.o[1], known.i),
            (wiring.flipped(self.floats), coder.floats),
            (coder.sizes, sizes.i),
            (sizes.o[0], wiring.flipped(self.sizes)),
            (coder.coded, coded.i),
            (coded.o[0], wiring.flipped(self.coded)),
            (decoder.verdicts, wiring.flipped(self.verdicts)),
            (decoder.floats, wiring.flipped(self.restored)),
        ):
            wiring.connect(m, source, sink)
        m.d.comb += [
            announced.p.bytes.eq(size.p.bytes),
            *(
                announced.p[name].eq(unit.p[name])
                for name in ("count", "exponent", "paper", "prescale")
            ),
            announced.valid.eq(size.valid & unit.valid & ~size.p.dropped),
            size.ready.eq(unit.valid & (announced.ready | size.p.dropped)),
            unit.ready.eq(size.valid & size.ready),
            decoder.coded.p.data.eq(coded.o[1].p.data),
            decoder.coded.p.last.eq(coded.o[1].p.last),
            decoder.coded.valid.eq(coded.o[1].valid),
            coded.o[1].ready.eq(decoder.coded.ready),
        ]
        return m


@cache
def chain(n_lanes):
    """256 chains of engines, built once a process."""
    return Bulk(Chain(n_lanes))


def play(n_lanes, number, *, n_units=N_UNITS, stalls=0):
    """One round: `n_units` packets through each of 256 chains, compared with the model.

    number : of the round; seeds floats, settings and counts. Three packets in four have 336
        floats, the others 1 to 700; every packet has settings of its own.
    stalls : as of `Bulk.run`.

    Returns (floats, cycles, processor seconds in the circuit). AssertionError with what differs.
    """
    generator = stimulus.rng("chain", number)
    units = [_unit(generator) for _ in range(n_units)]
    sizes, coded, restored, given = [], [], [], []
    lane_bytes = 4 * n_lanes
    for count, options in units:
        bits = stimulus.float_noise(COPIES * count, generator, center=119, spread=9)
        floats = bits.reshape(COPIES, count).view(np.float32)
        octets = [inceptionn.compress(row, **options) for row in floats]
        sizes.append([len(o) for o in octets])
        coded.append([o + bytes(-len(o) % lane_bytes) for o in octets])
        given.append(_beats(floats, n_lanes))
        restored.append(_beats(inceptionn.image(floats, **options), n_lanes))
    bulk = chain(n_lanes)
    n_beats = sum(map(len, given))
    fields = {
        "count": [count for count, _ in units],
        "exponent": [options["exponent"] for _, options in units],
        "paper": [options["mode"] == "paper" for _, options in units],
        "prescale": [options["prescale"] for _, options in units],
        "limit": 65535,
    }
    rows = _rows(bulk, "units", encoding.pack(UNCODED_UNIT, **fields))
    inputs = {
        "units": (np.repeat(rows[:, None], COPIES, axis=1), np.full(COPIES, n_units)),
        "floats": (_frames(bulk, "floats", given), np.full(COPIES, n_beats)),
    }
    sizes = np.array(sizes).T  # (copy, unit)
    most = int((-(-sizes // lane_bytes)).sum(axis=1).max())
    most = {"sizes": n_units, "verdicts": n_units, "coded": most, "restored": n_beats}
    start = time.thread_time()
    outputs, cycles = bulk.run(
        inputs,
        most,
        max_cycles=(2 * IDLE + 8 * n_beats) << stalls,
        idle_cycles=IDLE << stalls,
        stalls=stalls,
        seed=number,
    )
    seconds = time.thread_time() - start
    expected = {
        "sizes": _rows(bulk, "sizes", encoding.pack(SIZE, bytes=sizes.reshape(-1), dropped=0)),
        "verdicts": _rows(bulk, "verdicts", np.ones((COPIES * n_units, 1), np.uint8)),
        "coded": _coded_rows(bulk, sizes, coded, lane_bytes),
        "restored": _frames(bulk, "restored", restored)
        .swapaxes(0, 1)
        .reshape(COPIES * n_beats, -1),
    }
    for port, wanted in expected.items():
        rows, counts = outputs[port]
        got = rows.swapaxes(0, 1)[np.arange(len(rows)) < counts[:, None]]
        if counts.max() > len(rows) or not np.array_equal(got, wanted):
            raise AssertionError(f"round {number}: {port} differs from the model")
    return COPIES * sum(count for count, _ in units), cycles, seconds


def _unit(generator):
    """(count, options) of a packet."""
    count = N_FLOATS if generator.random() < 0.75 else int(generator.integers(1, 701))
    mode = ("strict", "paper")[int(generator.integers(2))]
    exponent, prescale = int(generator.integers(113, 127)), int(generator.integers(-3, 4))
    return count, {"exponent": exponent, "mode": mode, "prescale": prescale}


def _beats(floats, n_lanes):
    """Bytes of floats (copies, n) in whole beats: (beats, copies, bytes)."""
    padded = np.pad(floats, ((0, 0), (0, -floats.shape[1] % n_lanes)))
    return padded.view(np.uint8).reshape(COPIES, -1, 4 * n_lanes).swapaxes(0, 1)


def _rows(bulk, port, beats):
    """Beats as `encoding` packs them, in rows of whole words."""
    return np.pad(beats, ((0, 0), (0, bulk.row_bytes(port) - beats.shape[1])))


def _frames(bulk, port, parts):
    """Rows of frames whose payload is `data` and, above it, `last`: (beats, copies, row_bytes)."""
    n_beats = [len(part) for part in parts]
    rows = np.zeros((sum(n_beats), COPIES, bulk.row_bytes(port)), np.uint8)
    width = parts[0].shape[2]
    rows[:, :, :width] = np.concatenate(parts)
    rows[np.cumsum(n_beats) - 1, :, width] = 1
    return rows


def _coded_rows(bulk, sizes, coded, lane_bytes):
    """Rows of the coded units, copy after copy: data, keep, last."""
    n_copies, n_units = sizes.shape
    octets = b"".join(coded[unit][copy] for copy in range(n_copies) for unit in range(n_units))
    n_beats = -(-sizes.reshape(-1) // lane_bytes)
    last = np.cumsum(n_beats) - 1
    n_kept = np.full(last[-1] + 1, lane_bytes)
    n_kept[last] = (sizes.reshape(-1) - 1) % lane_bytes + 1
    keep = np.packbits(np.arange(lane_bytes) < n_kept[:, None], axis=1, bitorder="little")
    rows = np.zeros((len(n_kept), bulk.row_bytes("coded")), np.uint8)
    rows[:, :lane_bytes] = np.frombuffer(octets, np.uint8).reshape(-1, lane_bytes)
    rows[:, lane_bytes : lane_bytes + lane_bytes // 8] = keep
    rows[last, lane_bytes + lane_bytes // 8] = 1
    return rows


def run(*, n_lanes=16, n_floats=100_000_000, jobs=None, stalls=0, seed=1, progress=None):
    """Play rounds until `n_floats` have gone through; `jobs` threads, default one a core.

    progress : called with (floats done, floats in all), first when the model is compiled.

    Returns a dict: ``n_lanes floats cycles seconds floats_per_s circuit_floats_per_s``. Seconds are
    those of processors, of all threads, the same as elapsed time of one thread on a quiet machine;
    the first rate counts all, making the floats and comparing included, the second the circuit.
    """
    chain(n_lanes)
    play(n_lanes, 0, n_units=1)  # compiles the model
    jobs = jobs or os.cpu_count() or 1
    done = cycles = number = 0
    in_circuit = 0.0
    if progress:
        progress(0, n_floats)
    start = time.process_time()
    with ThreadPoolExecutor(jobs) as pool:
        while done < n_floats:
            numbers = range(seed * 1_000_000 + number, seed * 1_000_000 + number + jobs)
            for n, n_cycles, seconds in pool.map(
                lambda k: play(n_lanes, k, stalls=stalls), numbers
            ):
                done, cycles, in_circuit = done + n, cycles + n_cycles, in_circuit + seconds
                if progress:
                    progress(min(done, n_floats), n_floats)
            number += jobs
    seconds = time.process_time() - start
    return {
        "n_lanes": n_lanes,
        "floats": done,
        "cycles": cycles * COPIES,
        "seconds": round(seconds, 2),
        "floats_per_s": done / seconds,
        "circuit_floats_per_s": done / in_circuit,
    }
