"""Ethernet frames for the card's benches: good ones, foreign ones, and every kind of bad one.

Plain bytes without FCS. `gradnic.models.inline` says what a card makes of each; scapy's opinion on
the same formats is in ``tests/inline/test_model.py``.
"""

import numpy as np
from gradnic.models.frame.ipv4 import ip_checksum, ones_complement_sum
from gradnic.models.inline.card import InlineCard

from gradnic.interface.formats import GRADNIC, IP_PROTOCOL_UDP, IPV4, UDP, UDP_PORT, VERSION, Op
from gradnic.interface.inline import MIN_FRAME, InlineSettings

SETTINGS = InlineSettings(
    paper=True, jobs={1, 5, 31, 32, 200, 255}, port_low=9000, port_high=9999, floats_limit=2104
)
_LINK = bytes.fromhex("020000000002 020000000001 0800".replace(" ", ""))


def udp_frame(payload, *, tos=0, port=9000, check=True, identification=77, pad=True):
    """Ethernet, IPv4, UDP and `payload`; check: whether the UDP checksum is there, or 0."""
    frame = bytearray(UDP.stop) + payload
    frame[: len(_LINK)] = _LINK
    for field, value in (
        (IPV4.version, 4),
        (IPV4.ihl, 5),
        (IPV4.tos, tos),
        (IPV4.total_length, len(frame) - IPV4.start),
        (IPV4.identification, identification),
        (IPV4.dont_fragment, 1),
        (IPV4.ttl, 64),
        (IPV4.protocol, IP_PROTOCOL_UDP),
        (IPV4.source, 0x0A000001),
        (IPV4.destination, 0x0A000002),
        (UDP.source_port, 4000 + identification % 7),
        (UDP.destination_port, port),
        (UDP.length, len(frame) - UDP.start),
    ):
        field.put(frame, value)
    IPV4.checksum.put(frame, ip_checksum(frame[IPV4.start : IPV4.stop]))
    if check:
        frame = with_check(frame)
    return bytes(frame).ljust(MIN_FRAME if pad else 0, b"\0")


def refreshed(frame):
    """`frame` with a right IPv4 checksum."""
    frame = bytearray(frame)
    IPV4.checksum.put(frame, ip_checksum(frame[IPV4.start : IPV4.stop]))
    return bytes(frame)


def paper_frame(floats, *, tos=0x28, **options):
    """A marked frame of float32."""
    return udp_frame(np.asarray(floats, "<f4").tobytes(), tos=tos, **options)


def native_frame(floats, *, check=False, port=UDP_PORT, identification=77, **fields):
    """A RAW frame with the gradnic head; `fields` override those of the head."""
    head = {"ver": VERSION, "op": Op.RAW, "job": 5, "src": 3, "gen": 0x1234, "elems": len(floats)}
    head |= {"tensor": 0x0102, "seq": 0xA0B0, "p0": 1, "arg": 0xDEADBEEF, "imp": 1} | fields
    payload = GRADNIC.pack(**head) + np.asarray(floats, "<f4").tobytes()
    return udp_frame(payload, port=port, check=check, identification=identification)


def with_head(frame, rng, *, extreme=False, mask=0):
    """`frame` with other addresses, ports, identification, and so on, and right checksums.

    extreme : all of them at their largest. mask : bits of the ToS that may be anything.
    """
    frame = bytearray(frame)
    for field in (
        IPV4.source,
        IPV4.destination,
        IPV4.identification,
        IPV4.ttl,
        IPV4.reserved,
        IPV4.dont_fragment,
        UDP.source_port,
    ):
        field.put(frame, (1 << field.width) - 1 if extreme else int(rng.integers(1 << field.width)))
    tos = IPV4.tos.get(frame)
    IPV4.tos.put(frame, tos & ~mask | int(rng.integers(256)) & mask)
    checked = UDP.checksum.get(frame)
    frame = refreshed(frame)
    return with_check(frame) if checked else frame


