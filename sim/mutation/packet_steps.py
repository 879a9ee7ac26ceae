"""Mutation campaign of the steps of each packet that a node sends: all that they tell, and when."""

from types import SimpleNamespace

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.axi.bursts import LENGTH_WIDTH, Range
from gradnic.hdl.inceptionn.compressor import UNCODED_UNIT
from gradnic.hdl.offload import own_reader
from gradnic.hdl.offload.packet_steps import Steps
from gradnic.hdl.offload.packet_sums import ROWS_WIDTH, SumRule
from gradnic.hdl.reduction.reduce import Op as SumOp
from gradnic.hdl.stream.fifo import FIFO
from gradnic.hdl.transport.records import (
    CHECK_WIDTH,
    LEAVES_WIDTH,
    NUMBER_WIDTH,
    Answer,
    OwnPacket,
    Packet,
    PacketHead,
    Round,
)
from gradnic.hdl.transport.tagger import END, OFF, Tagged
from gradnic.models.offload.packet_steps import REST, PacketSteps

N_BYTES, N_RANKS, BITS, DEPTH = 16, 4, 8, 2
N_NUMBERS, N_PACKETS = 64, 70
MANY, AFTER = 40_000, (1, 255, 256, 5000, 9000, 17_000, 33_000, 40_000)
ELSEWHERE = r"^(?!.*/packet_steps\.py)"
KINDS = {
    "raw": {}, "coded": {"coded": 1}, "norm": {"norm": 1}, "bf16": {"bf16": 1},
    "largest": {"largest": 1}, "thc8": {"thc": 1}, "thc12": {"thc": 1, "code": 1},
    "thc16": {"thc": 1, "code": 2},
}  # fmt: skip
LIKE = data.StructLayout({"expand": 1, "plain": 1})
WAITING_HEAD = data.StructLayout({"head": PacketHead, "number": NUMBER_WIDTH, "rows": ROWS_WIDTH})
QUEUES = {
    "jobs": data.StructLayout({"n_beats": range(1025), "n_contributions": 16, "op": SumOp}),
    "goals": SumRule(True, True, True), "heads": WAITING_HEAD, "owned": OwnPacket, "expands": LIKE,
    "packs": LIKE, "to_tag": Tagged(1), "units": UNCODED_UNIT,
}  # fmt: skip
_RECORDINGS = []


def answers():
    """What the receiver knows of each number: fields of `Answer`."""
    rng = np.random.default_rng(7)

    def mark(likely):
        here, packed = (int(rng.random() < likely) for _ in range(2))
        leaves = int(rng.choice([1, 2, int(rng.integers(1 << LEAVES_WIDTH))]))
        return {"here": here, "packed": packed, "leaves": leaves, "closed": int(rng.integers(2))}

    return [
        {"marks": {"up": [mark((0.5, 1, 0.5, 0)[k % 4]) for _ in range(N_RANKS)],
                   "down": mark(0.5)},
         "check": int(rng.integers(1 << CHECK_WIDTH))}
        for k in range(N_NUMBERS)
    ]  # fmt: skip


class Alone(wiring.Component):
    """The steps with a queue at each of their outputs, and a receiver that answers as late as it
    may.
    """

    n_bytes, n_ranks, bits = N_BYTES, N_RANKS, BITS
    thc = wide = bf16 = roots = scale = maxima = True

    def __init__(self):
        super().__init__(
            {
                "round": In(Round),
                "area": In(LENGTH_WIDTH),
                "packets": In(stream.Signature(Packet)),
                "reads": Out(stream.Signature(Range(3))),
                "landings": Out(stream.Signature(Range())),
                **{name: Out(stream.Signature(shape)) for name, shape in QUEUES.items()},
            }
        )

    def elaborate(self, platform):
        m = Module()
        queues = {}
        for name, shape in QUEUES.items():
            m.submodules[f"{name}_queue"] = queue = FIFO(shape, DEPTH)
            wiring.connect(m, queue.o, wiring.flipped(getattr(self, name)))
            queues[name] = queue.i
        self.compressor = SimpleNamespace(units=queues.pop("units"))
        m.submodules.known = known = memory.Memory(
            shape=Answer(N_RANKS), depth=N_NUMBERS, init=answers()
        )
        read = known.read_port()
        self.ask, self.answer = read.addr, read.data
        Steps(self, **queues).add_to(m)
        return m


