"""Reads the head of each frame of ours: is it sound, and does it come from a neighbor.

A part of `gradnic.hdl.offload.card`; golden model: `gradnic.models.offload.parser`.
"""

from amaranth.hdl import Cat, Const, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP
from gradnic.interface.offload import Drop

from ..frame.classes import FrameClass
from ..frame.head import RAW_HEAD, envelope, registered
from ..frame.parser import HeadParser, checked, sound_flags
from ..frame.round_robin import first_of
from ..primitive.setting import setting
from ..stream.delays import delayed, late
from ..transport.neighbor_table import neighbor_table
from ..transport.records import (
    EPOCH_WIDTH,
    HEAD_FIELDS,
    N_NEIGHBORS,
    Context,
    Neighbor,
    NeighborWrite,
    Over,
    PacketHead,
    Round,
)


def least_beats(n_bytes: int) -> int:
    """Beats of the shortest frame that `gradnic.hdl.frame.intake.Intake` takes for ours, or
    fewer: it has a JOB.
    """
    return 2 if n_bytes < GRADNIC.job.stop else 1


def Facts(n_contexts: int = 0):
    """What the head says of a frame.

    check : what `FrameCheck` needs; its fate is LENGTH or CHECKSUM where the head shows it.
    drop : FORMAT, OWNER or NONE, where nothing else is wrong.
    head : without ``body``. ready, stale, tree : as of `Arrival`. place : of the context, if any.
    """
    place = {"place": Place(n_contexts)} if n_contexts else {}
    return data.StructLayout(
        {"check": FrameClass(), "drop": 4, "head": PacketHead, "ready": 1, "stale": 1, "tree": 1}
        | place
    )


def Place(n_contexts):
    """Which context a packet is of, if it is ``ready``, and its epoch when the packet came."""
    return data.StructLayout({"context": range(n_contexts), "epoch": EPOCH_WIDTH})


