"""The circuit of host frames, with memory and registers around it, against its golden model."""

import numpy as np
import pytest
from gradnic.models.offload.host_port import parse, request
from gradnic.sim.offload import host_fuzz
from gradnic.sim.offload.host_bench import BROKEN, CARD, HOST, REGIONS, Bench

from gradnic.interface.host_frame import Kind
from gradnic.interface.job import Completion

WIDTHS = [pytest.param(16, marks=pytest.mark.slow), 64]
FIRST = REGIONS[0][0]
SESSION = 0x5EED0001


@pytest.fixture(params=WIDTHS, ids=str)
def pair(request):
    return Bench(request.param), host_fuzz.ModelCard(request.param)


def asks(kind, payload=b"", **fields):
    return request(CARD, HOST, kind, payload, **{"session": SESSION} | fields)


def test_frames_one_by_one_are_answered_as_the_model_does(pair):
    """Alone, so that the answers of each are known to be its own; silence comes behind each."""
    bench, card = pair
    source, now = host_fuzz.Source(np.random.default_rng(5)), 0
    for k in range(300):
        frame, bad = source.draw()
        card.full = bench.levels["full"] = int(k % 7 == 0)
        now += 1000
        want = card.port.frame(frame, now, bad=bad)
        want += card.port.tick(now + 500)
        source.follow(card.port)
        assert bench.play([frame], bad=[int(bad)]) == want, k
    host_fuzz.compare(bench, card)
    assert all(card.counts().values())
    assert len(card.posted) > 3


def test_completions_are_told_until_they_are_acknowledged(pair):
    bench, card = pair
    ended = [Completion(id=7 + k, status=k, leaves_most=k, cycles=1 << 40 | k) for k in range(2)]
    (hello,) = card.port.frame(asks(Kind.HELLO))
    assert bench.play([asks(Kind.HELLO)]) == [hello]
    told = [card.port.event(ended[0]), card.port.event(ended[1])][0]
    bench.levels["t_event"] = 1000
    copies = bench.play(completions=ended, drain=False, max_cycles=3500)
    assert copies == 4 * told  # at 0, 1000, 2000 and 3000
    bench.levels["t_event"] = 1 << 30


def test_events_leave_room_for_frames_however_often_they_are_asked_for(pair):
    """Also for the ACK that ends them."""
    bench, _ = pair
    bench.play([asks(Kind.HELLO)])
    bench.levels["t_event"] = 0
    frames = [asks(Kind.READ_REG, seq=1 + k, elems=64) for k in range(20)]
    frames.append(asks(Kind.ACK))
    told = [parse(frame) for frame in bench.play(frames, completions=[Completion(id=1, status=0)])]
    bench.levels["t_event"] = 1 << 30
    assert [one["seq"] for one in told if one["kind"] == Kind.DATA] == list(range(1, 21))
    assert 1 < sum(one["kind"] == Kind.EVENT for one in told) < 20


def test_a_stranger_takes_no_ack_of_the_session(pair):
    """Between WRITEs and the silence behind which they are acknowledged."""
    bench, card = pair
    frames = [asks(Kind.HELLO)]
    frames += [asks(Kind.WRITE, bytes(64), seq=1 + k, address=FIRST) for k in range(3)]
    frames.append(asks(Kind.READ_REG, session=1, seq=9, elems=4))
    want = [answer for frame in frames for answer in card.port.frame(frame, 0)]
    want += card.port.tick(1000)
    assert bench.play(frames) == want
    assert len(want) == 3


