"""The tap that takes the host's frames for its card, and says so to shells that ask."""

import numpy as np
import pytest
from gradnic.hdl.offload.host_tap import HostTap
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

    async def drive(ctx):
        ctx.set(tap.mac, MAC)
        ctx.set(tap.ip, CARD_IP)
        for octets, bad, meta in zip(frames, marks, metas, strict=True):
            for at in range(0, len(octets), N_BYTES):
                part, last = octets[at : at + N_BYTES], at + N_BYTES >= len(octets)
                beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1,
                        "last": last, "bad": bad and last, "meta": meta}  # fmt: skip
                ctx.set(tap.i.p, beat)
                ctx.set(tap.i.valid, 1)
                await ctx.tick().until(tap.i.ready)
            ctx.set(tap.i.valid, 0)

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

    simulate(tap, collect, drive)
    assert told == [metas[k] for k in mine]
    for name, each in left.items():
        assert each.seen == [[frames[k], marks[k], {metas[k]} if name == "others" else set()]
                             for k, way in enumerate(ways) if way == name]  # fmt: skip
