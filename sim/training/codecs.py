"""How the gradients of a training step are summed: exactly, by coded frames, or by THC's sums.

Each exchange takes the gradients of all workers, float32 (n_workers, n_values), and returns their
sum as the workers would have it. It counts the bytes that all links between workers and network
carry, gaps included, and what they would carry with FP32 in frames of 336 values.
"""

import numpy as np
from gradnic.models import inceptionn
from gradnic.models.inceptionn.measure import FLOATS, frame_bytes
from gradnic.models.inline.ring import ring_allreduce
from gradnic.models.thc import worker as thc

CODECS = (
    "none", "inceptionn", "thc", "bf16", "fp16", "truncated", "powersgd", "prioritized",
    "thc-partial", "regional",
)  # fmt: skip
CHUNK = 1024  # values of a THC packet
NORMS = 256  # norms of a packet
SUM_BITS = (8, 12, 16)


def raw_bytes(n_values):
    """Bytes on the wire of `n_values` float32 values, once."""
    floats = np.minimum(FLOATS, n_values - np.arange(0, n_values, FLOATS))
    return int(frame_bytes(4 * floats).sum())


class Exchange:
    """Sums gradients exactly; base of the others.

    loss : share of the packets of 336 values that a bounded-loss transport may lose: of each
        worker's, floor(loss * packets) are lost every time and count as 0.
    rescale : divide what arrived of a packet by the share of workers that it came from.
    random : each packet is lost with probability `loss`, as on a network that bounds nothing.

    Attributes: raw_bytes, wire_bytes, so far.
    """

    packet = FLOATS  # values

    def __init__(self, n_workers, *, loss=0.0, rescale=False, random=False, seed=0):
        if not 0 <= loss < 1:
            raise ValueError(f"loss must be 0 up to 1, not {loss!r}")
        self.n_workers = n_workers
        self.loss, self.rescale, self.random = loss, rescale, random
        self.raw_bytes = self.wire_bytes = 0
        self._rng = np.random.default_rng([seed, 2])

    def __call__(self, gradients):
        """The sum of `gradients`; adds what it cost to `raw_bytes` and `wire_bytes`."""
        n_values = gradients.shape[1]
        up_and_down = 2 * self.n_workers * raw_bytes(n_values)
        self.raw_bytes += up_and_down
        self.wire_bytes += up_and_down
        if not self.loss:
            return gradients.sum(axis=0)
        arrived = self.arrivals(n_values)
        return np.where(arrived, gradients, 0).sum(axis=0) * self.factors(arrived)

    def arrivals(self, n_values):
        """Which values arrive, packet by packet: bool (n_workers, n_values)."""
        arrived = self.packets(-(-n_values // self.packet))
        return np.repeat(arrived, self.packet, axis=1)[:, :n_values]

    def packets(self, n_packets):
        """Which packets of each worker's `n_packets` arrive: bool (n_workers, n_packets)."""
        arrived = np.ones((self.n_workers, n_packets), bool)
        if self.random:
            arrived = self._rng.random(arrived.shape) >= self.loss
        for row in arrived if not self.random else ():
            row[self._rng.permutation(n_packets)[: int(self.loss * n_packets)]] = False
        return arrived

    def factors(self, arrived):
        """What a sum is multiplied by, float32 (…,), from `arrived` of its contributions."""
        return self._factors(arrived.sum(axis=0))

    def _factors(self, count):
        if not self.rescale:
            return np.ones(count.shape, np.float32)
        return np.float32(self.n_workers) / np.maximum(count, 1).astype(np.float32)


class Ring(Exchange):
    """A ring of cards: every block is coded on every hop, `ring_allreduce`. Who inherits it has the
    codec. At least 2 workers.

    Packets may be lost on each hop towards the sum, with all that was summed before it; results
    are sent again until they are there. A block's owner divides by the share that came.
    """

    def image(self, block):
        """What a receiver makes of a block; float32."""
        raise NotImplementedError

    def sizes(self, block):
        """Bytes of a block's packets of 336 floats, coded."""
        raise NotImplementedError

    def __call__(self, gradients):
        counts = np.ones((self.n_workers, 1), int)  # workers in each value that worker i sends

        def hop(step, blocks):
            nonlocal counts
            for block in blocks:
                self.raw_bytes += raw_bytes(block.size)
                self.wire_bytes += int(frame_bytes(self.sizes(block)).sum())
            received = np.stack([self.image(block) for block in np.roll(blocks, 1, axis=0)])
            if self.loss and step < self.n_workers:
                arrived = self.arrivals(blocks.shape[1])
                counts = 1 + np.roll(counts, 1, axis=0) * arrived
                received = np.where(arrived, received, np.float32(0))
            return received

        def owned(block):
            nonlocal counts
            if self.loss:
                block, counts = block * self._factors(counts[0]), counts[1:]
            return self.image(block)

        return ring_allreduce(gradients, hop, owned)[0]


class Inceptionn(Ring):
    """A ring whose cards have INCEPTIONN's codec.

    exponent, mode, prescale : see `gradnic.models.inceptionn`; others of `Exchange`.
    """

    def __init__(self, n_workers, *, exponent=117, mode="strict", prescale=0, **options):
        super().__init__(n_workers, **options)
        self._bound = {"exponent": exponent, "prescale": prescale}
        self._options = self._bound | {"mode": mode}
        self.image(np.zeros(1, np.float32))  # complains about settings

    def image(self, block):
        return inceptionn.image(block, **self._options)

    def sizes(self, block):
        return inceptionn.coded_sizes(block, FLOATS, **self._bound)


class Thc(Exchange):
    """THC through an aggregator: indices up, table sums down; error feedback in the host's memory.

    b, g, p, B, norm : see `gradnic.models.thc.Worker`. feedback : each worker adds to its gradient
        what its own codes lost of the one before. loss counts packets of 1024 values. tensor :
        number that seeds the dice.
    """

    packet = CHUNK

    def __init__(self, n_workers, *, feedback=True, seed=0, loss=0.0, rescale=False, random=False,
                 tensor=0, **parameters):  # fmt: skip
        super().__init__(n_workers, loss=loss, rescale=rescale, random=random, seed=seed)
        self.tensor = tensor
        self.worker = thc.Worker(n_workers, seed, **parameters)
        if n_workers * self.worker.g >= 1 << SUM_BITS[-1]:
            raise ValueError(f"workers * g must be below 65536, not {n_workers * self.worker.g}")
        if loss and self.worker.g % 2:
            raise ValueError(f"g must be even where packets are lost, not {self.worker.g}")
        self.feedback = feedback
        self.errors = None
        self.round = 0

    def __call__(self, gradients):
        worker, n_values = self.worker, gradients.shape[1]
        at = {"round": self.round, "tensor": self.tensor}
        with np.errstate(over="ignore", invalid="ignore"):
            x = gradients if self.errors is None else gradients + self.errors
        norms = np.maximum.reduce([worker.norms(row) for row in x])
        indices = [worker.encode(row, norms, worker=rank, **at) for rank, row in enumerate(x)]
        if self.feedback:
            lost = [
                worker.residual(row, own, norms, tensor=self.tensor)
                for row, own in zip(x, indices, strict=True)
            ]
            self.errors = np.stack(lost)[:, :n_values]
        values = np.stack([worker.table[own] for own in indices])
        self._count(n_values, values.shape[1], norms.size)
        if not self.loss:
            total = worker.decode(values.sum(axis=0), norms, **at)
            self.round += 1
            return total[:n_values] * np.float32(self.n_workers)
        arrived = self.arrivals(values.shape[1])
        # The root fills in g / 2, an exact zero, for what is missing.
        fill = (~arrived).sum(axis=0) * worker.g // 2
        total = worker.decode((values * arrived).sum(axis=0) + fill, norms, **at)
        self.round += 1
        scale = np.float32(self.n_workers) * self.factors(arrived)
        return (total * scale)[:n_values]

    def _count(self, n_values, n_padded, n_norms):
        """Packets of 1024 values, indices up and sums down, and of 256 norms both ways."""
        top = self.n_workers * self.worker.g
        w = next(bits for bits in SUM_BITS if top < 1 << bits)
        n_packets = -(-n_padded // CHUNK)
        norms = np.minimum(NORMS, n_norms - np.arange(0, n_norms, NORMS))
        one = 2 * int(frame_bytes(4 * norms).sum())
        for bits in (self.worker.b, w):
            one += n_packets * int(frame_bytes(CHUNK * bits // 8))
        self.raw_bytes += 2 * self.n_workers * raw_bytes(n_values)
        self.wire_bytes += self.n_workers * one


def make(codec, n_workers, options):
    """The exchange of a name; `options` are those of its class, ValueError for what it has not."""
    from . import baselines

    kinds = {
        "none": Exchange, "inceptionn": Inceptionn, "thc": Thc, "bf16": baselines.Bf16,
        "fp16": baselines.Fp16,
        "truncated": baselines.Truncated, "powersgd": baselines.PowerSgd,
        "prioritized": baselines.Prioritized,
        "thc-partial": baselines.PartialThc, "regional": baselines.Regional,
        "thc-trees": baselines.TreeThc,
    }  # fmt: skip
    if codec not in kinds:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    return kinds[codec](n_workers, **options)