@pytest.mark.parametrize("how", [2, 3], ids=["SLVERR", "DECERR"])
def test_errors_of_memory_are_told_as_the_model_does(pair, how):
    """A WRITE of which one burst fails, READs of one piece and of several; and until a new session
    the answers to READ_REG say it, too: an ACK may be lost.
    """
    bench, card = pair
    octets = np.random.default_rng(how).integers(0, 256, 1024, np.uint8).tobytes()
    bench.levels["broken"], card.faulty.broken = how, True
    seen, now = [], 0

    def ask(kind, payload=b"", **fields):
        nonlocal now
        now += 1000
        frame = asks(kind, payload, **fields)
        want = card.port.frame(frame, now) + card.port.tick(now + 500)
        assert bench.play([frame]) == want
        seen.extend((one["kind"], one["status"]) for one in map(parse, want))

    ask(Kind.HELLO, elems=1408)
    ask(Kind.WRITE, octets, seq=1, address=FIRST)
    ask(Kind.WRITE, octets, seq=2, address=BROKEN)
    ask(Kind.WRITE, octets, seq=2, address=BROKEN - 1024)
    ask(Kind.READ_REG, seq=3, elems=4)
    ask(Kind.READ, seq=4, address=BROKEN, elems=4096)
    ask(Kind.READ, seq=5, address=FIRST, elems=1024)
    ask(Kind.READ, seq=6, address=BROKEN, elems=64)
    ask(Kind.READ_REG, seq=7, elems=4)
    ask(Kind.HELLO, seq=7, session=SESSION + 1)
    ask(Kind.READ_REG, seq=8, session=SESSION + 1, elems=4)
    assert seen[1:7] == [(Kind.ACK, 0), (Kind.ACK, 3), (Kind.ACK, 0)] + 3 * [(Kind.DATA, 0)]
    assert seen[-3:] == [(Kind.DATA, 3), (Kind.HELLO, 0), (Kind.DATA, 0)]
    # behind one that fails, what is under way is not told as done, and may come again
    frames = [asks(Kind.WRITE, octets, session=SESSION + 1, seq=9 + k,
                   address=(BROKEN, FIRST + 1024)[k]) for k in range(2)]  # fmt: skip
    *_, told = map(parse, bench.play(frames))
    assert (told["status"], told["seq"], told["next"]) == (3, 9, 9)
    bench.levels["broken"], card.faulty.broken = 0, False
    for frame in frames:
        now += 1000
        want = card.port.frame(frame, now) + card.port.tick(now + 500)
        assert bench.play([frame]) == want
    host_fuzz.compare(bench, card)


def test_many_frames_back_to_back_do_what_the_model_does():
    """And nothing is written outside of the regions, while frames of others pass, also while memory
    pauses: a small part of `gradnic fuzz --card host`.
    """
    seen = []
    told = host_fuzz.fuzz(4000, seed=6, progress=lambda *done: seen.append(done))
    assert (told["frames"], seen) == (4000, [(2000, 4000), (4000, 4000)])
    assert told["foreign"] > 1000
    assert all(told["reasons"].values())


@pytest.mark.parametrize(("payload", "least"), [(1408, 0.94), (8192, 0.98)])
def test_memory_is_written_and_read_at_the_rate_of_the_line(payload, least):
    """Beats of payload for each cycle from the first to the last beat, heads and all."""
    bench = Bench(64)
    bench.play([asks(Kind.HELLO, elems=payload)])
    n = 200_000 // payload
    octets = np.random.default_rng(7).integers(0, 256, payload, np.uint8).tobytes()
    writes = [asks(Kind.WRITE, octets, seq=1 + k, address=FIRST) for k in range(n)]
    run = bench.run(writes)
    cycles = np.ptp(run.taken["i"]) + 1
    assert n * payload / 64 / cycles > least
    *_, last = map(parse, run.frames("o"))
    assert (last["status"], last["next"]) == (0, 1 + n)  # all are stored
    assert bench.counts["overrun"] == 0
    size = REGIONS[0][1]
    reads = [asks(Kind.READ, seq=1 + n + k, address=FIRST, elems=size) for k in range(8)]
    run = bench.run(reads)
    told = [parse(frame) for frame in run.frames("o")]
    assert sum(one["elems"] for one in told) == 8 * size
    assert told[0]["payload"] == octets
    assert 8 * size / 64 / (np.ptp(run.taken["o"]) + 1) > least


