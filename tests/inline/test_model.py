"""The golden card against frames written by scapy, row by row of the table it implements."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from gradnic.models.inceptionn import compress, decompress, image
from gradnic.models.inline.card import InlineCard
from gradnic.sim.frame import frames as makers
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.inline import COUNTERS, REGISTERS, InlineSettings

SETTINGS = InlineSettings(paper=True, jobs={5, 200}, port_low=9000, port_high=9999)
ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def gradient(n, *, seed=1):
    return np.random.default_rng(seed).normal(0, 0.02, n).astype("<f4")


def marked(payload, *, tos=0x28, dport=9000, **ip):
    ip = {"src": "10.0.0.1", "dst": "10.0.0.2", "flags": "DF", "id": 77, **ip}
    return ETHER / IP(tos=tos, **ip) / UDP(sport=1234, dport=dport) / Raw(payload)


def native(floats, *, chksum=0, dport=29440, elems=None, **fields):
    head = {"ver": 1, "job": 5, "src": 3, "gen": 0x1234, "seq": 99, "elems": len(floats)}
    if elems is not None:
        head["elems"] = elems
    head.update(p0=1, arg=0xDEADBEEF)
    head.update(fields)
    payload = GRADNIC.pack(**head) + np.asarray(floats, "<f4").tobytes()
    return (
        ETHER
        / IP(src="10.0.0.1", dst="10.0.0.2", flags="DF")
        / UDP(sport=4000, dport=dport, chksum=chksum)
        / Raw(payload)
    )


def check_scapy_agrees(frame):
    """Lengths and checksums of `frame` are what scapy would write."""
    again = Ether(frame)
    for layer, name in ((IP, "len"), (IP, "chksum"), (UDP, "len")):
        written = getattr(again[layer], name)
        fresh = Ether(frame)
        delattr(fresh[layer], name)
        fresh[UDP].remove_payload()
        end = 14 + again[IP].len
        rebuilt = bytes(fresh / Raw(frame[42:end]))
        assert getattr(Ether(rebuilt)[layer], name) == written, name


def counted(card, **expected):
    assert {k: v for k, v in card.counters.items() if v} == expected


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 336, 352, 2104])
def test_paper_round_trip(n):
    card, x = InlineCard(SETTINGS), gradient(n)
    frame = bytes(marked(x.tobytes()))
    coded, bad = card.transmit(frame)
    unit = compress(x)
    if 2 + len(unit) >= 4 * n:
        assert coded == frame
        counted(card, tx_size=1)
        return
    assert not bad
    assert len(coded) == max(60, 44 + len(unit))
    assert coded[42:44] == struct.pack(">H", n)
    assert coded[44 : 44 + len(unit)] == unit
    assert coded[15] == 0x2C
    assert coded[40:42] == b"\0\0"
    check_scapy_agrees(coded)
    restored, bad = card.receive(coded)
    again = bytearray(bytes(marked(image(x).astype("<f4").tobytes())))
    again[40:42] = b"\0\0"
    assert (restored, bad) == (bytes(again).ljust(60, b"\0"), False)
    counted(card, tx_coded=1, rx_coded=1)


def test_ecn_bits_survive_both_ways():
    card, x = InlineCard(SETTINGS), gradient(64)
    coded, _ = card.transmit(bytes(marked(x.tobytes(), tos=0x28 | 2)))
    assert coded[15] == 0x2C | 2
    congested = bytes(Ether(coded[:15] + b"\x2f" + coded[16:]))
    fixed = Ether(congested)
    del fixed[IP].chksum
    restored, _ = card.receive(bytes(fixed))
    assert restored[15] == 0x28 | 3
    check_scapy_agrees(restored)


def test_native_round_trip_and_example_head():
    x = gradient(336)
    card = InlineCard(replace(SETTINGS, prescale=-2))
    fields = dict(imp=1, last=1, lc=2, slot=0x1ABC, tensor=0x0102, tree=7, seq=0xA0B0)
    frame = bytes(native(x, **fields))
    coded, bad = card.transmit(frame)
    assert not bad
    assert (
        coded[42:64].hex(" ") == "41 c0 05 03 12 34 5a bc 01 02 07 00 a0 b0 01 50 75 fe de ad be ef"
    )
    assert coded[64:] == compress(x, prescale=-2)
    check_scapy_agrees(coded)
    restored, bad = card.receive(coded)
    assert not bad
    assert restored == bytes(native(decompress(coded[64:], 336, prescale=-2), **fields))
    counted(card, tx_coded=1, rx_coded=1)


def test_native_may_grow_and_checked_udp_checksum_is_dropped():
    x = np.full(336, 3.0, "<f4")
    card = InlineCard(SETTINGS)
    coded, _ = card.transmit(bytes(native(x, chksum=None)))
    assert len(coded) == 64 + 42 * 34
    assert coded[40:42] == b"\0\0"
    assert card.receive(coded)[0][64:] == x.tobytes()


FOREIGN = {
    "arp": bytes(ETHER / ARP(psrc="10.0.0.1", pdst="10.0.0.2")),
    "vlan": bytes(ETHER / Dot1Q(vlan=5) / IP(tos=0x28) / UDP(dport=9000) / Raw(bytes(64))),
    "ipv6": bytes(ETHER / IPv6() / UDP(dport=9000) / Raw(bytes(64))),
    "tcp": bytes(ETHER / IP(tos=0x28) / TCP(dport=9000) / Raw(bytes(64))),
    "icmp": bytes(ETHER / IP(tos=0x28) / ICMP() / Raw(bytes(64))),
    "options": bytes(marked(bytes(64), options=[b"\x01\x01\x01\x01"])),
    "first fragment": bytes(marked(bytes(64), flags="MF")),
    "later fragment": bytes(marked(bytes(64), flags=0, frag=3)),
    "unmarked": bytes(marked(bytes(64), tos=0)),
    "port below": bytes(marked(bytes(64), dport=8999)),
    "port above": bytes(marked(bytes(64), dport=10000)),
    "unknown job": bytes(native(gradient(16), job=6)),
    "marked, native port, unknown job": bytes(marked(bytes(64), dport=29440)),
    "another version": bytes(native(gradient(16), ver=2)),
    **makers.replies(np.random.default_rng(3)),
    "no udp header": bytes(marked(bytes(64)))[:41],
    "one byte": b"\x55",
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("bad", [False, True])
def test_foreign_passes(name, bad):
    card = InlineCard(replace(SETTINGS, port_high=9000 if name == "port above" else 9999))
    frame = FOREIGN[name]
    assert card.transmit(frame, bad) == (frame, bad)
    assert card.receive(frame, bad) == (frame, bad)
    counted(card, tx_foreign=1, rx_foreign=1)


def test_paper_mode_is_off_at_reset():
    card, frame = InlineCard(), bytes(marked(gradient(64).tobytes()))
    assert card.transmit(frame) == (frame, False)
    counted(card, tx_foreign=1)


def broken(frame, at, value):
    return frame[:at] + bytes([frame[at] ^ value]) + frame[at + 1 :]


def refreshed(frame):
    """With a right IP checksum, everything else as it is."""
    fixed = Ether(frame)
    del fixed[IP].chksum
    return bytes(fixed)


X = gradient(64)
OUT = {
    "paper": bytes(marked(X.tobytes())),
    "native": bytes(native(X)),
}
IN = {name: InlineCard(SETTINGS).transmit(frame)[0] for name, frame in OUT.items()}
FAULTS = {
    "ip checksum": (lambda f: broken(f, 22, 1), "checksum"),
    "truncated by one": (lambda f: f[:-1], "length"),
    "truncated in the head": (lambda f: f[:50], "length"),
    "ip length + 1": (lambda f: refreshed(broken(f, 17, 1)), "length"),
    "udp length + 1": (lambda f: broken(f, 39, 1), "length"),
    "ip length 0": (lambda f: refreshed(f[:16] + b"\0\0" + f[18:]), "length"),
    "ip length max": (lambda f: refreshed(f[:16] + b"\xff\xff" + f[18:]), "length"),
    "udp checksum": (lambda f: f[:40] + b"\x12\x34" + f[42:], "checksum"),
}
NATIVE_FAULTS = {
    "reserved op": (lambda f: broken(f, 42, 0x08), "format"),
    "set": (lambda f: broken(f, 43, 0x10), "format"),
}
CASES = [(kind, name, FAULTS[name]) for kind in OUT for name in FAULTS]
CASES += [("native", name, NATIVE_FAULTS[name]) for name in NATIVE_FAULTS]


@pytest.mark.parametrize(("kind", "name", "fault"), CASES)
def test_faults(kind, name, fault):
    make, reason = fault
    card = InlineCard(SETTINGS)
    out, into = make(OUT[kind]), make(IN[kind])
    assert card.transmit(out) == (out, False)
    assert card.receive(into) is None
    counted(card, **{f"tx_{reason}": 1, f"rx_{reason}": 1})


@pytest.mark.parametrize("kind", OUT)
def test_marked_bad(kind):
    card = InlineCard(SETTINGS)
    assert card.transmit(OUT[kind], True) == (OUT[kind], True)
    assert card.receive(IN[kind], True) is None
    counted(card, tx_bad=1, rx_bad=1)


def test_malformed_units():
    card = InlineCard(SETTINGS)
    paper, head = bytearray(IN["paper"]), bytearray(IN["native"])
    for count in (0, 63, 65, 2105, 65535):
        paper[42:44] = struct.pack(">H", count)
        assert card.receive(paper) is None
        head[56:58] = struct.pack(">H", count)
        assert card.receive(head) is None
    for exponent in (0, 112, 127):
        head = bytearray(IN["native"])
        head[58] = exponent
        assert card.receive(head) is None
    counted(card, rx_codec=13)


def test_elems_that_disagrees():
    card = InlineCard(SETTINGS)
    frame = bytes(native(X, elems=63))
    assert card.transmit(frame) == (frame, False)
    assert card.receive(frame) is None
    counted(card, tx_length=1, rx_length=1)


def test_elems_of_other_ops_are_not_looked_at():
    """As docs/internals/inline.md says: RAW and INT32 have 4 bytes each, INC its unit's length."""
    looked_at = []
    for op in Op:
        card = InlineCard(SETTINGS)
        card.receive(bytes(native(X, op=op, elems=63)))
        looked_at += [op] * card.counters["rx_length"]
    assert looked_at == [Op.RAW, Op.INT32]


