"""Cards at UDP sockets, golden and of RTL: hosts cannot tell which, bit for bit."""

import contextlib
import socket
import threading

import numpy as np
import pytest
from gradnic.models.frame.address import Address
from gradnic.models.offload.cluster import LinkFaults, addresses
from gradnic.models.offload.host_port import carried
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.rtl_twin import STEP, WAITING, RtlTwin
from gradnic.sim.offload.twin import QUIET, Twin, TwinServer

from gradnic.host.bring_up import bring_up
from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp
from gradnic.interface.formats import GRADNIC, VERSION, Op
from gradnic.interface.host_frame import Status
from gradnic.interface.job import QUEUE, Job, JobCodec, JobStatus, Kind, Operation

TOPOLOGY = parse("ring:3")
TABLES = tuple(compile_table(build(TOPOLOGY, name)) for name in ("ring", "multitree"))
N, N_ELEMS, MEMORY = 3, 3000, 1 << 18
FAULTS = {"loss": 0.02, "duplicate": 0.02, "delay": 20, "reorder": 40, "seed": 5}
PATIENCE = 60  # seconds, on a busy machine


@contextlib.contextmanager
def serving(twin):
    """The ends of a twin's sockets."""
    server, stop = TwinServer(twin, port=0), threading.Event()
    thread = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
    thread.start()
    with contextlib.closing(server):
        try:
            yield server.ends
        finally:
            stop.set()
            thread.join()


@contextlib.contextmanager
def hosts(ends):
    """Hosts of all cards."""
    with contextlib.ExitStack() as stack:
        yield [
            FramedCard(stack.enter_context(FrameHost(*udp(*end), patience=PATIENCE)))
            for end in ends
        ]


@contextlib.contextmanager
def served(twin):
    """Hosts of all cards of a twin, at its sockets."""
    with serving(twin) as ends, hosts(ends) as cards:
        yield cards


def jobs():
    """One of each kind, side by side, under addresses of their own."""
    kinds = [
        {},
        {"codec": JobCodec.INCEPTIONN, "table": 1},
        {"kind": Kind.BF16, "codec": JobCodec.RAW16, "op": Operation.MEAN},
        {"op": Operation.MAX, "table": 1, "layer": 7},
    ]
    return [
        Job(id=k, tensor=k, gen=3, elems=N_ELEMS, source=32768 * k, result=32768 * (4 + k), **kind)
        for k, kind in enumerate(kinds)
    ]


