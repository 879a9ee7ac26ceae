"""What mutation campaigns of the passes of THC jobs have in common."""

import numpy as np
from gradnic.models.thc import Worker

from ..offload.pass_stand import GROUP, KINDS, PLACES, SIZE, WIDTH, PassStand, Stand, Turn

ELSEWHERE = r"^(?!.*-src \S*hdl/offload/)|-cell \S*\bkeys\.|-src \S*hdl/offload/thc_keys\.py"
"""Parts of other packages, and keys, have campaigns and proofs of their own; the stand is a bench.
"""

_BURSTS = "bursts begin at multiples of 16 beats, and have 16 at most"
_LAST = "no range ends in the middle of a beat, and nobody asks which beat is the last"
_WRITER = r"inner\.(residual_)?writer"
_N_BEATS = r"write__data .*: ranges\.i\.p\.n_beats\.eq"
ARGUED = {
    r"-mode const0 .*ends\.eq\(i\.p\.last": _LAST,
    r"-mode const1 .*-port A .*ends\.eq\(i\.p\.last": _LAST,
    r"-wire inner\.widen\.i__payload\.last ": _LAST,
    r"-mode const0 .*-wire inner\.(residuals\.)?refused ": "the range is all of the region",
    r"-mode const0 .*-port [DQ] -portbit [0-3] .*first = Signal\(self\.width\)": _BURSTS,
    rf"-mode const0 .*-portbit ([5-9]|1\d) -wire {_WRITER}\.ranges\.{_N_BEATS}": _BURSTS,
    rf"-mode cnot1 .*-ctrlbit ([5-9]|1\d) -wire {_WRITER}\.ranges\.{_N_BEATS}": _BURSTS,
    r"-mode cnot1 .*-port [DQ] .*-ctrlbit [0-3] .*first = Signal\(self\.width\)": _BURSTS,
    rf"-mode const1 .*-wire {_WRITER}\.whole ": (
        "the flag and the count say the same, but where one changes by itself"
    ),
    r"-mode const1 .*-port A (?!.*-wire \S*beats__ready).*beats\.ready\.eq\(kinds\.o\.valid & M": (
        "the kind of a range is there before its beats"
    ),
}
"""Mutants of what passes have in common that are equivalent, see `gradnic.sim.mutation.run`."""

N_BYTES, BLOCK = 16, 1024
WIDTHS = 14, 11  # bits of numbers: jobs of any size can be played
WRAPS = 2**WIDTH // SIZE
HELD = 3000
HOLD = np.repeat([1, 0], (300, HELD)), 1  # in the middle of a job, until all is full
HELD_TURNS = {"norm": (15,), "encode": (6, 9), "decode": (6, 9)}  # that fill it
RATE = {"norm": 110, "encode": 276, "decode": 255}  # cycles beside those of beats, and of a block
SEEDS = {"encode": 48, "decode": 35}  # cycles that a block's seeds take with two lanes
AGAIN = 97  # and of another block, where the encoder's levels are decoded
STALLS = {"written": 0.6, "asked": 0.4, "reads": 0.5, "residual_reads": 0.5,
          "residual_asked": 0.4, "residual_written": 0.6}  # fmt: skip
#: (floats, block, bits of indices, g, nodes, code of sums)
SHAPES = (
    (2500, 64, 4, 30, 3, 0),
    (1000, 256, 3, 34, 7, 0),
    (1, 1024, 4, 30, 8, 0),
    (2048, 1024, 8, 255, 257, 2),
    (1023, 64, 2, 6, 500, 1),
    (4993, 256, 4, 30, 100, 1),
    (4999, 64, 7, 200, 1, 0),
    (3003, 1024, 5, 51, 70, 1),
)
#: the same: numbers of blocks with all bits, and sums of 16 bits of smaller blocks; a beat of norms
#: more than a power of two; a residual that fills its writer, with padding behind it
MORE = (
    (11257, 64, 4, 30, 3, 2),
    (19453, 256, 8, 255, 100, 2),
    (44027, 1024, 3, 34, 7, 1),
    (55290, 64, 4, 30, 8, 0),
    (3072, 256, 4, 30, 3, 0),
    (9216, 256, 4, 30, 3, 0),
    (17408, 256, 4, 30, 3, 1),
    (33792, 256, 2, 6, 3, 0),
    (132, 64, 4, 30, 3, 0),
    (7, 256, 4, 30, 3, 2),
)
_VALUES = []


