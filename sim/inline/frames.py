"""Frames that the campaign of the in-line card plays: all kinds, all fields, all lengths.

Makers of both directions return two lists of (frame, marked bad): to the MAC, and from it.
"""

import numpy as np

from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD_BYTES, IPV4, UDP, UDP_PORT, Op
from gradnic.interface.inline import InlineSettings

from ..frame import frames as makers

MAX_FLOATS = 40  # of a frame that is coded


def traffic(rng, settings, n):
    """Frames of every kind for both inputs, faults included, at most `n` floats each."""
    out, into = [], []
    own = makers.own_frames(rng, n)
    coded = makers.coded(own, settings)
    for frames, list_ in ((own, out), (coded, into)):
        list_ += [*makers.foreign_frames(rng).values(), *frames.values(), *frames.values()]
        for name in ("paper small", "native small", "native"):
            list_ += makers.faults(frames[name], rng).values()
            if list_ is into:
                list_ += makers.units(frames[name], rng).values()
    into += own.values()
    for list_ in (out, into):
        list_[:] = [(list_[k], bool(rng.random() < 0.1)) for k in rng.permutation(len(list_))]
    return out, into


def settings_to_try():
    """The bench's own, then one that moves every field of every register."""
    yield makers.SETTINGS
    yield InlineSettings(
        paper=True,
        tos=0x51,
        tos_coded=0xA2,
        tos_mask=0xFB,
        port_low=8999,
        port_high=8999,
        native_port=9000,
        jobs=range(6, 32),
        exponent=121,
        prescale=-2,
        paper_codec=True,
        floats_limit=9,
    )