def with_check(frame):
    """`frame` with a right UDP checksum, up to the end that its length says."""
    frame = bytearray(frame)
    UDP.checksum.put(frame, 0)
    end = UDP.start + UDP.length.get(frame)
    pseudo = bytes(frame[26:34]) + bytes([0, IP_PROTOCOL_UDP]) + bytes(frame[38:40])
    total = 0xFFFF ^ ones_complement_sum(pseudo + bytes(frame[UDP.start : end]))
    UDP.checksum.put(frame, total or 0xFFFF)
    return bytes(frame)


def gradient(rng, n):
    """`n` floats of mixed magnitudes: mostly small, some raw, some exact zeros, odd patterns."""
    x = rng.normal(0, 1, n).astype("<f4") * np.float32(2.0) ** rng.integers(-14, 3, n)
    x = np.where(rng.random(n) < 0.1, 0, x).astype("<f4")
    odd = rng.integers(0, 2**32, n, dtype=np.uint32).view("<f4")
    return np.where(rng.random(n) < 0.02, odd, x).astype("<f4")


def with_bytes(frame, at, octets):
    """`frame` with `octets` written at byte `at`."""
    return frame[:at] + bytes(octets) + frame[at + len(octets) :]


def flipped(frame, byte, bits=1):
    """`frame` with some bits of one byte turned over."""
    return with_bytes(frame, byte, [frame[byte] ^ bits])


def foreign_frames(rng):
    """{name: frame} of traffic that no card may touch, whatever marks it carries."""
    body = gradient(rng, 40).tobytes()
    marked = udp_frame(body, tos=0x28)
    tagged = marked[:12] + b"\x81\x00\x00\x05" + marked[12:]
    ipv6 = marked[:12] + b"\x86\xdd\x60" + rng.bytes(100)
    long_head = refreshed(with_bytes(marked, 14, [0x46]))
    return {
        "arp": with_bytes(marked[:60], 12, b"\x08\x06"),
        "vlan": tagged,
        "vlan stack": tagged[:12] + b"\x88\xa8\x00\x07" + tagged[12:],
        "ipv6": ipv6,
        "tcp": refreshed(with_bytes(marked, 23, [6])),
        "icmp": refreshed(with_bytes(marked, 23, [1])),
        "options": long_head,
        "ip version": refreshed(with_bytes(marked, 14, [0x55])),
        "first fragment": refreshed(with_bytes(marked, 20, [0x20])),
        "last fragment": refreshed(with_bytes(marked, 21, [0x07])),
        "unmarked": udp_frame(body),
        "other mark": udp_frame(body, tos=0x30),
        "port below": udp_frame(body, tos=0x28, port=8999),
        "port above": udp_frame(body, tos=0x28, port=10000),
        "unknown job": native_frame(gradient(rng, 40), job=6),
        "length field": with_bytes(rng.bytes(60), 12, b"\x00\x2e"),
        "noise": with_bytes(rng.bytes(int(rng.integers(60, 300))), 12, b"\x12\x34"),
        "no header": rng.bytes(int(rng.integers(1, 14))),
        "wrong version": native_frame(gradient(rng, 40), ver=int(rng.choice([0, 2, 3]))),
    } | replies(rng)


def replies(rng, port=UDP_PORT):
    """{name: frame}: what servers answer to a host's socket that happens to have our port.

    Their first bytes are no VER of ours: STUN's type and an NTP client's version begin with 0, and
    so does the number of this DNS query.
    """
    stun = b"\x01\x01\x00\x0c\x21\x12\xa4\x42" + rng.bytes(24)
    dns = bytes([int(rng.integers(64)), int(rng.integers(256))]) + b"\x81\x80\0\1\0\1\0\0\0\0"
    ntp = b"\x24\x02\x05\xe8" + rng.bytes(44)
    return {
        "stun": udp_frame(stun, port=port, identification=3478),
        "dns": udp_frame(dns + rng.bytes(40), port=port, identification=53),
        "ntp": udp_frame(ntp, port=port, identification=123),
    }


