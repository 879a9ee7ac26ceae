"""Aggregator (THC, in-network): a bump in the wire that sums its jobs' packets and multicasts.
Twin of `gradnic.hdl.aggregation.aggregator`.

Which frames are ours and who may speak is decided in `gradnic.models.aggregation.gate`; what a
contribution does to its slot in `gradnic.models.aggregation.unit`; which frames an answer becomes
in `gradnic.models.aggregation.answer`. Foreign traffic crosses from a worker's side to the
network's and back. `AggregatorTop` adds what a port does to every frame: one that is longer than
`MAX_FRAME` is cut there and marked bad; foreign frames keep their mark.
"""

from collections.abc import Callable

from gradnic.interface.aggregator import COUNTERS, MAX_FRAME, Refusal
from gradnic.interface.params import check_range

from ..frame.egress import Egress, classify
from ..frame.intake import cut, is_heard
from ..frame.parser import native_job
from . import gate, parser
from .answer import native_frames
from .jobs import Config, Job, speakers
from .switchml import SwitchmlJob, SwitchmlSwitch
from .unit import SlotEngine


class Aggregator:
    """Golden twin of the aggregator's circuit: frames in, frames out, counters by reason.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    engine : gradnic.models.aggregation.unit.SlotEngine
    switch : gradnic.models.aggregation.switchml.SwitchmlSwitch
        For the jobs that are SwitchML's, second profile of the aggregator.
    counters : collections.Counter
        Those of the engine, and drops before it: ``bad``, ``checksum``, ``length``, ``format``,
        ``owner``. ``collisions`` are frames that were sent on with COLL.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        native = [job for job in config.jobs if job.kind != "switchml"]
        others = [job for job in config.jobs if job.kind == "switchml"]
        self.jobs = {job.job: job for job in native}
        self.engine = SlotEngine(native, n_words=config.n_words)
        self.counters = self.engine.counters
        self.switch = SwitchmlSwitch(
            config.mac, config.ip, config.n_ports, others, counters=self.counters
        )

    def receive(
        self, frame: bytes, port: int, now: int, *, bad: bool = False
    ) -> list[tuple[int, bytes]]:
        """Take one frame; return what leaves because of it.

        frame : bytes, Ethernet without FCS. port : int, where it arrives. now : int, time.
        Returns a list of (port, frame). A frame that is not ours crosses to the other side.
        """
        job = self.job_of(frame, port)
        other = (port + self.config.n_ports) % (2 * self.config.n_ports)
        if job is None:
            return [(other, frame)]
        if isinstance(job, SwitchmlJob):
            return self.switch.receive(frame, port, now, bad=bad)
        reason = gate.refusal(frame, job, port, bad=bad)
        if reason:
            self.counters[reason.name.lower()] += 1
            collides = reason is Refusal.COLLISIONS
            return [(other, gate.collided(frame))] if collides else []
        head = {"job": job.job} | parser.contribution_head(frame)
        return self._frames(self.engine.contribute(head, parser.payload(frame), now))

    def tick(self, now: int) -> list[tuple[int, bytes]]:
        """Close every open slot whose deadline has passed, lowest (slot, set) first."""
        return self._frames(self.engine.tick(now))

    def job_of(self, frame: bytes, port: int) -> Job | SwitchmlJob | None:
        """The job whose frame this is, or None for foreign traffic.

        Ours is what has the port, VER, and a JOB with a child at this pair of ports whose IPv4
        address the frame comes from. ValueError for a port that is none of the 2 * n_ports.
        """
        check_range("port", port, 0, 2 * self.config.n_ports - 1)
        number = native_job(frame, self.config.udp_port)
        if number is None:
            return self.switch.job_of(frame, port)
        job = self.jobs.get(number)
        return job if job and is_heard(frame, speakers(job, port % self.config.n_ports)) else None

    def _frames(self, answers: list[tuple[dict, bytes]]) -> list[tuple[int, bytes]]:
        """Answers as (port, frame), one for each child that gets a copy."""
        return [
            copy
            for head, payload in answers
            for copy in native_frames(self.config, self.jobs[head["job"]], head, payload)
        ]


class AggregatorTop:
    """Golden twin of the circuit, one frame at a time.

    Contributions count in the order in which `receive` is called. In the circuit that is the
    order in which the ports take turns, which depends on when frames arrive.

    Parameters
    ----------
    config : jobs.Config
        At most one child of a job at each port.

    queue : function that returns an `Egress`, or None
        With it answers wait for their worker in queues: what `receive` and `tick` return for a
        worker's port has been made, `enqueue` and `dequeue` say what becomes of it, and only who
        has a clock knows when.

    Attributes
    ----------
    aggregator : Aggregator
    egress : list of Egress
        Of each worker's port; none without `queue`.
    """

    def __init__(self, config: Config, *, queue: Callable[[], Egress] | None = None) -> None:
        for job in config.jobs:
            ports = [child.port for child in job.children]
            if len(set(ports)) != len(ports):
                raise ValueError(f"children of job {job.job} must be at different ports: {ports}")
        self.config = config
        self.aggregator = Aggregator(config)
        self.egress = [queue() for _ in range(config.n_ports)] if queue else []
        self._counted = dict.fromkeys(("foreign", "oversize", "answers", "lost"), 0)

    @property
    def counters(self) -> dict[str, int]:
        """{name of `interface.aggregator.COUNTERS`: int}; overrun and unsent need a clock: 0, and
        lost without queues does.
        """
        found = {**self.aggregator.counters, **self._counted}
        return {name: found.get(name, 0) for name in COUNTERS}

    def is_ours(self, frame: bytes, port: int) -> bool:
        """Whether the frame, as far as a port lets it in, belongs to a job."""
        return self.aggregator.job_of(frame[:MAX_FRAME], port) is not None

    def receive(self, frame: bytes, port: int, now: int, *, bad: bool = False) -> list:
        """Take one frame; returns [(port, frame, bad mark)] that leave because of it."""
        self._counted["oversize"] += len(frame) > MAX_FRAME
        frame, bad = cut(frame, bad)
        if self.is_ours(frame, port):
            out = self.aggregator.receive(frame, port, now, bad=bad)
            return [(at, leaving, False) for at, leaving in self._noted(out)]
        self._counted["foreign"] += 1
        return [((port + self.config.n_ports) % (2 * self.config.n_ports), frame, bad)]

    def tick(self, now: int) -> list:
        """Close what is due; returns [(port, frame, bad mark)]."""
        return [(at, leaving, False) for at, leaving in self._noted(self.aggregator.tick(now))]

    def enqueue(self, port: int, answer: bytes) -> tuple[int, int]:
        """An answer comes to the queues of a worker's port; returns its (queue, important)."""
        place = classify(answer)
        self._counted["lost"] += not self.egress[port].enqueue(answer, *place)
        return place

    def dequeue(self, port: int, queue: int | None = None) -> tuple[int, bytes, bool]:
        """The next answer that leaves: (port, frame, bad mark). queue : as of `Egress.dequeue`.

        LookupError if there is none.
        """
        found = self.egress[port].dequeue(queue)
        if found is None:
            raise LookupError(f"port {port} has no answer in queue {queue}")
        return port, found[1], False

    def _noted(self, out: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        self._counted["answers"] += sum(port < self.config.n_ports for port, _ in out)
        return out
