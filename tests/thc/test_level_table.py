"""Indices and packed sums of THC on their way into the adders and out of them."""

import numpy as np
import pytest
from gradnic.hdl.thc.level_table import LevelTable, SumPacker
from gradnic.models.thc import Worker, level_table, pack
from gradnic.sim.engine import batch, stimulus

N_BYTES, ELEMS, REPEATS = 16, 256, 3
STALLS = [{}, {"i": 0.4}, {"o": 0.3}, {"i": 0.5, "o": 0.6}]
TAKES_OVER = [0] * 20  # cycles in which levels, bits and code are held, and 16 levels written


def packets(model, packets):
    """Beats of packets, [(octets, fields)], for port ``i``; a ``last`` ends each."""
    fields = {"last": []} | {name: [] for name in packets[0][1]}
    for octets, told in packets:
        n = len(octets) // N_BYTES
        fields["last"] += [0] * (n - 1) + [1]
        for name, value in told.items():
            fields[name] += [value] * n
    data = np.frombuffer(b"".join(octets for octets, _ in packets), np.uint8)
    return model.pack("i", data=data.reshape(-1, N_BYTES), **fields)


def leaving(model, packets):
    """Beats that port ``o`` must give."""
    last = np.concatenate([np.eye(1, n, n - 1) for n in (len(p) // N_BYTES for p in packets)], 1)
    data = np.frombuffer(b"".join(packets), np.uint8).reshape(-1, N_BYTES)
    return model.pack("o", data=data, last=last[0].astype(int))


@pytest.mark.parametrize(
    ("w", "b"),  # b None: 4 bits, and no others
    [(8, None), (12, None), (16, None), (8, 2), (16, 3), (12, 5), (8, 7), (16, 8)],
)
def test_indices_become_levels_and_sums_become_as_wide(w, b):
    rng = stimulus.rng("level table", w, b)
    size = b or 4
    table = Worker(1, 0, b=size, g=254).table
    indices, sums = rng.integers(0, 1 << size, ELEMS), rng.integers(0, 1 << w, ELEMS)
    indices[:2], sums[:4] = (0, (1 << size) - 1), (0, (1 << w) - 1, 1, 1 << (w - 1))
    plain, octets = pack(indices, size), pack(sums, w)
    kinds = [
        (plain, {"expand": 1, "plain": 0}, level_table.levels(plain, table, size, w)),
        (octets, {"expand": 0, "plain": 0}, level_table.widened(octets, w)),
        (plain, {"expand": 0, "plain": 1}, plain),
    ] * REPEATS
    model = batch.build(LevelTable(N_BYTES, wide=True, bits=8 if b else 4))
    signals = {"code": (8, 12, 16).index(w)}
    if b:
        writes = [1 | index << 1 | level << 9 for index, level in enumerate(table.tolist())]
        card = model.instance()
        card.run(signals={"write": [*writes, 0]}, drain=False, max_cycles=len(writes) + 1)
        play, signals = card.run, signals | {"bits": b, "write": 0}
    else:
        play, signals = model.run, signals | {"levels": np.array([table], np.uint8)}
    want = leaving(model, [wide for _, _, wide in kinds])
    for stalls in STALLS:
        run = play(
            {"i": packets(model, [kind[:2] for kind in kinds])},
            signals=signals,
            stalls=stalls | {"i": (TAKES_OVER, stalls.get("i", 1))},
            reset=b is None,
        )
        run.check(o=want)
        if not stalls:
            assert np.ptp(run.taken["o"]) == len(want) - 1
            assert run.taken["o"][0] - len(TAKES_OVER) == (2 if b else 1)


def test_sums_of_16_bits_are_packed_to_12_and_others_pass():
    rng = stimulus.rng("sum packer")
    sums, other = rng.integers(0, 1 << 12, ELEMS), rng.bytes(48)
    sums[:3] = 0, 0xFFF, 0xF0F
    wide = pack(sums, 16)
    model = batch.build(SumPacker(N_BYTES))
    for on, octets, want in ((1, wide, level_table.narrowed(wide, 12)), (0, other, other)):
        for stalls in STALLS:
            run = model.run(
                {"i": packets(model, [(octets, {})] * REPEATS)}, signals={"on": on}, stalls=stalls
            )
            run.check(o=leaving(model, [want] * REPEATS))
            if not stalls:
                assert np.ptp(run.taken["i"]) == REPEATS * len(octets) // N_BYTES - 1


def test_the_model_keeps_each_sum_and_looks_up_each_index():
    assert level_table.levels(b"\x1f", [7, 5, *[13] * 13, 255], 4, 8) == bytes([5, 255])
    assert level_table.levels(b"\x93", [4, 3, 2, 1], 2, 12).hex() == "0002000300040001"
    assert level_table.widened(bytes.fromhex("abc123"), 12).hex() == "0abc0123"
    assert level_table.narrowed(bytes.fromhex("0abc0123"), 12).hex() == "abc123"
    with pytest.raises(ValueError, match="values must be 0 to 4095, not 4096"):
        level_table.narrowed(bytes.fromhex("1000"), 12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LevelTable(8, wide=True), "n_bytes must be a power of two from 16 to 128, not 8"),
        (lambda: LevelTable(16, bits=5), "bits must be 4 or 8, not 5"),
        (lambda: SumPacker(12), "n_bytes must be a power of two from 16 to 128, not 12"),
    ],
)
def test_errors_name_the_value_and_the_limit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
