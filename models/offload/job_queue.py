"""The queue of descriptors of a card: what waits may still be aborted.

Golden twin of `gradnic.hdl.offload.job_queue`, without its cycles.
"""

from collections import deque
from dataclasses import dataclass

from gradnic.interface.job import QUEUE, Job


@dataclass
class Waiting:
    """A job in the queue. posted : when. aborted : it ends as soon as it is the oldest."""

    job: Job
    posted: int
    aborted: bool = False


class JobQueue:
    """Up to `QUEUE` jobs, oldest first.

    Attributes
    ----------
    waiting : deque of Waiting
    """

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self.waiting)

    @property
    def oldest(self) -> Waiting:
        """Who leaves next; IndexError if nobody waits."""
        return self.waiting[0]

    def post(self, job: Job, now: int) -> bool:
        """Whether the job was taken: False, and nothing happens, if the queue is full."""
        if len(self.waiting) >= QUEUE:
            return False
        self.waiting.append(Waiting(job, now))
        return True

    def abort(self, id: int | None = None) -> bool:
        """Mark the oldest job with this id, or of all, that is not marked; False if there is none.
        It keeps its place.
        """
        for waiting in self.waiting:
            if id in (None, waiting.job.id) and not waiting.aborted:
                waiting.aborted = True
                return True
        return False

    def pop(self) -> Waiting:
        """The oldest job; it leaves the queue."""
        return self.waiting.popleft()