def ended(twin):
    """Completions and the memories of all cards, as their hosts read them."""
    values = np.random.default_rng(7).standard_normal((N, MEMORY // 8)).astype(np.float32)
    books = [{} for _ in range(N)]
    for table in TABLES:
        for book, more in zip(books, addresses(table, TOPOLOGY), strict=True):
            book.update(more)
    with served(twin) as cards:
        for node, (card, mine) in enumerate(zip(cards, values, strict=True)):
            area = card.landing_bytes(MEMORY // 4)  # as a program does with a card in a machine
            bring_up(
                card, node, TABLES, books[node], card.layout, tenant=9, memory=(0, MEMORY),
                landing=[0, area], n_elems=MEMORY // 4,
            )  # fmt: skip
            card.link.store(0, mine)
        for job in jobs():
            for card in cards:
                card.post(job)
        told = [sorted((card.completion(PATIENCE) for _ in jobs()), key=lambda one: one.id)
                for card in cards]  # fmt: skip
        return (
            [[(one.id, one.status, one.leaves_least) for one in of] for of in told],
            [bytes(card.link.load(0, MEMORY)) for card in cards],
        )


@pytest.fixture(scope="module")
def golden():
    return ended(Twin(TABLES, TOPOLOGY, MEMORY, faults=LinkFaults(**FAULTS)))


def test_the_circuit_gives_what_golden_cards_give(golden):
    told, memories = ended(RtlTwin(TABLES, TOPOLOGY, MEMORY, faults=LinkFaults(**FAULTS)))
    assert told == golden[0] == [[(k, JobStatus.DONE, N) for k in range(4)]] * N
    assert memories == golden[1]
    results = [memory[MEMORY // 2 :] for memory in memories]
    assert results[0] == results[1] == results[2] != bytes(MEMORY // 2)


@pytest.mark.parametrize("kind", [Twin, RtlTwin])
def test_a_host_that_comes_later_has_the_card_anew(kind):
    """Also where hosts ended with jobs in all places and in the queue, which others never post."""
    twin = kind(TABLES, TOPOLOGY, MEMORY)
    for gen in (1, 2):
        with served(twin) as cards:
            for card in cards:
                card.link.store(0, np.full(64, gen, np.float32))
                card.post(Job(id=gen, tensor=5, gen=gen, elems=64, source=0, result=256))
            for card in cards:
                assert card.completion(PATIENCE).status == JobStatus.DONE
                assert card.link.load(256, 256) == np.full(64, 3 * gen, np.float32).tobytes()
            for id in range(10, 10 + QUEUE):
                cards[0].post(Job(id=id, tensor=id, gen=gen, elems=64, source=0, result=256))


def test_a_stranger_does_not_get_what_is_the_hosts():
    with serving(Twin(TABLES, TOPOLOGY, MEMORY)) as ends, hosts(ends) as cards:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for card in cards:
                card.post(Job(id=1, tensor=5, gen=1, elems=64, source=0, result=256))
            stranger.settimeout(PATIENCE)
            lost = GRADNIC.pack(ver=VERSION, op=Op.HOST, seq=9, elems=4, arg=7)
            for octets in b"", b"x", bytes(60_000), lost:
                stranger.sendto(octets, ends[0])
            assert stranger.recv(100)[17] == Status.STRANGER
            assert [card.completion(PATIENCE).status for card in cards] == [JobStatus.DONE] * N
            stranger.settimeout(0.1)
            with pytest.raises(TimeoutError):
                stranger.recv(100)


def test_frames_of_a_host_wait_in_its_socket_while_the_circuit_is_busy():
    twin, n = RtlTwin(TABLES, TOPOLOGY, MEMORY), 0
    frame = twin.macs[1].to_bytes(6, "big") + bytes(1400)  # no IPv4
    while twin.room(1):
        twin.frame(1, frame)
        n += 1
    assert WAITING <= n * len(frame) < WAITING + len(frame)
    assert twin.room(0)
    for _ in range(WAITING // (16 * STEP) + 2):
        assert twin.step() == []
    assert twin.room(1)
    assert twin.cluster.drivers[1].counters()["host_foreign"] == n


def test_an_address_that_cannot_be_had_is_named():
    twin = Twin(TABLES, TOPOLOGY, MEMORY)
    with contextlib.closing(TwinServer(twin, port=0)) as first:
        port = first.ends[0][1]
        with pytest.raises(OSError, match="Address already in use") as told:
            TwinServer(twin, port=port)
    assert told.value.filename == f"127.0.0.1:{port}"


def test_what_the_system_does_not_send_is_lost():
    """Such as to an address of all hosts, which a socket may not send to."""
    asked, frame = [], carried(Address(0, 1, 0x7F000001), Address(0, 2, 0xFFFFFFFF), bytes(22))

    class Loud:
        macs = (1,)
        busy = staticmethod(lambda: True)
        step = staticmethod(lambda: [(0, frame)])

    with contextlib.closing(TwinServer(Loud(), port=0)) as server:
        with pytest.raises(PermissionError):
            server.sockets[0].sendto(b"", ("255.255.255.255", 9))
        server.serve(lambda: len(asked) < 3 and not asked.append(None))
    assert len(asked) == 3


def test_golden_cards_rest_while_a_job_waits_for_other_hosts():
    twin = Twin(TABLES, TOPOLOGY, MEMORY)
    first, *others = twin.cluster.cards
    job = Job(id=1, tensor=1, gen=1, elems=64, source=0, result=256)
    for cards, wanted in ([first], range(QUIET, 2 * QUIET)), (others, range(QUIET)):
        for card in cards:
            card.post(job)
        twin.frame(0, b"")  # as what its host posts by
        n = 0
        while twin.busy():
            twin.step()
            n += 1
        assert n in wanted
        before = twin.cluster.now
        twin.rest(10**9)
        assert twin.cluster.now - before == (QUIET if cards == [first] else 10**9)
    assert [card.completions[0].status for card in twin.cluster.cards] == [JobStatus.DONE] * N


def test_jobs_that_others_do_not_post_end_by_abort_and_watchdog():
    """They hold all contexts of a golden card; who comes later sums on it."""
    with serving(Twin(TABLES, TOPOLOGY, MEMORY)) as ends, hosts(ends) as cards:
        first = cards[0]
        for id in (1, 2):
            first.post(Job(id=id, tensor=id, gen=1, elems=64, source=0, result=256))
        first.abort(2)
        ended = first.completion(PATIENCE)
        assert (ended.id, ended.status) == (2, JobStatus.ABORTED)
        first.write("watchdog", 100)
        ended = first.completion(PATIENCE)
        assert (ended.id, ended.status) == (1, JobStatus.STUCK)
        first.write("watchdog", 0)
        for card in cards:
            card.post(Job(id=3, tensor=3, gen=1, elems=64, source=0, result=256))
        assert [card.completion(PATIENCE).status for card in cards] == [JobStatus.DONE] * N
