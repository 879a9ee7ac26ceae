"""Mutation campaign of a THC worker's way down at 4 lanes: unpacking, transform, scale."""

import numpy as np
from gradnic.hdl.stream.admission import Room
from gradnic.hdl.stream.credit_queue import DEPTH
from gradnic.hdl.thc.decoder import ThcDecoder
from gradnic.models.thc import worker as thc

from ..engine import stimulus
from ..thc.worker import SEED, Turn, decode, keys

N_LANES = 4
CASES = (
    (8, {"B": 64}, 8, 24),
    (100, {"B": 256, "b": 3, "g": 34}, 12, 12),
    (3, {"B": 64}, 16, 24),
    (258, {"B": 1024, "b": 8, "g": 254, "p": 1 / 128}, 16, 8),
    (136, {"B": 4096}, 12, 3),
)


def component():
    """The circuit under mutation."""
    return ThcDecoder(N_LANES, block=4096)


def test(model):
    """Every block size and sum width, every kind of norm, stalls, rate, full stores, seeds."""
    for n_workers, shape, width, n in CASES:
        worker = thc.Worker(n_workers, SEED, **shape)
        run = decode(model, N_LANES, worker, width, n)
        taken = run.taken["floats"]
        assert taken[-1] - taken[0] <= n * worker.B // N_LANES + 2, "not at full rate"
        decode(model, N_LANES, worker, width, n, stalls={"blocks": 0.2, "sums": 0.6, "floats": 0.4})
    _scales(model)
    _values(model)
    _brims(model)
    _products(model)
    _no_hash(model)
    worker = thc.Worker(3, SEED, B=64)
    decode(model, N_LANES, worker, 8, 200, stalls={"floats": stimulus.storm(3000)})
    decode(model, N_LANES, worker, 8, 200, stalls={"sums": ([0] * 600, 1)})
    _check_room(model, worker)
    _check_seeds(model, worker)


