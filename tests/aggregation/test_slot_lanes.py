"""A column of the store against the golden arithmetic: rows of all kinds, one a cycle."""

import numpy as np
import pytest
from gradnic.hdl.aggregation.slot_lanes import SlotLanes
from gradnic.hdl.aggregation.slot_records import Kind, Sizes
from gradnic.hdl.aggregation.slot_rows import GAP, Order, SlotRows
from gradnic.models.aggregation import slot_lanes as golden
from gradnic.sim.engine import batch, encoding, stimulus

SIZES = Sizes(8, n_slots=2, n_jobs=3, chunk=64, width=12, b_max=5, n_words=24)
FIRST, N = 8, 8  # the upper half of a row of 16 lanes
WORDS = slice(FIRST * SIZES.width // 32, (FIRST + N) * SIZES.width // 32)
N_ROWS = 2 ** (SIZES.place_width + SIZES.row_width)
CORNERS = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**30, -(2**30) - 1, 0x7F800000])


def payload(rng, kind, bits):
    """One row of a payload: bytes as they come in."""
    if kind in (Kind.INT32, Kind.NORM):
        words = rng.integers(-(2**31), 2**31, SIZES.row_words)
        corners = rng.choice(CORNERS, SIZES.row_words)
        return np.where(rng.random(len(words)) < 0.4, corners, words).astype("<i4").tobytes()
    n = bits * SIZES.lanes // 8
    return (rng.bytes(n), b"\xff" * n, bytes(n))[int(rng.choice(3, p=[0.8, 0.1, 0.1]))]


class Store:
    """Golden rows by their address: the sums of this column."""

    def __init__(self, levels):
        self.levels, self.rows = levels, {}

    def play(self, order, raw, fill):
        """Do as an order says; returns (the row as answers have it, whether a sum overflowed)."""
        at, kind, over = order["address"], order["kind"], False
        if order["adds"]:
            values = self._values(order, raw)
            if order["first"]:
                self.rows[at] = values
            elif kind == Kind.NORM:
                self.rows[at] = golden.larger_words(self.rows[at], values)
            elif kind == Kind.INT32:
                saturates = bool(order["saturates"])
                self.rows[at], over = golden.add_words(self.rows[at], values, saturates=saturates)
            else:
                self.rows[at], over = golden.add_lanes(self.rows[at], values, SIZES.width)
        row = self.rows[at]
        if kind in (Kind.INT32, Kind.NORM):
            return (row % 2**32).astype("<u4").tobytes(), over
        lanes = golden.fill_lanes(row, fill, 2, SIZES.width)
        bits = lanes[:, None] >> np.arange(SIZES.width) & 1
        return np.packbits(bits.astype(np.uint8), bitorder="little").tobytes(), over

    def _values(self, order, raw):
        kind = order["kind"]
        if kind in (Kind.INT32, Kind.NORM):
            words = np.frombuffer(raw, "<i4" if kind == Kind.INT32 else "<u4").astype(np.int64)
            words[order["words"] :] = 0
            return words[WORDS]
        levels = self.levels[order["job"]] if kind == Kind.INDEX else None
        bits = order["bits"] + 1 if kind == Kind.INDEX else SIZES.width
        if levels is not None:
            levels = levels[: 2**bits]
        row = golden.read_lanes(raw, width=bits, n=SIZES.lanes, levels=levels)
        return row[FIRST : FIRST + N]


