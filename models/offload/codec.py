"""What an offload card does to values: raw floats, BF16, INCEPTIONN, norms, THC sums.

Each kind says how a packet's values become payload and back, how a contribution is added, and what
the root makes of the sum before it is sent round. Sums are kept per packet, beside the number of
leaves in them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gradnic.interface.formats import PARAMETERS, Op

from .. import inceptionn
from ..aggregation.jobs import W_CODES
from ..aggregation.slot_verdict import index_parameters
from ..reduction.reduce import maximum
from ..schedule.all_reduce import add
from ..thc import worker as thc
from . import bf16
from .scaler import scaled


class _Plain:
    """Values of a packet as they are in memory, of type `dtype` there and `wire` in the packet."""

    op: Op
    dtype: type
    wire: str

    def own(self, values: np.ndarray) -> np.ndarray:
        """A node's values as they enter the sum. ValueError for floats of norms, which are bits, or
        whole numbers of floats.
        """
        values = np.asarray(values)
        if values.dtype.kind != np.dtype(self.dtype).kind:
            raise ValueError(f"values must be {np.dtype(self.dtype)}, not {values.dtype}")
        return np.ascontiguousarray(values, self.dtype)

    def encode(
        self, values: np.ndarray, leaves: int, *, is_leaf: bool
    ) -> tuple[Op, int, int, bytes]:
        """(op, p0, p1, payload) of a packet."""
        return self.op, min(leaves, 255), 0, values.astype(self.wire).tobytes()

    def decode(self, header: dict, payload: bytes) -> np.ndarray:
        """Values of a packet; ValueError if they are malformed or made otherwise."""
        return self._words(header, payload).astype(self.dtype)

    def _words(self, header: dict, payload: bytes) -> np.ndarray:
        n_bytes = np.dtype(self.wire).itemsize * header["elems"]
        if len(payload) != n_bytes:
            raise ValueError(f"payload must have {n_bytes} bytes, not {len(payload)}")
        return np.frombuffer(payload, self.wire)


class Raw(_Plain):
    """Float32 as they are.

    rescale : bool, the root multiplies by n / leaves where some are missing, rounded to float32
    twice: the factor, then the product. image : function of the values of a result, such as what
    memory of a narrower type makes of them; None: as they are. mean : bool, sums are divided by the
    leaves that are in them, see `scaler.scaled`. largest : bool, contributions are not added: the
    larger value stays, see `gradnic.models.reduction.reduce.maximum`.
    """

    unit, elem_bits, scored, is_norm = 16, 32, True, False
    op, dtype, wire = Op.RAW, np.float32, "<f4"
    ops = {False: {Op.RAW}, True: {Op.RAW}}  # by: on the way down

    def __init__(
        self,
        n: int,
        *,
        rescale: bool = False,
        image: Callable[[np.ndarray], np.ndarray] | None = None,
        mean: bool = False,
        largest: bool = False,
    ) -> None:
        self.n, self.rescale, self.image, self.mean = n, rescale, image, mean
        self.largest = largest

    def add(self, partial: np.ndarray, contribution: np.ndarray) -> np.ndarray:
        """The sum, in this order."""
        if self.largest:
            return maximum(partial, contribution)
        with np.errstate(all="ignore"):
            return add(partial, contribution)

    def finish(self, values: np.ndarray, leaves: int) -> np.ndarray:
        """What the root sends round."""
        if self.rescale and leaves < self.n:
            with np.errstate(all="ignore"):
                values = add(values * np.float32(self.n / leaves), np.float32(-0.0))
        if self.mean:
            values = scaled(values, leaves)
        return values if self.image is None else self.image(values)


class Raw16(Raw):
    """BF16 on every hop, rounded once when it leaves; sums are float32. The root rounds the result,
    so that replicas are equal.
    """

    unit = 32
    op, wire = Op.RAW16, "<u2"
    ops = {False: {Op.RAW16}, True: {Op.RAW16}}

    def __init__(
        self, n: int, *, rescale: bool = False, mean: bool = False, largest: bool = False
    ) -> None:
        super().__init__(n, rescale=rescale, image=bf16.image, mean=mean, largest=largest)

    def encode(
        self, values: np.ndarray, leaves: int, *, is_leaf: bool
    ) -> tuple[Op, int, int, bytes]:
        return super().encode(bf16.narrow(values), leaves, is_leaf=is_leaf)

    def decode(self, header: dict, payload: bytes) -> np.ndarray:
        return bf16.widen(self._words(header, payload))


class Inceptionn(Raw):
    """INCEPTIONN on every hop; the root applies the codec's image, so that replicas are equal.

    exponent, mode, prescale, rounding : as in `gradnic.models.inceptionn`.
    """

    ops = {False: {Op.INC}, True: {Op.INC}}

    def __init__(
        self,
        n: int,
        *,
        exponent: int = 117,
        mode: str = "strict",
        prescale: int = 0,
        rounding: str = "trunc",
        rescale: bool = False,
        mean: bool = False,
    ) -> None:
        super().__init__(n, rescale=rescale, mean=mean)
        self.settings: dict[str, Any] = {"exponent": exponent, "mode": mode, "prescale": prescale}
        self.rounding = rounding
        self.p = ((mode == "paper") << 7 | exponent, prescale & 0xFF)

    def encode(
        self, values: np.ndarray, leaves: int, *, is_leaf: bool
    ) -> tuple[Op, int, int, bytes]:
        coded = inceptionn.compress(values, rounding=self.rounding, **self.settings)
        return Op.INC, *self.p, coded

    def decode(self, header: dict, payload: bytes) -> np.ndarray:
        if (header["p0"], header["p1"]) != self.p:
            raise ValueError("the codec's settings are not the tensor's")
        return inceptionn.decompress(payload, header["elems"], **self.settings)

    def finish(self, values: np.ndarray, leaves: int) -> np.ndarray:
        values = super().finish(values, leaves)
        return inceptionn.image(values, rounding=self.rounding, **self.settings)


class Norms(_Plain):
    """Block norms, as the bits of non-negative floats: the largest of all leaves."""

    unit, elem_bits, scored, is_norm = 16, 32, False, True
    op, dtype, wire = Op.NORM, np.uint32, "<u4"
    ops = {False: {Op.NORM}, True: {Op.NORM}}

    def add(self, partial: np.ndarray, contribution: np.ndarray) -> np.ndarray:
        return np.maximum(partial, contribution)

    def finish(self, values: np.ndarray, leaves: int) -> np.ndarray:
        return values


class Thc:
    """THC: leaves send indices, inner nodes sums of table values, the root fills what is missing.

    worker : thc.Worker, whose n is the number of nodes; g must be even if packets may be lost.
    C : int, elements of a packet; default 1024, or 512 where sums need more than 8 bits. Chunks are
    whole blocks, and whole 1,024 elements where C is not given.
    w : int, least bits of a sum. clips : of `Worker.encode`, where the card makes the indices.

    Attributes
    ----------
    w : int, bits of a sum: the smallest of 8, 12, 16 with n * g < 2**w, and as many as asked.
    """

    scored, is_norm = False, False
    dtype = np.int64
    ops = {False: {Op.THC_IDX, Op.THC_SUM}, True: {Op.THC_SUM}}

    def __init__(
        self, worker: thc.Worker, *, C: int | None = None, w: int = 8, clips: bool = False
    ) -> None:
        self.worker, self.n, self.clips = worker, worker.n, clips
        fitting = [one for one in W_CODES if w <= one and worker.n * worker.g < 1 << one]
        if not fitting:
            raise ValueError(f"n * g must be below 65536, not {worker.n} * {worker.g}; w 8 to 16")
        self.w = fitting[0]
        self.C = C or (1024 if self.w == 8 else 512)
        self.unit, self.elem_bits = max(worker.B, C or 1024), worker.b
        self.index_p: tuple[Any, ...] = tuple(
            PARAMETERS[Op.THC_IDX].pack(**index_parameters(worker))
        )

    def encode(
        self, values: np.ndarray, leaves: int, *, is_leaf: bool
    ) -> tuple[Op, int, int, bytes]:
        """As of the others; `values` are indices where `is_leaf`, else sums."""
        if is_leaf:
            return Op.THC_IDX, *self.index_p, thc.pack(values, self.worker.b)
        return Op.THC_SUM, min(leaves, 255), W_CODES.index(self.w) << 6, thc.pack(values, self.w)

    def decode(self, header: dict, payload: bytes) -> np.ndarray:
        op = header["op"]
        if op == Op.THC_IDX and (header["p0"], header["p1"]) != self.index_p:
            raise ValueError("the codec's settings are not the tensor's")
        if op == Op.THC_SUM and header["p1"] >> 6 != W_CODES.index(self.w):
            raise ValueError("the sums' width is not the tensor's")
        if op == Op.THC_IDX:
            return self.worker.table[thc.unpack(payload, self.worker.b, self.C)].astype(np.int64)
        return thc.unpack(payload, self.w, self.C).astype(np.int64)

    def add(self, partial: np.ndarray, contribution: np.ndarray) -> np.ndarray:
        return np.minimum(partial + contribution, (1 << self.w) - 1)

    def finish(self, values: np.ndarray, leaves: int) -> np.ndarray:
        missing = (self.n - leaves) * self.worker.g // 2
        return np.minimum(values + missing, (1 << self.w) - 1)
