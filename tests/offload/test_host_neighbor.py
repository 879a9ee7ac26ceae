"""ARP and ICMP echo: the model against scapy, the circuit against the model."""

from functools import cache

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.offload.host_neighbor import HostNeighbor
from gradnic.hdl.offload.host_tap import HostTap
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.models.offload.host_neighbor import is_request, reply
from gradnic.models.offload.host_port import default_address
from gradnic.sim.engine import batch, encoding
from scapy.layers import inet
from scapy.layers.l2 import ARP, Ether

from gradnic.interface.neighbor import BROADCAST, CARD_IP, HEAD_BYTES, STORE_BYTES

MAC, IP = default_address(0x0A0B0C0D0E0F), "198.51.100.0"
MY_MAC, MY_IP = "02:00:00:00:00:01", "198.51.100.1"
TEXT = ":".join(f"{octet:02x}" for octet in MAC.to_bytes(6, "big"))
ALL = "ff:ff:ff:ff:ff:ff"


def arp(to=ALL, **fields):
    ask = {"op": "who-has", "hwsrc": MY_MAC, "psrc": MY_IP, "pdst": IP} | fields
    return bytes(Ether(src=MY_MAC, dst=to) / ARP(**ask)).ljust(60, b"\0")


def ping(data=bytes(range(56)), *, to=TEXT, icmp=None, **ip):
    head = inet.IP(**({"src": MY_IP, "dst": IP, "flags": "DF", "id": 77} | ip))
    asked = inet.ICMP(**({"type": 8, "id": 4711, "seq": 3} | (icmp or {})))
    return bytes(Ether(src=MY_MAC, dst=to) / head / asked / data)


def test_the_card_is_found_by_its_address():
    for to in (ALL, TEXT):
        told = Ether(reply(arp(to), MAC, CARD_IP))
        assert (told.dst, told.src, told[ARP].op) == (MY_MAC, TEXT, 2)
        assert (told[ARP].hwsrc, told[ARP].psrc) == (TEXT, IP)
        assert (told[ARP].hwdst, told[ARP].pdst) == (MY_MAC, MY_IP)


@pytest.mark.parametrize("n", [0, 1, 17, 56, 1472])
def test_an_echo_has_the_data_and_right_checksums(n):
    asked = ping(np.random.default_rng(n).integers(0, 256, n, np.uint8).tobytes())
    assert is_request(asked, MAC, CARD_IP)
    want = Ether(src=TEXT, dst=MY_MAC) / Ether(asked).payload
    want[inet.IP].src, want[inet.IP].dst, want[inet.ICMP].type = IP, MY_IP, 0
    for layer in (inet.IP, inet.ICMP):
        del want[layer].chksum
    assert reply(asked, MAC, CARD_IP) == bytes(want)


def test_an_echo_of_zeros_alone_has_a_checksum_that_its_sender_takes():
    told = reply(ping(b"", icmp={"id": 0, "seq": 0}), MAC, CARD_IP)
    assert told[34:42] == bytes.fromhex("0000ffff00000000") == bytes(inet.ICMP(type=0))


def test_a_broken_checksum_stays_broken():
    asked = bytearray(ping())
    asked[60] ^= 1
    told = Ether(reply(bytes(asked), MAC, CARD_IP))
    right = told.copy()
    del right[inet.ICMP].chksum
    assert told[inet.ICMP].chksum != Ether(bytes(right))[inet.ICMP].chksum


ZEROS = ping(b"", icmp={"id": 0, "seq": 0})
OTHERS = [
    arp(pdst="198.51.100.2"), arp(op="is-at"), arp(hwtype=6), arp(ptype=0x86DD), arp(plen=16),
    arp(hwlen=8), arp("02:67:6e:0d:0e:10"), arp(TEXT, pdst=MY_IP), arp()[: HEAD_BYTES - 1],
    ping(dst="198.51.100.2"), ping(to=ALL), ping(to="02:67:6e:0d:0e:10"), ping(proto=17),
    ping(flags="MF"), ping(frag=1), ping(frag=256), ping(options=[inet.IPOption_NOP()] * 4),
    ping(icmp={"type": 0}), ping(icmp={"type": 13}), ping(icmp={"code": 1}), ping(version=6),
    ping()[: HEAD_BYTES - 1], ping(flags="DF+evil")[:30], bytes.fromhex(TEXT.replace(":", ""))[:5],
]  # fmt: skip


def test_what_else_there_is_is_no_request():
    assert not any(is_request(frame, MAC, CARD_IP) for frame in OTHERS)


class Bench(wiring.Component):
    """Both circuits, as in `HostSide`."""

    def __init__(self, n_bytes):
        self.parts = HostTap(n_bytes, meta_width=3), HostNeighbor(n_bytes)
        beats, plain = FrameBeat(n_bytes, meta_width=3), FrameBeat(n_bytes)
        ways = {name: Out(stream.Signature(plain)) for name in ("port", "o")}
        pulses = {"answered": Out(1), "bad": Out(1), "overrun": Out(2)}
        frames = {"i": In(stream.Signature(beats)), "others": Out(stream.Signature(beats))}
        super().__init__(frames | ways | pulses)

    def elaborate(self, platform):
        m = Module()
        m.submodules.tap, m.submodules.neighbor = tap, neighbor = self.parts
        for source, sink in (
            (wiring.flipped(self.i), tap.i), (tap.others, wiring.flipped(self.others)),
            (tap.port, wiring.flipped(self.port)), (tap.requests, neighbor.i),
            (neighbor.o, wiring.flipped(self.o)),
        ):  # fmt: skip
            wiring.connect(m, source, sink)
        for part in self.parts:
            m.d.comb += [part.mac.eq(MAC), part.ip.eq(CARD_IP)]
        for name in ("answered", "bad", "overrun"):
            m.d.comb += getattr(self, name).eq(getattr(neighbor, name))
        return m


