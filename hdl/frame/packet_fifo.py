"""Store-and-forward queue of whole frames: waits when it is full, or loses the frame.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Const, Module, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.block_fifo import BlockFIFO


class PacketFIFO(wiring.Component):
    """Keeps a frame until its last beat was taken; then offers all of it, or none.

    A frame that is dropped with its last beat vanishes. The first beat of a frame is offered 7
    cycles after its last beat was taken; 1 beat per cycle in and out, which takes a store of two
    frames if frames follow each other without a gap.

    When full, ``i.ready`` is low until beats have left. A frame of more than ``depth`` beats
    vanishes: its first ``depth`` beats are given up, and the rest is swallowed up to its ``last``;
    so the queue never waits for itself. With `lossy` ``i.ready`` is always high, and a frame that
    finds no room for one of its beats vanishes; frames must have at most ``depth`` beats then
    (`gradnic.hdl.frame.length_guard`), or the queue fills for good.

    With `cut_through` beats do not wait for the end of their frame, which may be of any length: a
    beat is offered 7 cycles after it came. A frame that finds no room for its first beat vanishes;
    one that runs out of room in its middle is cut, and a last beat of undefined data ends it.

    Parameters
    ----------
    shape : data.StructLayout
        Payload of both streams, with a field ``last`` and the one named by ``drop``, 1 bit each.
    depth : int
        Beats of the longest frame, 1 to 16384; the store is rounded up to a power of two, at
        least 4.
    drop : str or None
        Field that drops the frame if it is 1 on the last beat; it has no meaning on others. None:
        the member ``drop`` does.
    lossy : bool
    cut_through : bool
        With `lossy`; no frame can be dropped: `drop` must be None, and there is no such member.

    Members
    -------
    i, o : In, Out(stream.Signature(shape))
        Frames leave as they came; the drop field of a last beat is 0.
    drop : In(1)
        Where no field is: counts with the last beat.
    overflow : Out(1)
        High for one cycle per frame that did not fit.
    stores : Out(1)
        With `lossy`: the beat of this cycle finds room.
    """

    def __init__(
        self,
        shape: ShapeLike,
        depth: int,
        *,
        drop: str | None = "drop",
        lossy: bool = False,
        cut_through: bool = False,
    ) -> None:
        if not isinstance(shape, data.StructLayout):
            raise ValueError(f"shape must be a StructLayout, not {shape!r}")
        for field in ("last", *([] if drop is None else [drop])):
            if field not in shape.members:
                raise ValueError(f"shape must have a field {field!r}, not only {[*shape.members]}")
        if cut_through and not (lossy and drop is None):
            raise ValueError(f"cut_through goes with lossy and drop None, not {lossy}, {drop!r}")
        self.shape = shape
        self.depth = depth
        self.drop_field, self.lossy, self.cut_through = drop, lossy, cut_through
        self.ring = BlockFIFO(shape, depth, commits=not cut_through)
        self.n_taken = Signal(range(depth))  # beats of the current frame in the store
        self.at_limit = Signal(init=int(depth == 1))  # n_taken == depth - 1
        self.swallowing = Signal()  # the rest of this frame is not stored
        # of lossy ones: the ring took beats of a frame that has not ended; or they are to be
        # discarded, or ended, with the next beat that the ring takes
        self.inside = Signal()
        self.owed = Signal()
        members = {
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "overflow": Out(1),
        }
        if lossy:
            members["stores"] = Out(1)
        if drop is None and not cut_through:
            members["drop"] = In(1)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ring = ring = self.ring
        wiring.connect(m, ring.o, wiring.flipped(self.o))
        if self.cut_through:
            drop = Const(0)
        else:
            drop = self.drop if self.drop_field is None else self.i.p[self.drop_field]
        (self._lose if self.lossy else self._wait)(m, ring, self.i.p.last, drop)
        return m

    def _wait(self, m, ring, last, drop):
        """Frames wait for room; those that are too long are swallowed."""
        wiring.connect(m, wiring.flipped(self.i), ring.i)
        too_long = self.at_limit & ~last & ~self.swallowing
        m.d.comb += [
            ring.commit.eq(last & ~drop & ~self.swallowing),
            ring.discard.eq((last & drop) | self.swallowing | too_long),
        ]
        m.d.sync += self.overflow.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += self.overflow.eq(too_long)
            with m.If(last):
                m.d.sync += [
                    self.n_taken.eq(0),
                    self.at_limit.eq(self.depth == 1),
                    self.swallowing.eq(0),
                ]
            with m.Elif(~self.at_limit):
                m.d.sync += [
                    self.n_taken.eq(self.n_taken + 1),
                    self.at_limit.eq(self.n_taken == self.depth - 2),
                ]
            with m.Else():
                m.d.sync += self.swallowing.eq(1)

    def _lose(self, m, ring, last, drop):
        """A beat without room takes its frame with it."""
        losing, inside, owed, stores = self.swallowing, self.inside, self.owed, self.stores
        m.d.comb += [
            self.i.ready.eq(1),
            stores.eq(self.i.valid & ring.i.ready & ~losing & ~owed),
            ring.i.p.eq(self.i.p),
            ring.i.valid.eq((self.i.valid & ~losing) | owed),
        ]
        if self.cut_through:
            m.d.comb += ring.i.p.last.eq(last | owed)
        else:
            m.d.comb += [
                ring.commit.eq(stores & last & ~drop),
                ring.discard.eq(owed | (last & drop)),
            ]
        m.d.sync += self.overflow.eq(self.i.valid & last & ~stores & ~drop)
        with m.If(owed & ring.i.ready):
            m.d.sync += owed.eq(0)
        with m.If(self.i.valid):
            m.d.sync += losing.eq(~last & (losing | ~stores))
            with m.If(stores):
                m.d.sync += inside.eq(~last)
            with m.Elif(inside):
                m.d.sync += [inside.eq(0), owed.eq(1)]
