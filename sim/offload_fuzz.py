"""Broken frames in volume: 256 offload cards at once, each in a round that goes on around them.

A copy of the card (`gradnic.sim.offload_stand`) is armed and waits for its neighbors' packets.
Broken frames come, and right ones between them; then the packets that are still missing, and the
round must end. What each frame leads to, `gradnic.sim.offload_judge` knows. Copy 0 gets no broken
frames: what it sends of its own accord, all others must send.
"""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np

from gradnic.table import GATHER, REDUCE, ROW, Layout

from ..formats import ETHERNET, GRADNIC, HEAD_BYTES, Op
from ..host import OffloadDriver
from ..models import inceptionn
from ..offload import COUNTERS, MAX_FRAME, REGISTERS, Drop, Subtype
from . import encoding, offload_breaker, offload_judge
from .bulk import COPIES, Bulk
from .offload_breaker import (
    CHUNK,
    GROUPS,
    LEAVES,
    N_ELEMS,
    N_HERE,
    NAMES,
    PACKET,
    PER_CHUNK,
    RUNS,
    WIDTH,
    Kind,
    elems_of,
)
from .offload_stand import CARD, N_BYTES, N_RANKS, WRITTEN, Act, Stand, Step, pattern

N_BROKEN = COPIES - 1  # frames a copy and round
N_UP, N_DOWN, N_ASKS = 37, 7, 20  # right frames between them: packets up and down, CONTROL
LONG_EVERY = 32  # rounds; in two of them each copy has a frame of kilobytes
STALLS = 3  # in every other round: each port waits in one cycle of 8
A_ROUND = (COPIES - 1) * N_BROKEN
PACE = 28  # cycles a frame, so that the receiver keeps up
PAUSE = 400  # cycles between two reads while nothing else happens
QUIET = (Act.READ, REGISTERS["ip"].offset, 0)
PAUSES = (3, 5, 4, 1)  # after: broken frames; the packets still missing, up and down; STOPs
LONG_PAUSES = (3, 4)  # before and after a frame that fills the port's store
GRADIENT, RESULT, LANDING = 0x10000, 0x20000, 0x40000
AREA = -(-4 * N_ELEMS // N_BYTES)  # beats of a rank
FATES = [d.name.lower() for d in Drop] + ["foreign", "heard", "answered"]
FATES[Drop.NONE], FATES[Drop.CODEC] = "accepted", "unsound"
IS_DOWN = np.array([ph for _, ph, _ in GROUPS])
RANKS = np.array(
    [sum(g[1:] == (0, chunk) for g in GROUPS[:k]) for k, (_, _, chunk) in enumerate(GROUPS)]
)
NUMBERS = [chunk * PER_CHUNK + q for chunk, n in enumerate(N_HERE) for q in range(n)]
FIRST = np.arange(len(N_HERE) * PER_CHUNK) % PER_CHUNK * PACKET
FIRST += np.arange(len(FIRST)) // PER_CHUNK * CHUNK  # element of each packet number
N_SENT = sum(N_HERE[chunk] for _, _, chunk in RUNS)
N_LATE = sum(N_HERE[chunk] for _, _, chunk in GROUPS) - N_UP - N_DOWN + len(RUNS)


@cache
def stand():
    """256 stands, built once a process."""
    return Bulk(Stand())


class _Recorder:
    """A bus that remembers: reads give what was written, or the reset value."""

    def __init__(self):
        self.steps = []
        self.words = {
            r.offset: sum(f.reset << f.lsb for f in r.fields) for r in REGISTERS if r.access == "rw"
        }

    def read(self, address):
        if address == REGISTERS["status"].offset:  # clearing: it changes in time
            self.steps.append((Act.WAIT, 0, CARD.n_packets + 16))
        return self.words.get(address, 0)

    def write(self, address, word):
        self.words[address] = word
        self.steps.append((Act.WRITE, address, word))


def _script(setting, parts):
    """Steps of a whole round: settings, parts (frames, pauses), all counters.

    Returns beats of `Step`, and how many words it reads before the counters.
    """
    bus, own = _Recorder(), setting.own
    driver = OffloadDriver(bus.read, bus.write, n_ranks=N_RANKS, n_bytes=N_BYTES)
    driver.identify(mac=own.mac, ip=own.ip, node=own.node, job=setting.job, udp_port=own.udp_port)
    for k, other in enumerate(setting.others):
        driver.add_neighbor(k, node=other.node, port=0, mac=other.mac, ip=other.ip)
    rows = np.zeros(4, ROW)
    rows["op"], rows["wait"] = (REDUCE, GATHER, REDUCE, GATHER), (3, 0, 2, 0)
    rows["first"] = rows["flow"] = 0, 0, 1, 1
    rows["step"] = range(4)
    rows["sends"] = (-1, -1, -1, -1), (0, 1, 2, -1), (0, -1, -1, -1), (1, 2, -1, -1)
    layout = Layout.for_nodes(CARD.n_nodes, ports=4)
    driver.load_rows(layout.pack(rows), layout.row_bytes)
    for chunk in range(len(N_HERE)):
        up = [n for n, ph, c in GROUPS if c == chunk and not ph]
        down = [n for n, ph, c in GROUPS if c == chunk and ph]
        driver.set_places(chunk, {r: (n, LEAVES[n]) for r, n in enumerate(up)}, *down)
    driver.set_peers(range(len(setting.others)))
    for region, address in (("gradient", GRADIENT), ("result", RESULT), ("landing", LANDING)):
        driver.register(region, address, N_ELEMS)
    driver.cut(N_ELEMS, n_chunks=len(N_HERE), chunk=CHUNK, packet=PACKET)
    driver.set("schedule", rows=len(rows), peers=len(setting.others), lockstep=0)
    if codec := setting.codec:
        told = {name: codec[name] for name in ("exponent", "prescale")}
        told["prescale"] &= 0xFF
        driver.set("codec", coded=1, norm=0, thc=0, paper=int(codec["mode"] == "paper"), **told)
    driver.write("t_probe", 2**24 - 1)
    driver.set("round", tensor=setting.tensor, gen=(setting.gen - 1) % 2**16)
    driver.set("control", armed=1, clear=0, start=0, abort=0)
    driver.start(setting.tensor, setting.gen)
    for n, pauses in parts:  # reading keeps the bench awake
        bus.steps += [(Act.PLAY, PACE, n), *[(Act.WAIT, 0, PAUSE), QUIET] * pauses]
    for name in ("status", *COUNTERS):
        bus.steps.append((Act.READ, REGISTERS[name].offset, 0))
    act, address, word = np.array(bus.steps).T
    n_quiet = sum(pauses for _, pauses in parts)
    return encoding.pack(Step, act=act, address=address, data=word), n_quiet


class Round:
    """One round: a setting, and what each copy gets.

    Parameters
    ----------
    seed : of all of it
    copies : int, at least 2
    long : bool
        Whether the last broken frame of each copy has kilobytes.
    coded : bool
        Whether packets are coded with INCEPTIONN.

    Members
    -------
    frames, lengths, kinds : broken ones, uint8 (copies, N_BROKEN, WIDTH) and int64
        Kinds are without copy 0.
    """

    def __init__(self, seed, *, copies=COPIES, long=False, coded=False):
        rng = np.random.default_rng(seed)
        self.seed = int(rng.integers(2**31))
        self.setting = setting = offload_breaker.Setting(rng, coded=coded)
        frames, lengths, kinds = offload_breaker.breaks(
            rng, setting, copies * N_BROKEN, long=copies * long
        )
        self.frames = frames.reshape(N_BROKEN, copies, WIDTH).swapaxes(0, 1)
        self.lengths = lengths.reshape(N_BROKEN, copies).T
        kinds = kinds.reshape(N_BROKEN, copies).T
        self.kinds, self.marked = kinds[1:], kinds == Kind.MARKED
        self.copies, self.long = copies, long
        self._choose(rng)
        n = N_BROKEN + N_UP + N_DOWN + N_ASKS
        self.broken = np.ones(n, bool)  # of the frames of the first part
        self.broken[np.arange(1, n - N_BROKEN + 1) * n // (n - N_BROKEN) - 1] = False
        self.frames[0], self.lengths[0], self.marked[0] = _quiet(setting), HEAD_BYTES, False

    def _choose(self, rng):
        """Numbers of the right frames: between the broken ones, and after them."""
        group = self.setting.data[2]
        numbers = np.arange(len(group))
        held = offload_breaker.held_back(group)
        is_down = np.array([ph for _, ph, _ in GROUPS])[group] == 1
        early, self.late = [], []
        for down, n in ((False, N_UP), (True, N_DOWN)):
            free = np.setdiff1d(numbers[is_down == down], held)
            free = rng.permuted(np.tile(free, (self.copies, 1)), axis=1)
            kept = np.tile(held[is_down[held] == down], (self.copies, 1))
            early.append(free[:, :n])
            late = np.concatenate([free[:, n:], kept], axis=1)
            self.late.append(rng.permuted(late, axis=1))
        asks = len(group) + rng.integers(len(self.setting.asks[1]), size=(self.copies, N_ASKS))
        self.early = rng.permuted(np.concatenate([*early, asks], axis=1), axis=1)

    def isolate(self, copy):
        """From now on copy k gets, of the broken frames of `copy`, only number k - 1."""
        one = [part[copy].copy() for part in self._broken()]
        self.late = [np.tile(part[copy], (self.copies, 1)) for part in self.late]
        self.early = np.tile(self.early[copy], (self.copies, 1))
        k = np.arange(N_BROKEN)
        blank = _quiet(self.setting), HEAD_BYTES, False
        for mine, value, broken in zip(self._broken(), blank, one, strict=True):
            mine[:] = value
            mine[k + 1, k] = broken

    def _arrange(self):
        """Frames in order of arrival, lengths, which are marked; and parts: (frames, pauses)."""
        setting = self.setting
        data, data_lengths, _ = setting.data
        right = np.concatenate([data, setting.asks[0]])
        right_lengths = np.concatenate([data_lengths, setting.asks[1]])
        shape = self.copies, len(self.broken)
        frames, lengths = np.zeros((*shape, WIDTH), np.uint8), np.zeros(shape, np.int64)
        frames[:, self.broken], lengths[:, self.broken] = self.frames, self.lengths
        frames[:, ~self.broken] = right[self.early]
        lengths[:, ~self.broken] = right_lengths[self.early]
        stops, stop_lengths = setting.stops
        frames = [frames, *(right[part] for part in self.late), np.tile(stops, (self.copies, 1, 1))]
        lengths = [lengths, *(right_lengths[part] for part in self.late)]
        lengths.append(np.tile(stop_lengths, (self.copies, 1)))
        marked = np.zeros((self.copies, sum(part.shape[1] for part in lengths)), bool)
        marked[:, np.flatnonzero(self.broken)] = self.marked
        parts = list(zip((part.shape[1] for part in lengths), PAUSES, strict=True))
        if self.long:  # the last broken frame, and a right one behind it
            (n, pause), *rest = parts
            last = int(np.flatnonzero(self.broken)[-1])
            parts = [(last, LONG_PAUSES[0]), (1, LONG_PAUSES[1]), (n - last - 1, pause), *rest]
        arrivals = np.concatenate(frames, axis=1), np.concatenate(lengths, axis=1), marked
        return arrivals, parts

    def _broken(self):
        return self.frames, self.lengths, self.marked

    def play(self, bulk, *, stalls=0):
        """Play it: (fates of the broken frames, {copy: [what differs]}, cycles).

        bulk : `stand()`, or what has its ``run`` and plays as many copies.
        stalls : as of `Bulk.run`.
        """
        setting, copies = self.setting, self.copies
        arrivals, parts = self._arrange()
        frames, lengths, _ = arrivals
        fates = offload_judge.judge(*arrivals, setting)
        script, n_quiet = _script(setting, parts)
        steps = _padded(script, -(-script.shape[1] // 4) * 4)
        given = {
            "script": (np.repeat(steps[:, None], copies, axis=1), np.full(copies, len(steps))),
            "mac_rx": _spread(*_beats(*arrivals, lengths > 0)),
        }
        foreign = fates.fate == offload_judge.FOREIGN
        expected = {
            "words": self._words(fates, lengths, n_quiet),
            "host_rx": _beats(*arrivals, foreign, most=MAX_FRAME),
            "landings": _written(fates, 0),
        }
        most = {name: int(counts.max()) + 8 for name, (_, counts) in expected.items()}
        n_answers = np.bincount(fates.answer_copies).max(initial=0)
        most |= {"mac_tx": int(5 * (n_answers + len(RUNS)) + 14 * N_SENT + 40), "results": AREA + 8}
        idle = PAUSE + 500 << (stalls > 0)
        outputs, cycles = bulk.run(
            given, most, max_cycles=300_000, idle_cycles=idle, stalls=stalls, seed=self.seed
        )
        wrong = {}
        for name, (rows, counts) in expected.items():
            _note(wrong, name, _unlike(*_gather(outputs[name]), rows, counts))
        _check_sent(setting.codec, fates, outputs["mac_tx"], wrong)
        _check_results(setting.codec, fates, outputs["results"], wrong)
        return fates.fate[1:, : len(self.broken)][:, self.broken], wrong, cycles

    def _words(self, fates, lengths, n_quiet):
        """What the script reads: own address while it waits, status, counters."""
        counts = {name: np.zeros(self.copies, np.int64) for name in COUNTERS}
        for fate, name in enumerate(FATES):
            counts[name] = (fates.fate == fate).sum(axis=1)
        counts["oversize"] = (lengths > MAX_FRAME).sum(axis=1)
        counts["sent"] += N_SENT
        counts["probes"] += len(RUNS)
        bits = REGISTERS["status"].fields
        status = sum(1 << bit.lsb for bit in bits if bit.name in ("done", "finished"))
        words = [np.full(self.copies, self.setting.own.ip)] * n_quiet
        words += [np.full(self.copies, status), *(counts[name] for name in COUNTERS)]
        rows = np.stack(words, axis=1).astype("<u4")
        n = rows.shape[1]
        return rows.reshape(-1, 1).view(np.uint8), np.full(self.copies, n)


def _quiet(setting):
    """A frame that is nobody's."""
    frame = setting.data[0][0].copy()
    frame[HEAD_BYTES:] = 0
    frame[12:14] = 0x88, 0xB5
    return frame


def _padded(rows, size):
    return np.pad(rows, ((0, 0), (0, size - rows.shape[1])))


def _beats(frames, lengths, marked, chosen, *, most=None):
    """Beats of the chosen frames of each copy, as rows of `FrameBeat`: (rows, counts).

    most : bytes at which longer frames end, marked bad.
    """
    cut = np.minimum(lengths, most or lengths.max())
    bad = (marked | (lengths > cut))[chosen]
    length = cut[chosen]
    n = -(-length // N_BYTES)
    frame = np.repeat(np.arange(len(n)), n)
    at = np.arange(len(frame)) - np.repeat(np.cumsum(n) - n, n)
    rows = np.zeros((len(frame), 20), np.uint8)
    few = at < WIDTH // N_BYTES
    data = frames[chosen].reshape(len(n), -1, N_BYTES)
    rows[few, :N_BYTES] = data[frame[few], at[few]]
    last = at == n[frame] - 1
    kept = np.where(last, (length[frame] - 1) % N_BYTES + 1, N_BYTES)
    marks = (1 << kept) - 1 | last.astype(np.int64) << N_BYTES
    marks |= (last & bad[frame]).astype(np.int64) << N_BYTES + 1
    rows[:, N_BYTES:] = marks.astype("<u4")[:, None].view(np.uint8)
    beats = np.where(chosen, -(-cut // N_BYTES), 0)
    return rows, beats.sum(axis=1)


def _spread(rows, counts):
    """Rows of one copy after the other, as `Bulk` takes them."""
    out = np.zeros((counts.max(), len(counts), rows.shape[1]), np.uint8)
    copy = np.repeat(np.arange(len(counts)), counts)
    out[np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts), copy] = rows
    return out, counts


def _gather(output):
    """Rows that came, copy after copy, and the copy of each."""
    rows, counts = output
    counts = np.minimum(counts, len(rows))
    return rows.swapaxes(0, 1)[np.arange(len(rows)) < counts[:, None]], np.repeat(
        np.arange(len(counts)), counts
    )


def _written(fates, down):
    """Beats that accepted packets of one direction must write: (rows, counts)."""
    accepted = fates.fate == offload_judge.ACCEPTED
    taken = accepted & (IS_DOWN[fates.group] == down)
    number, group = fates.number[taken], fates.group[taken]
    n = np.array([elems_of(k) // 4 for k in range(len(FIRST))])[number]
    packet = np.repeat(np.arange(len(n)), n)
    at = np.arange(len(packet)) - np.repeat(np.cumsum(n) - n, n)
    first = FIRST[number] // 4 + (RESULT if down else LANDING) // N_BYTES
    first = first if down else first + RANKS[group] * AREA
    octets = b"".join(itertools.compress(fates.taken, taken[accepted]))
    data = np.frombuffer(octets, np.uint8).reshape(-1, N_BYTES)
    counts = np.zeros(taken.shape, np.int64)
    counts[taken] = n
    return _stores((first[packet] + at) * N_BYTES, data), counts.sum(axis=1)


def _stores(address, data):
    keep = np.full(len(address), 2**N_BYTES - 1)
    return encoding.pack(WRITTEN, address=address, data=data, keep=keep)


def _check_results(codec, fates, output, wrong):
    """The results: what came down, in order, and the sums of the card's own chunk."""
    got, copy = _gather(output)
    copies = len(fates.fate)
    address = encoding.unpack(WRITTEN, got[:, : encoding.n_bytes(WRITTEN)])["address"]
    own = (address >= RESULT) & (address < RESULT + 4 * CHUNK)
    _note(wrong, "results", _unlike(got[~own], copy[~own], *_written(fates, 1)))
    beats = np.arange(CHUNK // 4)
    lanes = np.arange(4)
    total = _floats(beats + GRADIENT // N_BYTES, lanes, 0)
    for rank in range(N_RANKS):
        total = total + _floats(beats + LANDING // N_BYTES + rank * AREA, lanes, 1)
    if codec:
        total = inceptionn.image(total.reshape(-1), **codec).reshape(total.shape)
    rows = _stores(RESULT + beats * N_BYTES, total.view(np.uint8))
    order = np.lexsort((address[own], copy[own]))
    counts, rows = np.full(copies, len(rows)), np.tile(rows, (copies, 1))
    _note(wrong, "sums", _unlike(got[own][order], copy[own][order], rows, counts))


def _floats(beats, lanes, which):
    return pattern(beats[:, None], lanes, which).astype("<u4").view("<f4")


def _note(wrong, what, copies):
    for copy in copies:
        wrong.setdefault(copy, []).append(what)


def _unlike(got, copy, rows, counts):
    """Copies whose rows, in order of the copies, are not these."""
    came = np.bincount(copy, minlength=len(counts))
    same = came == counts
    differ = (got[same[copy]] != _padded(rows, got.shape[1])[np.repeat(same, counts)]).any(axis=1)
    return set(np.flatnonzero(~same).tolist()) | set(copy[same[copy]][differ].tolist())


def _frames(output):
    """Frames in rows of beats: bytes (n, WIDTH), lengths, copies. Longer ones are cut."""
    rows, copy = _gather(output)
    marks = rows[:, N_BYTES:].copy().view("<u4")[:, 0]
    last = marks >> N_BYTES & 1 == 1
    starts = np.r_[True, last[:-1]]
    frame = np.cumsum(starts) - 1
    at = np.arange(len(rows)) - np.flatnonzero(starts)[frame]
    out = np.zeros((frame[-1] + 1, WIDTH // N_BYTES, N_BYTES), np.uint8)
    few = at < WIDTH // N_BYTES
    out[frame[few], at[few]] = rows[few, :N_BYTES]
    kept = np.bitwise_count(marks & (1 << N_BYTES) - 1).astype(np.int64)
    lengths = np.bincount(frame, weights=kept).astype(np.int64)
    out = out.reshape(len(out), WIDTH)
    out[np.arange(WIDTH) >= lengths[:, None]] = 0
    return out, lengths, copy[starts]


def _check_sent(codec, fates, output, wrong):
    """Answers in order; the card's own frames, whose heads are those of copy 0."""
    frames, lengths, copy = _frames(output)
    subtype = GRADNIC.p0.get(frames) & 15
    is_answer = (GRADNIC.op.get(frames) == Op.CONTROL) & (subtype != Subtype.PROBE)
    rows = _padded(fates.answers, WIDTH)
    rows = np.concatenate([rows, fates.answer_lengths[:, None].view(np.uint8)], axis=1)
    got = np.concatenate([frames, lengths[:, None].view(np.uint8)], axis=1)
    counts = np.bincount(fates.answer_copies, minlength=len(fates.fate))
    _note(wrong, "answers", _unlike(got[is_answer], copy[is_answer], rows, counts))
    _check_own(codec, fates, got[~is_answer], copy[~is_answer], wrong)


def _check_own(codec, fates, frames, copy, wrong):
    """Packets and PROBEs, each once, with as many leaves as came in."""
    down, number = GRADNIC.ph.get(frames), GRADNIC.seq.get(frames)
    is_data = GRADNIC.op.get(frames) != Op.CONTROL
    order = np.lexsort((number, is_data, down, ETHERNET.destination.get(frames), copy))
    frames, copy, down, is_data = frames[order], copy[order], down[order], is_data[order]
    # contributions by packet number: own one and those from below, or what came down
    leaves = np.zeros((len(fates.fate), 2, len(FIRST)), np.int64)
    taken = fates.fate == offload_judge.ACCEPTED
    who = np.nonzero(taken)[0]
    group, packet = fates.group[taken], fates.number[taken]
    np.add.at(leaves, (who, IS_DOWN[group], packet), fates.leaves[taken])
    leaves[:, 0] += 1
    leaves[:, 1, :PER_CHUNK] = leaves[:, 0, :PER_CHUNK]
    number = np.searchsorted(FIRST, GRADNIC.seq.get(frames) * 16)
    number = np.minimum(number, len(FIRST) - 1)
    held = leaves[copy, down, number]
    right = GRADNIC.arg.get(frames) == held << 20
    right &= (GRADNIC.p0.get(frames) == np.minimum(held, 255)) | bool(codec)
    _note(wrong, "leaves", copy[is_data & ~right].tolist())
    GRADNIC.arg.put(frames, np.zeros(len(frames), np.int64))  # of PROBEs, the time
    data = frames[is_data]
    GRADNIC.p0.put(data, np.zeros(len(data), np.int64))
    frames[is_data] = data
    model = frames[copy == 0]
    counts = np.full(len(fates.fate), len(model))
    if len(model) != N_SENT + len(RUNS):
        _note(wrong, "packets", [0])
    _note(wrong, "packets", _unlike(frames, copy, np.tile(model, (len(counts), 1)), counts))


def fuzz(n_frames, *, seed=1, jobs=None, progress=None):
    """At least `n_frames` broken frames, in rounds of 65,025; AssertionError at a difference.

    jobs : threads, default one a core. progress : called with (frames done, frames in all).

    Returns {"frames", "rounds", "right", "kinds", "reasons", "cycles"}; right : frames beside.
    """
    stand()
    kinds, reasons = np.zeros(len(Kind), np.int64), np.zeros(len(FATES), np.int64)
    done = cycles = 0
    jobs = min(jobs or os.cpu_count() or 1, -(-n_frames // A_ROUND))
    n_rounds = -(-n_frames // (A_ROUND * jobs)) * jobs
    with ThreadPoolExecutor(jobs) as pool:
        for first in range(0, n_rounds, jobs):
            for some, fates, n in pool.map(partial(_play, seed), range(first, first + jobs)):
                kinds += np.bincount(some.reshape(-1), minlength=len(kinds))
                reasons += np.bincount(fates.reshape(-1), minlength=len(reasons))
                done, cycles = done + fates.size, cycles + n
                if progress:
                    progress(min(done, n_frames), n_frames)
    return {
        "frames": done,
        "rounds": n_rounds,
        "right": n_rounds * (COPIES - 1) * (N_UP + N_DOWN + N_ASKS + N_LATE),
        "kinds": dict(zip(NAMES, kinds.tolist(), strict=True)),
        "reasons": {k: v for k, v in zip(FATES, reasons.tolist(), strict=True) if v},
        "cycles": COPIES * cycles,
    }


def _round(seed, number):
    """A round, and its stalls: with and without them, raw and coded."""
    long, coded = number % LONG_EVERY in (0, LONG_EVERY - 1), number // 2 % 2 == 1
    return Round((seed, number), long=long, coded=coded), STALLS * (number % 2)


def _play(seed, number):
    one, stalls = _round(seed, number)
    fates, wrong, cycles = one.play(stand(), stalls=stalls)
    if wrong:
        raise AssertionError(_first(seed, number, wrong))
    return one.kinds, fates, cycles


def _first(seed, number, wrong):
    """Says what differs, and which frame it takes: each of the copy's is played alone."""
    copy = min(wrong)
    told = f"seed {seed}, round {number}, copy {copy}: {', '.join(wrong[copy])}"
    one, stalls = _round(seed, number)
    frames, lengths = one.frames[copy].copy(), one.lengths[copy].copy()
    one.isolate(copy)
    _, alone, _ = one.play(stand(), stalls=stalls)
    if not alone:
        return f"{told}; no broken frame does it alone"
    k = min(alone) - 1
    head = frames[k, : min(lengths[k], HEAD_BYTES)].tobytes().hex()
    return (
        f"{told}; of its broken frames number {k} does it alone, {lengths[k]} bytes that begin "
        f"with {head}"
    )