def own_frames(rng, n=None):
    """{name: frame} of ours as a host sends them, all sound."""
    n = int(rng.integers(1, 400)) if n is None else n
    x = gradient(rng, n)
    small = gradient(rng, n) * np.float32(2**-9)
    return {
        "paper": paper_frame(x),
        "paper small": paper_frame(small, tos=0x2A, check=False),
        "paper zeros": paper_frame(np.zeros(n)),
        "paper ones": paper_frame(np.ones(n)),
        "paper odd size": udp_frame(rng.bytes(4 * n + 2), tos=0x28),
        "paper, short": paper_frame(np.zeros(int(rng.integers(1, 6)))),
        "native": native_frame(x),
        "native small": native_frame(small, check=True, job=200),
        "native ones": native_frame(np.ones(n), job=255, p0=9),
        "native control": native_frame(gradient(rng, 5), op=Op.CONTROL),
        "native int32": native_frame(gradient(rng, n), op=Op.INT32, job=1),
        "native empty": native_frame([], job=32),
    }


def faults(frame, rng):
    """{name: frame}: one of ours after an accident, in all the ways the card must tell apart."""
    at = int(rng.integers(42, len(frame)))
    total = IPV4.total_length.get(frame)
    bad = {
        "ip checksum": flipped(frame, int(rng.integers(24, 34)), 1 << int(rng.integers(8))),
        "udp checksum": with_bytes(frame, 40, rng.bytes(1) + b"\x01"),
        "payload bit": flipped(frame, at, 1 << int(rng.integers(8))),
        "cut": frame[: int(rng.integers(42, 14 + total))],
        "cut in the head": frame[: int(rng.integers(42, 64))],
        "longer": frame + rng.bytes(int(rng.integers(1, 300))),
    }
    for name, value in (
        ("0", 0),
        ("max", 0xFFFF),
        ("+1", total + 1),
        ("-1", total - 1),
        ("+4", total + 4),
        ("-4", total - 4),
    ):
        bad[f"ip length {name}"] = refreshed(with_bytes(frame, 16, value.to_bytes(2, "big")))
        udp = value if name in ("0", "max") else value - 20
        wrong = with_bytes(frame, 38, (udp & 0xFFFF).to_bytes(2, "big"))
        bad[f"udp length {name}"] = wrong
        both = with_bytes(bad[f"ip length {name}"], 38, (udp & 0xFFFF).to_bytes(2, "big"))
        bad[f"both lengths {name}"] = with_bytes(both, 40, b"\0\0")
    head = bytearray(frame)
    for field, value in (
        (GRADNIC.ver, int(rng.choice([0, 2, 3]))),
        (GRADNIC.op, int(rng.integers(6, 15))),
        (GRADNIC.set, 1 ^ GRADNIC.gen.get(frame) & 1),
        (GRADNIC.elems, int(rng.integers(0, 65536))),
        (GRADNIC.p0, int(rng.integers(0, 256))),
        (GRADNIC.p1, int(rng.integers(0, 256))),
    ):
        wrong = bytearray(head)
        field.put(wrong, value)
        bad[f"head {field.name}"] = bytes(wrong)
    return bad


def units(frame, rng):
    """{name: frame}: a coded frame whose unit is malformed, with nothing else wrong."""
    start = 64 if UDP.destination_port.get(frame) == UDP_PORT else 44
    bad = {}
    for name in range(6):
        wrong = bytearray(frame)
        at = start + int(rng.integers(0, max(1, min(len(frame) - start, 40))))
        if at < len(wrong):
            wrong[at] ^= 1 << int(rng.integers(8))
        bad[f"bit {name}"] = bytes(wrong)
    for count in (0, 1, 2105, 0xFFFF, int(rng.integers(0, 2105))):
        at = 56 if start == 64 else 42
        bad[f"count {count}"] = with_bytes(frame, at, count.to_bytes(2, "big"))
    return bad


def coded(frames, settings=SETTINGS):
    """The same frames as a card sends them."""
    card = InlineCard(settings)
    return {name: card.transmit(frame)[0] for name, frame in frames.items()}
