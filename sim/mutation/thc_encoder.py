"""Mutation campaign of a THC worker's way up at 4 lanes: scale, dice, transform, quantizer."""

import numpy as np
from gradnic.hdl.stream.admission import Room
from gradnic.hdl.thc.encoder import ThcEncoder
from gradnic.models.thc import worker as thc

from ..engine import stimulus
from ..thc.worker import SEED, Encoder, Turn, blocks_of_floats

N_LANES = 4
SHAPES = (
    {"B": 64},
    {"B": 256, "b": 3, "g": 34},
    {"B": 64, "b": 8, "g": 254, "p": 1 / 128},
    {"B": 64, "b": 1, "g": 1},
    {"B": 64, "b": 5, "g": 51},
    {"B": 64, "b": 6, "g": 63},
    {"B": 64, "b": 7, "g": 127},
    {"B": 256, "b": 2, "g": 6, "norm": "tensor"},
    {"B": 1024},
    {"B": 4096, "b": 8, "g": 254, "p": 1 / 128},
    {"B": 64, "b": 1, "g": 254},  # one gap for all units
)
FINE = {"b": 8, "g": 254, "p": 1 / 1024}  # indices that show the smallest differences
NO_DICE = (4253001918, 1906308584, 874460446, 2824421939)
"""Blocks under `SEED` and a `Turn` in which dice begin at 0: of lane 0, 1, 2 and 3."""
NO_SIGNS = 1288410930
"""The one whose signs do."""


def component():
    """The circuit under mutation."""
    return ThcEncoder(N_LANES, block=4096)


