"""Schemes whose errors `accuracy` compares that code sums on their way, or vote."""

import numpy as np
from gradnic.models import inceptionn
from gradnic.models.inline.ring import image_exchange, ring_allreduce
from gradnic.models.thc import baselines

SCALE = 3.0e-3  # rms of the small network's gradients at iteration 40, mean loss


class InceptionnRing:
    """Mean of a ring of in-line cards whose bound is absolute: gradients are scaled to `SCALE`.

    Called with gradients (n, d) and a generator. bits : tag and payload bits a value, of the last
    call's gradients.
    """

    def __init__(self, exponent):
        self.exponent = exponent
        self.bits = float("nan")

    def __call__(self, gradients, rng):
        del rng
        factor = SCALE / np.sqrt(np.square(gradients).mean())
        floats = (gradients * factor).astype(np.float32)

        def image(block):
            return inceptionn.image(block, exponent=self.exponent)

        sizes = inceptionn.coded_sizes(floats, 336, exponent=self.exponent)
        self.bits = 8 * float(sizes.sum()) / floats.size
        if len(floats) == 1:
            return image(floats[0]) / factor
        replicas = ring_allreduce(floats, image_exchange(image), image)
        return replicas[0].astype(np.float64) / factor / len(floats)


def truncated_ring(bits):
    """Mean of a ring of cards that cut the low `bits` of every float on every hop."""

    def image(block):
        return baselines.truncated(block, bits)

    def mean_of(gradients, rng):
        del rng
        floats = gradients.astype(np.float32)
        if len(floats) == 1:
            return image(floats[0]).astype(np.float64)
        replicas = ring_allreduce(floats, image_exchange(image), image)
        return replicas[0].astype(np.float64) / len(floats)

    return f"cut {bits} bits, ring", 32 - bits, mean_of


def requantized(bits, block=256):
    """Mean of a ring whose hops decode, add and quantize anew (as DynamiQ, 2026, does it)."""
    compress = baselines.block_min_max(bits, block)

    def mean_of(gradients, rng):
        partial = gradients[0]
        for own in gradients[1:]:
            partial = compress(partial, rng) + own
        return compress(partial, rng) / len(gradients)

    return f"requantized ring, {bits} bit", bits + 32 / block, mean_of


def majority(gradients, rng):
    """SignSGD with majority vote (Bernstein et al., ICML 2018), scaled by the mean magnitude."""
    del rng
    return np.sign(np.sign(gradients).sum(axis=0)) * np.abs(gradients).mean()
