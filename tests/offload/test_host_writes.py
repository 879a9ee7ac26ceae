"""WRITEs that are under way: what is told as done, and when, in every cycle as the golden model."""

import numpy as np
import pytest
from gradnic.hdl.offload.host_writes import HostWrites
from gradnic.models.offload import host_writes as golden
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.host_frame import ACK_FRAMES, SILENCE

INPUTS = ("goes", "ended", "stored", "acks", "opens", "first", "advances", "forgives")
OUTPUTS = ("done", "has_room", "under_way", "failed", "settled", "ack_due")
IDLE = dict.fromkeys(INPUTS, 0)
LAG = 2  # cycles until an ACK is due


def outputs_of(told):
    """The golden outputs in each cycle, for the inputs of each."""
    writes, found, due = golden.HostWrites(), [], [False] * LAG
    for cycle, now in enumerate(told):
        state = {
            "done": writes.next,
            "has_room": writes.has_room,
            "under_way": writes.n_under_way > 0,
            "failed": writes.failed,
            "settled": writes.settled,
            "ack_due": due[cycle] and not told[cycle - 1]["acks"],
        }
        found.append(state)
        if now["acks"]:
            writes.tell()
        if now["goes"]:
            writes.begin()
        if now["forgives"]:
            writes.forgive()
        if now["ended"]:
            writes.end(cycle, stored=bool(now["stored"]))
        if now["opens"]:
            writes.opens(now["first"])
        elif now["advances"]:
            writes.advance()
        due.append(writes.due(cycle))
    return {name: np.array([state[name] for state in found]) for name in OUTPUTS}


def check(told):
    told = [IDLE, IDLE, IDLE, *told]  # the first cycles also stand while the circuit is reset
    signals = {name: [now[name] for now in told] for name in INPUTS}
    run = batch.build(HostWrites()).run(
        {}, signals=signals, trace=OUTPUTS, drain=False, max_cycles=len(told)
    )
    wanted = outputs_of(told)
    for name in OUTPUTS:
        np.testing.assert_array_equal(run.traces[name], wanted[name], err_msg=name)
    return wanted


def drawn(rng, n, *, busy, fails):
    """What a port may tell: no WRITE without room or while an ACK is due for number, no other
    request before all is settled.
    """
    told, under_way, failed, quiet, untold = [], 0, False, 0, 0
    for _ in range(n):
        now = dict(IDLE, first=int(rng.integers(1 << 24)), stored=int(rng.random() >= fails))
        quiet = max(quiet - 1, 0) or 200 * (rng.random() < 0.003)
        now["goes"] = int(under_way < golden.N_WRITES and not failed and rng.random() < busy)
        now["goes"] &= not quiet and untold < ACK_FRAMES
        now["ended"] = int(under_way > 0 and rng.random() < 0.3)
        now["acks"] = int(rng.random() < (0.01 if untold < ACK_FRAMES else 0.1))
        if not under_way and not now["goes"]:
            now["forgives"] = int(failed and rng.random() < 0.3)
            if not failed:
                now["opens"] = int(rng.random() < 0.02)
                now["advances"] = int(not now["opens"] and rng.random() < 0.3)
        under_way += now["goes"] - now["ended"]
        untold = (0 if now["acks"] else untold) + now["ended"]
        failed = (failed and not now["forgives"]) or bool(now["ended"] and not now["stored"])
        told.append(now)
    return told


@pytest.mark.parametrize("busy", [0.05, 0.25, 0.9])
@pytest.mark.parametrize("fails", [0, 0.03])
def test_every_cycle_equals_golden(busy, fails):
    wanted = check(drawn(stimulus.rng("host_writes", busy, fails), 6000, busy=busy, fails=fails))
    assert wanted["ack_due"].any()
    assert wanted["failed"].any() == bool(fails)
    assert wanted["has_room"].all() == (busy < 0.9)


@pytest.mark.parametrize("n", [1, ACK_FRAMES - 1, ACK_FRAMES])
def test_an_ack_is_due_after_sixteen_writes_or_silence(n):
    told = [dict(IDLE, goes=1)] * n + [dict(IDLE, ended=1, stored=1)] * n
    wanted = check([dict(IDLE, opens=1, first=2**24 - 1), *told, *([IDLE] * (SILENCE + 4))])
    waits = LAG + (0 if n == ACK_FRAMES else SILENCE)
    assert np.argmax(wanted["ack_due"]) == 3 + 2 * n + waits
    assert wanted["done"][-1] == n - 1  # SEQs begin again