class PacketParser(HeadParser):
    """Reads the heads of our frames: the beats come out behind the facts of their frame.

    Full rate. Facts are offered 9 cycles after the frame's 64th byte, or its last, came in; until
    then the beats wait in a queue.

    Parameters
    ----------
    n_bytes, n_ports : int
        Bytes of a beat, 16, 32 or 64, or 128 as `HeadApart` gives them; ports of the card.
    n_contexts : int
        Rounds side by side; 0: there is one, ``round``.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        Frames long enough for a JOB. ``meta`` is the port.
    beats : Out(stream.Signature(FrameBeat(n_bytes)))
    facts : Out(stream.Signature(Facts()))
    round : In(Round)
    write : In(NeighborWrite(n_ports))
        Of a node under several numbers, the lowest counts.
    contexts : In(ArrayLayout(Context, n_contexts))
        Only with contexts; of ``round`` nothing is looked at then.
    asked, over : Out(16), In(Over)
        Only with contexts: a tensor, and what is over of it, in the same cycle.
    """

    depth = 6

    def __init__(self, n_bytes: int, n_ports: int, *, n_contexts: int = 0) -> None:
        self.n_ports, self.n_contexts = n_ports, n_contexts
        several = {
            "contexts": In(data.ArrayLayout(Context, n_contexts)),
            "asked": Out(16),
            "over": In(Over),
        }
        self.neighbor = Neighbor(n_ports)
        super().__init__(
            n_bytes,
            meta_width=self.neighbor["port"].width,
            facts=Facts(n_contexts),
            members={
                "round": In(Round),
                "write": In(NeighborWrite(n_ports)),
                **(several if n_contexts else {}),
            },
            least_beats=least_beats(n_bytes),
            half_rate=True,
        )

    def judge(self, m, head, port, whole):
        """See `HeadParser`."""
        field = head.field
        gap = max(0, self.n_bytes - HEAD_BYTES)
        sums = envelope(m, head, whole=whole & (field(UDP.length) >= RAW_HEAD), gap=gap)
        src = field(GRADNIC.src)
        nodes, neighbors = self._neighbors(m)
        entry = Signal(PacketHead)
        m.d.comb += [
            *(entry[name].eq(field(GRADNIC[name])) for name in HEAD_FIELDS),
            entry.tos.eq(field(IPV4.tos)),
            entry.path.eq(field(UDP.source_port)),
            entry.length.eq(field(UDP.length) - RAW_HEAD),
        ]
        one = registered(
            m,
            1,
            entry=entry,
            known_node=Cat((src == node) & valid for node, valid in nodes),
            port=port,
            mac=field(ETHERNET.source),
            ip=field(IPV4.source),
            tree=field(GRADNIC.tree) != 0,
            **sound_flags(field),
            **self._compare(m, field(GRADNIC.tensor), field(GRADNIC.gen)),
        )
        two = registered(
            m,
            2,
            neighbor=first_of(one.known_node),
            found=one.known_node.any(),
            sound=one.known & one.same_set,
            **self._find(one),
        )
        m.d.comb += neighbors.addr.eq(two.neighbor)
        three = registered(m, 3, neighbor=neighbors.data)
        mac, ip, at = (delayed(m, of, 2) for of in (one.mac, one.ip, one.port))
        four = registered(
            m,
            4,
            from_mac=three.neighbor.mac == mac,
            from_ip=three.neighbor.ip == ip,
            from_port=three.neighbor.port == at,
        )
        found, sound = (delayed(m, flag, 2) for flag in (two.found, two.sound))
        five = registered(
            m,
            5,
            owner=found & four.from_mac & four.from_ip & four.from_port,
            sound=sound,
        )
        result = Signal(Facts(self.n_contexts), reset_less=True)
        if self.n_contexts:
            m.d.sync += result.place.eq(delayed(m, two.place, 3, name="place"))
        m.d.sync += [
            result.head.eq(late(m, one.entry, 4, name="entry")),
            result.head.neighbor.eq(delayed(m, two.neighbor, 3, name="neighbor")),
            result.ready.eq(delayed(m, two.ready, 3, name="ready")),
            result.stale.eq(delayed(m, two.stale, 3, name="stale")),
            result.tree.eq(delayed(m, one.tree, 4, name="tree")),
            result.drop.eq(Mux(five.sound, Mux(five.owner, Drop.NONE, Drop.OWNER), Drop.FORMAT)),
            *checked(result.check, sums),
        ]
        return result

    def _compare(self, m, tensor, gen):
        """What is known of a packet's round in one cycle, by name, and then by `_find`."""
        round_ = self.round
        if not self.n_contexts:
            return {
                "same_tensor": tensor == round_.tensor,
                "same_gen": gen == round_.gen,
                "last_tensor": tensor == round_.last_tensor,
                "older": ~(round_.last_gen - gen)[15],
            }
        m.d.comb += self.asked.eq(tensor)
        contexts = self.contexts
        return {
            "same": Cat((tensor == c.tensor) & (gen == c.gen) & c.armed for c in contexts),
            "newer": Cat((tensor == c.tensor) & ~(c.gen - gen)[15] & c.armed for c in contexts),
            "epochs": Cat(c.epoch for c in contexts),
            "last_tensor": self.over.valid & (tensor == self.over.tensor),
            "older": ~(self.over.gen - gen)[15],
        }

    def _find(self, one):
        if not self.n_contexts:
            round_ = self.round
            return {
                "ready": round_.armed & one.same_tensor & one.same_gen,
                "stale": one.last_tensor & one.older & round_.over,
            }
        held = Signal(Place(self.n_contexts))
        index, epoch = Const(0, len(held.context)), Const(0, EPOCH_WIDTH)
        for k in range(self.n_contexts):
            index = Mux(one.same[k], k, index)
            epoch = Mux(one.same[k], one.epochs.word_select(k, EPOCH_WIDTH), epoch)
        return {
            "ready": one.same.any(),
            # a round of its tensor that is active or over is not before this one
            "stale": ~one.same.any() & (one.newer.any() | (one.last_tensor & one.older)),
            "place": Cat(index[: len(held.context)], epoch),
        }

    def _neighbors(self, m):
        """Registers (node, valid) of all neighbors, and a port to read one of them."""
        nodes = [
            (setting(m, 8, f"node{k}"), setting(m, 1, f"valid{k}")) for k in range(N_NEIGHBORS)
        ]
        read = neighbor_table(m, self.neighbor, self.write)
        for k, (node, valid) in enumerate(nodes):
            with m.If(self.write.enable & (self.write.index == k)):
                m.d.sync += [
                    node.eq(self.write.neighbor.node),
                    valid.eq(self.write.neighbor.valid),
                ]
        return nodes, read
