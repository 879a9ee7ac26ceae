"""Rules that software writes, and those that the queues obey: the golden ones, after any write."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from gradnic.hdl.frame import queue_rules as circuit
from gradnic.models.frame import queue_rules as golden
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

N_BYTES = 16


class Ports(Elaboratable):
    """Two ports with queues for frames of `own_beats` beats, under the same rules."""

    def __init__(self, own_beats):
        self.own_beats = own_beats
        members = circuit.queue_members(2)
        self.whole = SimpleNamespace(**{n: Signal(d.shape, name=n) for n, d in members.items()})
        self.queues = []

    def elaborate(self, platform):
        m, ports = Module(), []
        for k in range(2):
            members = circuit.port_members().items()
            port = SimpleNamespace(**{n: Signal(d.shape, name=f"{n}{k}") for n, d in members})
            queues = circuit.ruled_queues(m, N_BYTES, self.own_beats, port)
            m.submodules[f"queues{k}"] = queues
            ports.append(port)
            self.queues.append(queues)
        circuit.rule_queues(m, self.whole, ports)
        return m


@pytest.mark.parametrize("own_beats", [2, 13])
def test_queues_obey_the_golden_rules(own_beats):
    rng = stimulus.rng("queue rules", own_beats)
    part = Ports(own_beats)
    most = golden.queue_beats(own_beats) - own_beats
    assert (circuit.queue_beats(own_beats), circuit.most_beats(own_beats)) == (
        most + own_beats,
        most,
    )

    async def bench(ctx):
        limit, thresholds = 0, [0] * 8
        for _ in range(60):
            address = int(rng.integers(16))
            beats = int(rng.choice([0, 1, most - 1, most, most + 1, 65535, rng.integers(most)]))
            enable = int(rng.random() < 0.9)
            ctx.set(part.whole.queue_write, {"enable": enable, "address": address, "beats": beats})
            await ctx.tick()
            if enable and address >= 8:
                limit = beats
            elif enable:
                thresholds[address] = beats
            ctx.set(part.whole.queue_write, {"enable": 0})
            await ctx.tick().repeat(4)
            for queues in part.queues:
                found = (ctx.get(queues.limit), tuple(ctx.get(k) for k in queues.thresholds))
                assert found == golden.obeyed(limit, thresholds, own_beats)

    simulate(part, bench)
