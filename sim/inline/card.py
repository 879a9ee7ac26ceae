"""Plays frames through an RTL card and holds every output frame and counter against the model."""

from dataclasses import dataclass, field

import numpy as np
from amaranth.hdl import Shape
from gradnic.models.inline.card import InlineCard

from gradnic.interface.inline import COUNTERS, MAX_FRAME, REGISTERS

from ..engine import encoding
from ..frame.frames import SETTINGS

BUS_INPUTS = ("awaddr", "awvalid", "wdata", "wstrb", "wvalid", "bready")
BUS_INPUTS += ("araddr", "arvalid", "rready")
WRITE_CYCLES, READ_CYCLES = 6, 8  # more than the register bank takes
SIDES = {"tx": ("host_tx", "mac_tx"), "rx": ("mac_rx", "host_rx")}


def bus_script(writes=(), reads=()):
    """Levels of the AXI4-Lite inputs, one row a cycle: {signal: values}; the last one is idle.

    writes : (offset, word) pairs; reads : offsets, answered in order.
    """
    n = WRITE_CYCLES * len(writes) + READ_CYCLES * len(reads) + 1
    levels = {name: np.zeros(n, np.int64) for name in BUS_INPUTS}
    levels["bready"][:] = levels["rready"][:] = 1
    for k, (offset, word) in enumerate(writes):
        at = WRITE_CYCLES * k
        for name, value in (("awaddr", offset), ("wdata", word), ("wstrb", 15)):
            levels[name][at] = value
        levels["awvalid"][at] = levels["wvalid"][at] = 1
    for k, offset in enumerate(reads):
        at = WRITE_CYCLES * len(writes) + READ_CYCLES * k
        levels["araddr"][at] = offset
        levels["arvalid"][at] = 1
    return {f"bus__{name}": values for name, values in levels.items()}


@dataclass
class Traffic:
    """Frames for one input: (frame, bad mark), in order."""

    frames: list = field(default_factory=list)

    def add(self, frame, bad=False):
        self.frames.append((bytes(frame), bool(bad)))
        return self


