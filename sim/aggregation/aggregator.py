"""The RTL aggregator next to its golden twin: configured over its bus, played frame by frame.

The ports of the circuit take turns, and which frame comes first depends on the cycle. The circuit
tells the order (``heard``), and the twin is given the frames of its jobs in that order.
"""

from collections import deque
from functools import cache, partial

import numpy as np
from gradnic.models.aggregation.aggregator import AggregatorTop
from gradnic.models.aggregation.jobs import CLOSE_RULES, OVERFLOW_RULES
from gradnic.models.aggregation.slot_verdict import index_parameters
from gradnic.models.frame.egress import ENQUEUED, LIMIT, MARKED, THRESHOLD, Egress
from gradnic.models.thc.worker import solve_table

from gradnic.interface.aggregator import COUNTERS, REGISTERS

from ..engine import batch, encoding
from ..inline.card import bus_script

SIDES = ("worker", "network")
FATES = (ENQUEUED, MARKED, THRESHOLD, LIMIT)  # as the circuit numbers them


@cache
def build_aggregator(n_ports, **sizes):
    """The `batch.Model` of an aggregator, made once a process; sizes: of `hdl.aggregator`."""
    from gradnic.hdl.aggregation.aggregator import Aggregator

    return batch.build(Aggregator(n_ports, **sizes), name=f"aggregator{n_ports}")


def word(register, **fields):
    """Word of a register of the map; ValueError for a value that does not fit."""
    total = 0
    known = {field.name: field for field in REGISTERS[register].fields}
    for name, value in fields.items():
        field = known[name]
        if not 0 <= int(value) < 1 << field.width:
            raise ValueError(f"{register}.{name} must be below {1 << field.width}, not {value!r}")
        total |= int(value) << field.lsb
    return total


def settings(config, *, n_ports, n_jobs, b_max, slot_bits, width, chunk, n_words):
    """[(register, word)]: what a driver writes for a `jobs.Config`, in order.

    What the registers ``build`` and ``packets`` say; ValueError if the config has more, or a job
    with THC other chunks or sums.
    """
    thc = [job for job in config.jobs if job.kind == "thc"]
    widest = max((job.b for job in thc), default=0)
    slots = max((job.first_slot + job.n_slots for job in config.jobs), default=0)
    large = max((job.values for job in config.jobs if job.kind == "switchml"), default=0)
    for what, value, most in (
        ("ports", config.n_ports, n_ports),
        ("jobs", len(config.jobs), n_jobs),
        ("bits of an index", widest, b_max),
        ("slots", slots, 1 << slot_bits),
        ("values of SwitchML", large, n_words),
    ):
        if value > most:
            raise ValueError(f"{what} must be at most {most}, as the circuit has, not {value}")
    for job in thc:
        for what, value, built in (("C", job.C, chunk), ("w", job.w, width)):
            if value != built:
                raise ValueError(f"{what} must be {built}, as the circuit has, not {value}")
    writes = [
        ("mac_low", config.mac & 0xFFFFFFFF),
        ("mac_high", config.mac >> 32),
        ("ip", config.ip),
        ("native", word("native", port=config.udp_port)),
    ]
    for index, job in enumerate(config.jobs):
        writes += _children(index, job, config.n_ports)
        if job.kind == "thc":
            for place, level in enumerate(solve_table(job.b, job.g, job.p)):
                address = (index << b_max) + place
                writes.append(("level", word("level", address=address, data=level, write=1)))
            writes.append(("level", 0))
        writes += _job(index, job)
    return writes


def _children(index, job, n_ports):
    at = {child.port: (src, child) for src, child in enumerate(job.children)}
    for port in range(n_ports):
        place = {"job": index, "port": port}
        if port in at:
            src, child = at[port]
            place |= {"src": src, "enabled": 1}
            yield "child_mac_low", child.mac & 0xFFFFFFFF
            high = word("child_mac_high", value=child.mac >> 32, udp_port=child.udp_port)
            yield "child_mac_high", high
            yield "child_ip", child.ip
        yield "child", word("child", **place, write=1)
        yield "child", 0


def _job(index, job):
    yield "job_slots", word("job_slots", first_slot=job.first_slot, n_slots=job.n_slots)
    yield from _switchml_rule(job) if job.kind == "switchml" else _rule(job)
    yield "job", word("job", index=index, number=job.job, enabled=1, write=1)
    yield "job", 0


def _switchml_rule(job):
    fields = {"n_children": len(job.children), "int32": 1, "switchml": 1}
    yield "job_rule", word("job_rule", **fields, large=job.values == 256)
    yield "job_codec", 0
    yield "job_deadline", 0


