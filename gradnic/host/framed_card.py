"""Driver of a card with jobs that is reached by frames of its own host."""

from functools import cached_property
from typing import Any

from gradnic.interface.host_frame import OUI
from gradnic.interface.job import Completion, Job
from gradnic.interface.job_card import HOSTED
from gradnic.interface.schedule_table import Layout

from .frames import FrameHost
from .jobs import JobDriver


class FramedCard(JobDriver):
    """The card with jobs over host frames: `JobDriver`, sized by what the card says of itself.

    Jobs that an earlier host left are ended, and completions that wait are taken and forgotten.
    Memory is ``link.store`` and ``link.load``; jobs and completions go by frames.

    link : FrameHost. old : seconds that a completion of an earlier host is waited for.

    Attributes
    ----------
    own : (node, MAC address) of the card, as far as it has been told
    """

    def __init__(self, link: FrameHost, *, old: float = 0.05, **options: Any) -> None:
        self.link, hello = link, link.hello
        sizes = {name: hello[name] for name in ("n_ports", "n_ranks", "n_rows", "n_chunks",
                                               "n_peers", "n_active", "n_tables")}  # fmt: skip
        super().__init__(link.read, link.write, n_bytes=hello["beat_bytes"], **sizes, **options)
        self.map = HOSTED
        self.own = self._own()
        self.end_jobs()
        while link.completion(old) is not None:
            pass

    def identify(  # type: ignore[override]
        self, *, mac: int, ip: int, node: int, tenant: int, **network: Any
    ) -> None:
        """As of `JobDriver`. The host address stays what it is, though it may follow from `mac`."""
        if not self.get("host_high")["chosen"]:
            address = OUI << 24 | self.read("mac_low") & 0xFFFFFF
            self.write("host_low", address & 0xFFFFFFFF)
            self.set("host_high", value=address >> 32, chosen=1)
        super().identify(mac=mac, ip=ip, node=node, tenant=tenant, **network)
        self.own = self._own()

    def _own(self) -> tuple[int, int]:
        high = self.get("mac_high")
        return high["node"], high["value"] << 32 | self.read("mac_low")

    def _take_completions(self) -> None:
        self.set("host", events=1)

    @cached_property
    def layout(self) -> Layout:
        """The layout of this card's rows."""
        n_nodes, n_chunks = (self.link.hello[name] for name in ("n_nodes", "n_chunks"))
        return Layout.for_card(n_nodes, n_chunks)

    def post(self, job: Job) -> bool:
        """Post a `gradnic.interface.job.Job`: True. Waits while the queue is full, and TimeoutError
        then ends it, see `FrameHost.post`.
        """
        self.link.post(job)
        return True

    def completion(self, timeout: float = 0.0) -> Completion | None:
        """The oldest `Completion`, which leaves the card; None if none comes within `timeout` s."""
        return self.link.completion(timeout)
