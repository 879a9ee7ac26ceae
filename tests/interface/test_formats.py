"""Field tables against bytes from outside: the worked example of the header, and scapy's frames."""

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from gradnic.interface import formats
from gradnic.interface.formats import ETHERNET, GRADNIC, HEAD, IPV4, PARAMETERS, Op
from gradnic.interface.job import Completion, Job

# The example of docs/spec/wire.md.
EXAMPLE = bytes.fromhex("41 c0 05 03 12 34 5a bc 01 02 07 00 a0 b0 01 50 75 fe de ad be ef")
EXAMPLE_FIELDS = {
    "ver": 1, "op": Op.INC, "imp": 1, "last": 1, "job": 5, "src": 3, "gen": 0x1234, "lc": 2,
    "slot": 0x1ABC, "tensor": 0x0102, "tree": 7, "seq": 0xA0B0, "elems": 336, "p0": 117,
    "p1": 0xFE, "arg": 0xDEADBEEF,
}  # fmt: skip


def scapy_frame(rng):
    """(frame, fields by header) with every field of Ethernet, IPv4 and UDP drawn at random."""
    macs = rng.integers(0, 256, (2, 6))
    words = [int(w) for w in rng.integers(0, 1 << 16, 5)]
    flags, fragment, tos, ttl = (int(rng.integers(0, n)) for n in (8, 1 << 13, 256, 256))
    addresses = [".".join(map(str, rng.integers(0, 256, 4))) for _ in range(2)]
    names = [":".join(f"{octet:02x}" for octet in mac) for mac in macs]
    frame = bytes(
        Ether(dst=names[0], src=names[1], type=0x0800)
        / IP(tos=tos, len=words[0], id=words[1], flags=flags, frag=fragment, ttl=ttl, proto=17,
             chksum=words[2], src=addresses[0], dst=addresses[1])
        / UDP(sport=words[3], dport=29440, len=words[4], chksum=words[0])
    )  # fmt: skip
    ip_numbers = [int.from_bytes(map(int, a.split(".")), "big") for a in addresses]
    return frame, [
        {"destination": int.from_bytes(bytes(macs[0].tolist()), "big"),
         "source": int.from_bytes(bytes(macs[1].tolist()), "big"), "ethertype": 0x0800},
        {"version": 4, "ihl": 5, "tos": tos, "dscp": tos >> 2, "ecn": tos & 3,
         "total_length": words[0], "identification": words[1], "reserved": flags >> 2,
         "dont_fragment": flags >> 1 & 1, "more_fragments": flags & 1,
         "fragment_offset": fragment, "ttl": ttl, "protocol": 17, "checksum": words[2],
         "source": ip_numbers[0], "destination": ip_numbers[1]},
        {"source_port": words[3], "destination_port": formats.UDP_PORT, "length": words[4],
         "checksum": words[0]},
    ]  # fmt: skip


def test_worked_example():
    assert GRADNIC.pack(**EXAMPLE_FIELDS) == EXAMPLE
    parsed = GRADNIC.parse(EXAMPLE, origin=formats.GRADNIC_START)
    assert {name: value for name, value in parsed.items() if value} == EXAMPLE_FIELDS
    assert PARAMETERS[Op.INC].parse(EXAMPLE, origin=42) == {
        "paper": 0, "exponent": 117, "prescale": -2,
    }  # fmt: skip


def test_scapy_frames():
    rng = np.random.default_rng(1)
    for _ in range(50):
        frame, expected = scapy_frame(rng)
        assert [header.parse(frame) for header in HEAD[:3]] == expected
        for header, fields in zip(HEAD[:3], expected, strict=True):
            assert header.pack(**fields) == frame[header.start : header.stop]


def test_headers_tile_the_head():
    stop = 0
    for header in HEAD:
        assert header.start == stop
        stop = header.stop
    assert stop == formats.HEAD_BYTES
    aliases = {"tos"}  # the same bits as dscp and ecn
    bits = [
        bit
        for header in HEAD
        for field in header
        if field.name not in aliases
        for piece in field.slices
        for bit in range(*piece)
    ]
    assert sorted(bits) == list(range(8 * formats.HEAD_BYTES))


