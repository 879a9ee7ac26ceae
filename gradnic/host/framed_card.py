"""Driver of a card with jobs that is reached by frames of its own host."""

from functools import cached_property

from gradnic.interface.job import Completion, Job
from gradnic.interface.schedule_table import Layout

from .frames import FrameHost
from .jobs import JobDriver


class FramedCard(JobDriver):
    """The card with jobs over host frames: `JobDriver`, sized by what the card says of itself.

    link : FrameHost. Memory is ``link.store`` and ``link.load``; jobs and completions go by frames.
    """

    def __init__(self, link: FrameHost, **options) -> None:
        self.link, told = link, link.hello
        sizes = {name: told[name] for name in ("n_ports", "n_ranks", "n_rows", "n_chunks",
                                               "n_peers")}  # fmt: skip
        super().__init__(link.read, link.write, n_bytes=told["beat_bytes"], **sizes, **options)

    @cached_property
    def layout(self) -> Layout:
        """The layout of this card's rows."""
        n_nodes, n_chunks = (self.link.hello[name] for name in ("n_nodes", "n_chunks"))
        return Layout.for_nodes(n_nodes, ports=4, chunks=-(-n_chunks // n_nodes))

    def post(self, job: Job) -> bool:
        """Post a `gradnic.interface.job.Job`; False if the queue is full: post it again later."""
        return self.link.post(job)

    def completion(self, timeout: float = 0.0) -> Completion | None:
        """The oldest `Completion`, which leaves the card; None if none comes within `timeout` s."""
        return self.link.completion(timeout)