def widths(n_bytes):
    """Bits of numbers of beats and of blocks, of passes with `n_bytes` a beat."""
    return WIDTHS[0] + (N_BYTES // n_bytes).bit_length() - 1, WIDTHS[1]


def component(kind, n_bytes=N_BYTES):
    """A pass with all that it may have, beside a memory."""
    more = {} if kind == "decode" else {"feedback": True}
    more |= {"bits": 8} if kind == "encode" else {}
    part = KINDS[kind](n_bytes, WIDTH, block=BLOCK, bf16=True, widths=widths(n_bytes), **more)
    return PassStand(part)


def values():
    """A gradient and a residual, with corners; made once."""
    if not _VALUES:
        size = 4 << WIDTHS[0]
        x, carried = np.random.default_rng(4).standard_normal((2, size)).astype(np.float32)
        x[64:128], x[130], carried[:128] = 0, -1e30, -0.0
        x[70], carried[80], carried[2400] = np.float32(1e-42), np.float32(1e-42), np.inf
        _VALUES.extend((x, carried))
    return _VALUES


def turns(kind, n_bytes):
    """Jobs of all sizes, types and settings, with and without a residual, anywhere in memory; made
    once.
    """
    if (kind, n_bytes) in _TURNS:
        return _TURNS[kind, n_bytes]
    rng, found = np.random.default_rng(11), []
    x, carried = values()
    sizes, largest = list(SHAPES), (4 << WIDTHS[0]) - 4
    if kind == "norm":  # numbers of blocks that fill their last beat of norms, or do not
        counts = [(1 << k) + rng.integers(1, 1 << k) for k in (*range(1, 10), 6, 7, 7, 8, 8)]
        sizes += [(64 * int(n) - 5, 64, 4, 30, 3, 0) for n in counts]
    else:
        sizes += MORE
    sizes += [(largest, 64, 8, 255, 1, 0), (largest - 5, 1024, 4, 30, 2000, 2)]
    for k, (size, block, b, g, n, code) in enumerate(sizes):
        seed, gen, tensor, node = (int(v) for v in rng.integers(0, 1 << np.array([32, 16, 16, 8])))
        worker = Worker(n, seed, b=b, g=g, sign_round=gen, B=block)
        upper = rng.integers(0, WRAPS - 1, len(PLACES))
        shift = n_bytes * rng.integers(SIZE // n_bytes)
        places = {
            name: int((place + shift) % SIZE + above * SIZE)
            for (name, place), above in zip(PLACES.items(), upper, strict=True)
        }
        more = carried[:size] if kind != "decode" and k % 3 != 2 else None
        group = block if kind == "norm" else GROUP
        turn = Turn(worker, x[:size], more, k % 2, code, tensor, node, places, group)
        found.append(turn)
    return _TURNS.setdefault((kind, n_bytes), found)


_TURNS = {}


def play(model, kind, n_bytes=N_BYTES):
    """All block sizes, lengths with and without rest, both types, with and without a residual, full
    rate and pauses of memory and ports; jobs that end at once; answers that are late, or errors.
    """
    stand, all_turns = Stand(model, kind, n_bytes, widths(n_bytes)), turns(kind, n_bytes)
    for k, turn in enumerate(all_turns):
        most = _most(kind, turn, n_bytes)
        cycles = stand.play(turn, cycles=most + 300)
        assert cycles <= most, f"{cycles} cycles, {most} allowed"
        if k % 3 == 1:
            stand.play(turn, cycles=100 + 60 * k, whole=False)
    known = {name: share for name, share in STALLS.items() if name in model.outputs}
    several = all_turns[14:15] if kind == "norm" else []  # bursts, which come far apart
    for turn in all_turns[:3] + several:
        stand.play(turn, stalls=known, holds=0.3, cycles=6 * _most(kind, turn, n_bytes))
    cycles = 2000 * N_BYTES // n_bytes
    for late in (50, 3000):
        stand.play(all_turns[0], late=[1] * late + [0], cycles=late + cycles)
    for bad in stand.names:
        stand.play(all_turns[0], bad=bad, cycles=cycles)
    for turn in (all_turns[k] for k in HELD_TURNS[kind]):
        most = _most(kind, turn, n_bytes) + HELD
        for name in known:
            stand.play(turn, stalls={name: HOLD}, cycles=most)
        stand.play(turn, late=[1] * HELD + [0], cycles=most)
    if kind == "encode" and n_bytes == N_BYTES:
        # a beat of indices is put together while the writer is full
        cycles = stand.play(all_turns[9], stalls={"written": HOLD}, cycles=9000)
        assert cycles <= 8057, f"{cycles} cycles, {HELD} of a pause"
        # and a residual of as many beats as its writer holds ends with the memory
        cycles = stand.play(all_turns[-4], stalls={"residual_written": (np.zeros(1500), 1)})
        assert cycles <= 1535, f"{cycles} cycles, 1500 of a pause"


def _most(kind, turn, n_bytes):
    """Cycles that a job may take from start to end at full rate."""
    lanes = n_bytes // 4
    beats = turn.n_padded // lanes
    if kind == "encode":  # norms come on the way of floats
        beats += -(-turn.norms.size // lanes)
    elif kind == "decode" and (turn.worker.B, turn.code) == (64, 2):
        beats += 8  # ranges that are so short begin later
    block = turn.worker.B // lanes
    if lanes == 2 and kind != "norm":  # blocks of 64 wait for their seeds
        beats += max(0, SEEDS[kind] - block) * turn.norms.size
    again = AGAIN + block if kind == "encode" and turn.carried is not None else 0
    return beats + RATE[kind] + block + again
