"""Plays a scheduler and its golden twin against each other, cycle for cycle.

`record` plays the golden model with an environment that answers it, and keeps what went in and came
out in each cycle; `replay` gives the same to the circuit and wants the same back.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
from amaranth.hdl import Const
from gradnic.hdl.schedule.chunk_book import State
from gradnic.hdl.schedule.row_reader import Message, Setup
from gradnic.hdl.schedule.scheduler import Scheduler, Status
from gradnic.models.schedule import row_reader as scheduler_rows
from gradnic.models.schedule import scheduler as golden

from gradnic.interface.schedule_table import Layout

PORTS = ("added", "finals", "released", "asks")


@dataclass(frozen=True)
class Sizes:
    """Parameters of a circuit."""

    layout: Layout
    depth: int
    n_chunks: int
    n_ports: int = 4

    def component(self):
        """The circuit."""
        sizes = {"depth": self.depth, "n_chunks": self.n_chunks, "n_ports": self.n_ports}
        return Scheduler(self.layout, **sizes)


@dataclass
class Recording:
    """One run: what each input did in each cycle, and what the golden model answered.

    chunks, begins : {port: chunks offered}, {port: 1 in each cycle in which an offer begins}.
    controls : {start, abort, ready, idle: one value a cycle}. taken : {port: cycles}. messages,
    taken_messages : those taken from `issues`, and when. answers : [(cycle, State)]. status : one
    a cycle. encoded : what the circuit must give, once it was asked for.
    """

    rows: np.ndarray
    setup: scheduler_rows.Setup
    chunks: dict
    begins: dict
    controls: dict
    taken: dict
    messages: list
    taken_messages: list
    answers: list
    status: list
    encoded: dict = None


class Player:
    """One golden scheduler with the queues of its inputs, played cycle by cycle.

    Members
    -------
    queues : {port: deque of chunks}; whoever plays may append at any time.
    shown : what the model showed in the last cycle.
    """

    def __init__(self, layout, rows, setup, **options):
        self.model = golden.Scheduler(layout, rows, setup, **options)
        self.queues = {port: deque() for port in PORTS}
        self.shown = None
        self.on_offer = dict.fromkeys(PORTS)
        names = ("start", "abort", "ready", "idle")
        self.log = Recording(
            rows, setup, *({port: [] for port in PORTS} for _ in range(2)),
            {name: [] for name in names}, {port: [] for port in PORTS}, [], [], [], [],
        )  # fmt: skip

    def cycle(self, *, start=0, abort=0, ready=1, idle=1):
        """Play a cycle; the Message that was taken in it, or None."""
        log = self.log
        now = self.model.now
        for port, queue in self.queues.items():
            begins = self.on_offer[port] is None and len(queue) > 0
            if begins:
                self.on_offer[port] = queue.popleft()
                log.chunks[port].append(self.on_offer[port])
            log.begins[port].append(begins)
        controls = {"start": start, "abort": abort, "ready": ready, "idle": idle}
        for name, value in controls.items():
            log.controls[name].append(int(value))
        self.shown = shown = self.model.cycle(**controls, **self.on_offer)
        if shown["taken"]:
            self.on_offer[shown["taken"]] = None
            log.taken[shown["taken"]].append(now)
        if shown["answer"] is not None:
            log.answers.append((now, shown["answer"]))
        log.status.append(shown["status"])
        if shown["issue"] is None or not ready:
            return None
        log.messages.append(shown["issue"])
        log.taken_messages.append(now)
        return shown["issue"]


def load(instance, layout, rows):
    """Write a table into the circuit, over its write port."""
    words = np.frombuffer(layout.pack(rows), np.uint8).reshape(len(rows), -1)
    words = words[:, : -(-layout.width // 8)]
    n = len(rows)
    signals = {
        "table_en": np.append(np.ones(n, int), 0),
        "table_addr": np.append(np.arange(n), 0),
        "table_data": np.concatenate([words, words[-1:]]),
    }
    instance.run(signals=signals, drain=False, max_cycles=n + 1, outputs=[])


def replay(model, sizes, recording):
    """Give the circuit what was recorded; AssertionError where it does anything else, any time.

    model : `batch.Model` of the circuit of these `Sizes`.
    """
    log, instance = recording, model.instance()
    if log.encoded is None:
        log.encoded = _encoded(sizes, log)
    load(instance, sizes.layout, log.rows)
    setup = _bytes(Setup(sizes.layout, sizes.depth, sizes.n_chunks), vars(log.setup))
    stalls = {port: (_pattern(log.begins[port]), 0.0) for port in PORTS}
    stalls["issues"] = (_pattern(log.controls["ready"]), 0.0)
    idle = np.where(log.controls["idle"], 2**sizes.n_ports - 1, 0)
    run = instance.run(
        {port: model.pack(port, np.array(log.chunks[port], int)) for port in PORTS},
        stalls=stalls,
        signals={
            "setup": setup[None], "idle": idle, "table_en": 0,
            "start": np.array(log.controls["start"]), "abort": np.array(log.controls["abort"]),
        },
        trace=["status", "answered", "answer"], drain=False, max_cycles=len(log.status),
    )  # fmt: skip
    answered = np.flatnonzero(run.traces["answered"])
    got = {
        "status": run.traces["status"].tolist(),
        **{f"cycles of {port}": run.taken[port].tolist() for port in (*PORTS, "issues")},
        "messages": run.outputs["issues"].tolist(),
        "cycles of answers": answered.tolist(),
        "answers": run.traces["answer"][answered].tolist(),
    }
    for what, expected in log.encoded.items():
        _same(what, got[what], expected)


def _encoded(sizes, log):
    """What the circuit has to give."""
    layout = sizes.layout
    state, message = State(layout), Message(layout, sizes.n_chunks)
    status = Status(layout, sizes.depth, sizes.n_chunks)
    return {
        "status": [_integer(status, values) for values in log.status],
        **{f"cycles of {port}": log.taken[port] for port in PORTS},
        "cycles of issues": log.taken_messages,
        "messages": [_bytes(message, fields_of(m, layout)).tolist() for m in log.messages],
        "cycles of answers": [cycle for cycle, _ in log.answers],
        "answers": [_integer(state, _state(answer)) for _, answer in log.answers],
    }


def fields_of(message, layout):
    """A golden message as initial values of the circuit's payload."""
    sends = [{"valid": 1, "peer": peer} for peer in message.sends]
    sends += [{"valid": 0, "peer": 0}] * (layout.n_sends - len(sends))
    return vars(message) | {"sends": sends}