@cache
def build(n_bytes):
    return batch.build(Bench(n_bytes))


def draw(rng):
    """A frame: a request, one that is nearly so, to the card, to another, cut anywhere."""
    sound = [arp(), arp(TEXT), ping(), ping(rng.bytes(int(rng.integers(300)))), ZEROS]
    some = sound if rng.random() < 0.6 else OTHERS
    frame = bytearray(some[int(rng.integers(len(some)))])
    what = rng.random()
    if what < 0.3:
        frame[int(rng.integers(min(len(frame), 46)))] ^= 1 << int(rng.integers(8))
    elif what < 0.35:
        frame = frame[: int(rng.integers(1, len(frame)))]
    elif what < 0.4:
        frame = bytearray(MAC.to_bytes(6, "big") + rng.bytes(int(rng.integers(90))))
    elif what < 0.45:
        frame = bytearray(BROADCAST.to_bytes(6, "big") + rng.bytes(int(rng.integers(90))))
    elif what < 0.5:
        frame = bytearray(rng.bytes(int(rng.integers(1, 200))))
    return bytes(frame)


@pytest.mark.parametrize("n_bytes", [16, pytest.param(32, marks=pytest.mark.slow), 64])
def test_circuit_does_what_the_model_does(n_bytes):
    """Every frame goes exactly one way, in order, and answers are those of the model."""
    rng = np.random.default_rng(n_bytes)
    frames = [arp(), arp(TEXT), ping(), *OTHERS, *(draw(rng) for _ in range(400))]
    bad, meta = rng.random(len(frames)) < 0.05, rng.integers(8, size=len(frames))
    ways = {"others": [], "port": [], "o": []}
    for frame, mark in zip(frames, bad, strict=True):
        if is_request(frame, MAC, CARD_IP):
            ways["o"] += [] if mark else [reply(frame, MAC, CARD_IP)]
        else:
            ways["port" if frame[:6] == MAC.to_bytes(6, "big") else "others"].append(frame)
    beats = encoding.pack_frames(
        FrameBeat(n_bytes, meta_width=3), frames, at_last={"bad": bad}, meta=meta
    )
    for stalls in ({}, {"i": 0.3, "others": 0.2, "o": 0.2}):
        run = batch.Instance(build(n_bytes)).run(
            {"i": beats}, stalls=stalls, idle_cycles=50, trace=("answered", "bad", "overrun")
        )
        assert {name: run.frames(name) for name in ways} == ways
        sums = {name: int(trace.sum()) for name, trace in run.traces.items()}
        requests = [is_request(frame, MAC, CARD_IP) for frame in frames]
        assert sums == {
            "answered": len(ways["o"]), "bad": int((bad & requests).sum()), "overrun": 0
        }  # fmt: skip
        if not stalls:
            beats_in = run.taken["i"]
            assert np.ptp(beats_in) + 1 == len(beats_in)  # full rate


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_requests_without_room_are_lost_and_hold_up_nothing(n_bytes):
    """A flood of pings whose answers hardly leave, and one that is larger than the store."""
    whole = ping(bytes(STORE_BYTES - HEAD_BYTES))
    assert len(whole) == STORE_BYTES
    flood = [ping(bytes(1000), icmp={"seq": k}) for k in range(40)]
    frames = [whole, *flood, arp(pdst=MY_IP)]
    beats = encoding.pack_frames(FrameBeat(n_bytes, meta_width=3), frames)
    run = batch.Instance(build(n_bytes)).run(
        {"i": beats}, stalls={"o": 0.05}, idle_cycles=4000, trace=("answered", "overrun")
    )
    assert np.ptp(run.taken["i"]) + 1 == len(beats)  # full rate
    assert run.frames("others") == frames[-1:]
    answers, told = run.frames("o"), iter(reply(frame, MAC, CARD_IP) for frame in frames[:-1])
    assert 1 < len(answers) < 41
    assert all(answer in told for answer in answers)  # in order, each once
    counts = {name: int(trace.sum()) for name, trace in run.traces.items()}
    assert counts == {"answered": len(answers), "overrun": 41 - len(answers)}
    longer = ping(bytes(STORE_BYTES - HEAD_BYTES + 1))
    frames = [longer, arp(pdst=MY_IP), arp(pdst=MY_IP), ping(), longer + bytes(9000), ping()]
    beats = encoding.pack_frames(FrameBeat(n_bytes, meta_width=3), frames)
    run = batch.Instance(build(n_bytes)).run(
        {"i": beats}, idle_cycles=400, trace=("answered", "bad", "overrun")
    )
    assert run.frames("o") == [reply(ping(), MAC, CARD_IP)] * 2
    assert [int(trace.sum()) for trace in run.traces.values()] == [2, 0, 2]
