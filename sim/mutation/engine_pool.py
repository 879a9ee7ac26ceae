"""Mutation campaign of the pool of engines: who has which, and all that either hears, by cycles."""

import itertools
from functools import reduce
from operator import or_

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.offload.engine_pool import EngineControl, EnginePool, Lease, Report
from gradnic.hdl.offload.job_context import FLUSH_CYCLES
from gradnic.hdl.transport.records import EPOCH_WIDTH, CheckWrite, Context

from .upset import UPSET, Upset

N, N_ENGINES, N_BYTES, WIDTH = 3, 2, 16, 32
N_CYCLES, N_RUNS = 1200, 40
ALONE = FLUSH_CYCLES + 8  # cycles, behind the reset
LEASE = Shape.cast(Lease(N_BYTES, WIDTH)).width
SIZES = {"lease": LEASE, "controls": Shape.cast(EngineControl).width,
         "check": Shape.cast(CheckWrite).width, "reports": Shape.cast(Report).width}  # fmt: skip
UPSETS = {"owners": N * N_ENGINES, **{f"lease{e}": LEASE for e in range(N_ENGINES)}}
UPSETS |= {f"which{e}": (N - 1).bit_length() for e in range(N_ENGINES)}
"""Registers that change by themselves, and their bits."""
FIRST = dict(zip(UPSETS, itertools.accumulate(UPSETS.values(), initial=0), strict=False))
_RECORDINGS = []


def component():
    """The circuit under mutation, of three contexts and two engines, and what changes its
    registers.
    """
    return Upset(EnginePool(N_BYTES, WIDTH, n=N, n_engines=N_ENGINES), UPSETS)


def _at(shape, name):
    """(First bit, mask) of a field of a layout."""
    return shape[name].offset, (1 << shape[name].width) - 1


def _field(shape, name, value):
    first, mask = _at(shape, name)
    return value >> first & mask


def _put(shape, name, value):
    return value << _at(shape, name)[0]