def test(model):
    """Every block size and index width, every kind of norm, stalls, rate, full stores, seeds."""
    for k, shape in enumerate(SHAPES):
        worker = thc.Worker(3, SEED, **shape)
        encoder = Encoder(model, N_LANES, worker)
        n = min(24, 8192 // worker.B)
        run = encoder.play_kinds(n)
        taken = run.taken["floats"]
        assert taken[-1] - taken[0] == n * worker.B // N_LANES - 1, "not at full rate"
        if k % 3 == 0:
            encoder.play_kinds(n, stalls={"blocks": 0.1, "floats": 0.6, "indices": 0.3})
    _seeds(model)
    _zero_seeds(model)
    for size, n in ((64, 600), (256, 60), (1024, 20), (4096, 6)):
        worker = thc.Worker(3, SEED, B=size, **FINE)
        _play_near(Encoder(model, N_LANES, worker), n)
        _play_powers(Encoder(model, N_LANES, worker), 320 if size == 64 else n)
    _play_steps(Encoder(model, N_LANES, thc.Worker(3, SEED, B=64, **FINE)))
    _factors(model)
    _check_room(Encoder(model, N_LANES, worker))
    _check_seeds(Encoder(model, N_LANES, thc.Worker(3, SEED, B=64)))


def _check_room(encoder, beats=2000, cycles=4000):
    """At full rate nothing is lost while nobody takes indices; slowly, so many beats are taken."""
    x = blocks_of_floats(encoder.worker, 5)  # of 4096: more than the stores hold
    norms = encoder.worker.norms(x)
    encoder.play(x, norms, stalls={"indices": stimulus.storm(cycles)})
    late = [1] * beats + [1, *[0] * 7] * ((cycles - beats) // 8)
    stalls = {"indices": stimulus.storm(cycles), "floats": (late, 1)}
    run = encoder.play(x, norms, stalls=stalls)
    taken = int(np.count_nonzero(run.taken["floats"] < cycles))
    most = Room(2048, largest=2).most + 1
    assert taken == most, f"{taken} beats taken, not {most}"


def _check_seeds(encoder, cycles=400):
    """At full rate nothing is lost while no floats come; one by one, so many blocks are taken."""
    x = blocks_of_floats(encoder.worker, 150)  # more than there is room for
    norms = encoder.worker.norms(x)
    for stall in (1, ([1, *[0] * 7] * (cycles // 8), 1)):
        run = encoder.play(x, norms, stalls={"floats": ([0] * cycles, 1), "blocks": stall})
    taken = int(np.count_nonzero(run.taken["blocks"] < cycles))
    most = Room(component().n_seeds).most + 1
    assert taken == most, f"{taken} blocks taken, not {most}"


def _seeds(model):
    """Jobs, rounds, ranks, tensors and blocks of any number: every bit of every hash."""
    rng = np.random.default_rng(31)
    for k in range(24):
        seed, round, rank, tensor, first = map(int, rng.integers(0, 1 << 32, 5))
        worker = thc.Worker(3, seed, B=64, **(FINE if k % 3 else {}))
        turn = Turn(round, rank, tensor, min(first, (1 << 32) - 20))
        encoder = Encoder(model, N_LANES, worker, turn)
        encoder.play_kinds(16, stalls={"floats": 0.8} if k % 4 == 0 else None)


def _zero_seeds(model):
    """Blocks with a seed of 0, which no xorshift can begin with."""
    worker = thc.Worker(3, SEED, B=4096, **FINE)
    x = blocks_of_floats(worker, 1)
    for number in (*NO_DICE, NO_SIGNS):
        encoder = Encoder(model, N_LANES, worker, Turn(first_block=number))
        encoder.play(x, worker.norms(x))


def _play_near(encoder, n):
    """Norms just beside a step of their reciprocal, of every exponent, over values of all sizes."""
    rng, worker = np.random.default_rng(encoder.worker.B), encoder.worker
    factors = rng.integers(1 << 15, (1 << 16) + 1, n)
    mantissas = np.clip((1 << 39) // factors + rng.integers(-1, 2, n), 1 << 23, (1 << 24) - 1)
    exponents = rng.integers(1, 255, n)
    exponents[::3] = rng.integers(100, 150, len(exponents[::3]))
    norms = (exponents << 23 | mantissas & 0x7FFFFF).astype(np.uint32)
    sizes = rng.choice([0, 0, 0, 1, 4, 9, 16, 40], (n, 1))  # how many times each value is halved
    values = rng.uniform(-4, 4, (n, worker.B)) * 0.5 ** (rng.random((n, worker.B)) * sizes)
    values[rng.random(n) < 0.1, 3] *= 64  # beyond the limit
    with np.errstate(over="ignore", under="ignore"):
        x = (values * norms.view(np.float32)[:, None].astype(float) / np.sqrt(worker.B)).astype(
            "<f4"
        )
    x = np.where(np.isfinite(x), x, np.float32(1))
    silent = (worker.norms(x) > norms).astype(int)
    encoder.play(x, norms, silent=silent)


def _play_powers(encoder, n):
    """One power of two a block, of any size: bits of products and of shifted values stand alone.

    First about as large as the norm, then smaller than it by the whole range of exponents.
    """
    worker, k = encoder.worker, np.arange(n)
    places = k * 5 % worker.B  # a lane after the other
    for exponents, sizes in ((60 + k % 130, 36 + k % 130 + k * 7 % 48), (254 - k % 8, 1 + k % 16)):
        norms = (exponents << 23 | np.where(k % 3, 0x7FFFFF, 0)).astype(np.uint32)
        x = np.zeros((n, worker.B), np.uint32)
        x[k, places] = sizes << 23 | k % 2 << 31
        x = x.view(np.float32)
        encoder.play(x, norms, silent=(worker.norms(x) > norms).astype(int))


def _play_steps(encoder):
    """Norms whose division leaves least, or lacks least, over values on and just below a step.

    One more or one less in a block's factor makes half of the block's values another number.
    """
    rng, worker = np.random.default_rng(34), encoder.worker
    quotients = np.arange(1 << 15, (1 << 16) + 1)
    rest, lack = (1 << 39) % quotients, -(1 << 39) % quotients
    mantissas = ((1 << 39) - rest)[rest < 256] // quotients[rest < 256]
    mantissas = np.append(mantissas, ((1 << 39) + lack)[lack < 256] // quotients[lack < 256])
    mantissas = np.unique(mantissas[mantissas < 1 << 24])[:, None]
    exponents = rng.integers(60, 200, mantissas.shape)
    shape = (len(mantissas), worker.B)
    factors, shifts = (1 << 39) // mantissas, rng.integers(25, 27, shape)  # 1/8 to 1 sigma
    near = rng.integers(17 << 12, 31 << 12, shape) * factors >> shifts
    steps = (2 * near + 1) << shifts - 1
    values = np.where(rng.random(shape) < 0.5, -(-steps // factors), (steps - 1) // factors)
    values = (exponents + 24 - worker.h - shifts << 23) + (values - (1 << 16) << 7)
    values += rng.integers(0, 128, shape) + (rng.integers(0, 2, shape) << 31)
    norms = exponents << 23 | mantissas & 0x7FFFFF
    encoder.play(values.astype("<u4").view("<f4"), norms[:, 0].astype(np.uint32))


def _factors(model):
    """Factors of whole tensors of any mantissa, and under norms that the values go far beyond."""
    rng = np.random.default_rng(33)
    worker = thc.Worker(3, SEED, B=64, norm="tensor", **FINE)
    encoder = Encoder(model, N_LANES, worker)
    for _ in range(12):
        x = (rng.standard_normal((4, 64)) * 2.0 ** rng.uniform(-40, 40)).astype(np.float32)
        _play_tensor(encoder, x, worker.norms(x))
    k = np.arange(256)
    for noise in (0, 0x7FFFFF):  # products of one bit, and of many: every shift, in every lane
        x = np.zeros((256, worker.B), np.uint32)
        for lane in range(N_LANES):
            exponents = np.clip(k + 64 * lane & 255, 1, 254)
            x[k, k * N_LANES % worker.B + lane] = exponents << 23 | rng.integers(0, 1 << 23) & noise
        one = 0x3F800000 | rng.integers(0, 1 << 23) & noise
        _play_tensor(encoder, x.view(np.float32), np.array([one], np.uint32))


def _play_tensor(encoder, x, norms):
    """Code a tensor under its norm, of which the circuit is told the factor."""
    scale = np.sqrt(float(x.size)) / norms.view(np.float32).astype(float)
    words = np.repeat(scale.astype(np.float32).view(np.uint32), len(x))
    encoder.play(x, norms, words=words)


#: the transform and the queues have campaigns of their own
ELSEWHERE = (
    r"-cell \S*\\rotate\.|-src \S*hdl/(stream/(fifo|block_fifo|steering)|thc/hadamard)\.py:\d+$"
)
SATURATES = "a product has 2**31 and more: where these bits count, it is beyond every block's limit"
WIDE = "a gap of 0 stands at the last level alone, where any of the 17 bits is too much"
SHIFTED = "a product has less than 2**33: any limit from 34 to 64 makes 0 of the same ones"
NARROW = "shifts are within -237 to 276: without these bits one below 0 still is, and is full"
FAR = "a shift of 256 and more makes 0, and one below 0 is full, whatever its lower bits"
OFFSETS = "offsets are 18 to 277: these bits are never 1"
FACTOR = "that bit of the factor is always 1"
ABOVE = "for so few bits an index, none from this one on is looked at"
DIVIDED = "all 2**23 mantissas have been divided so: not one gets another quotient"
ARGUED = {
    r" -cell \S*\\scale\d\S* -port A -portbit (\d|1[0-6]) -wire scale\S*\.product2 ": SATURATES,
    r" -cell \S*\\scale\d\S*\\times\.\S+ -port [YDQ] -portbit (\d|1[0-6]) "
    r".*: (product = held_a \* held_b|held = Signal\(prod)": SATURATES,
    r"-mode cnot1 .* -portbit (1[7-9]|2\d|30) -ctrlbit (1[7-9]|2\d|3\d) "
    r"-wire scale\S*\.shifted0 ": SATURATES,
    r"-mode const0 -cell \S*\\part\d+\.\S+ -port B .*: rolled = delayed\(m, dice\.p \| ": WIDE,
    r"-mode \S+ -cell \S*\\scale\d\S* -port B -portbit [0-4] .*: zero\.eq\(nothing \|": SHIFTED,
    r"-mode const0 .* -wire scale\S*\.shift -wirebit (9|10) ": NARROW,
    r"-mode cnot1 .* -portbit [0-7] -ctrlbit 8 -wire scale\S*\.shift ": FAR,
    r"-mode const0 .* -wire (scale|factor)\d+\.offset -wirebit (9|10) ": OFFSETS,
    r"-mode const0 -cell seeds\.array0 -port WR_DATA -portbit 2[67] ": OFFSETS,
    r"-mode const1 .* -wire seeds\.free -wirebit 0 ": "the room closes before the 16th block",
    r"-mode const1 .* -wire packer\.after7__copy0 ": "no beat begins behind the last unit",
    r"-mode const0 -cell \S*room\.\S+ -port A -portbit 1[01] .*: self\.open\.eq\(": "no more than "
    "512 beats are inside",
    r"-mode cnot0 -cell \S*\\hash\.\S*\\times0\.\S+ -port B -portbit \d+ "
    r"-ctrlbit ([01356]|9|11|1[4-79]|2[1-346]|31) .*: product = ": FACTOR,  # of 0x85EBCA6B
    r"-mode cnot1 .* -portbit 7 -ctrlbit [0-6] -wire middle ": ABOVE,
    r"-mode cnot0 .* -port A -portbit 2 -ctrlbit 3 -wire reciprocal\.remainder15_next0 ": DIVIDED,
}
EXPLAINED = {}