def test_what_finds_no_room_is_lost_and_sent_again():
    """Registers are slow: behind many of them frames wait, and the store fills."""
    bench = Bench(64)
    bench.play([asks(Kind.HELLO)])
    octets = bytes(range(256)) * 32
    frames = [asks(Kind.WRITE_REG, bytes(64), seq=1 + k, address=0) for k in range(30)]
    frames += [asks(Kind.WRITE, octets, seq=31 + k, address=FIRST) for k in range(8)]
    *_, last = map(parse, bench.play(frames))
    lost = bench.counts["overrun"]
    assert 0 < lost < 8
    assert last["next"] == 39 - lost
    *_, last = map(parse, bench.play(frames[-lost:]))
    assert (last["status"], last["next"]) == (0, 39)


def some_foreign(rng, n):
    """Frames of all lengths, to addresses that differ from the card's in a bit, or in many."""
    frames = []
    for _ in range(n):
        frame = bytearray(rng.integers(0, 256, int(rng.integers(1, 1500)), np.uint8).tobytes())
        frame[:6] = (CARD.mac ^ 1 << int(rng.integers(48))).to_bytes(6, "big")[: len(frame)]
        frames.append(bytes(frame))
    return frames


def test_foreign_frames_pass_in_order_and_the_network_reaches_nothing():
    """While the host writes and reads; answers wait for frames of the network, and get through."""
    bench, rng = Bench(64), np.random.default_rng(8)
    bench.play([asks(Kind.HELLO)])
    out, up, come = (some_foreign(rng, 60) for _ in range(3))
    octets = rng.integers(0, 256, 1408, np.uint8).tobytes()
    mine = [asks(Kind.WRITE, octets, seq=1 + k, address=FIRST) for k in range(59)]
    mine += [asks(Kind.READ, seq=60, address=FIRST, elems=1408)]
    sent = [frame for pair in zip(out, mine, strict=True) for frame in pair]
    spoofs = [asks(Kind.WRITE, bytes(64), seq=1, address=FIRST)] * 60
    come_all = [frame for pair in zip(come, spoofs, strict=True) for frame in pair]
    run = bench.run(sent, others={"core_rx": up, "mac_rx": come_all}, stalls={"o": 0.7})
    assert run.frames("core_tx") == out
    assert run.frames("from_network") == come
    assert bench.counts["spoofed"] == len(spoofs)
    got = run.frames("o")
    answers = [frame for frame in got if frame not in up]
    assert [frame for frame in got if frame in up] == up
    told = [parse(frame) for frame in answers]
    assert [one["payload"] for one in told if one["kind"] == Kind.DATA] == [octets]
    assert {one["status"] for one in told} == {0}


def test_host_frames_take_no_more_than_their_share_of_host_rx():
    """A host that reads, pings and sends to others while the network fills its line: 94 % of the
    beats are foreign, none is left unused, and nothing waits at host_tx.
    """
    bench, rng = Bench(64), np.random.default_rng(9)
    bench.play([asks(Kind.HELLO, elems=1408)])
    before, n = dict(bench.counts), 16384
    up = [bytes([k & 255]) + rng.bytes(1499) for k in range(700)]
    out = [b"\x02" + rng.bytes(1499) for _ in range(40)]
    mine = [asks(Kind.READ, seq=1 + k, address=FIRST, elems=n) for k in range(3)]
    mine += [host_fuzz.ping(bytes(56))] * 2
    run = bench.run([*mine, *out], others={"core_rx": up})
    got, known = run.frames("o"), set(up)
    assert [frame for frame in got if frame in known] == up
    assert run.frames("core_tx") == out
    own = [k for k, frame in enumerate(got) if frame not in known]
    told = [parse(got[k]) for k in own[2:]]
    assert sum(one["elems"] for one in told if one["kind"] == Kind.DATA) == 3 * n
    assert bench.counts["answered"] == before["answered"] + 2
    beats = [(-(-len(frame) // 64), frame in known) for frame in got[: own[-1] + 1]]
    both = sum(n for n, _ in beats)
    assert 0.94 <= sum(n for n, is_foreign in beats if is_foreign) / both < 0.97
    assert (np.diff(run.taken["o"][:both]) == 1).all()
    assert bench.counts["stalled"] == before["stalled"]
