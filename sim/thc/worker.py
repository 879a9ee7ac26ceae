"""Plays blocks through the THC worker's circuits, next to the golden worker."""

from dataclasses import dataclass

import numpy as np
from gradnic.hdl.thc.hadamard import BLOCKS
from gradnic.models.thc import shared_random as thc_random
from gradnic.models.thc import worker as thc

SEED = 11
SETTLE = [0] * 8  # cycles in which the job's registers are taken over
REKEY_CYCLES = 100
TABLE_CYCLES = 300


@dataclass(frozen=True)
class Turn:
    """What seeds the blocks of a run, beside the job's seed."""

    round: int = 5
    rank: int = 2
    tensor: int = 9
    first_block: int = 0


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


def keys(worker, turn):
    """The job's keys, as a driver derives them."""
    tensor = np.array([turn.tensor + 0x7F4A7C15 & 0xFFFFFFFF], np.uint32)
    own = thc_random.key(worker.seed, turn.round, turn.rank)
    shared = thc_random.key(worker.seed, worker.sign_round, thc_random.SIGN_WORKER)
    return {
        "random_key": int(own[0]),
        "sign_key": int(shared[0]),
        "tensor_hash": int(thc_random.fmix32(tensor)[0]),
    }


class Encoder:
    """A library of a `gradnic.hdl.thc.encoder.ThcEncoder`, its table loaded for one worker."""

    def __init__(self, model, lanes, worker, turn=Turn()):
        self.model, self.lanes, self.worker, self.turn = model, lanes, worker, turn
        self.card = model.instance()
        table = [lower | a - level // 256 << 8 | gap << 16
                 for a, (lower, level, gap) in enumerate(worker._cells.tolist())]  # fmt: skip
        registers = {
            "log4": BLOCKS.index(worker.B),
            "tensor": int(worker.norm == "tensor"),
            "bits": worker.b,
            "t_fixed": worker.t_fixed,
            "unit": worker.unit,
            **keys(worker, turn),
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
        model, worker, turn = self.model, self.worker, self.turn
        seeds = {"round": turn.round, "worker": turn.rank, "tensor": turn.tensor}
        expected = worker.encode(x, norms, first_block=turn.first_block, **seeds)
        packed = np.frombuffer(thc.pack(expected, worker.b), np.uint8)
        self.card.run(signals={"rekey": [1, 0]}, drain=False, max_cycles=REKEY_CYCLES, reset=False)
        words = norms if words is None else words
        numbers = turn.first_block + np.arange(len(x))
        run = self.card.run(
            {
                "blocks": model.pack("blocks", word=words, number=numbers, silent=silent),
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


def decode(model, lanes, worker, width, n, *, turn=Turn(), norms=None, sums=None, stalls=None):
    """Decode `n` blocks of sums of `width` bits; returns the `batch.Run`.

    turn : its tensor counts; blocks are numbered from 0 on. norms, sums : random unless given.
    AssertionError unless the floats are those of the golden worker.
    """
    norms = worker.norms(blocks_of_floats(worker, n)) if norms is None else norms
    if sums is None:
        rng = np.random.default_rng(width)
        sums = rng.integers(0, worker.n * worker.g + 1, n * worker.B)
    expected = worker.decode(sums, norms, round=0, tensor=turn.tensor)
    unit = np.float32(worker.t_fixed / 256 / (worker.n * worker.g * worker.B))
    packed = np.frombuffer(thc.pack(sums, width), np.uint8)
    registers = keys(worker, turn)
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
