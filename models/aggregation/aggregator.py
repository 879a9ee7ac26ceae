"""The aggregator top, frames and bad marks in and out. Twin of
`gradnic.hdl.aggregation.aggregator`.

Around `gradnic.models.aggregation.parser.Aggregator` stands what a port does to every frame: one
that is longer than `MAX_FRAME` is cut there and marked bad; foreign frames keep their mark.
"""

from collections.abc import Callable

from gradnic.interface.aggregator import COUNTERS, MAX_FRAME

from ..frame.egress import Egress, classify
from .jobs import Config
from .parser import Aggregator


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
        if len(frame) > MAX_FRAME:
            self._counted["oversize"] += 1
            frame, bad = frame[:MAX_FRAME], True
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
