"""Codecs of a partial sum.

Plumbing: no golden model of its own.
"""

from amaranth.lib import data

Codec = data.StructLayout(
    {
        "coded": 1,
        "norm": 1,
        "thc": 1,
        "exponent": 7,
        "paper": 1,
        "prescale": 8,
        "n": 8,
        "g": 8,
        "index_p0": 8,
        "index_p1": 8,
        "levels": data.ArrayLayout(8, 16),
        "bf16": 1,
        "mean": 1,
    }
)
"""What packets hold: float32 as they are; or ``coded``, INCEPTIONN units with these settings; or
``norm``, block norms, of which the largest counts; or ``thc``: indices of 4 bits, or sums of 8, of
levels 0 to g of n leaves; or ``bf16``, each value rounded once when it leaves. Not two of them.
mean : the root divides sums of floats by their leaves."""
