"""What 256 cards gave, and what they must give: beats as numpy arrays, compared copy by copy.

Rows are those of `gradnic.sim.engine.bulk`; here they stand one copy after the other, with the
number of each copy's rows beside them.
"""

import itertools

import numpy as np
from gradnic.models import inceptionn

from gradnic.interface.formats import ETHERNET, GRADNIC, Op
from gradnic.interface.offload import Subtype

from ..engine import encoding
from . import judge as offload_judge
from .breaker import CHUNK, FIRST, IS_DOWN, N_ELEMS, N_SENT, PER_CHUNK, RANKS, RUNS, WIDTH, elems_of
from .stand import N_BYTES, N_RANKS, WRITTEN, pattern

GRADIENT, RESULT, LANDING = 0x10000, 0x20000, 0x40000  # addresses of the regions
AREA = -(-4 * N_ELEMS // N_BYTES)  # beats of a rank


def padded(rows, size):
    """Rows with zeros behind them, up to `size`."""
    return np.pad(rows, ((0, 0), (0, size - rows.shape[1])))


def beats_of(frames, lengths, marked, chosen, *, most=None):
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


def spread(rows, counts):
    """Rows of one copy after the other, as `Bulk` takes them."""
    out = np.zeros((counts.max(), len(counts), rows.shape[1]), np.uint8)
    copy = np.repeat(np.arange(len(counts)), counts)
    out[np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts), copy] = rows
    return out, counts


def gathered(output):
    """Rows that came, copy after copy, and the copy of each."""
    rows, counts = output
    counts = np.minimum(counts, len(rows))
    return rows.swapaxes(0, 1)[np.arange(len(rows)) < counts[:, None]], np.repeat(
        np.arange(len(counts)), counts
    )


def written(fates, down):
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


def check_results(codec, fates, output, wrong):
    """The results: what came down, in order, and the sums of the card's own chunk."""
    got, copy = gathered(output)
    copies = len(fates.fate)
    address = encoding.unpack(WRITTEN, got[:, : encoding.n_bytes(WRITTEN)])["address"]
    own = (address >= RESULT) & (address < RESULT + 4 * CHUNK)
    note(wrong, "results", unlike(got[~own], copy[~own], *written(fates, 1)))
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
    note(wrong, "sums", unlike(got[own][order], copy[own][order], rows, counts))


def _floats(beats, lanes, which):
    return pattern(beats[:, None], lanes, which).astype("<u4").view("<f4")


def note(wrong, what, copies):
    """Say of these copies what is wrong."""
    for copy in copies:
        wrong.setdefault(copy, []).append(what)


def unlike(got, copy, rows, counts):
    """Copies whose rows, in order of the copies, are not these."""
    came = np.bincount(copy, minlength=len(counts))
    same = came == counts
    differ = (got[same[copy]] != padded(rows, got.shape[1])[np.repeat(same, counts)]).any(axis=1)
    return set(np.flatnonzero(~same).tolist()) | set(copy[same[copy]][differ].tolist())


def _frames(output):
    """Frames in rows of beats: bytes (n, WIDTH), lengths, copies. Longer ones are cut."""
    rows, copy = gathered(output)
    marks = rows[:, N_BYTES:].copy().view("<u4")[:, 0]
    last = marks >> N_BYTES & 1 == 1
    starts = np.r_[True, last[:-1]][: len(rows)]
    frame = np.cumsum(starts) - 1
    at = np.arange(len(rows)) - np.flatnonzero(starts)[frame]
    out = np.zeros((starts.sum(), WIDTH // N_BYTES, N_BYTES), np.uint8)
    few = at < WIDTH // N_BYTES
    out[frame[few], at[few]] = rows[few, :N_BYTES]
    kept = np.bitwise_count(marks & (1 << N_BYTES) - 1).astype(np.int64)
    lengths = np.bincount(frame, weights=kept).astype(np.int64)
    out = out.reshape(len(out), WIDTH)
    out[np.arange(WIDTH) >= lengths[:, None]] = 0
    return out, lengths, copy[starts]


def check_sent(codec, fates, output, wrong):
    """Answers in order; the card's own frames, whose heads are those of copy 0."""
    frames, lengths, copy = _frames(output)
    subtype = GRADNIC.p0.get(frames) & 15
    is_answer = (GRADNIC.op.get(frames) == Op.CONTROL) & (subtype != Subtype.PROBE)
    rows = padded(fates.answers, WIDTH)
    rows = np.concatenate([rows, fates.answer_lengths[:, None].view(np.uint8)], axis=1)
    got = np.concatenate([frames, lengths[:, None].view(np.uint8)], axis=1)
    counts = np.bincount(fates.answer_copies, minlength=len(fates.fate))
    note(wrong, "answers", unlike(got[is_answer], copy[is_answer], rows, counts))
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
    note(wrong, "leaves", copy[is_data & ~right].tolist())
    GRADNIC.arg.put(frames, np.zeros(len(frames), np.int64))  # of PROBEs, the time
    data = frames[is_data]
    GRADNIC.p0.put(data, np.zeros(len(data), np.int64))
    frames[is_data] = data
    model = frames[copy == 0]
    counts = np.full(len(fates.fate), len(model))
    if len(model) != N_SENT + len(RUNS):
        note(wrong, "packets", [0])
    note(wrong, "packets", unlike(frames, copy, np.tile(model, (len(counts), 1)), counts))
