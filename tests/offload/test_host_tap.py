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
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.formats import ETHERNET
from gradnic.interface.neighbor import ARP, ARP_REQUEST, BROADCAST, CARD_IP

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
    ways = [list(kinds)[int(k)] for k in rng.integers(0, 3, 60)]
    frames = [frame(rng, kinds[way][0], int(rng.integers(60, 200)), **kinds[way][1])
              for way in ways]  # fmt: skip
    marks = [int(rng.random() < 0.3) for _ in frames]
    metas = [int(rng.integers(1 << 16)) for _ in frames]
    tap = HostTap(N_BYTES, meta_width=16, tells=True)
    left, told = {name: Frames(getattr(tap, name)) for name in kinds}, []
    mine = [k for k, way in enumerate(ways) if way != "others"]
    places = {k: sum(way == ways[k] for way in ways[:k]) for k in mine}  # among those of its way

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
                             for k, way in enumerate(ways) if way == name]  # fmt: skip


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
    mine = [bool(rng.random() < 0.5) for _ in range(40)]
    frames = [frame(rng, MAC if own else MAC + 1, int(rng.integers(14, 100))) for own in mine]
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