def _rule(job):
    int32 = job.kind == "int32"
    codec = {} if int32 else index_parameters(job)
    yield (
        "job_rule",
        word(
            "job_rule",
            n_children=len(job.children),
            leaves=job.leaves,
            n_min=job.n_min,
            close=CLOSE_RULES.index(job.close),
            root=job.root,
            int32=int32,
            overflow=OVERFLOW_RULES.index(job.overflow),
        ),
    )
    yield "job_codec", word("job_codec", **codec)
    yield "job_need_low", job.need_bytes & 0xFFFFFFFF
    yield "job_need_high", job.need_bytes >> 32
    yield "job_deadline", job.deadline


class AggregatorBench:
    """One RTL aggregator, a batch instance, next to its golden twin.

    model : of `build_aggregator`. config : jobs.Config with as many ports. queues : (threshold of
    each of eight queues, limit), in beats, of a circuit that was built with them.
    """

    def __init__(self, model, config, *, queues=None):
        self.model, self.config = model, config
        self.instance = model.instance()
        self.golden = AggregatorTop(
            config, queue=partial(self._egress, *queues) if queues else None
        )
        self.cycles = 0
        ports = range(config.n_ports if queues else 0)
        self.events = [f"{what}__{k}" for k in ports for what in ("judged", "dequeued")]
        n = config.n_ports
        self.inputs = [f"{SIDES[port >= n]}_rx__{port % n}" for port in range(2 * n)]
        self.outputs = [f"{SIDES[port >= n]}_tx__{port % n}" for port in range(2 * n)]
        registers = [REGISTERS["build"], REGISTERS["packets"]]
        words = self._bus(reads=[register.offset for register in registers], reset=True)
        self.built = {
            f.name: (word & f.mask) >> f.lsb
            for register, word in zip(registers, words, strict=True)
            for f in register.fields
        }
        written = settings(config, **self.built)
        for address, beats in enumerate([*queues[0], queues[1]] if queues else ()):
            written.append(("queue", word("queue", address=address, beats=beats, write=1)))
            written.append(("queue", 0))
        self._bus(writes=[(REGISTERS[name].offset, w) for name, w in written])
        while self.read("status") & 1:  # slots are cleared after a reset
            pass

    def _egress(self, thresholds, limit):
        """A port's queues, golden: as the circuit's, with its 64 frames in each."""
        shape = self.model.streams["worker_tx__0"].shape
        return Egress(thresholds, limit, cell=shape["keep"].width, largest=None, most=64)

    def _bus(self, *, writes=(), reads=(), reset=False):
        script = bus_script(writes, reads)
        run = self.instance.run(
            signals={"tick": 0, "now": 0, **script},
            reset=reset,
            drain=False,
            max_cycles=len(script["bus__awaddr"]) + 8,
            trace=("bus__rvalid", "bus__rdata") if len(reads) else (),
            probe_cycles=0,
        )
        if not len(reads):
            return []
        values = run.traces["bus__rdata"][run.traces["bus__rvalid"].astype(bool)]
        return [int(value) for value in values]

    def read(self, name):
        """Word of a register."""
        return self._bus(reads=[REGISTERS[name].offset])[0]

    def counters(self):
        """Counters of the circuit."""
        offsets = [REGISTERS[name].offset for name in COUNTERS]
        return dict(zip(COUNTERS, self._bus(reads=offsets), strict=True))

    def run(self, frames, *, now=0, tick=0, **options):
        """Play frames into the circuit alone: {port: [(frame, bad mark)]}, drained.

        Returns ([(port, frame, bad mark)] by port, [port] in the order heard, the `Run`).
        """
        inputs = {
            self.inputs[port]: self.model.pack_frames(
                self.inputs[port],
                [frame for frame, _ in given],
                at_last={"bad": [int(bad) for _, bad in given]},
            )
            for port, given in frames.items()
            if given
        }
        run = self.instance.run(
            inputs,
            signals={"now": now, "tick": [tick, 0]},
            trace=("ingress_valid", "ingress_port", *self.events),
            reset=False,
            **options,
        )
        self.cycles += run.cycles
        heard = run.traces["ingress_port"][run.traces["ingress_valid"].astype(bool)].astype(int)
        order = [(code >> 1) + (code & 1) * self.config.n_ports for code in heard.tolist()]
        out = []
        for port, name in enumerate(self.outputs):
            beats = run.outputs[name]
            if len(beats):
                fields = encoding.unpack(self.model.streams[name].shape, beats)
                bads = fields["bad"][fields["last"].astype(bool)]
                out += [
                    (port, frame, bool(bad))
                    for frame, bad in zip(run.frames(name), bads, strict=True)
                ]
        return out, order, run

    def expected(self, frames, order, now=0):
        """What the twin says leaves: (foreign, ours), each [(port, frame, bad mark)]."""
        foreign, ours = [], []
        waiting = {}
        for port, given in frames.items():
            waiting[port] = deque()
            for frame, bad in given:
                if self.golden.is_ours(frame, port):
                    waiting[port].append((frame, bad))
                else:
                    foreign += self.golden.receive(frame, port, now, bad=bad)
        for port in order:
            frame, bad = waiting[port].popleft()
            ours += self.golden.receive(frame, port, now, bad=bad)
        left = {port: len(frames) for port, frames in waiting.items() if frames}
        if left:
            raise AssertionError(f"frames of ours that were not heard, by port: {left}")
        return foreign, ours

    def play(self, frames, *, now=0, check_counters=True, **options):
        """Play frames into circuit and twin; AssertionError unless all that leaves is equal.

        frames : {port: [(frame, bad mark)]}. At each port foreign frames and ours are two
        sequences, and each must be whole and in order. Returns the `Run`.
        """
        got, order, run = self.run(frames, now=now, **options)
        foreign, ours = self.expected(frames, order, now)
        self.compare(got, foreign, self.queue(ours, run) if self.events else ours)
        if check_counters:
            self.check_counters()
        return run

    def queue(self, ours, run):
        """Answers through the golden queues, at the moments at which the circuit judged them and
        let them go: what leaves. AssertionError for one that met another fate.
        """
        out = [entry for entry in ours if entry[0] >= self.config.n_ports]
        for port, egress in enumerate(self.golden.egress):
            made = deque(frame for at, frame, _ in ours if at == port)
            judged, left = (
                np.asarray(run.traces[f"{what}__{port}"]).astype(np.int64)
                for what in ("judged", "dequeued")
            )
            for t in np.flatnonzero((judged | left) & 1):
                if judged[t] & 1:
                    before = egress.counters.copy()
                    place = self.golden.enqueue(port, made.popleft())
                    found = FATES[judged[t] >> 1 & 3], (judged[t] >> 3 & 7, judged[t] >> 6)
                    if found[1] != place or (found[0], *place) not in egress.counters - before:
                        raise AssertionError(
                            f"port {port}: {found}, not {egress.counters - before}"
                        )
                if left[t] & 1:
                    out.append(self.golden.dequeue(port, int(left[t] >> 3 & 7)))
            if made or any(egress.queues):
                raise AssertionError(f"port {port}: answers that nobody judged, or that stayed")
        return out

    def queue_counts(self, port):
        """{(what, queue, important): frames} that the circuit counted at a port, without zeros."""
        found = {}
        for count in range(64):
            shown = [(REGISTERS["queue_shown"].offset, word("queue_shown", count=count, port=port))]
            number = self._bus(writes=shown, reads=[REGISTERS["queue_count"].offset])[0]
            if number:
                found[FATES[count & 3], count >> 2 & 7, count >> 5] = number
        return found

    def compare(self, got, foreign, ours):
        """AssertionError unless both sequences of each port left as the twin says."""
        for kind, wanted in (("foreign", foreign), ("ours", ours)):
            for port, name in enumerate(self.outputs):
                self._compare(
                    f"{name}, {kind}",
                    [x[1:] for x in got if x[0] == port and self._kind(x[1], port) == kind],
                    [x[1:] for x in wanted if x[0] == port],
                )

    def _kind(self, frame, port):
        """Answers go to the native port, or are frames of a job; else the frame is foreign."""
        answer = frame[6:12] == self.config.mac.to_bytes(6, "big")
        return "ours" if answer or self.golden.is_ours(frame, port) else "foreign"

    @staticmethod
    def _compare(where, got, wanted):
        for k, (a, b) in enumerate(zip(got, wanted, strict=False)):
            if a != b:
                raise AssertionError(f"{where}: frame {k} is {_difference(a, b)}")
        if len(got) != len(wanted):
            raise AssertionError(f"{where}: {len(got)} frames, not {len(wanted)}")

    def check_counters(self):
        """AssertionError unless the circuit has counted what the twin has."""
        got, wanted = self.counters(), self.golden.counters
        wrong = {k: (got[k], wanted[k]) for k in wanted if got[k] != wanted[k]}
        if wrong:
            raise AssertionError(f"counters differ, as (circuit, model): {wrong}")


def _difference(a, b):
    if a[1] != b[1]:
        return f"marked bad = {a[1]}, not {b[1]}"
    if len(a[0]) != len(b[0]):
        return f"{len(a[0])} bytes, not {len(b[0])}: {a[0][:64].hex()}, not {b[0][:64].hex()}"
    at = next(i for i in range(len(a[0])) if a[0][i] != b[0][i])
    return f"{a[0][at : at + 8].hex()} from byte {at} on, not {b[0][at : at + 8].hex()}"
