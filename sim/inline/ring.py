"""N cards of RTL in a ring, one all-reduce, every frame and every replica against the golden cards.

The hosts' part is the golden `gradnic.models.inline.ring.ring_allreduce`, fed with what the RTL
delivers; the cards are compiled, one instance a worker, played on as many threads as there
are cores. Both directions of a card share nothing but registers, so a step is two runs: all
senders, then all receivers, whose beats arrive when the wire has carried them. Each direction is a
library of its own: the card without the part that serves the other.

The wire takes `link_bytes` bytes a clock cycle (frame check sequence, preamble and gap included,
as on Ethernet), 0 for a wire as fast as the card. A sender's frames wait in a MAC of unlimited
depth, and begin once their first beat is there. Cycles of a step count from the hosts' first beat
to the last beat that any host receives; hosts take no time to add, and start each step together.
"""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
from gradnic.hdl.top.rtlil import to_rtlil
from gradnic.models.inceptionn import image
from gradnic.models.inceptionn.measure import AROUND, SHORTEST
from gradnic.models.inline.ring import Cards, Framing, ring_allreduce

from gradnic.interface.inline import REGISTERS, InlineSettings

from ..engine import batch, encoding, verilated
from ..engine.design_ports import ports_of

PREAMBLE = 8  # bytes before the frame's first
CODECS = ("inceptionn", "none")


PORT = re.compile(r"(  wire width \d+) (?:input|output) +\d+ +(\\(\w+)__\w+)")
PREPARE = verilated.PREPARE.replace("flatten\n", "flatten\nsetundef -undriven -zero\n")


def one_direction(text, streams, part):
    """RTLIL `text` of a card whose module ``top`` has lost a direction.

    streams : names of top's streams that are ports no more. part : name of the submodule that
    served them, taken out; what it drove is 0.
    """
    start = text.rindex("module \\top\n")
    stop = text.index("\nend\n", start)
    cell = re.compile(rf"^  cell \S+ \\{part}\n.*?^  end\n", re.MULTILINE | re.DOTALL)
    top, n_cells = cell.subn("", text[start:stop])
    if n_cells != 1:
        raise ValueError(f"the card must have one part {part!r}, not {n_cells}")
    lines = []
    for line in top.splitlines():
        port = PORT.fullmatch(line)
        lines.append(f"{port[1]} {port[2]}" if port and port[3] in streams else line)
    return text[:start] + "\n".join(lines) + text[stop:]


@dataclass(frozen=True)
class CardModel:
    """Libraries of a card's two directions: `sender` and `receiver`, each a `batch.Model`."""

    sender: batch.Model
    receiver: batch.Model


def build(card, name):
    """The `CardModel` of a card: a library for each direction.

    card : component with streams host_tx, mac_tx, mac_rx, host_rx, an AXI4-Lite `bus`, and parts
    tx and rx, one for each direction.
    """
    streams, plain = ports_of(card.signature)
    text = to_rtlil(card, name="top", emit_src=False)
    directions = (("tx", ("host_tx", "mac_tx")), ("rx", ("mac_rx", "host_rx")))

    def direction(kept, lost):
        return batch.build_rtlil(
            one_direction(text, lost[1], lost[0]),
            [port for port in streams if port.name in kept[1]],
            plain,
            prepare=PREPARE,
            name=f"{name}-{kept[0]}",
        )

    return CardModel(*map(direction, directions, reversed(directions)))


@cache
def build_card(n_lanes):
    """The `CardModel` of the in-line card with `n_lanes` floats a cycle, made once a process.

    About a minute at 8 lanes where it was not built before, else some 10 s to find it.
    """
    from gradnic.hdl.inline.card import InlineCard

    return build(InlineCard(n_lanes), f"inline{n_lanes}")


def wire_bytes(frame):
    """Bytes that `frame` takes on the wire, gap included."""
    return max(len(frame), SHORTEST) + AROUND


