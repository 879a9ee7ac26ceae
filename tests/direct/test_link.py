"""Both ends of a link: messages as the golden flits, never one without credit, none lost."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.direct.link import Flit, FlitHead, FlitReceiver, FlitTransmitter, Payload
from gradnic.models.direct.link import FLIT, message
from gradnic.sim.engine import batch, stimulus
from gradnic.sim.proof import formal

from gradnic.interface.flit import HEAD

CREDITS = 16
LENGTHS = [1, 2, 15, 16, 17, 32, 33, 40]
GRID = [{}, {"flits": 0.4}, {"payload": 0.5, "heads": 0.2}, {"payload": 0.7, "flits": 0.6}]


class Link(wiring.Component):
    """A transmitter and a receiver back to back."""

    def __init__(self, credits):
        self.credits = credits
        super().__init__(
            {
                "packets": In(1),
                "heads": In(stream.Signature(FlitHead)),
                "payload": In(stream.Signature(Payload)),
                "o": Out(stream.Signature(Flit)),
                "overflow": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx = tx = FlitTransmitter(self.credits)
        m.submodules.rx = rx = FlitReceiver(self.credits)
        for name in ("heads", "payload"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(tx, name))
        wiring.connect(m, tx.flits, rx.flits)
        wiring.connect(m, rx.o, wiring.flipped(self.o))
        m.d.comb += [
            tx.packets.eq(self.packets),
            tx.credit.eq(rx.credit),
            self.overflow.eq(rx.overflow),
        ]
        return m


def messages(rng):
    """(Head, payload) of messages of a flit, a packet, and around; then any."""
    for length in [*LENGTHS, *rng.integers(1, 40, 6).tolist()]:
        its = {name: int(rng.integers(1 << width)) for name, width in HEAD.items()}
        yield its | {"more": int(rng.random() < 0.2)}, rng.integers(0, 256, (length, 16), np.uint8)


def packed(model, port, flits):
    names = {name: flits[name].astype(np.uint8) for name in ("data", "head", "last")}
    return model.pack(port, **names)


def send(sent, packets, *, part=FlitTransmitter, credits=CREDITS, **options):
    """(Model, run) of a transmitter, or both ends."""
    model = batch.build(part(credits))
    heads = {name: [its[name] for its, _ in sent] for name in HEAD}
    last = np.concatenate([np.arange(len(data)) == len(data) - 1 for _, data in sent])
    data = np.concatenate([data for _, data in sent])
    signals = {"packets": packets} | options.pop("signals", {})
    return model, model.run(
        {
            "heads": model.pack("heads", **heads),
            "payload": model.pack("payload", data=data, last=last.astype(int)),
        },
        signals=signals,
        **options,
    )


@pytest.mark.parametrize("packets", [0, 1])
@pytest.mark.parametrize("stalls", GRID, ids=str)
def test_messages_leave_with_credit(packets, stalls):
    """Credits come back in bursts: at no time have more flits left than there was room for."""
    rng = stimulus.rng("link", packets)
    sent = list(messages(rng))
    flits = np.concatenate([message(its, data, packets=bool(packets)) for its, data in sent])
    credit = np.zeros(6000, int)  # one for each flit in all, most of them late
    credit[rng.choice(np.arange(20, 5900), len(flits), replace=False)] = 1
    model, run = send(sent, packets, stalls=stalls, signals={"credit": credit}, drain=False,
                      max_cycles=6000)  # fmt: skip
    run.check(flits=packed(model, "flits", flits))
    room = CREDITS + np.cumsum(credit)[run.taken["flits"]]
    assert (np.arange(1, len(flits) + 1) <= room).all()


@pytest.mark.parametrize("packets", [0, 1])
def test_rate(packets):
    """A flit a cycle, a cycle behind, as long as there are credits; then none."""
    sent = list(messages(stimulus.rng("link rate")))
    flits = np.concatenate([message(its, data, packets=bool(packets)) for its, data in sent])
    _, run = send(sent, packets, signals={"credit": 1}, drain=False, max_cycles=len(flits) + 8)
    assert run.taken["flits"].tolist() == list(range(1, len(flits) + 1))
    model, run = send(sent, packets, signals={"credit": 0}, drain=False, max_cycles=300)
    run.check(flits=packed(model, "flits", flits[:CREDITS]))


@pytest.mark.parametrize("duty", [1.0, 0.5, 0.1])
def test_the_buffer_takes_every_flit_and_gives_its_credit(duty):
    rng = stimulus.rng("receiver", duty)
    model, flits = batch.build(FlitReceiver(CREDITS)), np.zeros(300, FLIT)
    flits["data"] = rng.integers(0, 256, flits["data"].shape)
    flits["head"], flits["last"] = rng.random((2, 300)) < 0.1
    beats = packed(model, "flits", flits)
    # a burst of as many as there is room for, while nothing is taken
    run = model.run(
        {"flits": beats[:CREDITS]}, stalls={"o": ([0] * 60, duty)}, trace=["credit", "overflow"]
    )
    assert np.ptp(run.taken["flits"]) == CREDITS - 1
    run.check(o=beats[:CREDITS])
    assert not run.traces["overflow"].any()
    taken = run.taken["o"]
    assert np.flatnonzero(run.traces["credit"]).tolist() == (taken + 1).tolist()
    # a sender that does not count: told, and what was taken is there in order
    run = model.run({"flits": beats}, stalls={"o": duty / 2}, trace=["overflow"])
    run.check(o=beats)
    assert run.signals["overflow"] == 1
    # at the rate of the link: one cycle behind
    run = model.run({"flits": beats}, trace=["overflow"])
    assert (run.taken["o"] - run.taken["flits"] == 1).all()
    assert np.ptp(run.taken["o"]) == len(flits) - 1
    assert run.signals["overflow"] == 0


@pytest.mark.parametrize("packets", [0, 1])
@pytest.mark.parametrize("stalls", [{}, {"o": 0.4}, {"payload": 0.5, "heads": 0.2, "o": 0.9}])
def test_a_link_is_lossless_and_in_order(packets, stalls):
    sent = list(messages(stimulus.rng("both ends", packets)))
    flits = np.concatenate([message(its, data, packets=bool(packets)) for its, data in sent])
    model, run = send(sent, packets, part=Link, credits=24, stalls=stalls)
    run.check(o=packed(model, "o", flits))
    assert run.signals["overflow"] == 0
    if not stalls:  # full rate, heads included
        assert np.ptp(run.taken["o"]) == len(flits) - 1


def test_stream_rules_of_the_link():
    for component in (FlitTransmitter(4), FlitReceiver(4)):
        assert formal.check_outputs(component, depth=12).method == "bounded"
