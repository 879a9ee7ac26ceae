"""What a codec makes of a tensor on the wire, for the network model: one number by its name."""

from gradnic.text_file import number

from ..aggregation.jobs import W_CODES

INCEPTIONN = 3.05  # payload ratio of 64 MiB of real gradients, sum loss, bound 2**-10: docs, codec
_THC_G, _THC_BLOCK = 30, 1024  # the defaults of `gradnic.models.thc.Worker`
LEAST, MOST = 0.9, 64.0  # INCEPTIONN at its worst is 0.94; a bit a value is 32


def wire_ratio(codec: str, n_nodes: int) -> float:
    """Bytes on the wire per byte of floats, heads not counted.

    codec : one of
        ``none``: 1.
        ``ratio:R``: 1 / R. R is the payload ratio that `gradnic codec stats` prints: bytes of FP32
        over coded bytes, 0.9 to 64.
        ``inceptionn``: R = 3.05, which real gradients have at the default bound.
        ``thc``: sums of the smallest of 8, 12, 16 bits that hold those of `n_nodes` workers at
        g = 30, and a norm for each 1024 values; a leaf's indices of 4 bits are counted as sums.
    ValueError for anything else.
    """
    name, _, value = codec.partition(":")
    if codec == "none":
        return 1.0
    if codec == "inceptionn":
        return 1 / INCEPTIONN
    if codec == "thc":
        fitting = [w for w in W_CODES if n_nodes * _THC_G < 1 << w]
        if not fitting:
            most = ((1 << W_CODES[-1]) - 1) // _THC_G
            raise ValueError(f"thc sums at most {most} nodes at g = {_THC_G}, not {n_nodes}")
        return fitting[0] / 32 + 1 / _THC_BLOCK
    try:
        ratio = number(value)
    except ValueError:
        ratio = 0.0
    if name != "ratio":
        raise ValueError(f"codec must be none, inceptionn, thc or ratio:R, not {codec!r}")
    if not LEAST <= ratio <= MOST:
        inverse = f"; {1 / ratio:.4g}?" if LEAST <= 1 / max(ratio, 1e-9) <= MOST else ""
        raise ValueError(
            f"R of ratio:R is bytes of FP32 over coded bytes, as codec stats prints it, {LEAST:g} "
            f"to {MOST:g}, not {value!r}{inverse}"
        )
    return 1 / ratio