def any_heads(rng, settings):
    """Frames with anything in the fields that a card passes on, sums, or does not look at."""
    payload = makers.gradient(rng, 6) * np.float32(2**-9)
    made = [
        makers.paper_frame(payload, tos=settings.tos, port=settings.port_low),
        makers.native_frame(payload, port=settings.native_port, job=31, check=True),
        makers.native_frame(payload, port=settings.native_port, job=31, op=Op.CONTROL),
    ]
    lists = [[], []]
    for k, frame in enumerate(made * 40):
        frame = makers.with_head(frame, rng, extreme=k % 8 == 0, mask=~settings.tos_mask & 0xFF)
        coded = makers.coded({0: frame}, settings)[0]
        lists[0].append((frame, False))
        lists[1].append((makers.with_check(coded), False))
        if k % 3 == 0:  # one bit of the head or of the checksums is wrong
            lists[0].append((makers.flipped(frame, 14 + k // 3 % 50, 1 << k % 8), False))
            lists[1].append((makers.flipped(lists[1][-1][0], 14 + k // 3 % 50, 1 << k % 8), False))
    return lists


def each_bit(settings):
    """Frames of which one bit of the head is another, under right checksums of IPv4."""
    ones, port, job = np.ones(6), settings.native_port, min(settings.jobs)
    made = [makers.paper_frame(ones, tos=settings.tos, port=settings.port_low, check=False)]
    made += [
        makers.native_frame(ones, port=port, job=job, op=op)
        for op in (Op.RAW, Op.CONTROL, Op.INT32)
    ]
    ops = [makers.native_frame(ones, port=port, job=job, op=op) for op in range(16)]
    coded = makers.coded(dict(enumerate(made)), settings).values()
    lists = [[], []]
    for frames, list_ in zip((made, coded), lists, strict=True):
        for frame in frames:
            for place in range(8 * ETHERNET.ethertype.byte, 8 * HEAD_BYTES):
                other = makers.flipped(frame, place // 8, 1 << place % 8)
                if place // 8 not in (IPV4.checksum.byte, IPV4.checksum.byte + 1):
                    other = makers.refreshed(other)
                list_.append((other, False))
        list_ += [(frame, False) for frame in ops]
    return lists


def short(settings):
    """Many frames of few beats, which fill the queues of jobs where the output stands still."""
    port, job = settings.native_port, min(settings.jobs)
    frames = [
        makers.paper_frame(np.zeros(n), tos=settings.tos, port=settings.port_low)
        for n in range(1, 7)
    ]
    frames += [makers.native_frame(np.full(n, 2.0**-12), port=port, job=job) for n in range(1, 7)]
    for n in range(7, MAX_FLOATS + 1):  # and once each size: a quarter zeros
        x = np.where(np.arange(n) % 4, 1.0 + n, 0)
        frames.append(makers.paper_frame(x, tos=settings.tos, port=settings.port_low))
        frames.append(makers.native_frame(x, port=port, job=job))
    frames += [makers.native_frame([], port=port, job=job, op=op) for op in (0, Op.CONTROL)]
    coded = makers.coded(dict(enumerate(frames)), settings).values()
    lists = frames, [*coded]
    return [[(frame, False) for frame in [*(list_[:12] * 6), *list_]] for list_ in lists]


def noisy(settings):
    """Frames of noise, as long as any that is coded: they fill the engines soon."""
    rng = np.random.default_rng(7)
    port, job = settings.native_port, min(settings.jobs)
    n = min(MAX_FLOATS, settings.floats_limit)
    noise = rng.integers(0, 2**32, (24, n), np.uint32).view(np.float32)
    frames = [makers.native_frame(x, port=port, job=job) for x in noise]
    tos, port = settings.tos, settings.port_low
    half = [np.where(np.arange(n) % 2, x, 0) for x in noise[:12]]
    frames[12:] = [makers.paper_frame(x, tos=tos, port=port) for x in half]
    coded = makers.coded(dict(enumerate(frames)), settings).values()
    return [[(frame, False) for frame in list_] for list_ in (frames, coded)]


def edges():
    """ToS and ports one bit beside what is set."""
    yield from ((0x51 ^ 1 << bit, 8999) for bit in range(8))
    yield from ((0xA2 ^ 1 << bit, 8999) for bit in range(8))
    yield from ((0x51, 8999 ^ 1 << bit) for bit in range(16))


def wrong_lengths():
    """One bit of a length is wrong, or the same bit of several, and nothing else is."""
    ones = np.ones(6)
    made = [
        makers.paper_frame(ones),
        makers.native_frame(ones),
        makers.native_frame(ones, op=Op.CONTROL),
        makers.native_frame(ones, op=Op.INT32),
    ]
    coded = makers.coded(dict(enumerate(made))).values()
    wrong = [[*_other_lengths(frames)] for frames in (made, coded)]
    return [[(frame, False) for frame in frames] for frames in wrong]


def short_ends(rng):
    """Frames cut at each of their first bytes, and whole ones whose lengths end there."""
    x = rng.integers(0, 2**32, 20, np.uint32).view(np.float32)
    made = {
        "paper": makers.paper_frame(x, check=False),
        "native": makers.native_frame(x, check=True),
        "kept": makers.native_frame(x, op=Op.CONTROL),
    }
    lists = [[], []]
    made, coded = list(made.values()), list(makers.coded(made).values())
    for frames, list_ in zip((made, coded + made), lists, strict=True):
        for frame in frames:
            list_ += [(frame[:n], False) for n in range(1, 100)]
            for n in range(48):
                short = bytearray(frame)
                UDP.length.put(short, n)
                UDP.checksum.put(short, 0)
                IPV4.total_length.put(short, n + UDP.start - IPV4.start)
                list_.append((makers.refreshed(short), False))
    return lists


def _other_lengths(frames):
    fields = (
        (IPV4.total_length,),
        (UDP.length,),
        (GRADNIC.elems,),
        (IPV4.total_length, UDP.length),
        (IPV4.total_length, UDP.length, GRADNIC.elems),
    )
    for k, frame in enumerate(frames):
        for which in fields:
            for bit in range(16):
                bad = bytearray(frame)
                for field in which:
                    shift = 2 if field is GRADNIC.elems and len(which) > 1 else 0
                    field.put(bad, field.get(frame) ^ 1 << bit >> shift)
                UDP.checksum.put(bad, 0)
                yield makers.refreshed(bad) + b"behind" * (k + bit)


def long(rng):
    """Frames of ours as long as frames get: kept ones, and short ones with much behind them."""
    ones = np.full(4080, -1, np.int32).view(np.float32)
    sizes = [4080, *rng.integers(100, 4080, 5)]
    sizes += [4 << bit for bit in range(2, 10)]  # a beat of 16 bytes more than a power of two
    made = [makers.native_frame(ones[:n], op=Op.CONTROL, check=True) for n in sizes]
    made += [makers.native_frame(makers.gradient(rng, 5)) + rng.bytes(n) for n in (4100, 9000)]
    coded = [*makers.coded(dict(enumerate(made))).values()]
    coded += [frame + rng.bytes(9000) for frame in coded[-2:]]
    return [[(frame, False) for frame in list_] for list_ in (made, coded)]


def odd_ends(rng):
    """Kept frames of ours that end at any byte, with and without more behind it, and wrong ones."""
    lists = [[], []]
    for n in range(36):
        head = makers.native_frame([], op=Op.CONTROL)[UDP.stop : HEAD_BYTES]
        exact = makers.udp_frame(head + rng.bytes(n), port=UDP_PORT, pad=False)
        frame = exact + rng.bytes(n % 19)
        wrong = makers.flipped(frame, HEAD_BYTES + n - 1, 1 << n % 8)
        for list_ in lists:
            list_ += [(frame, False), (wrong, False), (exact, False)]
    return lists
