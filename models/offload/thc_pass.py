"""Passes of a THC job over a node's memory: gradient to norms, to indices, and sums to its mean.

Golden twin of `gradnic.hdl.offload.thc_pass` and of `gradnic.hdl.offload.thc_encode_pass`; the
arithmetic is `gradnic.models.thc.Worker`'s, docs/spec/codec.md. A gradient is padded with zeros
before it is rotated, and what belongs to the padding is not written.
"""

from dataclasses import dataclass

import numpy as np

from ..thc import pack
from ..thc.worker import Worker
from . import bf16

SUM_BITS = (8, 12, 16)
"""Of a sum in memory, by its code."""


@dataclass(frozen=True)
class ThcPasses:
    """What the passes of one node make of a gradient.

    worker : Worker. x : float32 (elems,), the gradient; with ``half`` what BF16 keeps of it counts,
    and the mean is BF16 too. n_elems : elements with padding, whole blocks. gen, tensor, node : of
    dice. carried : float32 (elems,), the residual before, which is added first, or None.
    """

    worker: Worker
    x: np.ndarray
    n_elems: int
    gen: int
    tensor: int
    node: int
    carried: np.ndarray | None = None
    half: bool = False

    @property
    def padded(self) -> np.ndarray:
        """What is rotated, float32 (n_elems,)."""
        x = bf16.image(self.x) if self.half else self.x
        values = np.zeros(self.n_elems, np.float32)
        values[: x.size] = x if self.carried is None else x + self.carried
        return values

    def norms(self) -> np.ndarray:
        """The node's own norms, a uint32 a block: FP32 bits."""
        return self.worker.norms(self.padded)

    def indices(self, norms: np.ndarray) -> np.ndarray:
        """Its indices (n_elems,), where `norms` are agreed: a larger own one is not looked at."""
        return self.worker.encode(
            self.padded, norms, round=self.gen, worker=self.node, tensor=self.tensor, clips=True
        )

    def lost(self, norms: np.ndarray) -> np.ndarray:
        """What these indices lose, float32 (elems,): the residual of the next job."""
        lost = self.worker.residual(self.padded, self.indices(norms), norms, tensor=self.tensor)
        return lost[: self.x.size]

    def mean(self, sums: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """The mean gradient, float32 (elems,), of the workers' sums (n_elems,)."""
        return self.worker.decode(sums, norms, round=self.gen, tensor=self.tensor)[: self.x.size]

    def in_memory(self, norms: np.ndarray, sums: np.ndarray, code: int) -> dict[str, bytes]:
        """What passes read and write, by the names of places of a `PassJob`: ``source``,
        ``residual``, ``norms`` and ``sums``; ``own_norms``, ``indices``, ``kept``, ``result``.

        code : of sums, see `SUM_BITS`. Residuals are empty without one.
        """
        return {
            "source": self._floats(self.x), "own_norms": self.norms().tobytes(),
            "norms": norms.tobytes(), "indices": pack(self.indices(norms), self.worker.b),
            "sums": pack(sums, SUM_BITS[code]), "result": self._floats(self.mean(sums, norms)),
            "residual": b"" if self.carried is None else self.carried.tobytes(),
            "kept": b"" if self.carried is None else self.lost(norms).tobytes(),
        }  # fmt: skip

    def _floats(self, values: np.ndarray) -> bytes:
        return (bf16.narrow(values) if self.half else values).tobytes()