def _number(rng, width):
    return int.from_bytes(rng.bytes(-(-width // 8)), "little") & (1 << width) - 1


class Engine:
    """Registers of one engine's part."""

    def __init__(self):
        self.owner, self.resets, self.count, self.epoch = 0, 1, FLUSH_CYCLES - 1, 0
        self.lease, self.gen, self.stood, self.which = 0, 0, 0, 0
        self.odd, self.kept, self.watched = 0, 0, 0  # of the parity


class Twin:
    """A pool, cycle for cycle."""

    def __init__(self):
        self.engines = [Engine() for _ in range(N_ENGINES)]
        self.older = np.zeros((N, N), bool)

    def shown(self, i):
        """Outputs, and what goes on with them."""
        ready = [bool(one.owner) and not one.resets for one in self.engines]
        strays = [
            (one.watched and one.odd != one.kept) or one.owner not in (0, 1 << one.which)
            for one in self.engines
        ]
        had = [any(one.owner >> k & 1 for one in self.engines) for k in range(N)]
        next_ = [
            bool(i["wants"] >> k & 1) and not had[k] and not any(
                i["needs"] >> j & 1 and self.older[j, k] for j in range(N) if j != k)
            for k in range(N)
        ]  # fmt: skip
        free = [not one.owner and not one.resets for one in self.engines]
        goes = [free[e] and not any(free[:e]) and any(next_) for e in range(N_ENGINES)]
        out = {"taken": sum(bit << e for e, bit in enumerate(goes)), "granted": 0, "strays": 0}
        quiet = _put(Report, "quiet", 1)
        for k in range(N):
            mine = [ready[e] and self.engines[e].owner >> k & 1 for e in range(N_ENGINES)]
            heard, still = 0, quiet
            for e in range(N_ENGINES):
                if mine[e]:
                    heard |= i["engine_reports"][e]
                    still &= i["engine_reports"][e]
            out[f"reports__{k}"] = heard & ~quiet | still
            out["granted"] |= any(mine) << k
            out["strays"] |= any(m and s for m, s in zip(mine, strays, strict=True)) << k
        out["resets"] = sum(int(one.resets) << e for e, one in enumerate(self.engines))
        for e, one in enumerate(self.engines):
            controls = _either(one.owner, i["controls"])
            engine_controls = (
                controls
                if ready[e]
                else _put(EngineControl, "pause", 1) | _put(EngineControl, "closed", 1)
            )
            armed = ready[e] and _field(EngineControl, "armed", controls)
            job = Lease(N_BYTES, WIDTH)["job"]
            tensor = one.lease >> job.offset + job.shape["job"].offset
            tensor = _field(job.shape["job"].shape, "tensor", tensor)
            out[f"engine_controls__{e}"], out[f"engine_leases__{e}"] = engine_controls, one.lease
            out[f"check__{e}"] = _either(one.owner, i["checks"])
            out[f"contexts__{e}"] = (
                _put(Context, "armed", int(bool(armed))) | _put(Context, "tensor", tensor)
                | _put(Context, "gen", one.gen) | _put(Context, "epoch", one.epoch)
            )  # fmt: skip
        self._next = ready, goes, sum(bit << k for k, bit in enumerate(next_))
        return out

    def cycle(self, i):
        """Registers after the cycle that was shown."""
        ready, goes, next_ = self._next
        for e, one in enumerate(self.engines):
            owner, lease, which = one.owner, one.lease, one.which
            bits = owner | lease << N
            if not one.watched:
                one.kept = one.odd
            one.odd, one.watched = bits.bit_count() & 1, one.stood
            one.stood, one.gen = ready[e], _either(owner, i["gens"])
            leaves = owner and not owner & i["holds"]
            if one.resets:
                one.lease = i["leases"][one.which] if owner and one.which < N else 0
                one.resets, one.count = one.count != 0, (one.count - 1) % FLUSH_CYCLES
            if goes[e] or leaves:
                one.owner = next_ if goes[e] else 0
                one.which = reduce(or_, (k for k in range(N) if one.owner >> k & 1), 0)
            if goes[e] or leaves or owner & i["turns"]:
                one.resets, one.count = 1, FLUSH_CYCLES - 1
                one.epoch = (one.epoch + 1) % (1 << EPOCH_WIDTH)
            if i["upset"] and i["upset"][0] == f"lease{e}":
                one.lease = lease ^ i["upset"][1]
            if i["upset"] and i["upset"][0] == f"which{e}":
                one.which = which ^ i["upset"][1]
        if i["upset"] and i["upset"][0] == "owners":
            self._upset_owners(i["upset"][1])
        for k in range(N):
            if i["started"] >> k & 1:
                self.older[:, k], self.older[k, :] = True, False
                self.older[k, k] = False

    def _upset_owners(self, bits):
        for e, was in enumerate(self._owners):
            self.engines[e].owner = was ^ (bits >> N * e & (1 << N) - 1)

    def step(self, i):
        self._owners = [one.owner for one in self.engines]
        shown = self.shown(i)
        self.cycle(i)
        return shown


def _either(owner, values):
    """Of the values of a mask of contexts, all bits that are 1."""
    chosen = 0
    for k, value in enumerate(values):
        if owner >> k & 1:
            chosen |= value
    return chosen


class Recording:
    """One run of the twin: what goes in, and what is shown, cycle by cycle.

    watched : two iterators of (register, bit), to change one after the other in the later runs: of
        leases, and of whose engines are.
    """

    def __init__(self, seed, watched):
        rng = np.random.default_rng(seed)
        twin, log, self.shown = Twin(), {}, []
        rare, held = (0.02, 0.1)[seed % 2], dict.fromkeys(("needs", "wants", "holds"), 0)
        job = {name: [_number(rng, SIZES[name]) for _ in range(N)]
               for name in ("lease", "controls", "check")}  # fmt: skip
        gens, upsets = [0] * N, np.zeros((N_CYCLES, -(-sum(UPSETS.values()) // 8)), np.uint8)
        for cycle in range(N_CYCLES):
            for name, share in (("needs", 0.3), ("wants", 0.5), ("holds", 0.9)):
                if rng.random() < 0.2:
                    k = int(rng.integers(N))
                    bit = int(rng.random() < share) << k
                    held[name] = held[name] & ~(1 << k) | bit
            for values, width in (*((job[name], SIZES[name]) for name in job), (gens, 16)):
                if rng.random() < 0.3:
                    values[rng.integers(N)] = _number(rng, width)
            i = dict(held) | {
                "started": (rng.random() < rare) << int(rng.integers(N)),
                "turns": int(rng.integers(1 << N)) * int(rng.random() < rare),
                "leases": list(job["lease"]), "controls": list(job["controls"]),
                "checks": list(job["check"]), "gens": list(gens), "upset": None,
                "engine_reports": [_number(rng, SIZES["reports"]) for _ in range(N_ENGINES)],
            }  # fmt: skip
            if cycle < ALONE:  # nobody has begun, so nobody is older than the one that asks
                i |= {"started": 0, "needs": (1 << N) - 1, "wants": 1 << seed % N}
            elif cycle < ALONE + N:  # until ages are known
                i |= {"started": 1 << (cycle + seed) % N, "wants": 0}
            elif seed >= N_RUNS // 4 and rng.random() < (0.5 if seed % 4 else 0.02):
                # an engine of two contexts strays until it is free: apart from changes of leases
                name, bit = next(watched[seed % 4 == 0])
                standing = [f"lease{e}" for e, one in enumerate(twin.engines) if one.stood]
                if standing and name.startswith("lease"):  # where it is to be noticed
                    name = standing[int(rng.integers(len(standing)))]
                i["upset"] = name, 1 << bit
                upsets[cycle] = _bytes(1 << FIRST[name] + bit, upsets.shape[1])
            self.shown.append(twin.step(i))
            for name in ("needs", "wants", "holds", "started", "turns"):
                log.setdefault(name, []).append(int(i[name]))
            log.setdefault("gens", []).append(sum(gen << 16 * k for k, gen in enumerate(i["gens"])))
            for name in ("leases", "controls", "checks", "engine_reports"):
                for k, value in enumerate(i[name]):
                    log.setdefault(f"{name}__{k}", []).append(value)
        widths = {"leases": LEASE, "engine_reports": SIZES["reports"]}
        self.signals = {"upset": upsets}
        for name, values in log.items():
            width = widths.get(name.split("__")[0], 0)
            if width > 64:
                self.signals[name] = np.array([_bytes(v, -(-width // 8)) for v in values])
            else:
                self.signals[name] = np.array(values, np.uint64 if width else np.int64)


def _bytes(number, size):
    return np.frombuffer(number.to_bytes(size, "little"), np.uint8)


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        rng, watched = np.random.default_rng(5), []
        for is_lease in (True, False):
            names = [name for name in UPSETS if name.startswith("lease") == is_lease]
            bits = np.array([(name, bit) for name in names for bit in range(UPSETS[name])], object)
            watched.append(itertools.cycle(rng.permutation(bits)))
        _RECORDINGS.extend(Recording(seed, watched) for seed in range(N_RUNS))
    return _RECORDINGS


def test(model):
    """Each output in each cycle, also while registers change by themselves."""
    instance = model.instance()
    for one in recordings():
        names = list(one.shown[0])
        run = instance.run({}, signals=one.signals, trace=names, drain=False, max_cycles=N_CYCLES,
                           probe_cycles=0)  # fmt: skip
        for name in names:
            trace = run.traces[name]
            if trace.ndim == 2:
                found = [int.from_bytes(row.tobytes(), "little") for row in trace]
            else:
                found = [int(value) for value in trace.tolist()]
            want = [shown[name] for shown in one.shown]
            assert found == want, name


ELSEWHERE = UPSET
ARGUED = {
    r"-mode inv .*(-wire lease\d_parity_parts|-port [AY] .*\[parts\.eq\("
    r"|-port [AY] .* -given rst -feeds lease\d_parity_parts)": (
        "where the parity of a part is the other one, it is so when it is kept, too"
    ),
}
EXPLAINED = {}
