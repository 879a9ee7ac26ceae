"""Jobs of a card in any shell: its host, by registers or by frames, and a golden card opposite."""

import cocotb
from cocotb.queue import Queue
from cocotb.simtime import get_sim_time
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, SimTimeoutError, with_timeout
from gradnic.models.frame.address import Address
from gradnic.models.offload.host_neighbor import is_request, reply
from gradnic.models.offload.host_port import carried, default_address

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost
from gradnic.interface.formats import ETHERNET, GRADNIC_START, IPV4
from gradnic.interface.host_frame import OUI
from gradnic.interface.neighbor import ARP, ARP_REQUEST, BROADCAST, CARD_IP, ECHO_REQUEST

from ..frame import frames as makers
from ..offload import host_jobs

TICK = 20  # cycles of one of the golden card
TICKS = 4000  # for both jobs
HOST_ADDRESS = Address(0, default_address(0), 0xC6336400)  # after reset; for its host
HOST = Address(0, 0x020000000001, 0xC6336401, 41000)
CYCLE = 1e-8  # s, about one
TIMEOUT, PATIENCE = 2000 * CYCLE, 10**5 * CYCLE  # of `FrameHost`
OLD = 400 * CYCLE  # in which completions of an earlier host would come


def now():
    """Seconds of simulated time."""
    return get_sim_time("sec")


def requests(rng):
    """What an IP stack asks the card: ARP to all, ARP to it, and a ping."""
    arp, echo = ARP_REQUEST | {ARP.target_ip: CARD_IP}, ECHO_REQUEST | {IPV4.destination: CARD_IP}
    for destination, fields, size in (
        (BROADCAST, arp, 60), (HOST_ADDRESS.mac, arp, 60), (HOST_ADDRESS.mac, echo, 98),
    ):  # fmt: skip
        frame = bytearray(rng.bytes(size))
        ETHERNET.destination.put(frame, destination)
        ETHERNET.source.put(frame, HOST.mac)
        for field, value in fields.items():
            field.put(frame, value)
        yield bytes(frame)


def is_taken(frame):
    """Whether a card with host frames takes a frame of its host after reset."""
    if len(frame) < ETHERNET.destination.stop:
        return False
    to_card = ETHERNET.destination.get(frame) == HOST_ADDRESS.mac
    return to_card or is_request(frame, HOST_ADDRESS.mac, CARD_IP)