def _check_room(model, worker, beats=2000, cycles=3000):
    """How many beats are taken while nobody takes floats, the last ones slowly."""
    late = [1] * beats + [1, *[0] * 7] * ((cycles - beats) // 8)
    stalls = {"floats": stimulus.storm(cycles), "sums": (late, 1)}
    run = decode(model, N_LANES, worker, 16, 200, stalls=stalls)
    taken = int(np.count_nonzero(run.taken["sums"] < cycles))
    most = Room(2048).most + 1 + DEPTH
    assert taken == most, f"{taken} beats taken, not {most}"


def _check_seeds(model, worker, cycles=400):
    """So many blocks are taken, one by one, while no sums come; then sums come before blocks."""
    stalls = {"sums": ([0] * cycles, 1), "blocks": ([1, *[0] * 7] * (cycles // 8), 1)}
    run = decode(model, N_LANES, worker, 16, 40, stalls=stalls)
    taken = int(np.count_nonzero(run.taken["blocks"] < cycles))
    most = Room(component().n_seeds).most + 1
    assert taken == most, f"{taken} blocks taken, not {most}"
    stalls["blocks"] = ([1] * cycles + [0] * 2 * cycles, 0.01)
    decode(model, N_LANES, worker, 16, 40, stalls=stalls)


def _unit(worker):
    return np.float32(worker.t_fixed / 256 / (worker.n * worker.g * worker.B))


def _mantissas(x):
    """The 24 bits of normal FP32 numbers, as integers."""
    return np.abs(x).astype(np.float32).view(np.uint32).astype(np.int64) & 0x7FFFFF | 0x800000


def _ends():
    """Last bits of products that are just at a rounding step: (high, end) pairs.

    high : 1 for products of 48 bits, which lose one bit more, else 0. The ends are ties over an
    even bit, alone and with one more bit, each of them; a tie over an odd one, and over all ones;
    and what just lacks a tie or a step.
    """
    for high in (0, 1):
        half = 1 << 22 + high
        for end in (0, *(1 << k for k in range(22 + high)), 2 * half, -2 * half, -8, half - 8):
            yield high, (half + end) % (4 * half)


def _partners(mantissas, high, end, rng):
    """For each 24-bit number another one, so that their product ends so; 0 where there is none.

    high, end : one of `_ends`, or 0 and None: the product rounds up to 2**47.
    """
    if end is None:
        partners = ((1 << 47) - 1) // mantissas
        return np.where(mantissas * partners >> 22 == (1 << 25) - 1, partners, 0)
    lowest = mantissas & -mantissas
    odd = inverse = mantissas // lowest
    for _ in range(5):
        inverse = inverse * (2 - odd * inverse)
    n_bits = 24 + high - np.log2(lowest).astype(int)  # of the partner, that the end decides
    partners = inverse * (end // lowest) & (1 << n_bits) - 1
    partners |= rng.integers(0, 1 << 24, mantissas.shape) >> n_bits << n_bits
    products = mantissas * partners
    right = (products >> 47 == high) & ((products - end & (1 << 24 + high) - 1) == 0)
    return np.where(right & (partners >> 23 == 1), partners, 0)


def _play_values(model, worker, values, norms):
    """Blocks that have one of these rotated values each, even numbers, a lane after the other."""
    n, total = len(values), worker.n * worker.g
    ones = np.zeros((n, worker.B), np.int32)
    ones[np.arange(n), np.arange(n) % worker.B] = 1
    low = values // worker.B - (values // worker.B + total) % 2  # centered sums are odd, or even
    steps = np.arange(worker.B) < ((values - low * worker.B) // 2)[:, None]
    sums = (thc.hadamard(ones) * (low[:, None] + 2 * steps) + total) // 2
    norms = norms.astype(np.float32).view(np.uint32)
    decode(model, N_LANES, worker, 16, n, norms=norms, sums=sums.reshape(-1))


def _scales(model):
    """Norms and units whose products are just at a rounding step, by as few jobs as have all."""
    rng = np.random.default_rng(42)
    workers = [thc.Worker(n, SEED, B=64) for n in range(1, 2000, 5)]
    units = _mantissas(np.array([_unit(worker) for worker in workers]))
    norms = np.array([_partners(units, high, end, rng) for high, end in _ends()])
    while norms.any():
        k = np.argmax((norms > 0).sum(axis=0))
        chosen = norms[norms[:, k] > 0, k]
        norms[norms[:, k] > 0] = 0
        values = 4 * rng.integers(0, workers[k].n * workers[k].g * 14, chosen.shape)
        _play_values(model, workers[k], values, chosen * 2.0**-20)


def _values(model):
    """Rotated values that are ties as floats, or whose products with a factor are, in each lane."""
    rng = np.random.default_rng(43)
    jobs = {size: thc.Worker(257, SEED, b=8, g=255, p=1 / 128, B=size) for size in (64, 1024, 4096)}
    found = {64: [], 1024: []}
    for high, end in _ends():
        for _ in range(N_LANES):
            if end % 8:  # only large blocks have values of 24 bits and more
                size, some = 1024, 8 * rng.integers(1 << 22, (1 << 23) - 256, 4000) + 4
            else:  # of 22 bits, the last one 0: their mantissas end with 000
                size, some = 64, 4 * rng.integers(1 << 19, (1 << 20) - 64, 4000) + 2
            found[size].append(_under(jobs[size], some, high, end, rng))
    for size, pairs in found.items():
        values, norms = np.array(pairs).T
        _play_values(model, jobs[size], values.astype(int) * rng.choice([-1, 1], len(pairs)), norms)
    kept = 2 * rng.integers(1 << 22, (1 << 23) - 256, (6, N_LANES))  # of 28 bits four are lost
    values = 16 * kept + np.array([8, 24, 10, 12, 6, 0])[:, None]
    values[-1] = (1 << 27) - 4  # all ones and a tie
    values = (values * rng.choice([-1, 1], values.shape)).reshape(-1)
    _play_values(model, jobs[4096], values, np.full(len(values), 1 / _unit(jobs[4096])))


def _under(worker, values, high, end, rng):
    """One of the values, and a norm: the product of the value and the block's factor ends so."""
    factors = _partners(_mantissas(values), high, end, rng)
    norms = (factors * 2.0**-40 / _unit(worker)).astype(np.float32)
    k = np.flatnonzero((factors > 0) & (_mantissas(norms * _unit(worker)) == factors))[0]
    return values[k], norms[k]


def _brims(model):
    """Products just below a power of two: of norms and units, and of values and factors.

    The former as small as they may be; the latter round up to the power, and from 2**128 on to Inf.
    And products as large as they may be.
    """
    rng = np.random.default_rng(44)
    placed = np.array([-1, 0, 1, 2, 100, 200])
    for n in (1, 2, 3, 5, 7, 11, 100, 1000):
        worker = thc.Worker(n, SEED, B=64)
        exponent = int(_unit(worker).view(np.uint32)) >> 23
        mantissa = ((1 << 47) - 1) // _mantissas(_unit(worker))
        norms = (placed + 127 - exponent << 23 | mantissa & 0x7FFFFF).astype(np.uint32)
        values = 2 * rng.integers(1, worker.n * worker.g * 28, placed.shape)
        _play_values(model, worker, values, norms.view(np.float32))
    worker = thc.Worker(257, SEED, b=8, g=255, p=1 / 128, B=64)
    values, norms = [], []
    for exponent in (256, 255, 254, 253, 191, 170, 128, 127, 85, 64):  # of the power
        for _ in range(N_LANES):  # large values, so that no norm is Inf
            some = 4 * rng.integers(27 << 15, (1 << 20) - 64, 4000) + 2
            value, norm = _under(worker, some, 0, None, rng)
            values.append(value * rng.choice([-1, 1]))
            norms.append(norm * 2.0 ** (exponent - 132))
    _play_values(model, worker, np.array(values), np.array(norms))
    largest = np.repeat([2 - 2.0**-23, 1.9, 1.6, 1.3, 1, 0.75, 0.5], N_LANES) * 2.0**127
    values = np.full(len(largest), 64 * worker.n * worker.g)
    _play_values(model, worker, values, largest)


def _no_hash(model):
    """A tensor whose first block has the hash 0, from which no generator may start."""
    worker = thc.Worker(3, SEED, B=64)
    key = keys(worker, Turn())["sign_key"]
    tensor = _unmixed(_unmixed(key)) - 0x7F4A7C15 & 0xFFFFFFFF
    decode(model, N_LANES, worker, 16, 4, turn=Turn(tensor=tensor))


def _unmixed(x):
    """Inverse of `gradnic.models.thc.shared_random.fmix32`."""
    x = (x ^ x >> 16) * pow(0xC2B2AE35, -1, 1 << 32) & 0xFFFFFFFF
    x = (x ^ x >> 13 ^ x >> 26) * pow(0x85EBCA6B, -1, 1 << 32) & 0xFFFFFFFF
    return x ^ x >> 16


def _products(model):
    """Factors and sums whose products are ties, all ones, too large, subnormal, or just not."""
    rng = np.random.default_rng(41)
    for k in range(30):
        seed, tensor = map(int, rng.integers(0, 1 << 32, 2))
        size = (64, 64, 64, 256, 1024, 4096)[k % 6]
        g = int(rng.integers(15, 255))
        n_workers = int(rng.integers(1, 65535 // g + 1))
        worker = thc.Worker(n_workers, seed, B=size, b=4, g=g)
        n = max(4, 2560 // size)
        norms = rng.integers(0, 1 << 32, n) & 0x7FFFFFFF
        ends = np.concatenate([rng.integers(0, 60, n), rng.integers(225, 256, n)])
        norms = (norms & 0x7FFFFF | rng.choice(ends, n) << 23).astype(np.uint32)
        norms[: n // 4] &= 0x7F800000  # powers of two: the factor is the unit's mantissa
        sums = rng.integers(0, n_workers * g + 1, (n, size))
        spikes = rng.random(n) < 0.6  # nearly all in the middle: few values, of few bits
        sums[spikes] = n_workers * g // 2
        at = rng.integers(0, size, n)
        sums[np.arange(n), at] = rng.integers(0, n_workers * g + 1, n)
        sums[0] = n_workers * g
        sums[1] = 0
        how = {"turn": Turn(tensor=tensor), "norms": norms, "sums": sums.reshape(-1)}
        decode(model, N_LANES, worker, 16, n, **how)


#: the transform and the queues have campaigns of their own
ELSEWHERE = (
    r"-cell \S*\\rotate\.|-src \S*hdl/(stream/(fifo|block_fifo|steering)|thc/hadamard)\.py:\d+$"
)
NORMAL = (
    "values are 0, or even, and factors 0 or normal: no exponent of a lane's product is below 2"
)
SMALL = "a lane's exponents are 128 to 155, and 1 to 254: their sum has 9 bits"
CARRIED = "a carry makes 2**25 to 2**28, of exponents 152 to 155: this bit is 1"
UNIT = "a unit is below 1/16: with a norm of exponent 0 it makes a factor of 0"
FLIPS = "a block leaves the transform without gaps: what is read has been flipped 8 times"
ARGUED = {
    r" -cell \S*\\times\d\.\S+ .*: ones\.eq\(kept\.all": NORMAL,
    r"-mode const1 -cell \S*\\times\d\.\S+ -port A .*: least\.eq\(placed == 0": NORMAL,
    r"-mode cnot0 -cell \S*\\times\d\.\S+ -port A -portbit (9|10|11) .*: least\.eq\(placed": NORMAL,
    r"-mode const0 -cell \S*\\times\d\.\S+ .* -wire times\d\.least -wirebit 0 ": NORMAL,
    r"-mode inv -cell \S*\\times2\.\$74 -port B .*: nothing\.eq\(zero \| \(Mux": NORMAL,
    r"-mode cnot1 -cell \S*\\times\d\S* -port [DQ] -portbit 0 -ctrlbit 1 .*: small, large": NORMAL,
    r"-mode const0 .* -wire times\d\.added\d? -wirebit (9|10|11) ": SMALL,
    r"-mode cnot1 .* -ctrlbit (9|10|11) -wire times\d\.added\d? ": SMALL,
    r"-mode cnot0 .* -ctrlbit [347] -wire convert\d\.next_biased ": CARRIED,
    r"-mode const0 .* -wire scale\.a\$1\.zero -wirebit 0 .*: zero = delayed\(": UNIT,
    r"-mode (inv|cnot[01]) .* -port Q .* -wire signs\S*\.half -wirebit ": FLIPS,
}
EXPLAINED = {}