def test_parameters_stay_inside_p0_and_p1():
    for header in PARAMETERS.values():
        bits = [b for field in header for piece in field.slices for b in range(*piece)]
        assert len(bits) == len(set(bits))
        assert min(bits) >= 8 * 58
        assert max(bits) < 8 * 60


def test_arrays_equal_bytes():
    rng = np.random.default_rng(2)
    frames = rng.integers(0, 256, (20, 64), dtype=np.uint8)
    for field in (f for header in (*HEAD, *PARAMETERS.values()) for f in header):
        values = field.get(frames)
        assert values.tolist() == [field.get(bytes(frame)) for frame in frames]
        if field.byte >= 42:
            part = frames[:, 42:]
            assert values.tolist() == [field.get(bytes(frame), origin=42) for frame in part]
        other = rng.integers(0, 256, (20, 64), dtype=np.uint8)
        expected = [bytearray(frame) for frame in other]
        for frame, value in zip(expected, values.tolist(), strict=True):
            field.put(frame, value)
        field.put(other, values)
        assert other.tobytes() == b"".join(expected)


def test_circuits_read_and_write_the_same_bits():
    rng = np.random.default_rng(3)
    head, image = Signal(512), Signal(512)
    fields = [f for header in HEAD for f in header]
    read = {f: Signal(f.width) for f in fields}
    m = Module()
    for field in fields:
        m.d.comb += read[field].eq(Cat(head[a:b] for a, b in field.slices))
        m.d.comb += Cat(image[a:b] for a, b in field.slices).eq(read[field])

    async def bench(ctx):
        for _ in range(5):
            frame = rng.bytes(64)
            ctx.set(head, int.from_bytes(frame, "little"))
            await ctx.delay(1e-9)
            for field in fields:
                assert ctx.get(read[field]) == field.get(frame)
            assert ctx.get(image) == int.from_bytes(frame, "little")

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()


def test_refusals_name_the_value():
    with pytest.raises(ValueError, match="slot must be 0 to 8191, not 8192"):
        GRADNIC.pack(slot=8192)
    with pytest.raises(ValueError, match=r"slot must be 0 to 8191, not 1\.5"):
        GRADNIC.pack(slot=1.5)
    with pytest.raises(ValueError, match="slot must be 0 to 8191, not '1'"):
        GRADNIC.pack(slot="1")
    with pytest.raises(ValueError, match=r"slot must be 0 to 8191, not 2\.5"):
        GRADNIC.slot.put(bytearray(64), 2.5)
    with pytest.raises(ValueError, match=r"slot must be 0 to 8191, not array\(\[1\.5\]\)"):
        GRADNIC.slot.put(np.zeros((1, 64), np.uint8), np.array([1.5]))
    for change in {"elems": 1.5}, {"id": 0.5}, {"half": "1"}:
        (name, value), whole = *change.items(), dict.fromkeys(("tensor", "gen", "source"), 0)
        with pytest.raises(ValueError, match=f"{name} must be 0 to .*, not {value!r}"):
            Job(**whole | {"id": 1, "elems": 1, "result": 0} | change)
    with pytest.raises(ValueError, match=r"leaves_least must be 0 to .*, not 1\.5"):
        Completion(1, 0, leaves_least=1.5).pack()
    with pytest.raises(ValueError, match="prescale must be -128 to 127, not 128"):
        PARAMETERS[Op.INC].pack(prescale=128)
    with pytest.raises(ValueError, match="gradnic has no field 'slots'"):
        GRADNIC.pack(slots=1)
    with pytest.raises(AttributeError, match="ethernet has no field 'vlan'"):
        _ = ETHERNET.vlan
    with pytest.raises(ValueError, match=r"destination ends at byte 34 .* which has only 33"):
        IPV4.destination.get(bytes(33))
    with pytest.raises(ValueError, match="arg needs bytes 60 to 63 of the frame"):
        GRADNIC.arg.put(bytearray(62), 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        IPV4.ttl.width = 9
