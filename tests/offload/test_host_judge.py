"""What host frames are judged to be, against the golden model: corners, then noise near them."""

import numpy as np
import pytest
from gradnic.hdl.offload.host_judge import HostJudge
from gradnic.models.offload import host_judge as golden
from gradnic.sim.engine import batch, encoding, stimulus

from gradnic.interface.host_frame import SEQ_BITS, Kind, Status

WIDTH, REGISTER_WIDTH = 32, 10
HELD = 4  # cycles that a frame stands; what it is judged to be is read in the last
REGIONS = ((4096, 32768), (1 << 31, 640))  # first byte, bytes
SESSION, EXPECTED = 0x5EED0001, 5
TOLD = ("stranger", "apart", "late", "status", "right", "region", "offset", "n_beats")
ADDRESSES = [
    0, 4, 1, 1020, 1024, 960, 4032, 4096, 4100, 4128, 36864, 36800, (1 << 31) - 64, 1 << 31,
    (1 << 31) + 576, (1 << 31) + 640, 1 << 32, 1 << 32 | 4096,
]  # fmt: skip
SIZES = [4, 64, 60, 68, 640, 644, 1024, 1028, 32768, 32772, 1, 63, (1 << 16) - 1]


def test_corners_are_judged_as_the_format_says():
    """By hand, so that model and circuit are not wrong alike."""
    for kind, address, n_bytes, want in [
        (Kind.READ, 4096, 32768, Status.DONE), (Kind.READ, 4096, 32769, Status.OUTSIDE),
        (Kind.WRITE, 4032, 64, Status.OUTSIDE), (Kind.WRITE, 4100, 4, Status.UNALIGNED),
        (Kind.READ, (1 << 31) + 576, 64, Status.DONE), (Kind.READ, 36864, 64, Status.OUTSIDE),
        (Kind.READ_REG, 1020, 4, Status.DONE), (Kind.READ_REG, 1020, 8, Status.OUTSIDE),
        (Kind.WRITE_REG, 2, 4, Status.UNALIGNED), (Kind.POST, 1, 40, Status.DONE),
        (Kind.ACK, 0, 0, Status.UNKNOWN), (200, 0, 0, Status.UNKNOWN),
    ]:  # fmt: skip
        asked = {"kind": kind, "address": address, "elems": n_bytes}
        assert golden.status(asked, REGIONS, 1 << REGISTER_WIDTH) == want, asked
    assert golden.place((1 << 31) + 64, 64, REGIONS) == (1, 64)
    last = (1 << SEQ_BITS) - 1
    assert [golden.apart(*pair) for pair in ((5, 5), (0, last), (last, 0), (1 << 23, 0))] == [
        0, 1, -1, -(1 << 23)
    ]  # fmt: skip


def frames(rng, n):
    """Fields of n frames and of what they are held against, a column each."""
    kinds = [*Kind, *[Kind.READ, Kind.WRITE, Kind.READ_REG, Kind.WRITE_REG] * 3, 0x80, 255]
    address = rng.choice(ADDRESSES, n)
    noise = rng.integers(0, 1 << 17, n) & -4
    address = np.where(rng.random(n) < 0.3, address + noise, address)
    n_bytes = np.where(rng.random(n) < 0.2, rng.integers(1, 1 << 16, n), rng.choice(SIZES, n))
    near = np.array([0, 0, 0, 0, 1, -1, 1 << 23, (1 << 23) - 1])
    expected = np.where(rng.random(n) < 0.5, EXPECTED, rng.integers(0, 1 << SEQ_BITS, n))
    session = np.where(rng.random(n) < 0.8, SESSION, rng.choice([0, SESSION ^ 1, 1 << 31], n))
    return {
        "kind": rng.choice(kinds, n), "address": address, "elems": n_bytes, "session": session,
        "seq": (expected + rng.choice(near, n)) % (1 << SEQ_BITS), "expected": expected,
        "is_open": rng.random(n) < 0.9,
    }  # fmt: skip


def judged(model, n_bytes, columns):
    """{name: what the circuit says of each frame}."""
    n = len(columns["kind"])
    asked = {name: columns[name] for name in ("kind", "address", "elems", "session", "seq")}
    shape = model.levels["asked"].shape
    fields = encoding.fields_of(shape)
    rest = {name: np.zeros((n, -(-width // 8)), np.uint8)
            for name, (_, width, _) in fields.items() if name not in asked}  # fmt: skip
    regions = [{"first": a // n_bytes, "n_beats": b // n_bytes} for a, b in REGIONS]
    number = model.levels["regions"].shape.const(regions).as_value().value
    size = encoding.n_bytes(model.levels["regions"].shape)
    run = model.run(
        signals={
            "asked": np.repeat(encoding.pack(shape, **asked, **rest), HELD, axis=0),
            "regions": np.frombuffer(number.to_bytes(size, "little"), np.uint8)[None],
            "is_open": np.repeat(columns["is_open"], HELD), "session": SESSION,
            "expected": np.repeat(columns["expected"], HELD),
        },
        trace=TOLD, drain=False, max_cycles=n * HELD, probe_cycles=0,
    )  # fmt: skip
    return {name: run.traces[name][HELD - 1 :: HELD].astype(int) for name in TOLD}


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_each_frame_is_judged_as_the_model_does_three_cycles_later(n_bytes):
    model = batch.build(HostJudge(n_bytes, WIDTH, REGISTER_WIDTH))
    columns = frames(stimulus.rng("host_judge", str(n_bytes)), 4000)
    found, seen = judged(model, n_bytes, columns), set()
    for k in range(len(columns["kind"])):
        one = {name: int(values[k]) for name, values in columns.items()}
        apart = golden.apart(one["seq"], one["expected"])
        status = golden.status(one, REGIONS, 1 << REGISTER_WIDTH)
        stranger = not one["is_open"] or one["session"] != SESSION
        want = {
            "stranger": stranger, "apart": apart != 0, "late": apart < 0, "status": status,
            "right": not stranger and not apart and status == Status.DONE,
            "n_beats": -(-one["elems"] // n_bytes),
        }  # fmt: skip
        if status == Status.DONE and one["kind"] in golden.OF_MEMORY:
            region, before = golden.place(one["address"], one["elems"], REGIONS)
            want |= {"region": region, "offset": before // n_bytes}
        assert {name: found[name][k] for name in want} == want, one
        seen.add((status, stranger, want.get("region")))
    assert len(seen) == 12  # four statuses, of the session or not; and READ, WRITE in two regions
