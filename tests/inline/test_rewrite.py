"""New heads: what circuit and model make of frames whose payload changed."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inline.rewrite import HeadMath, HeadPatcher, NewHead, head_bytes
from gradnic.hdl.stream.beats import Beat
from gradnic.models.inline import parser, rewrite
from gradnic.sim.engine import batch, encoding, stimulus
from gradnic.sim.frame import frames as makers

from gradnic.interface.formats import HEAD_BYTES, IPV4
from gradnic.interface.inline import MAX_FLOATS

N = 32
LATENCY = 5  # cycles of the sums, and one of the patch


class Rewriter(wiring.Component):
    """Both circuits in a row: a frame's new values meet its beats."""

    def __init__(self, *, receive):
        self.math = HeadMath(1, receive=receive)
        self.patcher = HeadPatcher(N, receive=receive)
        beats = stream.Signature(Beat(8 * N))
        heads = stream.Signature(self.math.input)
        super().__init__({"heads": In(heads), "i": In(beats), "o": Out(beats), "rest": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.math, m.submodules.patcher = math, patcher = self.math, self.patcher
        wiring.connect(m, wiring.flipped(self.heads), math.i)
        wiring.connect(m, wiring.flipped(self.i), patcher.i)
        wiring.connect(m, patcher.o, wiring.flipped(self.o))
        m.d.comb += [
            patcher.patches.valid.eq(math.o.valid),
            patcher.patches.p.eq(math.o.p.patch),
            math.o.ready.eq(patcher.patches.ready),
            self.rest.eq(math.o.p.rest),
        ]
        return m


def base_of(frame):
    """Sum of the words of the IPv4 header that a new head leaves as they are."""
    words = np.frombuffer(frame[IPV4.start : IPV4.stop], ">u2").astype(int)
    return int(words[[2, 3, 4, 6, 7, 8, 9]].sum())


def changed(rng, n, receive):
    """(what the head is made of, beats' bytes as stored, the golden frame) of `n` frames."""
    for k in range(n):
        native = bool(rng.integers(2))
        count = int(rng.choice([1, 8, MAX_FLOATS, rng.integers(1, 300)]))
        frame = bytearray(makers.own_frames(rng, 10)["native" if native else "paper"])
        frame[IPV4.start + 4 : IPV4.start + 9] = rng.bytes(5)  # what a router may put there
        frame[IPV4.start + 12 : IPV4.start + 20] = (rng.bytes(8), b"\xff" * 8)[k % 7 == 0]
        unit = parser.Unit(
            native, HEAD_BYTES if native else parser.inline.PAPER_START, 40, count,
            exponent=int(rng.integers(128)), paper=bool(rng.integers(2)),
            prescale=int(rng.integers(-128, 128)), limit=0, tos=int(rng.integers(256)),
        )  # fmt: skip
        size = 4 * count if receive else int(rng.choice([1, 2, 2 + 4 * count]))
        n_head = head_bytes(native, receive=receive)
        if k % 3 == 0:  # a sum of words whose carries carry once more
            IPV4.identification.put(frame, 0)
            rest = base_of(frame) + 0x4500 + unit.tos + n_head + size - IPV4.start
            IPV4.identification.put(frame, (0xFFFF - k % 4 - rest) % 2**16)
        head = (rewrite.restored_head if receive else rewrite.coded_head)(bytes(frame), unit)
        assert len(head) == n_head
        stored = bytes(frame).ljust(n_head, b"\0")[:n_head] + rng.bytes(-n_head % N)
        new = {"base": base_of(frame), "n_payload": size}
        new |= {name: int(getattr(unit, name)) for name in ("native", "count", "exponent", "paper")}
        new |= {"prescale": unit.prescale, "tos": unit.tos}
        golden = rewrite.finish(head, bytes(size))[:n_head] + stored[n_head:]
        yield new, stored, golden


@pytest.mark.parametrize("receive", [False, True])
def test_heads_equal_the_golden_ones(receive):
    rng = stimulus.rng("rewrite", receive)
    model = batch.build(Rewriter(receive=receive))
    cases = list(changed(rng, 200, receive))
    kept = rng.random(len(cases)) < 0.2  # stay as they are, whatever the head says
    shape = NewHead(MAX_FLOATS)
    names = [name for name, _ in shape]
    rows = encoding.pack(shape, **{name: [new[name] for new, *_ in cases] for name in names})
    whole = data.StructLayout({"rewrite": 1, "head": shape, "rest": 1})
    heads = encoding.pack(whole, rewrite=~kept, head=rows)
    given = model.pack_frames("i", [stored for _, stored, _ in cases])
    wanted = [
        stored if keep else golden for (_, stored, golden), keep in zip(cases, kept, strict=True)
    ]
    inputs = {"heads": heads, "i": given}
    for _, stalls in stimulus.stall_grid(("heads", "i"), ("o",)):
        run = model.run(inputs, stalls=stalls)
        run.check(o=model.pack_frames("o", wanted))
    run = model.run(inputs)
    assert np.ptp(run.taken["o"]) == len(given) - 1  # a beat a cycle, and frames back to back
    assert run.taken["o"][0] - run.taken["heads"][0] == LATENCY