def component():
    """The circuit under mutation: all built in."""
    return Alone()


class Recording:
    """Packets of one round, and what they come to."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.kind = list(KINDS)[seed % len(KINDS)]
        codec = {name: int(rng.integers(1 << 8)) for name in ("n", "g", "index_p0", "index_p1")}
        codec |= {"exponent": int(rng.integers(1 << 7)), "prescale": int(rng.integers(1 << 8))}
        codec |= {"paper": seed // 8 % 2, "bits": (2, 8, 4, 7)[seed // 8 % 4]}
        self.codec = dict.fromkeys(("coded", "norm", "thc", "bf16", "largest", "code"), 0)
        self.codec |= codec | KINDS[self.kind]
        self.source, self.layer = seed // 3 % 3, int(rng.integers(8))
        self.area = int(rng.integers(1 << LENGTH_WIDTH))
        self.packets = [self._packet(k) for k in range(N_PACKETS)]
        self.quiet = seed % 2 == 0  # nothing stalls: cycles are compared
        self.want = {name: [] for name in ("reads", "landings", *QUEUES)}
        self.steps = PacketSteps(
            self.codec, layer=self.layer, by_size=self.source != OFF, area=self.area,
            n_bytes=N_BYTES,
        )  # fmt: skip
        self.taken, cycle = [], REST
        fall = int(rng.integers(REST, 6 * N_PACKETS))  # of armed: before the last packet is taken
        armed = np.r_[np.ones(fall, np.uint8), 0, 0, 0, 1]
        ended, before = False, None
        for packet in self.packets:
            if not ended and cycle > fall:
                self.want["to_tag"].append(self.steps.tag(before) | {"kind": END})
                ended, cycle = True, cycle + 1
            self.taken.append(cycle)
            cycle, before = cycle + self._told(packet), packet
        round_ = {"codec": self.codec, "layer": self.layer, "tags": {"source": self.source}}
        self.round = beats_of([round_ | {"armed": int(bit)} for bit in armed], Round)
        self.packets = beats_of(self.packets, Packet)
        shapes = {"reads": Range(3), "landings": Range(), **QUEUES}
        self.want = {name: beats_of(want, shapes[name]) for name, want in self.want.items()}

    def _packet(self, k):
        rng = self.rng
        fields = {name: int(rng.integers(1 << Packet[name].width)) for name in Packet.members}
        fields |= {"probe": int(rng.random() < 0.2), "ph": int(rng.random() < 0.25)}
        fields["terminal"] = int(not fields["ph"] and rng.random() < 0.3)
        fields["wait"] = int(rng.choice([0, 1, 2, 3, 4, 200]))
        fields["number"] = int(rng.integers(N_NUMBERS))
        fields["elems"] = int(rng.choice([1, 2, 16, 4080, int(rng.integers(1, 4096))]))
        fields["offset"] >>= int(rng.integers(24))
        if self.codec["thc"]:
            fields["elems"] = max(16, fields["elems"] & -16)
        return fields

    def _told(self, packet):
        """Adds what a packet comes to to all that is wanted; its cycles, where nothing stalls."""
        known = answers_made()[packet["number"]]
        for name, entries in self.steps.make(packet, known).items():
            self.want[name] += [_in_circuit(entry) for entry in entries]
        return self.steps.cycles(packet, known)


def _in_circuit(entry):
    """An entry of a queue, with the circuit's numbers of regions and operations."""
    entry = dict(entry)
    if "op" in entry:
        entry["op"] = SumOp[entry["op"]]
    if "region" in entry:
        entry["region"] = getattr(own_reader, entry["region"])
    return entry


_ANSWERS = []


def answers_made():
    """`answers`, made once."""
    if not _ANSWERS:
        _ANSWERS.extend(answers())
    return _ANSWERS


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        _RECORDINGS.extend(Recording(seed) for seed in range(4 * len(KINDS)))
    return _RECORDINGS


