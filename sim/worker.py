"""Plays blocks through the THC worker's circuits, next to the golden worker."""

import numpy as np

from ..hdl.hadamard import BLOCKS
from ..models import thc, thc_random

SEED, ROUND, RANK, TENSOR = 11, 5, 2, 9
SETTLE = [0] * 8  # cycles in which the job's registers are taken over
REKEY_CYCLES = 100
TABLE_CYCLES = 300


def fields_to_bytes(x, width):
    """Rows of signed integers as rows of packed little-endian fields."""
    bits = (x[..., None] >> np.arange(width) & 1).astype(np.uint8)
    return np.packbits(bits.reshape(len(x), -1), axis=1, bitorder="little")


def bytes_to_fields(rows, width, n):
    """Inverse of `fields_to_bytes`."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : n * width].reshape(-1, n, width)
    values = (bits.astype(np.int64) << np.arange(width)).sum(axis=-1)
    return values - (values >> width - 1 << width)


def blocks_of_floats(worker, n, *, finite=False):
    """Blocks of many scales; of 8 or more, some are zero, denormal, spikes, or not finite."""
    rng = np.random.default_rng(worker.B + worker.b)
    x = rng.standard_normal((n, worker.B)) * np.exp(20 * rng.standard_normal((n, 1)))
    x = np.clip(x, -1e18, 1e18).astype(np.float32)
    if n < 8:
        return x
    x[0], x[1] = 0, 1
    x[2], x[2, 7] = 0, -1
    x[3, :5] = [0, -0.0, 1e-40, 1e-20, 1e10]
    x[4] = 1e-40
    x[5] = 1e-36
    if not finite:
        x[6, 3] = np.inf
        x[7] = 3e38
    return x


def keys():
    """The job's keys, as a driver derives them."""
    tensor = np.array([TENSOR + 0x7F4A7C15], np.uint32)
    return {
        "random_key": int(thc_random.key(SEED, ROUND, RANK)[0]),
        "sign_key": int(thc_random.key(SEED, 0, thc_random.SIGN_WORKER)[0]),
        "tensor_hash": int(thc_random.fmix32(tensor)[0]),
    }


class Encoder:
    """A library of a `gradnic.hdl.thc_encoder.ThcEncoder`, its table loaded for one worker."""

    def __init__(self, model, lanes, worker):
        self.model, self.lanes, self.worker = model, lanes, worker
        self.card = model.instance()
        table = [lower | a - level // 256 << 8 | gap << 16
                 for a, (lower, level, gap) in enumerate(worker._cells.tolist())]  # fmt: skip
        registers = {
            "log4": BLOCKS.index(worker.B),
            "tensor": int(worker.norm == "tensor"),
            "bits": worker.b,
            "t_fixed": worker.t_fixed,
            "unit": worker.unit,
            **keys(),
        }
        write = {
            "write_en": [1] * len(table) + [0],
            "write_addr": [*range(len(table)), 0],
            "write_data": [*table, 0],
            "rekey": 0,
        }
        self.card.run(signals=registers | write, drain=False, max_cycles=TABLE_CYCLES)

    def play(self, x, norms, *, words=None, silent=0, stalls=None):
        """Code blocks under these norms, or words in place of norms; returns the `batch.Run`.

        AssertionError unless the indices are those of the golden worker.
        """
        model, worker = self.model, self.worker
        expected = worker.encode(x, norms, round=ROUND, worker=RANK, tensor=TENSOR)
        packed = np.frombuffer(thc.pack(expected, worker.b), np.uint8)
        self.card.run(signals={"rekey": [1, 0]}, drain=False, max_cycles=REKEY_CYCLES, reset=False)
        words = norms if words is None else words
        run = self.card.run(
            {
                "blocks": model.pack("blocks", word=words, number=np.arange(len(x)), silent=silent),
                "floats": model.pack("floats", x.reshape(-1, self.lanes)),
            },
            ["indices"],
            stalls=stalls,
            reset=False,
        )
        run.check(indices=packed.reshape(-1, self.lanes))
        return run

    def play_kinds(self, n, stalls=None):
        """Code `n` blocks of every kind: too large a norm, too small, none."""
        worker = self.worker
        tensor = worker.norm == "tensor"
        x = blocks_of_floats(worker, n, finite=tensor)
        own = worker.norms(x)
        if tensor:
            scale = np.sqrt(float(x.size)) / own.view(np.float32).astype(float)
            words = np.repeat(scale.astype(np.float32).view(np.uint32), n)
            return self.play(x, own, words=words, stalls=stalls)
        norms = own.copy()
        norms[9:10] += 100
        norms[10:11] -= 1
        norms[11:12] = 0x7F800000
        return self.play(x, norms, silent=(own > norms).astype(int), stalls=stalls)


def decode(model, lanes, worker, width, n, *, stalls=None):
    """Decode `n` blocks of sums of `width` bits; returns the `batch.Run`.

    AssertionError unless the floats are those of the golden worker.
    """
    x = blocks_of_floats(worker, n)
    norms = worker.norms(x)
    sums = np.random.default_rng(width).integers(0, worker.n * worker.g + 1, x.size)
    expected = worker.decode(sums, norms, round=0, tensor=TENSOR)
    unit = np.float32(worker.t_fixed / 256 / (worker.n * worker.g * worker.B))
    packed = np.frombuffer(thc.pack(sums, width), np.uint8)
    registers = keys()
    del registers["random_key"]
    stalls = dict(stalls or {})
    for port in ("blocks", "sums"):
        stall = stalls.get(port, 1.0)
        once, rest = stall if isinstance(stall, tuple) else ([], stall)
        stalls[port] = ([*SETTLE, *once], rest)
    run = model.run(
        {
            "blocks": model.pack("blocks", word=norms, number=np.arange(n)),
            "sums": model.pack("sums", packed.reshape(-1, 2 * lanes)),
        },
        ["floats"],
        stalls=stalls,
        signals={
            "log4": BLOCKS.index(worker.B),
            "code": (8, 12, 16).index(width),
            "offset": worker.n * worker.g,
            "unit": int(unit.view(np.uint32)),
            **registers,
        },
    )
    run.check(floats=expected.astype("<f4").view(np.uint8).reshape(-1, 4 * lanes))
    return run