def orders(rng, n):
    """(order, payload of its row, fill), or None for a cycle without a row."""
    kinds, last = {}, dict.fromkeys(range(N_ROWS), -GAP)
    for cycle in range(n):
        free = [at for at in range(N_ROWS) if cycle - last[at] >= GAP]
        at = int(rng.choice(free))
        if rng.random() < 0.1:
            yield None
            continue
        last[at] = cycle
        first = at not in kinds or rng.random() < 0.15
        if first:
            kinds[at] = int(rng.integers(4)), int(rng.integers(SIZES.b_max))
        kind, bits = kinds[at]
        words = kind in (Kind.INT32, Kind.NORM)
        order = {
            "row": 1, "address": at, "kind": kind, "bits": bits, "first": int(first),
            "adds": int(first or rng.random() < 0.8), "job": int(rng.integers(SIZES.n_jobs)),
            "saturates": int(rng.random() < 0.5), "emits": int(rng.integers(2)),
            "words": int(rng.integers(1, SIZES.row_words + 1)) if words else SIZES.row_words,
        }  # fmt: skip
        fill = 0 if words else int(rng.choice([0, 1, 100, 2**SIZES.width - 1]))
        raw = payload(rng, kind, bits + 1 if kind == Kind.INDEX else SIZES.width)
        yield order, raw, fill


@pytest.fixture(scope="module")
def model():
    return batch.build(SlotLanes(SIZES, N, FIRST))


def test_rows_equal_the_golden_ones(model):
    rng = stimulus.rng("slot lanes")
    levels = rng.integers(0, 256, (SIZES.n_jobs, 2**SIZES.b_max))
    store, given = Store(levels), list(orders(rng, 4000))
    n_table, n = levels.size, len(given)
    start, index_bytes = n_table + 4, SIZES.index_units * SIZES.lanes // 8
    n_cycles = start + n + SlotLanes.latency + 2
    fields = [one[0] if one else {} for one in given]
    # what is not said of a cycle without a row is anything
    fields = [
        f or {"row": 0, "adds": 1, "first": 1, "address": k % N_ROWS} for k, f in enumerate(fields)
    ]
    rows, indices = (
        np.zeros((n_cycles, size), np.uint8) for size in (SIZES.row_bits // 8, index_bytes)
    )
    fills, wanted, over = np.zeros(n_cycles, int), {}, np.zeros(n_cycles, int)
    for k, one in enumerate(given):
        if one is None:
            continue
        order, raw, fill = one
        came = start + k + SlotRows.latency
        if order["kind"] == Kind.INDEX:  # in the order of the stream, at the upper end
            bits = np.unpackbits(np.frombuffer(raw, np.uint8))
            held = np.zeros(8 * index_bytes, np.uint8)
            held[-len(bits) :] = bits
            indices[came] = np.packbits(held, bitorder="little")
        else:
            rows[came] = np.frombuffer(raw, np.uint8)
        fills[start + k + SlotLanes.FILLS] = fill
        out, left = store.play(order, raw, fill)
        wanted[start + k + SlotLanes.latency] = out
        over[start + k + SlotLanes.OVERFLOWS] = left
    columns = {name: [f.get(name, 0) for f in fields] for name, _ in Order(SIZES)}
    beats = encoding.pack(Order(SIZES), **columns)
    before = np.zeros((start, beats.shape[1]), np.uint8)
    address = np.arange(n_table)
    run = model.run(
        {},
        signals={
            "order": np.concatenate([before, beats, before[:1]]),
            "indices": indices,
            "row": rows,
            "fill": fills,
            "write_en": [*[1] * n_table, 0],
            "write_addr": [
                *(address // 2**SIZES.b_max << SIZES.b_max | address % 2**SIZES.b_max),
                0,
            ],
            "write_data": [*levels.reshape(-1), 0],
        },
        trace=["o", "overflows"],
        drain=False,
        max_cycles=n_cycles,
    )
    assert {one[0]["kind"] for one in given if one} == {*Kind}
    assert over.sum() > 100
    np.testing.assert_array_equal(run.traces["overflows"], over)
    for cycle, row in wanted.items():
        assert run.traces["o"][cycle].tobytes() == row, given[cycle - start - SlotLanes.latency]


def test_errors_name_the_value_and_the_limit():
    with pytest.raises(ValueError, match="n_lanes must be a multiple of 32 / width, not 2"):
        SlotLanes(SIZES, 2, 0)