def beats_of(values, shape):
    """Beats of dicts of fields; numbers are cut to their fields."""
    size = -(-shape.size // 8)
    rows = [np.frombuffer(_number(value, shape).to_bytes(size, "little"), np.uint8)
            for value in values]  # fmt: skip
    return np.array(rows, np.uint8).reshape(-1, size)


def _number(value, shape):
    made = 0
    for name, one in value.items():
        field = shape[name]
        nested = _number(one, field.shape) if isinstance(one, dict) else int(one)
        made |= (nested & (1 << field.width) - 1) << field.offset
    return made


def test(model):
    """All that each packet tells, in order; without stalls each packet in its cycle."""
    for seed, recording in enumerate(recordings()):
        stalls = {}
        if not recording.quiet:
            stalls = dict.fromkeys(recording.want, (0.3, 0.1, 0.7)[seed // 2 % 3])
            stalls |= {"packets": 0.5, "units": 1}
        run = _play(model, recording, stalls, seed)
        if recording.quiet:
            assert run.taken["packets"].tolist() == recording.taken, f"{recording.kind}: cycles"
    for name in (*QUEUES, "landings", "reads"):
        if name != "units":
            _play(model, recordings()[5], {name: ([0] * 900, 1)}, 1)
    _lands_late(model)
    _counts_rows(model)


def _play(model, recording, stalls, seed):
    """One run, and all that it tells."""
    run = model.instance().run(
        {"packets": recording.packets}, stalls={"packets": ([0] * REST, 1)} | stalls,
        signals={"round": recording.round, "area": recording.area}, seed=seed,
        max_cycles=40 * N_PACKETS * (4 if stalls else 1),
    )  # fmt: skip
    for name, rows in recording.want.items():
        found = run.outputs[name]
        if stalls and name == "to_tag":  # END comes where it comes
            rows, found = (_without_end(one) for one in (rows, found))
        assert len(found) == len(rows), f"{recording.kind}: {len(found)} {name}"
        assert np.array_equal(found, rows), f"{recording.kind}: {name}"
    return run


def _lands_late(model):
    """Contributions that are not here are passed by while one is waited for."""
    number = next(
        k for k, one in enumerate(answers_made())
        if [m["here"] for m in one["marks"]["up"]] == [0, 0, 1, 0]
    )  # fmt: skip
    packet = beats_of([{"number": number, "elems": 64, "wait": N_RANKS}], Packet)
    late = 60
    run = model.instance().run(
        {"packets": packet}, stalls={"landings": ([0] * late, 1)}, max_cycles=400
    )
    assert run.taken["landings"].tolist() == [late], "landings"


def _counts_rows(model):
    """More packets of terminal rows than any round has, and PROBEs that say how many."""
    rows = np.tile(beats_of([{"terminal": 1, "elems": 16}], Packet), (MANY, 1))
    probes = np.tile(beats_of([{"probe": 1}], Packet), (len(AFTER), 1))
    packets = np.insert(rows, AFTER, probes, axis=0)
    run = model.instance().run({"packets": packets}, max_cycles=16 * MANY)
    field = WAITING_HEAD["rows"]
    found = [
        int.from_bytes(row.tobytes(), "little") >> field.offset & (1 << field.width) - 1
        for row in run.outputs["heads"]
    ]
    assert found == list(AFTER), "rows"


def _without_end(rows):
    """Beats to the tagger but the one that ends the round; there has to be one."""
    shape = Tagged(1)
    field = shape["kind"]
    kinds = [
        int.from_bytes(row.tobytes(), "little") >> field.offset & (1 << field.width) - 1
        for row in rows
    ]
    assert kinds.count(END) == 1, "the round's end"
    return np.delete(rows, kinds.index(END), axis=0)


ARGUED = {
    r"-mode (inv|cnot[01]) .*-port Q .*-wire check ": "what changes the check as it is read, and "
    "so as it is kept, changes it four times until its head is told",
    r"(-port B -portbit [01]|cnot1 .*-port A .*-ctrlbit [01]) .*\((n_inside|n_octets) \+ ": "sizes "
    "are multiples of 4 bytes",
}
EXPLAINED = {}
