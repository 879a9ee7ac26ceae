"""Reads the head of each frame of ours: may its sender speak, and what does it contribute.

The table behind it: docs/spec/wire.md. Twin of `gradnic.models.aggregation.parser`; a part of the
gate.
"""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In
from amaranth.utils import ceil_log2

from gradnic.interface.aggregator import MAX_JOBS, MAX_PORTS, Refusal
from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, Op
from gradnic.interface.params import check_power, check_range
from gradnic.interface.switchml import SWITCHML, VALUES

from ..frame.classes import FrameClass
from ..frame.head import RAW_HEAD, envelope, registered
from ..frame.intake import Names, known_jobs
from ..frame.parser import HeadParser, checked, place_of, sound_flags
from ..primitive.zeroed_table import ZeroedTable
from ..stream.delays import delayed
from .slot_records import ContributionHead, JobRegisters

SWITCHML_HEAD = SWITCHML.stop - UDP.start

Child = data.StructLayout({"mac": 48, "ip": 32, "udp_port": 16, "src": 5, "enabled": 1})
"""A child of a job at a port: who may speak there, and where its answers go."""


def index_width(n):
    """Bits of a number below `n`, at least 1."""
    return max(1, ceil_log2(n))


def check_shape(n_bytes, *, n_jobs, n_ports=1) -> None:
    """ValueError unless parts of an aggregator come in such sizes."""
    check_power("n_bytes", n_bytes, 16, 64)
    check_range("n_ports", n_ports, 1, MAX_PORTS)
    check_range("n_jobs", n_jobs, 1, MAX_JOBS)


def turned_words(value):
    """`value` with the bytes of each of its 32-bit words in the other order."""
    octets = [value[k : k + 8] for k in range(0, len(value), 8)]
    return Cat(octets[k ^ 3] for k in range(len(octets)))


def ChildWrite(n_ports, n_jobs):
    """One entry of the table of children to be written while ``enable`` is 1."""
    places = {"enable": 1, "port": index_width(n_ports), "job": index_width(n_jobs), "child": Child}
    return data.StructLayout(places)


def Facts(port_width):
    """What the head says of a frame.

    check : what `FrameCheck` needs; its fate is LENGTH or CHECKSUM where the head shows it.
    refusal : FORMAT, OWNER, COLLISIONS or NONE, where nothing else is wrong.
    switchml, head : its format, and the contribution.
    port : where the frame came in.
    """
    return data.StructLayout(
        {
            "check": FrameClass(),
            "refusal": 3,
            "switchml": 1,
            "head": ContributionHead,
            "port": port_width,
        }
    )


