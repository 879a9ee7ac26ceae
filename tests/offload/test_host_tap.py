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


@pytest.mark.parametrize("duty", [1.0, 0.3])
def test_each_frame_that_is_taken_is_told_of_once(duty):
    """With its side band, in order; and none before its last beat has gone."""
    rng = np.random.default_rng([stimulus.master_seed(), 21])
    kinds = [(MAC, {}), (0x020000000009, {}), (BROADCAST, {"arp": 1})]
    sent = [kinds[int(k)] for k in rng.integers(0, 3, 40)]
    frames = [frame(rng, mac, int(rng.integers(60, 100)), **arp) for mac, arp in sent]
    tap = HostTap(N_BYTES, meta_width=16, tells=True)
    left, told = {"port": 0, "requests": 0, "others": 0}, []

    async def drive(ctx):
        ctx.set(tap.mac, MAC)
        ctx.set(tap.ip, CARD_IP)
        for number, octets in enumerate(frames):
            for at in range(0, len(octets), N_BYTES):
                part = octets[at : at + N_BYTES]
                beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1,
                        "last": at + N_BYTES >= len(octets), "bad": 0, "meta": number}  # fmt: skip
                ctx.set(tap.i.p, beat)
                ctx.set(tap.i.valid, 1)
                await ctx.tick().until(tap.i.ready)
            ctx.set(tap.i.valid, 0)

    async def collect(ctx):
        for _ in range(3000):
            ctx.set(tap.taken.ready, int(rng.random() <= duty))
            for name in left:
                ctx.set(getattr(tap, name).ready, int(rng.random() <= duty))
            seen = [(s.valid, s.ready, s.p.last) for s in (getattr(tap, n) for n in left)]
            values = await ctx.tick().sample(
                *(one for three in seen for one in three), tap.taken.valid, tap.taken.ready,
                tap.taken.p.meta,
            )  # fmt: skip
            *beats, valid, ready, meta = values[2:]
            for k, name in enumerate(left):
                left[name] += all(beats[3 * k : 3 * k + 3])
            if valid and ready:
                told.append(meta)
            assert left["port"] + left["requests"] <= len(told)

    simulate(tap, collect, drive)
    assert told == [k for k, (mac, _) in enumerate(sent) if mac in (MAC, BROADCAST)]
    assert left == {name: sum(mac == kinds[k][0] for mac, _ in sent)
                    for k, name in ((0, "port"), (2, "requests"), (1, "others"))}  # fmt: skip
