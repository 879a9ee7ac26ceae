"""A register whose bits change by themselves."""

import numpy as np
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.primitive.parity import CHUNK, astray, strayed
from gradnic.sim.engine import batch, stimulus

WIDTH = 2 * CHUNK + 6


class Watched(wiring.Component):
    """A record that a bench changes at will."""

    record: In(WIDTH)
    stands: In(1)
    strays: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.strays.eq(strayed(m, self.record, self.stands))
        return m


def test_one_bit_is_noticed_and_nothing_else():
    rng = stimulus.rng("parity")
    records, stands, wanted = [], [], []
    for bit in [None, *range(WIDTH), None]:
        value = rng.integers(0, 2, WIDTH, np.uint8)
        changes = rng.integers(0, 2, (int(rng.integers(1, 5)), WIDTH), np.uint8)  # as it is made
        at = int(rng.integers(2, 9))  # cycles for which it stands before the bit changes
        after = value.copy()
        if bit is not None:
            after[bit] ^= 1
        rows = [*changes, value, *[value] * at, *[after] * 4]
        records += rows
        stands += [0] * (len(changes) + 1) + [1] * (len(rows) - len(changes) - 1)
        noticed = 0 if bit is None else 3
        wanted += [0] * (len(rows) - noticed) + [1] * noticed
    rows = np.packbits(np.array(records), axis=1, bitorder="little")
    model = batch.build(Watched())
    signals = {"record": rows, "stands": stands}
    run = model.run({}, signals=signals, trace=["strays"], drain=False, max_cycles=len(rows))
    got = np.asarray(run.traces["strays"]).astype(int).ravel()
    # one more cycle of a record that is made again belongs to the one before
    ends = np.flatnonzero(np.diff(stands) == -1) + 1
    wanted = np.array(wanted)
    wanted[ends] = wanted[ends - 1]
    assert got.tolist() == wanted.tolist()


class Moving(wiring.Component):
    """Pointers that move when told, and of which a bench changes bits."""

    moves: In(1)
    flips: In(12)
    strays: Out(1)

    def elaborate(self, platform):
        m = Module()
        first, second = Signal(5), Signal(7, init=9)
        flipped = Cat(first, second) ^ self.flips
        m.d.sync += Cat(first, second).eq(flipped)
        with m.If(self.moves):
            m.d.sync += [first.eq(first + 3), second.eq(second + 1)]
        m.d.comb += self.strays.eq(astray(m, (first, second), self.moves))
        return m


def test_pointers_that_rest_are_watched_and_those_that_move_are_not_suspected():
    rng = stimulus.rng("astray")
    moves, flips, wanted = [], [], []
    for bit in [None, *range(12), None]:
        some = rng.integers(0, 2, 40).tolist()
        moves += [*some, 0, 0, 0, 0, 0, 0, 1, 0, 0]
        flips += [0] * 42 + [0 if bit is None else 1 << bit] + [0] * 6
        wanted += [0] * 44 + [int(bit is not None)] * 4 + [0]  # until it has moved again
    model = batch.build(Moving())
    signals = {"moves": moves, "flips": flips}
    run = model.run({}, signals=signals, trace=["strays"], drain=False, max_cycles=len(moves))
    assert np.asarray(run.traces["strays"]).astype(int).ravel().tolist() == wanted
