"""Codecs of a partial sum.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Mux
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
        "code": 2,
        "bits": 4,
        "largest": 1,
    }
)
"""What packets hold: float32 as they are; or ``coded``, INCEPTIONN units with these settings; or
``norm``, block norms, of which the largest counts; or ``thc``: indices, or sums of levels
0 to g of n leaves; or ``bf16``, each value rounded once when it leaves. Not two of them.
mean : the root divides sums of floats by their leaves. code : 0, 1, 2 for sums of THC of 8, 12, 16
bits; 0 without. bits : of an index, where they are not 4 always.
largest : of floats the larger value stays, and nothing is added."""


def octets_of(codec, elems):
    """Bytes of so many elements, an even number, as they lie in landing areas: floats, norms, or
    sums of THC.
    """
    sums = Mux(codec.code[1], elems << 1, Mux(codec.code[0], elems + (elems >> 1), elems))
    return Mux(codec.thc, sums, elems << 2)


def index_octets(codec, elems, bits=4):
    """Bytes of so many indices, a multiple of 16. bits : 4, or 8 for ``codec.bits`` of them."""
    return elems >> 1 if bits == 4 else (elems * codec.bits) >> 3
