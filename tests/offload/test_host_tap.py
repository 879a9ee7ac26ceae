"""What takes the host's frames for its card, at any port, and says so to shells that ask."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.offload.host_tap import ByDestination, HostTap, Taken
from gradnic.hdl.offload.job_card import JobCard
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.models.offload.host_port import default_address
from gradnic.models.offload.host_tap import is_to, way
from gradnic.sim.engine import batch, encoding, stimulus
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.formats import ETHERNET, IPV4
from gradnic.interface.neighbor import (
    ARP,
    ARP_REQUEST,
    BROADCAST,
    CARD_IP,
    ECHO_REQUEST,
    HEAD_BYTES,
)

N_BYTES = 16
MAC = default_address(0)


def frame(rng, destination, n_bytes, **fields):
    octets = bytearray(rng.bytes(n_bytes))
    ETHERNET.destination.put(octets, destination)
    for field, value in (ARP_REQUEST | {ARP.target_ip: CARD_IP} if fields else {}).items():
        field.put(octets, value)
    return bytes(octets)


class Frames:
    """Frames that leave by a stream: [octets, mark, side bands of all beats], the last may grow."""

    def __init__(self, stream):
        p = stream.p
        meta = [p.meta] if "meta" in p.shape().members else []
        self.wires = [stream.valid, stream.ready, p.data, p.keep, p.last, p.bad, *meta]
        self.seen, self.inside = [], False

    def note(self, valid, ready, octets, keep, last, bad, *meta):
        if not (valid and ready):
            return
        if not self.inside:
            self.seen.append([b"", 0, set()])
        frame, self.inside = self.seen[-1], not last
        frame[0] += octets.to_bytes(N_BYTES, "little")[: keep.bit_count()]
        frame[1] = bad
        frame[2].update(meta)


def player(part, frames, marks, metas):
    """Frames to `part`.i back to back, marked at their last beats."""

    async def drive(ctx):
        ctx.set(part.mac, MAC)
        ctx.set(part.ip, CARD_IP)
        for octets, bad, meta in zip(frames, marks, metas, strict=True):
            for at in range(0, len(octets), N_BYTES):
                piece, last = octets[at : at + N_BYTES], at + N_BYTES >= len(octets)
                beat = {"data": int.from_bytes(piece, "little"), "keep": (1 << len(piece)) - 1,
                        "last": last, "bad": bad and last, "meta": meta}  # fmt: skip
                ctx.set(part.i.p, beat)
                ctx.set(part.i.valid, 1)
                await ctx.tick().until(part.i.ready)
            ctx.set(part.i.valid, 0)

    return drive


@pytest.mark.parametrize("duty", [1.0, 0.3])
def test_each_frame_that_is_taken_is_told_of_once(duty):
    """With its side band, in order; none before its last beat has gone to the register at the
    output, which holds two, and none has left that was not told of. All frames are as they came.
    """
    rng = np.random.default_rng([stimulus.master_seed(), 21])
    kinds = {"port": (MAC, {}), "others": (0x020000000009, {}), "requests": (BROADCAST, {"arp": 1})}
    drawn = [list(kinds)[int(k)] for k in rng.integers(0, 3, 60)]
    frames = [frame(rng, kinds[name][0], int(rng.integers(60, 200)), **kinds[name][1])
              for name in drawn]  # fmt: skip
    ways = [way(octets, MAC, CARD_IP) for octets in frames]
    assert ways == drawn
    marks = [int(rng.random() < 0.3) for _ in frames]
    metas = [int(rng.integers(1 << 16)) for _ in frames]
    tap = HostTap(N_BYTES, meta_width=16, tells=True)
    left, told = {name: Frames(getattr(tap, name)) for name in kinds}, []
    mine = [k for k, to in enumerate(ways) if to != "others"]
    places = {k: sum(to == ways[k] for to in ways[:k]) for k in mine}  # among those of its way

    async def collect(ctx):
        for _ in range(4000):
            ctx.set(tap.taken.ready, int(rng.random() <= duty))
            for name in left:
                ctx.set(getattr(tap, name).ready, int(rng.random() <= duty))
            wires = [wire for each in left.values() for wire in each.wires]
            values = iter((await ctx.tick().sample(
                *wires, tap.taken.valid, tap.taken.ready, tap.taken.p.meta
            ))[2:])  # fmt: skip
            for each in left.values():
                each.note(*(next(values) for _ in each.wires))
            valid, ready, meta = values
            if valid and ready:
                k, seen = mine[len(told)], left[ways[mine[len(told)]]].seen
                gone = len(seen[places[k]][0]) if places[k] < len(seen) else 0
                assert len(frames[k]) - gone <= 2 * N_BYTES
                told.append(meta)
            ended = sum(len(each.seen) - each.inside
                        for name, each in left.items() if name != "others")  # fmt: skip
            assert ended <= len(told)

    simulate(tap, collect, player(tap, frames, marks, metas))
    assert told == [metas[k] for k in mine]
    for name, each in left.items():
        assert each.seen == [[frames[k], marks[k], {metas[k]} if name == "others" else set()]
                             for k, to in enumerate(ways) if to == name]  # fmt: skip


def near(rng, n):
    """Frames that are for the card, or would be but for a bit of a field, or for their end."""
    frames = []
    for k in range(n):
        octets = bytearray(rng.bytes(int(rng.integers(HEAD_BYTES, 200))))
        kind = k % 4
        fields = {ETHERNET.destination: (MAC, BROADCAST)[int(rng.integers(2))]}
        if kind == 1:
            fields |= ARP_REQUEST | {ARP.target_ip: CARD_IP}
        elif kind == 2:
            fields |= ECHO_REQUEST | {IPV4.destination: CARD_IP}
        elif kind == 3:
            fields = {ETHERNET.destination: MAC}
        for field, value in fields.items():
            field.put(octets, value)
        if rng.random() < 0.5:
            field = list(fields)[int(rng.integers(len(fields)))]
            field.put(octets, field.get(octets) ^ 1 << int(rng.integers(field.width)))
        if rng.random() < 0.3:
            octets = octets[: int(rng.choice([1, 5, 6, 7, 14, 16, 41, 42, 48, HEAD_BYTES - 1]))]
        frames.append(bytes(octets))
    return frames


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_each_frame_goes_its_way(n_bytes):
    """Also those that are cut short, or differ in a bit from one that is answered; full rate, and
    two cycles for one to the network.
    """
    model = batch.build(HostTap(n_bytes, meta_width=16))
    rng = stimulus.rng("host_tap", str(n_bytes))
    frames = near(rng, 400)
    ways = np.array([way(octets, MAC, CARD_IP) for octets in frames])
    assert all((ways == to).sum() > 40 for to in ("port", "requests", "others"))
    marks, metas = rng.integers(0, 2, 400), rng.integers(0, 1 << 16, 400)
    levels = {"mac": MAC, "ip": CARD_IP}
    beats = model.pack_frames("i", frames, meta=metas)
    bad, last = (encoding.fields_of(model.streams["i"].shape)[name][0] for name in ("bad", "last"))
    bits = np.unpackbits(beats, axis=1, bitorder="little")
    bits[bits[:, last] == 1, bad] = marks
    beats = np.packbits(bits, axis=1, bitorder="little")
    for stalls in ({}, {"i": 0.5}, {"others": 0.4, "port": 0.3, "requests": 0.3}):
        run = model.run({"i": beats}, stalls=stalls, signals=levels)
        for to in ("port", "requests", "others"):
            mine = np.flatnonzero(ways == to)
            assert run.frames(to) == [frames[k] for k in mine], to
            out = run.unpack(to)
            ends = out["last"] == 1
            np.testing.assert_array_equal(out["bad"][ends], marks[mine])
            if to == "others":
                np.testing.assert_array_equal(out["meta"][ends], metas[mine])
        if not stalls:
            assert np.ptp(run.taken["i"]) == len(beats) - 1
    alone = model.run({"i": model.pack_frames("i", [bytes(60)])}, signals=levels)
    assert alone.taken["others"][0] - alone.taken["i"][0] == 2


class OtherPort(wiring.Component):
    """What a card with jobs has at ports above 0: `ByDestination`, and an end of frames."""

    def __init__(self):
        frames = stream.Signature(FrameBeat(N_BYTES, meta_width=16))
        super().__init__({"mac": In(48), "ip": In(32), "i": In(frames), "others": Out(frames),
                          "taken": Out(stream.Signature(Taken(16)))})  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.guard = guard = ByDestination(N_BYTES, meta_width=16)
        wiring.connect(m, wiring.flipped(self.i), guard.i)
        wiring.connect(m, guard.others, wiring.flipped(self.others))
        m.d.comb += guard.mac.eq(self.mac)
        JobCard._drop(m, guard.mine, self.taken)
        return m


@pytest.mark.parametrize("duty", [1.0, 0.3])
def test_frames_that_end_at_another_port_are_told_of_once(duty):
    """Behind their last beats, in order; all others pass as they came."""
    rng = np.random.default_rng([stimulus.master_seed(), 22])
    frames = [frame(rng, MAC + int(rng.integers(2)), int(rng.integers(14, 100))) for _ in range(40)]
    mine = [is_to(octets, MAC) for octets in frames]
    marks = [int(rng.random() < 0.3) for _ in frames]
    metas = [int(rng.integers(1 << 16)) for _ in frames]
    port = OtherPort()
    others, told, came, n_came = Frames(port.others), [], [], 0

    async def collect(ctx):
        nonlocal n_came
        for _ in range(1500):
            ctx.set(port.taken.ready, int(rng.random() <= duty))
            ctx.set(port.others.ready, int(rng.random() <= duty))
            *beat, enters, valid, ready, meta = (await ctx.tick().sample(
                *others.wires, port.i.valid & port.i.ready & port.i.p.last, port.taken.valid,
                port.taken.ready, port.taken.p.meta,
            ))[2:]  # fmt: skip
            others.note(*beat)
            if valid and ready:
                told.append(meta)
                came.append(n_came)
            n_came += enters

    simulate(port, collect, player(port, frames, marks, metas))
    assert told == [meta for meta, own in zip(metas, mine, strict=True) if own]
    assert all(n > k for n, k in zip(came, np.flatnonzero(mine), strict=True))
    assert others.seen == [[octets, bad, {meta}] for octets, bad, meta, own
                           in zip(frames, marks, metas, mine, strict=True) if not own]  # fmt: skip
