"""Fewer engines than contexts: whose turn it is. Golden twin of `gradnic.hdl.offload.engine_pool`.

The order is that of jobs, which is the same on all cards: so nothing waits in a circle.
"""

from collections.abc import Collection


class EnginePool:
    """Contexts in the order of their jobs.

    Attributes
    ----------
    order : list of int, contexts, the one with the oldest job first
    """

    def __init__(self) -> None:
        self.order: list[int] = []

    def started(self, context: int) -> None:
        """A context begins a job, the youngest of all."""
        self.order = [one for one in self.order if one != context] + [context]

    def next(self, needs: Collection[int], wants: Collection[int]) -> int | None:
        """Who gets the next engine that is free: the oldest context of those that still need one,
        if that asks for it already; None: nobody, whoever else asks.

        needs : contexts that have not had an engine for their job yet. wants : that ask for one.
        """
        oldest = next((one for one in self.order if one in needs), None)
        return oldest if oldest in wants else None