def arrivals(frames, taken, lane, link_bytes):
    """Cycle at which each beat of `frames` is complete at the far end of the wire.

    frames : list of bytes. taken : int64, cycle at which each of their beats left the card.
    lane : bytes of a beat. link_bytes : bytes a cycle, 0 for no limit.

    Returns int64 in the shape of `taken`, strictly increasing.
    """
    if not link_bytes:
        return taken
    complete = np.empty(len(taken), np.int64)
    at, free = 0, 0.0
    for frame in frames:
        n_beats = -(-len(frame) // lane)
        start = max(free, float(taken[at]))
        ends = PREAMBLE + np.minimum(lane * np.arange(1, n_beats + 1), len(frame))
        sent = np.maximum(start + ends / link_bytes, taken[at : at + n_beats] + 1)
        complete[at : at + n_beats] = np.ceil(sent)
        free = max(start + wire_bytes(frame) / link_bytes, float(sent[-1]))
        at += n_beats
    order = np.arange(len(complete))  # one beat a cycle
    return np.maximum.accumulate(complete - order) + order


class RtlCards(Cards):
    """Cards of RTL in a ring, as the exchange of `ring_allreduce`; keeps every frame.

    model : `CardModel`. link_bytes : see the module.

    Attributes: `traffic`, as of `Cards`; `step_cycles`, cycles of each step; `beat_cycles`, per
    step and worker, {port: cycle at which each beat moved}: host_tx and mac_tx of the worker's
    card, mac_rx and host_rx of the next.
    """

    def __init__(self, n_workers, settings, framing, model, *, link_bytes=0):
        if link_bytes < 0:
            raise ValueError(f"link_bytes must be at least 0, not {link_bytes!r}")
        self.senders = [model.sender.instance() for _ in range(n_workers)]
        self.receivers = [model.receiver.instance() for _ in range(n_workers)]
        self.framing = framing
        self.traffic, self.step_cycles, self.beat_cycles = [], [], []
        self._model = model
        mac_rx = model.receiver.streams["mac_rx"]
        self._lane = encoding.fields_of(mac_rx.shape)["data"][1] // 8
        self._link_bytes = link_bytes
        for side in self.senders + self.receivers:
            configure(side, settings)

    def carry(self, step):
        """Fill in `wire` and `received` of one step's `Traffic`, by RTL."""
        n = len(self.senders)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            sent = list(pool.map(self._send, self.senders, step.sent))
            step.wire = [frames for frames, _ in sent]
            arriving = [sent[i - 1] for i in range(n)]
            got = list(pool.map(self._receive, self.receivers, arriving))
        step.received = [frames for frames, _ in got]
        self.beat_cycles.append([sent[i][1] | got[(i + 1) % n][1] for i in range(n)])
        ends = [int(cycles["host_rx"][-1]) + 1 for _, cycles in got if len(cycles["host_rx"])]
        self.step_cycles.append(max(ends, default=0))

    def _send(self, side, frames):
        beats = self._model.sender.pack_frames("host_tx", frames)
        run = side.run({"host_tx": beats}, ["mac_tx"], reset=False)
        return run.frames("mac_tx"), {port: run.taken[port] for port in ("host_tx", "mac_tx")}

    def _receive(self, side, sent):
        frames, cycles = sent
        beats = self._model.receiver.pack_frames("mac_rx", frames)
        due = arrivals(frames, cycles["mac_tx"], self._lane, self._link_bytes)
        pattern = np.zeros(int(due[-1]) + 1 if len(due) else 0, np.uint8)
        pattern[due] = 1
        run = side.run(
            {"mac_rx": beats},
            ["host_rx"],
            stalls={"mac_rx": (pattern, 1)},
            reset=False,
            max_cycles=20_000 + len(pattern) + 100 * len(beats),
        )
        return run.frames("host_rx"), {port: run.taken[port] for port in ("mac_rx", "host_rx")}


def configure(card, settings):
    """Reset a card, or a side of one, and write its registers over AXI4-Lite as a driver would."""
    idle = {"bus__awvalid": 0, "bus__wvalid": 0, "bus__arvalid": 0}
    card.run(signals={**idle, "bus__bready": 1, "bus__rready": 1}, drain=False, max_cycles=4)
    for name, word in settings.words().items():
        _write(card, REGISTERS[name].offset, word)


def _write(card, offset, word):
    signals = {
        "bus__awaddr": offset,
        "bus__wdata": word,
        "bus__wstrb": 15,
        "bus__awvalid": 1,
        "bus__wvalid": 1,
    }
    seen = ["bus__awready", "bus__wready", "bus__bvalid"]
    for _ in range(64):
        run = card.run(signals=signals, trace=seen, reset=False, drain=False, max_cycles=1)
        for channel in ("aw", "w"):
            if run.traces[f"bus__{channel}ready"][0]:
                signals[f"bus__{channel}valid"] = 0
        if run.traces["bus__bvalid"][0]:
            return
    raise AssertionError(f"no answer to a write of register {offset:#x} within 64 cycles")


@dataclass
class Cosim:
    """What one all-reduce left behind.

    ok : RTL and golden cluster agree in every frame and replica, and all replicas are equal.
    bit_exact : the same for frames and replicas alone. mismatches : frames and replicas that
    differ. first : the first of them in words, or None.
    nodes, cycles, step_cycles : workers; cycles of all steps together, and of each.
    frames, raw_bytes, wire_bytes : frames on the wires, their bytes as hosts sent them, and as the
    wires carried them, gaps included.
    replicas : float32 (nodes, n_floats), from the RTL.
    traffic, beat_cycles : of the RTL, per step, see `RtlCards`.
    """

    ok: bool
    nodes: int
    cycles: int
    bit_exact: bool
    mismatches: int
    first: str | None
    frames: int
    raw_bytes: int
    wire_bytes: int
    step_cycles: list = field(repr=False)
    replicas: np.ndarray = field(repr=False)
    traffic: list = field(repr=False)
    beat_cycles: list = field(repr=False)

    def summary(self):
        """Everything that fits into JSON."""
        names = ("ok", "nodes", "cycles", "bit_exact", "mismatches", "first")
        names += ("frames", "raw_bytes", "wire_bytes", "step_cycles")
        return {name: getattr(self, name) for name in names}


def cosim(
    gradients,
    model,
    *,
    codec="inceptionn",
    exponent=117,
    mode="strict",
    prescale=0,
    n_floats=336,
    link_bytes=0,
    on_step=None,
):
    """One ring all-reduce of `gradients`, float32 (n_workers, n_floats), by RTL and golden cards.

    model : of `build_card`. codec : "inceptionn", or "none" for unmarked frames.
    on_step(step) is called after each of the 2 (n_workers - 1) steps.

    Returns a `Cosim`. ValueError for settings out of range.
    """
    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    n_workers = len(gradients)
    settings = InlineSettings(
        paper=True, exponent=exponent, prescale=prescale, paper_codec=mode == "paper"
    )
    coded = codec == "inceptionn"
    owner_image = partial(image, exponent=exponent, mode=mode, prescale=prescale) if coded else None
    framing = Framing(tos=settings.tos if coded else 0, n_floats=n_floats)
    golden = Cards(n_workers, settings, framing)
    expected = ring_allreduce(gradients, golden, owner_image)
    cards = RtlCards(n_workers, settings, framing, model, link_bytes=link_bytes)

    def exchange(step, blocks):
        received = cards(step, blocks)
        if on_step:
            on_step(step)
        return received

    try:
        replicas = ring_allreduce(gradients, exchange, owner_image)
    except ValueError:  # blocks that lost floats do not stack: judge by the frames so far
        replicas = np.zeros((0, gradients.shape[1]), np.float32)
    differences = list(_differences(cards.traffic, golden.traffic))
    same = len(replicas) == n_workers
    for i in range(n_workers):
        if not same or not np.array_equal(replicas[i].view("u4"), expected[i].view("u4")):
            differences.append(f"replica of worker {i} differs")
    wires = [frame for step in cards.traffic for frames in step.wire for frame in frames]
    hosts = [frame for step in cards.traffic for frames in step.sent for frame in frames]
    bits = replicas.view(np.uint32)
    return Cosim(
        ok=not differences and bool((bits == bits[0]).all()),
        nodes=n_workers,
        cycles=sum(cards.step_cycles),
        bit_exact=not differences,
        mismatches=len(differences),
        first=differences[0] if differences else None,
        frames=len(wires),
        raw_bytes=sum(wire_bytes(f) for f in hosts),
        wire_bytes=sum(wire_bytes(f) for f in wires),
        step_cycles=cards.step_cycles,
        replicas=replicas,
        traffic=cards.traffic,
        beat_cycles=cards.beat_cycles,
    )


def _differences(steps, expected):
    """One line for each frame that differs, on wires and at hosts."""
    for number, (step, golden) in enumerate(zip(steps, expected, strict=False), 1):
        for place, kind in (("wire", "on the wire of"), ("received", "received by")):
            pairs = zip(getattr(step, place), getattr(golden, place), strict=True)
            for worker, (got, want) in enumerate(pairs):
                where = f"step {number}, {kind} worker {worker}"
                if len(got) != len(want):
                    yield f"{where}: {len(got)} frames, not {len(want)}"
                for k, (a, b) in enumerate(zip(got, want, strict=False)):
                    if a != b:
                        yield f"{where}: frame {k} is {_at_difference(a, b)}"
    if len(steps) != len(expected):
        yield f"{len(steps)} steps, not {len(expected)}"


def _at_difference(a, b):
    if len(a) != len(b):
        return f"{len(a)} bytes, not {len(b)}"
    at = next(i for i in range(len(a)) if a[i] != b[i])
    return f"{a[at]:#04x} at byte {at}, not {b[at]:#04x}"
