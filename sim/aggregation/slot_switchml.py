"""SwitchML at an aggregation unit: the golden switch for heads in place of frames, and traffic."""

import numpy as np
from gradnic.models.aggregation.switchml import SwitchmlSwitch
from gradnic.models.frame.ipv4 import udp_frame

from gradnic.interface.formats import UDP, Op
from gradnic.interface.switchml import PORT, SWITCHML, TYPE, VALUES

from .unit import Packet


def contribution(job, child, values, *, slot, which, elems=None, **fields):
    """A `Packet` of one child of a `SwitchmlJob`: `values`, int32, into set `which` of a slot.

    elems : what the head says, by default what the job's packets have. fields : other header
    fields, of which ``tensor``, ``tree`` and ``arg`` come back in the answer, and ``p0`` and
    ``p1`` are the exponents.
    """
    head = dict.fromkeys(("lc", "tensor", "tree", "seq", "arg", "p0", "p1"), 0)
    head |= dict.fromkeys(("last", "ovf", "ecn"), 0) | {
        "job": job.job,
        "src": child,
        "op": int(Op.INT32),
        "gen": which,
        "slot": slot,
        "elems": job.values if elems is None else elems,
    }
    return Packet(head | fields, np.asarray(values).astype("<i4").tobytes())


class SwitchmlTwin:
    """`SwitchmlSwitch` with the interface of `gradnic.models.aggregation.unit.SlotEngine`.

    jobs : sequence of SwitchmlJob, whose children are Address(k, k, k). counters : Counter.
    """

    def __init__(self, jobs, counters):
        self.switch = SwitchmlSwitch(0, 0, 32, jobs, counters=counters)

    def contribute(self, head, payload, now):
        """Take one contribution; return its answers, a list of (head, payload)."""
        child = self.switch.jobs[head["job"]].children[head["src"]]
        fields = {
            "type": TYPE,
            "size": VALUES.get(head["elems"], 0),
            "job": head["job"],
            "packet": head["arg"],
            "set": head["gen"],
            "slot": head["slot"],
            "e0": (head["p0"] ^ 0x80) - 0x80,
            "e1": (head["p1"] ^ 0x80) - 0x80,
        }
        sender = child.mac, child.ip, head["tensor"]
        values = _turned(payload) if len(payload) % 4 == 0 else payload
        frame = udp_frame(sender, (0, 0, PORT), SWITCHML.pack(**fields) + values, 64)
        before = self.switch.counters["retransmitted"]
        frames = self.switch.receive(frame, child.port)
        if not frames:
            return []
        answer = frames[0][1]
        assert UDP.destination_port.get(answer) == head["tensor"]
        own = self.switch.sets[head["slot"], head["gen"]]
        fields = SWITCHML.parse(answer)
        return [
            (
                head
                | {
                    "children": sum(1 << port for port, _ in frames),
                    "p0": fields["e0"] & 0xFF,
                    "p1": fields["e1"] & 0xFF,
                    "retx": self.switch.counters["retransmitted"] - before,
                    "ovf": int(own.overflowed),
                    "part": 1,  # means nothing here
                },
                _turned(answer[SWITCHML.stop :]),
            )
        ]


def _turned(payload):
    """Words in the other byte order."""
    return np.frombuffer(payload, ">i4").astype("<i4").tobytes()


class SwitchmlTraffic:
    """Packets as workers send them over lossy paths, in any order, and some that are wrong.

    job : SwitchmlJob. generator : numpy Generator. pace : packets of one set, for each child, until
    most go to the other one.
    """

    def __init__(self, job, generator, *, pace=1.5):
        self.job, self.generator, self.pace = job, generator, pace
        self.sets = {}

    def packets(self, n):
        """The next `n` packets, a list of `slots.Packet`."""
        return [self._packet() for _ in range(n)]

    def _packet(self):
        rng, job = self.generator, self.job
        slot = job.first_slot + int(rng.integers(job.n_slots))
        which = self.sets.setdefault(slot, 0)
        if rng.random() < 1 / (self.pace * len(job.children)):
            which = self.sets[slot] = 1 - which
        if rng.random() < 0.1:
            which = 1 - which
        values = rng.integers(-(2**31), 2**31, job.values)
        if rng.random() < 0.7:
            values >>= int(rng.integers(2, 32))  # no overflow
        fields = {
            name: int(rng.integers(1 << width))
            for name, width in (
                ("tensor", 16), ("tree", 8), ("arg", 32), ("p0", 8), ("p1", 8), ("seq", 24),
                ("lc", 3))
        }  # fmt: skip
        wrong = rng.random()
        if wrong < 0.02:
            slot = int(
                rng.choice([job.first_slot + job.n_slots, slot ^ 1 << int(rng.integers(14))])
            )
        elif wrong < 0.04:
            fields["elems"] = job.values ^ 1 << int(rng.integers(16))
        elif wrong < 0.05:
            values = values[:-1]
        child = int(rng.integers(len(job.children)))
        return contribution(job, child, values, slot=slot, which=which, **fields)