class ContributionParser(HeadParser):
    """Reads the heads of our frames: the beats come out behind the facts of their frame.

    Full rate. Facts are offered 10 cycles after the frame's 64th byte, or its last, came in; until
    then the beats wait in a queue. All tables are read once per frame.

    Parameters
    ----------
    n_bytes, n_ports, n_jobs : int
        Bytes of a beat, 16, 32 or 64; pairs of ports, 1 to 32; places in the table of jobs, 1 to
        16.

    Members
    -------
    i : In(stream.Signature(FrameBeat(n_bytes, meta_width=...)))
        ``meta``: 2 * port, and 1 more where the frame came from the network.
    beats : Out(stream.Signature(FrameBeat(n_bytes)))
    facts : Out(stream.Signature(Facts(...)))
    names : In(Names(n_jobs))
    jobs : In(ArrayLayout(JobRegisters, n_jobs))
        For the slots that each job owns.
    write : In(ChildWrite(n_ports, n_jobs))
    """

    depth = 7
    stops = (HEAD_BYTES, SWITCHML.stop)

    def __init__(self, n_bytes: int, n_ports: int, n_jobs: int) -> None:
        check_shape(n_bytes, n_ports=n_ports, n_jobs=n_jobs)
        self.n_ports, self.n_jobs = n_ports, n_jobs
        meta_width = 1 + index_width(n_ports)
        super().__init__(
            n_bytes,
            meta_width=meta_width,
            facts=Facts(meta_width),
            members={
                "names": In(Names(n_jobs)),
                "jobs": In(data.ArrayLayout(JobRegisters, n_jobs)),
                "write": In(ChildWrite(n_ports, n_jobs)),
            },
        )

    def judge(self, m, head, port, whole):
        """See `HeadParser`."""
        field = head.field
        udp = field(UDP.length)
        native, switchml = (
            jobs & port.replicate(len(jobs)) for port, jobs in known_jobs(self.names, field)
        )
        is_switchml = switchml.any()
        entry = self._contribution(m, field, is_switchml)
        sums = envelope(
            m,
            head,
            whole=Mux(is_switchml, whole[1] & (udp >= SWITCHML_HEAD), whole[0] & (udp >= RAW_HEAD)),
        )
        one = registered(
            m,
            1,
            entry=entry,
            switchml=is_switchml,
            knows=native | switchml,
            port=port,
            mac=field(ETHERNET.source),
            ip=field(IPV4.source),
            speaks=(is_switchml | (~field(GRADNIC.ph) & (field(GRADNIC.src) < 32))) & ~port[0],
            **{name: is_switchml | flag for name, flag in sound_flags(field).items()},
        )
        job = place_of(one.knows, self.n_jobs)
        two = registered(
            m,
            2,
            job=job,
            port=one.port,
            slot=one.entry.slot,
            sound=one.known & one.same_set,
        )
        child = self._child(m, two)
        mine = Array(self.jobs)[two.job]
        three = registered(
            m,
            3,
            child=child,
            first_slot=mine.first_slot,
            n_slots=mine.n_slots,
            slot=two.slot,
        )
        known = {"mac": one.mac, "ip": one.ip, "speaks": one.speaks, "switchml": one.switchml}
        ahead = {name: delayed(m, value, 2, name=name) for name, value in known.items()}
        src = delayed(m, one.entry.src, 2)
        named = ahead["switchml"] | (three.child.src == src)  # SwitchML names nobody
        four = registered(
            m,
            4,
            switchml=ahead["switchml"],
            src=three.child.src,
            is_child=named & three.child.enabled & ahead["speaks"],
            from_mac=three.child.mac == ahead["mac"],
            from_ip=three.child.ip == ahead["ip"],
            offset=three.slot[:13] - three.first_slot,  # negative: below the first
            n_slots=three.n_slots,
        )
        five = registered(
            m,
            5,
            owner=four.is_child & four.from_mac & four.from_ip,
            # a SwitchML frame cannot say that it is sent on: the slots refuse it
            in_range=four.switchml | (~four.offset[13] & (four.offset[:13] < four.n_slots)),
        )
        refusal = Mux(five.in_range, Refusal.NONE, Refusal.COLLISIONS)
        refusal = Mux(five.owner, refusal, Refusal.OWNER)
        six = registered(m, 6, refusal=refusal, **vars(sums))
        result = Signal(self.facts_shape, reset_less=True)
        m.d.sync += [
            result.head.eq(delayed(m, one.entry, 5, name="entry")),
            result.head.src.eq(delayed(m, four.src, 2, name="src")),
            result.head.job.eq(delayed(m, two.job, 4, name="job")),
            result.switchml.eq(delayed(m, four.switchml, 2, name="format")),
            result.port.eq(delayed(m, two.port, 4, name="from")),
            result.refusal.eq(
                Mux(delayed(m, two.sound, 4, name="sound"), six.refusal, Refusal.FORMAT)
            ),
            *checked(result.check, six),
        ]
        return result

    @staticmethod
    def _contribution(m, field, is_switchml):
        """The head of the contribution, in either format; SwitchML names no sender."""
        entry = Signal(ContributionHead)
        same = ("src", "op", "gen", "slot", "lc", "tensor", "tree", "seq", "elems", "p0", "p1")
        with m.If(is_switchml):
            code = field(SWITCHML.size)
            m.d.comb += [
                entry.op.eq(Op.INT32),
                entry.gen.eq(field(SWITCHML.set)),
                entry.slot.eq(field(SWITCHML.slot)),
                entry.tensor.eq(field(UDP.source_port)),
                entry.tree.eq(field(UDP.destination_port)[:4]),
                entry.p0.eq(field(SWITCHML.e0)),
                entry.p1.eq(field(SWITCHML.e1)),
                entry.arg.eq(field(SWITCHML.packet)),
                entry.length.eq(field(UDP.length) - SWITCHML_HEAD),
                *(entry.elems[n.bit_length() - 1].eq(code == VALUES[n]) for n in VALUES),
            ]
        with m.Else():
            m.d.comb += [
                *(entry[name].eq(field(GRADNIC[name])) for name in (*same, "arg", "last", "ovf")),
                entry.ecn.eq(field(GRADNIC.ecn) | field(IPV4.ecn).all()),
                entry.length.eq(field(UDP.length) - RAW_HEAD),
            ]
        return entry

    def _child(self, m, two):
        """Entry of the table of children for the job and the port of stage two."""
        depth = 2 ** (index_width(self.n_jobs) + index_width(self.n_ports))
        m.submodules.children = children = ZeroedTable(Child, depth)
        m.d.comb += [
            children.write_en.eq(self.write.enable),
            children.write_addr.eq(Cat(self.write.job, self.write.port)),
            children.write_data.eq(self.write.child),
            children.read_addr.eq(Cat(two.job, two.port[1:])),
        ]
        return children.read_data
