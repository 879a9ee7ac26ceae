"""Multiplier: both bodies equal Python's product, on time."""

import numpy as np
import pytest
from gradnic.hdl.primitive.multiplier import Multiplier
from gradnic.hdl.primitive.target import Target
from gradnic.sim.engine import batch, ecp5, encoding

WIDTHS = [(18, 18), (1, 7), (36, 36), (12, 30)]


def _operands(width, is_signed, rng):
    """Corners, then noise, as Python integers."""
    low = -(1 << (width - 1)) if is_signed else 0
    high = low + (1 << width) - 1
    corners = sorted({low, low + 1, -1 if is_signed else 1, 0, high, high - 1, high // 2})
    noise = [low + int.from_bytes(rng.bytes(8), "little") % (1 << width) for _ in range(1500)]
    return [x for x in corners if low <= x <= high], noise


def _rows(values, width):
    n_bytes = -(-width // 8)
    raw = b"".join((v % (1 << width)).to_bytes(n_bytes, "little") for v in values)
    return np.frombuffer(raw, np.uint8).reshape(-1, n_bytes)


@pytest.mark.parametrize("body", ["generic", "ecp5", "xilinx", "intel"])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_product(widths, is_signed, body):
    rng = np.random.default_rng(sum(widths))
    (a_corners, a), (b_corners, b) = (_operands(w, is_signed, rng) for w in widths)
    pairs = [(x, y) for x in a_corners for y in b_corners] + list(zip(a, b, strict=True))
    multiplier = Multiplier(*widths, is_signed=is_signed)
    assert multiplier.latency == (3 if max(widths) <= 18 else 5)
    if body == "ecp5":
        model = ecp5.build(multiplier)
    else:
        model = batch.build(multiplier, platform=Target(body))
    a, b = (_rows([pair[k] for pair in pairs], width) for k, width in enumerate(widths))
    run = model.run(
        signals={"a": a, "b": b},
        trace=["p"],
        drain=False,
        max_cycles=len(pairs) + multiplier.latency,
    )
    got = encoding.pack(multiplier.p.shape(), run.traces["p"])[multiplier.latency :]
    np.testing.assert_array_equal(got, _rows([x * y for x, y in pairs], sum(widths)))


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((0, 4), "a_width must be 1 to 36, not 0"),
        ((4, 37), "b_width must be 1 to 36, not 37"),
    ],
)
def test_errors(widths, message):
    with pytest.raises(ValueError, match=message):
        Multiplier(*widths)