def _state(answer):
    return dict(zip(("added", "released", "final"), answer, strict=True))


def _integer(shape, fields):
    return Const.cast(shape.const(fields)).value


def _bytes(shape, fields):
    return np.frombuffer(_integer(shape, fields).to_bytes(-(-shape.size // 8), "little"), np.uint8)


def _pattern(flags):
    return np.array(flags, np.uint8)


def _same(what, got, expected):
    if got != expected:
        n = min(len(got), len(expected))
        at = next((i for i in range(n) if got[i] != expected[i]), n)
        raise AssertionError(
            f"{what} differ at {at}: {got[at : at + 3]}, not {expected[at : at + 3]} "
            f"({len(got)} of them, not {len(expected)})"
        )


class Cluster:
    """All nodes of a table as golden schedulers, joined by links: a closed loop of messages.

    Each send occupies its node's port for ``cycles_per_chunk`` per chunk, arrives up to 30 cycles
    later as a whole, and becomes one event per chunk; chunks of a terminal row become final up to 9
    cycles after it. Cards take a message with the chance `duty`.
    """

    def __init__(self, layout, table, rng, *, cycles_per_chunk=8, duty=0.8, live=None, **options):
        self.table, self.rng, self.duty = table, rng, duty
        self.cycles_per_chunk = cycles_per_chunk
        sizes = {name: options.pop(name) for name in ("depth", "n_chunks")}
        setups = [
            scheduler_rows.setup_of(table, v, live=live, **options) for v in range(table.n_nodes)
        ]
        self.players = [
            Player(layout, table.of(v), setup, **sizes) for v, setup in enumerate(setups)
        ]
        self.busy = [{} for _ in self.players]  # {port: cycle in which it is free again}
        self.events = [[] for _ in self.players]  # [(cycle, port of the scheduler, chunk)]
        self.start = np.searchsorted(table.peers["node"], np.arange(table.n_nodes))
        self.starts = rng.integers(0, 60, table.n_nodes) + sizes["n_chunks"] + 10

    def run(self, max_cycles=20_000):
        """Play to the end of all nodes; the recordings. AssertionError if there is none."""
        ends = 0
        for now in range(max_cycles):
            for node, player in enumerate(self.players):
                self._cycle(now, node, player)
            ends += all(player.shown["status"]["done"] for player in self.players)
            if ends == 20:
                return [player.log for player in self.players]
        stuck = [v for v, p in enumerate(self.players) if not p.shown["status"]["done"]]
        raise AssertionError(f"nodes {stuck} have not ended after {max_cycles} cycles")

    def _cycle(self, now, node, player):
        if player.shown and player.shown["status"]["running"]:
            due = sorted(event for event in self.events[node] if event[0] <= now)
            for _, port, chunk in due:
                player.queues[port].append(chunk)
            self.events[node] = [event for event in self.events[node] if event[0] > now]
        message = player.cycle(
            start=now == self.starts[node],
            ready=self.rng.random() < self.duty,
            idle=all(end <= now for end in self.busy[node].values()),
        )
        if message:
            self._send(now, node, message)

    def _send(self, now, node, message):
        chunks = range(message.first, message.first + message.count + 1)
        if message.terminal:
            later = now + int(self.rng.integers(1, 10))
            self.events[node] += [(later, "finals", chunk) for chunk in chunks]
        for index in message.sends:
            peer = self.table.peers[self.start[node] + index]
            port = int(peer["port"])
            end = max(now + 1, self.busy[node].get(port, 0)) + self.cycles_per_chunk * len(chunks)
            self.busy[node][port] = end
            arrives = end + int(self.rng.integers(1, 30))
            kind = "finals" if message.gather else "added"
            self.events[peer["to"]] += [(arrives, kind, chunk) for chunk in chunks]
            if not message.gather:
                self.events[node] += [(end, "released", chunk) for chunk in chunks]
