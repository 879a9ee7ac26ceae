"""SwitchML-UDP through the RTL aggregator: frames and answers as the golden switch has them."""

import numpy as np
import pytest
from gradnic.models.aggregation.jobs import Config
from gradnic.models.aggregation.star import Faults, run
from gradnic.models.aggregation.switchml import SwitchmlJob
from gradnic.models.aggregation.switchml_worker import SwitchmlWorker
from gradnic.sim.aggregation import frames as makers
from gradnic.sim.aggregation import soak as star_soak
from gradnic.sim.aggregation.aggregator import AggregatorBench, build_aggregator

from gradnic.interface.formats import IPV4, UDP
from gradnic.interface.switchml import PORT, SWITCHML

CONFIG = makers.small_config()
SMALL = CONFIG.jobs[2]
LARGE = SwitchmlJob(9, makers.children(range(2)), first_slot=4, n_slots=3, values=256)


@pytest.fixture(scope="module")
def model():
    return build_aggregator(2, **star_soak.SIZES)


@pytest.fixture(scope="module")
def wide():
    """Beats of 64 bytes: the head and the values' first bytes share one."""
    return build_aggregator(2, n_bytes=64, n_slots=8, n_jobs=2, chunk=512, n_words=256)


class Unit:
    """The RTL aggregator as `star.run` wants it; every answer must be the golden one's.

    beside : function that gives a (port, frame) to be played before each frame, or None.
    """

    def __init__(self, model, config, beside=None):
        self.bench, self.beside, self.seen = AggregatorBench(model, config), beside, []

    def receive(self, frame, port, now):
        if self.beside:
            self._play(*self.beside())
        self.seen.append(frame)
        return self._play(port, frame)

    def tick(self, now):
        return []

    def _play(self, port, frame):
        got, _, _ = self.bench.run({port: [(frame, False)]}, idle_cycles=300, probe_cycles=0)
        wanted = self.bench.golden.receive(frame, port, 0)
        assert sorted(got) == sorted(wanted)
        return [(at, answer) for at, answer, _ in wanted]


def workers(config, job, n_values, seed=0):
    rng = np.random.default_rng(seed)
    return [
        SwitchmlWorker((config.mac, config.ip), job, child, rng.standard_normal(n_values) * 10)
        for child in range(2)
    ]


def check(clients):
    """Both workers have one result, the sum of their gradients as close as int32 has it."""
    one, two = (client.result() for client in clients)
    assert one.tobytes() == two.tobytes()
    exact = sum(client.gradient.astype(float) for client in clients)
    np.testing.assert_allclose(one, exact, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize(
    "faults", [Faults(), Faults(loss=0.05, duplicate=0.1)], ids=["clean", "lossy"]
)
def test_all_reduce(model, faults):
    unit, clients = Unit(model, CONFIG), workers(CONFIG, SMALL, 1500)
    run(unit, clients, faults, seed=3)
    check(clients)
    unit.bench.check_counters()
    counters = unit.bench.golden.counters
    assert counters["accepted"] == 2 * clients[0].n_packets
    if faults.loss:
        assert counters["duplicates"]
        assert counters["retransmitted"]


def test_large_packets_on_wide_beats(wide):
    config = Config(makers.MAC, makers.IP, 2, (LARGE,))
    unit, clients = Unit(wide, config), workers(config, LARGE, 3000)
    run(unit, clients, Faults(loss=0.02), seed=4)
    check(clients)
    unit.bench.check_counters()
    assert {len(frame) for frame in unit.seen} == {SWITCHML.stop + 1024}


def test_beside_other_jobs(model):
    """THC and INT32 contributions between any two SwitchML packets: neither sees the other."""
    rng = np.random.default_rng(5)

    def beside():
        job = CONFIG.jobs[int(rng.integers(2))]
        child = int(rng.integers(2))
        return job.children[child].port, makers.sound(CONFIG, rng, job=job, child=child)

    unit, clients = Unit(model, CONFIG, beside), workers(CONFIG, SMALL, 800)
    run(unit, clients, Faults(loss=0.02), seed=6)
    check(clients)
    unit.bench.check_counters()


def test_an_answer_is_what_a_worker_expects(model):
    """Addresses and ports turned round, no mark of ours, and the packet's own fields."""
    bench = AggregatorBench(model, CONFIG)
    rng = np.random.default_rng(7)
    fields = {"set": 1, "packet": 0x12345678, "e0": -3, "e1": 0}
    frames = [makers.switchml(CONFIG, rng, SMALL, child, 7, **fields) for child in range(2)]
    bench.play({0: [(frames[0], False)]})
    out, _, _ = bench.run({1: [(frames[1], False)]})
    assert [port for port, _, _ in out] == [0, 1]
    for port, answer, bad in out:
        assert not bad
        assert len(answer) == len(frames[1]) == 308
        assert answer[:6] == SMALL.children[port].mac.to_bytes(6, "big")
        assert UDP.source_port.get(answer) & 0xFFF0 == PORT
        assert UDP.destination_port.get(answer) == UDP.source_port.get(frames[1])
        assert (IPV4.dont_fragment.get(answer), IPV4.tos.get(answer)) == (0, 0)
        head = SWITCHML.parse(answer)
        assert {name: head[name] for name in fields} == fields
        values = [np.frombuffer(f, ">i4", offset=SWITCHML.stop).astype(np.int64) for f in frames]
        wrapped = (sum(values) + 2**31) % 2**32 - 2**31
        np.testing.assert_array_equal(np.frombuffer(answer, ">i4", offset=SWITCHML.stop), wrapped)


def test_native_port_is_not_switchmls():
    with pytest.raises(ValueError, match="udp_port must not be one of SwitchML's, 0xbee5"):
        Config(1, 2, 2, (), udp_port=0xBEE5)
