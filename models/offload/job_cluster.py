"""Golden cards that take jobs, joined by links with faults, and hosts that post to them."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradnic.interface.job import QUEUE, Job
from gradnic.interface.schedule_table import Table

from ..schedule.topology import Topology
from ..transport.tagger import Rules
from .card import Settings
from .cluster import Cluster, LinkFaults, addresses
from .job_card import JobCard


class JobCluster(Cluster):
    """Cards that take jobs, over links with faults; their hosts post as the queues have room.

    Parameters
    ----------
    tables : tuple of gradnic.interface.schedule_table.Table
    topology : models.schedule.topology.Topology
    n_bytes : int
        Memory of each node.
    options : further parameters of `JobCard`
    settings : dict, further fields of `card.Settings`

    Attributes
    ----------
    ended : one {id: Completion} a node, of what its host has taken
    taking : set of the nodes whose hosts take completions at once
    """

    def __init__(
        self,
        tables: Sequence[Table],
        topology: Topology,
        n_bytes: int,
        *,
        settings: dict | None = None,
        n_active: int = 2,
        **options: Any,
    ) -> None:
        rules = Rules(n_layers=8, n_tensors=n_active, back_layer_start=0)
        books = [{} for _ in range(topology.n_nodes)]
        for table in tables:
            for book, more in zip(books, addresses(table, topology), strict=True):
                book.update(more)
        self.cards = [
            JobCard(
                Settings(7, v, (), book, tagger=rules, **(settings or {})), tables,
                np.zeros(n_bytes, np.uint8), n_active=n_active, **options,
            )
            for v, book in enumerate(books)
        ]  # fmt: skip
        self.now, self.n_frames, self.n_copies, self.wire = 0, {}, 0, []
        self.to_post = [deque() for _ in self.cards]
        self.ended = [{} for _ in self.cards]
        self.taking = set(range(len(self.cards)))

    def post(self, node: int, job: Job) -> None:
        """Hand a job to a node's host, which posts in this order."""
        self.to_post[node].append(job)

    def busy(self) -> bool:
        return any(self.to_post) or super().busy()

    def step(self, faults: LinkFaults) -> None:
        for card, jobs in zip(self.cards, self.to_post, strict=True):
            while jobs and len(card.queue) < QUEUE:
                card.post(jobs.popleft(), self.now)
        super().step(faults)
        for node in self.taking:
            while (completion := self.cards[node].take()) is not None:
                self.ended[node][completion.id] = completion