class Opposite:
    """A golden card at the MAC's side, among frames of others both ways.

    Parameters
    ----------
    host : host_jobs.Jobs. rng : of the frames of others.
    clock : of the frames.
    send : {"host_tx", "mac_rx"}, each an async function (bytes), which queues a frame.
    receive : {"mac_tx", "host_rx"}, each an async function (), the next frame.

    Members
    -------
    foreign : list of the frames of others, each of which goes both ways once.
    heard : Queue of frames that the card sends to its host, on host frames.
    """

    def __init__(self, host, rng, clock, send, receive):
        self.host, self.clock, self.send = host, clock, send
        self.foreign = list(makers.foreign_frames(rng).values())
        self.passed = {"mac_tx": [], "host_rx": []}  # of others
        self.out, self.heard, self.listens = Queue(), Queue(), False
        self.requests, self.answers = list(requests(rng)), []
        self.replies = [reply(frame, HOST_ADDRESS.mac, CARD_IP) for frame in self.requests]
        for name, take in receive.items():
            cocotb.start_soon(self._sort(name, take))

    async def _sort(self, name, take):
        """Frames apart: those of others, of the card, and of the card to its host."""
        theirs = set(self.foreign)
        while True:
            frame = await take()
            if frame in theirs:
                self.passed[name].append(frame)
            elif name == "host_rx" and frame in self.replies:
                self.answers.append(frame)
            elif name == "host_rx":
                assert self.listens, "a frame to the host that nobody asked for"
                assert ETHERNET.source.get(frame) == HOST_ADDRESS.mac
                self.heard.put_nowait(frame)
            else:
                assert ETHERNET.destination.get(frame) >> 24 != OUI, "a host frame has left"
                self.out.put_nowait(frame)

    async def _answer(self):
        """The other node's card, in time with this one's."""
        for tick in range(TICKS):
            came = [self.out.get_nowait() for _ in range(self.out.qsize())]
            for frame in self.host.meet(came, tick):
                await self.send["mac_rx"](frame)
            await ClockCycles(self.clock, TICK)
        raise AssertionError("the jobs did not end")

    async def run(self, driver, read):
        """Both jobs, posted through `driver`, and what is in memory then; read : see `check` of
        `host_jobs.Jobs`.
        """
        for frame in self.foreign:
            for name in self.send:
                await self.send[name](frame)
        await bridge(self.host.post)(driver)
        answers, completions = cocotb.start_soon(self._answer()), []
        while len(completions) < len(self.host.jobs) or not self.host.other.idle():
            assert not answers.done(), answers.result()
            completions += await bridge(self.host.completions)(driver)
            await ClockCycles(self.clock, 5 * TICK)
        answers.cancel()
        await bridge(self.host.check)(completions, read)
        await ClockCycles(self.clock, 100)
        assert self.passed == {"mac_tx": self.foreign, "host_rx": self.foreign}
        assert self.out.empty(), "the card has sent more than its jobs need"
        wanted = {"foreign": len(self.foreign), "outside": 0, "failed": 0, "renewals": 0}
        await counted(driver, wanted)

    def framed(self):
        """`FramedCard` of a card after reset; to be called under `cocotb.task.bridge`, as all that
        is done with it.
        """

        @resume
        async def say(octets):
            await self.send["host_tx"](carried(HOST, HOST_ADDRESS, octets))

        @resume
        async def listen(seconds):
            wait = max(1, round(seconds * 1e9))
            try:
                frame = await with_timeout(self.heard.get(), wait, "ns")
            except SimTimeoutError:
                return None
            return frame[GRADNIC_START:]

        self.listens = True
        link = FrameHost(say, listen, timeout=TIMEOUT, patience=PATIENCE, clock=now)
        return FramedCard(link, old=OLD)


def filled(host):
    """(address, bytes) that the host stores before jobs: memory holds anything, and whole beats are
    added.
    """
    for job, (mine, _) in zip(host.jobs, host.gradients, strict=True):
        yield job.source, mine.tobytes().ljust(-(-mine.nbytes // 64) * 64, b"\0")
        yield job.result, bytes(4 * job.elems + 128 & -64)
        if job.feedback:
            yield host_jobs.RESIDUAL, bytes(job.residual_at(2) - host_jobs.RESIDUAL)


async def counted(driver, wanted):
    """Whether counters of the card are as `wanted`, {name: value}."""
    for name, value in wanted.items():
        assert await bridge(driver.read)(name) == value, name


async def by_frames(opposite):
    """From reset to sums by frames alone: HELLO, registers, tables, WRITE, POST, EVENT and READ;
    the host's ARP and ping are answered meanwhile.

    opposite : at a card with host frames after reset, whose memory holds anything.
    """
    host = opposite.host
    card = await bridge(opposite.framed)()
    hello = card.link.hello
    assert (hello["beat_bytes"], hello["n_active"]) == (host_jobs.CARD.n_bytes, 1)
    await bridge(host.prepare)(card)
    for at, octets in filled(host):
        await bridge(card.link.store)(at, octets)
    for frame in opposite.requests:
        await opposite.send["host_tx"](frame)
    await opposite.run(card, card.link.load)
    lost = ("host_overrun", "host_format", "host_foreign", "host_length", "spoofed")
    await counted(card, dict.fromkeys(lost, 0) | {"host_answered": len(opposite.requests)})
    await ClockCycles(opposite.clock, 2 * TICK)
    assert opposite.answers == opposite.replies
    assert opposite.heard.empty()
    assert opposite.out.empty()