def test_the_registers_say_that_another_version_is_foreign():
    card, frame = InlineCard(SETTINGS), bytes(native(X, ver=2))
    for side, passes in ("tx", card.transmit), ("rx", card.receive):
        assert passes(frame) == (frame, False)
        assert card.counters[f"{side}_foreign"] == 1
        assert [name for name in COUNTERS if name.startswith(side) and "VER" in
                REGISTERS[name].doc] == [f"{side}_foreign"]  # fmt: skip


def test_not_codable_and_limits():
    card = InlineCard(SETTINGS)
    unsupported = replace(SETTINGS)  # which no host may ask for, but a register can hold
    object.__setattr__(unsupported, "exponent", 112)
    odd = bytes(marked(bytes(62)))
    empty = bytes(marked(b""))
    over = bytes(native(gradient(337)))
    huge = bytes(marked(gradient(2105).tobytes()))
    none = bytes(native([]))
    for frame in (odd, empty, over, huge, none):
        assert card.transmit(frame) == (frame, False)
    counted(card, tx_length=2, tx_limit=3)
    assert card.receive(over) == (over, False)
    card.settings = unsupported
    assert card.transmit(OUT["native"]) == (OUT["native"], False)
    assert card.counters["tx_limit"] == 4
    assert card.receive(IN["paper"]) is None
    assert card.counters["rx_codec"] == 1
    card.settings = unsupported
    assert card.receive(IN["native"]) is not None