class CardBench:
    """One RTL card, a batch instance, next to its golden twin.

    model : `gradnic.sim.engine.batch.Model` of an `InlineCard` with a side band of at least 16
    bits.
    settings : written to the registers of the card at the start, and given to the twin.
    golden : options of the twin.
    """

    def __init__(self, model, settings=SETTINGS, **golden):
        self.model = model
        self.instance = model.instance()
        self.golden = InlineCard(settings, **golden)
        self.configure(settings, reset=True)

    def configure(self, settings, *, reset=False):
        """Write the settings while the card is idle."""
        self.golden.settings = settings
        if reset:
            self.golden.counters = dict.fromkeys(self.golden.counters, 0)
        words = settings.words().items()
        self._bus(bus_script([(REGISTERS[name].offset, word) for name, word in words]), reset)

    def counters(self):
        """Counters of the circuit, read over the bus."""
        words = self._words(REGISTERS[name].offset for name in COUNTERS)
        return dict(zip(COUNTERS, words.values(), strict=True))

    def check_registers(self):
        """Hold every word that the bus reads against the twin's, after writes that do nothing."""
        settings = self.golden.settings.words()
        wanted = dict.fromkeys(range(0, 1 << REGISTERS.address_width, 4), 0)
        for name, word in (settings | self.golden.counters).items():
            wanted[REGISTERS[name].offset] = word
        used = {REGISTERS[name].offset for name in settings}
        self._bus(bus_script([(at, 0xFFFFFFFF) for at in wanted if at not in used]))
        got = self._words(wanted)
        wrong = {at: (got[at], wanted[at]) for at in wanted if got[at] != wanted[at]}
        if wrong:
            raise AssertionError(f"registers differ, as (circuit, model): {wrong}")

    def _words(self, offsets):
        """{offset: word} as the bus reads them."""
        offsets = list(offsets)
        run = self._bus(bus_script(reads=offsets), trace=("bus__rvalid", "bus__rdata"))
        values = run.traces["bus__rdata"][run.traces["bus__rvalid"].astype(bool)]
        if len(values) != len(offsets):
            raise AssertionError(f"bus: {len(values)} answers, not {len(offsets)}")
        return dict(zip(offsets, map(int, values), strict=True))

    def _bus(self, script, reset=False, trace=()):
        return self.instance.run(
            signals=script,
            reset=reset,
            drain=False,
            max_cycles=len(script["bus__awaddr"]) + 8,
            trace=trace,
            probe_cycles=0,
        )

    def play(self, tx=(), rx=(), *, check_counters=True, **options):
        """Send frames into both sides; AssertionError unless all that leaves is what the twin says.

        Foreign frames and ours are two sequences; within each the order must hold. The side band
        tells the frames apart. Returns the `Run`.
        """
        inputs, expected = {}, {}
        for side, frames in (("tx", tx), ("rx", rx)):
            frames = getattr(frames, "frames", frames)
            if not frames:
                continue
            port = SIDES[side][0]
            inputs[port] = self.model.pack_frames(
                port,
                [frame for frame, _ in frames],
                at_last={"bad": [int(bad) for _, bad in frames]},
                meta=_mark(np.arange(len(frames))),
            )
            self._noise(port, inputs[port], frames)
            expected[side] = self._expected(side, frames)
        # nothing moves while a frame of 16 KiB is dropped
        options = {"idle_cycles": 256 + MAX_FRAME // 16} | options
        run = self.instance.run(inputs, reset=False, **options)
        for side in SIDES:
            self._compare(side, run, expected.get(side, ([], [])))
        if check_counters:
            got, wanted = self.counters(), self.golden.counters
            wrong = {k: (got[k], wanted[k]) for k in wanted if got[k] != wanted[k]}
            if wrong:
                raise AssertionError(f"counters differ, as (circuit, model): {wrong}")
        return run

    def _noise(self, port, beats, frames):
        """Put noise behind the ends of frames: bytes that are not kept may be anything."""
        n_bytes = self.model.streams[port].shape["keep"].offset // 8
        sizes = np.array([len(frame) for frame, _ in frames])
        lasts = np.cumsum(-(-sizes // n_bytes)) - 1
        behind = np.arange(n_bytes) > ((sizes - 1) % n_bytes)[:, None]
        noise = np.random.default_rng(len(frames)).integers(1, 256, behind.shape, np.uint8)
        beats[lasts, :n_bytes] |= np.where(behind, noise, 0).astype(np.uint8)

    def _expected(self, side, frames):
        """((mark, frame, bad) of foreign frames, of ours)."""
        lists = ([], [])
        for number, (frame, bad) in enumerate(frames):
            cut = frame[:16384]
            kind = self.golden.kind_out(cut) if side == "tx" else self.golden.kind_in(cut)
            pass_on = self.golden.transmit if side == "tx" else self.golden.receive
            result = pass_on(frame, bad)
            if result is not None:
                lists[kind is not None].append((_mark(number), *result))
        return lists

    def _compare(self, side, run, expected):
        port = SIDES[side][1]
        shape = self.model.streams[port].shape
        beats = run.outputs[port]
        fields = encoding.unpack(shape, beats)
        frames = run.frames(port) if len(beats) else []
        lasts = np.flatnonzero(fields["last"])
        bads, metas = fields["bad"][lasts], fields["meta"]
        firsts = np.concatenate([[0], lasts[:-1] + 1]).astype(int) if len(lasts) else []
        places = [0, 0]
        marks = [{mark for mark, *_ in each} for each in expected]
        for k, frame in enumerate(frames):
            span = metas[firsts[k] : lasts[k] + 1]
            if (span != span[0]).any():
                raise AssertionError(f"{port}: side band changes within frame {k}")
            mark = int(span[0])
            got = (mark, frame, bool(bads[k]))
            which = int(mark in marks[1])
            if places[which] == len(expected[which]):
                raise AssertionError(f"{port}: frame {k} (mark {mark}) is one too many")
            wanted = expected[which][places[which]]
            places[which] += 1
            if got != wanted:
                raise AssertionError(_difference(port, k, got, wanted))
            n_bytes = shape["keep"].offset // 8
            behind = len(frame) - (lasts[k] - firsts[k]) * n_bytes
            if which and beats[lasts[k], behind:n_bytes].any():
                raise AssertionError(f"{port}: frame {k} has bytes behind its end that are not 0")
        for which, name in enumerate(("foreign frames", "frames of ours")):
            if places[which] != len(expected[which]):
                raise AssertionError(
                    f"{port}: {places[which]} {name}, not {len(expected[which])}; the first "
                    f"missing has mark {expected[which][places[which]][0]}"
                )


def _mark(number):
    """Side band of a frame: another one for each of 65,536 frames, with bits of all kinds."""
    return number * 0x9E37 & 0xFFFF


def _difference(port, k, got, wanted):
    if got[0] != wanted[0]:
        return f"{port}: frame {k} has mark {got[0]}, not {wanted[0]}"
    if got[2] != wanted[2]:
        return f"{port}: frame {k} (mark {got[0]}) has bad = {got[2]}, not {wanted[2]}"
    if len(got[1]) != len(wanted[1]):
        return f"{port}: frame {k} (mark {got[0]}) has {len(got[1])} bytes, not {len(wanted[1])}"
    at = next(i for i, (a, b) in enumerate(zip(got[1], wanted[1], strict=True)) if a != b)
    return (
        f"{port}: frame {k} (mark {got[0]}, {len(got[1])} bytes) differs from byte {at} on: "
        f"{got[1][at : at + 8].hex()}, not {wanted[1][at : at + 8].hex()}"
    )


def meta_width(model):
    """Bits of side band of a card's library."""
    return Shape.cast(model.streams["mac_tx"].shape["meta"].shape).width
