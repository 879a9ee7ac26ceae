"""What a job with codec THC does beside its rounds: passes over the node's memory.

Two rounds of one table: norms under the GEN before the job's, by maximum; then indices and sums
under the job's own, which is also the round that seeds dice and signs. So a card needs no second
tensor number, and what comes late of the norms is stale like any round that is over. What a pass
makes is `gradnic.models.offload.thc_pass`.

Source: THC (NSDI 2024), the worker's steps, run by the card; their composition is ours.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradnic.interface.job import THC_PACKET, Job
from gradnic.interface.schedule_table import Table

from ..thc.worker import Worker
from .card import Tensor
from .codec import Norms, Thc
from .plan import Plan
from .round import Round
from .thc_pass import ThcPasses

LAST = 0xFFFF  # of GEN


class ThcJob:
    """Steps of one job on one node.

    Parameters
    ----------
    job : gradnic.interface.job.Job
    table : gradnic.interface.schedule_table.Table
    node : int
        This node: the worker whose dice are rolled.
    x : float32 (elems,)
        The gradient, and with error feedback the residual added to it.
    packet : int
        Elements of a packet of norms.
    options : dict
        As of `coded`. ValueError for those that cannot be.
    """

    def __init__(
        self, job: Job, table: Table, node: int, x: np.ndarray, packet: int, options: Mapping
    ) -> None:
        self.job, self.node, self.x = job, node, x
        self.codec = coded(options, table.n_nodes, job.seed, sign_round=job.gen)
        self.worker = self.codec.worker
        self.n_blocks = -(-job.elems // self.codec.unit) * self.codec.unit // self.worker.B
        n_elems = self.n_blocks * self.worker.B
        self.passes = ThcPasses(self.worker, x, n_elems, job.gen, job.tensor, node)
        self.padded = self.passes.padded
        plan = Plan(table, self.n_blocks, packet=packet)
        self.of_norms = Tensor(job.tensor, plan, Norms(), layer=job.layer)
        plan = Plan(table, n_elems, unit=self.codec.unit, packet=self.codec.C)
        self.of_sums = Tensor(job.tensor, plan, self.codec, layer=job.layer, p_q16=job.p_q16)
        self.norms: Any = None  # the round of them, once it is done

    def norm_round(self) -> Round:
        """The round of norms: the first pass is done."""
        own = self.passes.norms()
        return Round(self.of_norms, self.node, before(self.job.gen), own)

    def index_round(self, norms: Round, *, at_share: bool = False) -> Round:
        """The round of indices and sums, once the one of `norms` is done."""
        self.norms = norms
        return Round(self.of_sums, self.node, self.job.gen, self.padded, norms, at_share=at_share)

    def result(self, round_: Round) -> np.ndarray:
        """The mean gradient, float32 (elems,), from the sums of a round that is done."""
        return self.passes.mean(round_.result, self.norms.result)

    def residual(self) -> np.ndarray:
        """What this node's own indices lose, float32 (elems,), once norms are agreed."""
        return self.lost(self.norms.result)

    def lost(self, norms: np.ndarray) -> np.ndarray:
        """The same where `norms` are agreed."""
        return self.passes.lost(norms)


def coded(options: Mapping, n: int, seed: int = 0, **more: Any) -> Thc:
    """The `Thc` of `n` workers. options : fields of `Worker` beside n, seed and sign_round, and
    ``w``, the least bits of a sum. A card does not look at its own norms again: it clips.
    """
    fields: dict[str, Any] = {name: value for name, value in options.items() if name != "w"}
    return Thc(Worker(n, seed, **fields, **more), w=options.get("w", 8), clips=True)


def mean(table: Table, job: Job, x: np.ndarray, options: Mapping) -> np.ndarray:
    """The result of a job that misses nothing, float32 (elems,), by workers and their sums alone.

    x : float32 (n_nodes, elems), as `ThcJob` takes it. options : as there.
    """
    steps = [ThcJob(job, table, node, one, 16, options) for node, one in enumerate(x)]
    worker = steps[0].worker
    norms = np.max([worker.norms(one.padded) for one in steps], axis=0)
    sums = sum(
        worker.table[
            worker.encode(one.padded, norms, round=job.gen, worker=node, tensor=job.tensor)
        ]
        for node, one in enumerate(steps)
    )
    return worker.decode(sums, norms, round=job.gen, tensor=job.tensor)[: job.elems]


def residuals(table: Table, job: Job, x: np.ndarray, options: Mapping) -> np.ndarray:
    """What each node's own indices lose, float32 (n_nodes, elems); arguments as of `mean`."""
    steps = [ThcJob(job, table, node, one, 16, options) for node, one in enumerate(x)]
    norms = np.max([one.worker.norms(one.padded) for one in steps], axis=0)
    return np.stack([one.lost(norms) for one in steps])


def before(gen: int) -> int:
    """The GEN of the norms of a job."""
    return gen - 1 & LAST


def packets(table: Table, elems: int, packet: int, options: Mapping) -> int:
    """Packet numbers that a job needs in the larger of its rounds; ValueError as of `ThcJob`."""
    codec = coded(options, table.n_nodes)
    n_chunks = table.n_chunks * table.repeats
    chunk = -(-elems // (codec.unit * n_chunks)) * codec.unit
    n_blocks = -(-elems // codec.unit) * codec.unit // codec.worker.B
    norm_chunk = -(-n_blocks // (16 * n_chunks)) * 16
    return n_chunks * max(-(-chunk // codec.C), -(-norm_chunk // packet))


def areas(table: Table, elems: int, options: Mapping) -> tuple[int, int]:
    """(bytes of a landing area, bytes of scratch) of a job: sums, and beside them own and agreed
    norms, which are whole 64 bytes, and indices; all of whole packets.
    """
    codec = coded(options, table.n_nodes)
    n_elems = -(-elems // THC_PACKET) * THC_PACKET
    norms = -(-n_elems // codec.worker.B // 16) * 64
    sums = n_elems * codec.w // 8
    return sums, 2 * norms + n_elems * codec.worker.b // 8 + sums