def test_ours_but_not_ours_to_code():
    card = InlineCard(SETTINGS)
    control = bytes(native([], op=15, elems=0))
    coded = IN["native"]
    assert card.transmit(control) == (control, False)
    assert card.transmit(coded) == (coded, False)
    assert card.receive(control) == (control, False)
    assert card.receive(OUT["native"]) == (OUT["native"], False)
    assert card.receive(OUT["paper"][:50], True) == (OUT["paper"][:50], True)
    counted(card, tx_kept=2, rx_kept=3)


def test_padding_is_stripped_or_kept():
    card = InlineCard(SETTINGS)
    x = np.zeros(2, "<f4")
    frame = bytes(marked(x.tobytes())).ljust(60, b"\xa5")
    coded, _ = card.transmit(frame)
    assert len(coded) == 60
    assert coded[42:] == b"\0\2" + compress(x) + bytes(14)
    unshrunk = bytes(marked(gradient(1).tobytes())).ljust(60, b"\xa5")
    assert card.transmit(unshrunk) == (unshrunk, False)


def test_longer_than_max_frame():
    card = InlineCard(SETTINGS)
    for n, cut in ((16384, 0), (16385, 1), (20000, 1)):
        frame = bytes(ETHER / Raw(bytes(range(256)) * 80))[:n]
        assert card.transmit(frame) == (frame[:16384], bool(cut))
        assert card.receive(frame) == (frame[:16384], bool(cut))
    long = bytes(marked(bytes(17000)))
    assert card.transmit(long) == (long[:16384], True)
    assert card.receive(IN["paper"] + bytes(17000)) is None
    counted(card, tx_foreign=3, rx_foreign=3, tx_oversize=3, rx_oversize=3, tx_bad=1, rx_bad=1)


def test_settings_are_checked_and_become_words():
    with pytest.raises(ValueError, match="jobs must be 0 to 255, not 256"):
        InlineSettings(jobs={256})
    with pytest.raises(ValueError, match="tos must be 0 to 255, not 256"):
        InlineSettings(tos=256)
    for change, message in (
        ({"exponent": 5}, "exponent must be 113 to 126, not 5"),
        ({"exponent": 127}, "exponent must be 113 to 126, not 127"),
        ({"exponent": 117.5}, r"exponent must be 113 to 126, not 117\.5"),
        ({"prescale": 0.5}, r"prescale must be -128 to 127, not 0\.5"),
        ({"jobs": {0.5}}, r"jobs must be 0 to 255, not 0\.5"),
        ({"port_low": 9, "port_high": 1}, "port_low must be at most port_high, 1, not 9"),
    ):
        with pytest.raises(ValueError, match=message):
            InlineSettings(**change)
    words = replace(SETTINGS, prescale=-2).words()
    assert words["control"] == 1
    assert words["mark"] == 0xFC2C28
    assert words["ports"] == 9999 << 16 | 9000
    assert words["codec"] == 0xFE75
    assert words["jobs_0"] == 1 << 5
    assert words["jobs_6"] == 1 << 8
    assert len(COUNTERS) == 20
