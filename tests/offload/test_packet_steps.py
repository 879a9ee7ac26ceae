"""The steps of each packet against the golden ones: all that they tell, and when."""

from gradnic.models.offload.packet_steps import CYCLES, PacketSteps
from gradnic.sim.engine import batch
from gradnic.sim.mutation import packet_steps

OFF = dict.fromkeys(("coded", "norm", "thc", "bf16", "largest", "code", "bits", "n", "g"), 0)
FIELDS = ("probe", "ph", "terminal", "wait", "number", "offset", "retx", "last", "flow", "neighbor")


def test_each_packet_and_the_end_of_a_round_are_told_to_all_that_make_it():
    """The round ends while a packet is made; the tagger hears of it behind that one."""
    packet_steps.test(batch.build(packet_steps.component()))


def test_a_packet_with_two_of_three_contributions():
    """Worked out by hand: 40 floats are 10 beats of 16 bytes, those from 16 * 5 on begin at 20."""
    steps = PacketSteps(OFF, layer=2, by_size=True, area=100, n_bytes=16)
    up = [
        {"here": here, "packed": 0, "leaves": leaves} for here, leaves in ((1, 2), (0, 9), (1, 1))
    ]
    known = {"marks": {"up": up, "down": up[1]}, "check": 0}
    packet = dict.fromkeys(FIELDS, 0) | {"wait": 3, "elems": 40, "offset": 5}
    told = steps.make(packet, known)
    assert told["reads"] == [{"region": "GRADIENT", "offset": 20, "n_beats": 10}]
    assert told["landings"] == [{"offset": 20, "n_beats": 10}, {"offset": 220, "n_beats": 10}]
    assert told["jobs"] == [{"n_beats": 10, "op": "FLOAT", "n_contributions": 2}]
    assert told["heads"][0]["head"]["p0"] == 4
    assert steps.cycles(packet, known) == CYCLES + 3
