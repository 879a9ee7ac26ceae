"""Mutation campaign of a context of jobs: each output of each cycle against a twin.

Its registers change by themselves, too: what it knows of its job and what it counts, of which it
has to tell, and what else no play reaches in a few thousand cycles.
"""

import itertools

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.offload.job_context import (
    DECODE,
    FLUSH_CYCLES,
    GIVEN_WIDTH,
    NORMS,
    SETTLE_CYCLES,
    JobContext,
)
from gradnic.hdl.offload.job_records import Prepared, Record
from gradnic.hdl.transport.records import (
    BYTES_WIDTH,
    EPOCH_WIDTH,
    LEAVES_WIDTH,
    Context,
    Over,
)

from gradnic.interface.job import JobCodec, JobStatus

from ..engine import encoding
from .upset import UPSET, Upset

N_BYTES, WIDTH, N_CYCLES, N_RUNS = 16, 32, 1500, 120
N_QUIET = 40  # runs in which neither the job nor what is counted changes by itself
N_EPOCHS = 1 << EPOCH_WIDTH
JOB = Prepared(N_BYTES, WIDTH)
FLAGS = ("free", "busy", "clear", "start", "reset", "passes", "over_valid", "pause", "closed",
         "record_valid", "stalls", "takes_abort")  # fmt: skip
ENDS = (JobStatus.DONE, JobStatus.SHORT)
COUNTERS = {"least": LEAVES_WIDTH, "most": LEAVES_WIDTH, "given_up": GIVEN_WIDTH}
COPY = "id_too"  # of the job's id, inverted
STATE = {
    "armed": 1, "stage": 2, "status": 3, "detail": 16, "count": 3, "has_passed": 1, "late": 1,
    "stopped": 1, "failed": 1, "spoiled": 1, "overdue": 1, "was_taken": 1, "epoch": EPOCH_WIDTH,
    "idle": 32,
}  # fmt: skip
UPSETS = {"job": Shape.cast(JOB).width, **COUNTERS, COPY: 16, **STATE}
"""Registers that change by themselves, and their bits."""
FIRST = dict(zip(UPSETS, itertools.accumulate(UPSETS.values(), initial=0), strict=False))
_RECORDINGS = []


def component():
    """The circuit under mutation, and what changes its registers."""
    return Upset(JobContext(N_BYTES, WIDTH), UPSETS)


class Twin:
    """A context, cycle for cycle. packet : of its job, a number. job : what it says, or None."""

    def __init__(self, watchdog):
        self.watchdog, self.state, self.job, self.armed, self.epoch = watchdog, "FREE", None, 0, 0
        self.packet, self.id_too, self.gen, self.was_busy, self.strays = 0, 0, None, 0, [0, 0]
        self.odd_job = self.odd_counts = 0  # so many bits have changed by themselves
        self.status, self.detail, self.least, self.most, self.given_up = 0, 0, 0, 0, 0
        self.stopped = self.failed = self.spoiled = self.overdue = self.was_taken = 0
        self.idle = self.late = self.count = self.stage = self.has_passed = 0
        self.ended = [0, 0]

    def shown(self, now):
        """Outputs of a cycle: flags by name; stage, context, over and record where there are."""
        s, thc = self.state, self.job is not None and self.job["codec"] == JobCodec.THC
        reset = s in ("RENEW", "FLUSH", "AGAIN")
        closed = reset or s in ("DRAIN", "OVER", "DECODE", "END")
        busy = s not in ("FREE", "RENEW", "FLUSH")
        flags = {
            "free": s == "FREE", "busy": busy, "takes_abort": busy and not self.was_taken,
            "clear": s == "CLEAR", "start": s == ("ARM" if thc else "BEGIN"), "reset": reset,
            "over_valid": s == "OVER", "closed": closed, "pause": closed or s == "PAUSE",
            "passes": thc and not self.has_passed and s in ("CLEARING", "DECODE"),
            "record_valid": not self.was_taken and (s == "END" or self.overdue),
            "stalls": self.late and s in ("PAUSE", "DRAIN", "OVER", "END"),
        }  # fmt: skip
        flags = {name: bool(flag) for name, flag in flags.items()}
        if self.job is None:
            return flags | {"thc": False}
        good = self.status in ENDS
        record = {
            "id": self.id_too if self.spoiled else self.job["id"],
            "status": self.status, "detail": self.detail,
            "leaves_least": self.least if good and self.most else 0,
            "leaves_most": self.most if good else 0, "given_up": self.given_up if good else 0,
            "cycles": (now - self.job["posted"]) & (1 << Record["cycles"].width) - 1,
        }  # fmt: skip
        context = {"armed": self.armed, "tensor": self.job["tensor"], "gen": self.gen,
                   "epoch": self.epoch}  # fmt: skip
        return flags | {"thc": thc, "stage": self.stage, "context": context, "record": record}

    def cycle(self, i, shown):
        """Inputs `i` of a cycle by name; upset : (register, bits that change) or None."""
        was = dict(self.__dict__)
        s, good = self.state, self.status in ENDS
        thc, passes, finishes = shown["thc"], shown["passes"], self.state in ("OVER", "END")
        ends, late, armed = s in ("PAUSE", "DRAIN"), self.late, self.armed
        if armed:
            moves = i["progress"]
        else:
            moves = i["pass_moves"] if passes else not (self.ended[0] or finishes)
        self.late = int(self.watchdog != 0 and self.idle >= self.watchdog)
        self.idle = 0 if moves else self.idle + 1 & (1 << 32) - 1
        overdue = self.ended[1] and (late or (self.spoiled and good)) and not self.overdue
        self.ended = [int(ends), self.ended[0]]
        if overdue:
            self.overdue, self.status, self.detail = 1, JobStatus.MEMORY, 0
        self.was_taken |= i["record_ready"]
        if i["seen"]:
            self.least, self.most = min(was["least"], i["leaves"]), max(was["most"], i["leaves"])
        spent_valid, busy = i["spent_valid"] and armed, shown["busy"]
        if self.job is not None:
            norms = thc and self.stage == NORMS
            self.gen = (self.job["gen"] - norms) & 0xFFFF
        if spent_valid:
            self.given_up = (self.given_up + i["spent"]) & (1 << GIVEN_WIDTH) - 1
        self.stopped |= i["stop"] and shown["busy"]
        spoils = i["renewed"] or self.strays[0]
        self.failed |= (i["failed"] and armed) or i["pass_failed"] or spoils
        self.spoiled |= spoils
        self.has_passed |= i["passed"]
        getattr(self, "_" + s.lower())(i, was, thc, passes)
        name, bits = i["upset"] or (None, 0)
        odd = bits.bit_count() & 1
        counts = i["seen"] or spent_valid or s == "CLEAR" or not was["was_busy"]
        self.odd_job = busy and self.odd_job ^ (odd and name == "job")
        self.odd_counts = not counts and self.odd_counts ^ (odd and name in COUNTERS)
        self.strays = [self.strays[1], self.odd_job or self.odd_counts]  # seen two cycles later
        self.was_busy = busy
        if name == "job":
            self.packet = was["packet"] ^ bits
            self.job = _told(self.packet)
        elif name:
            setattr(self, name, (was[name] ^ bits) & (1 << UPSETS[name]) - 1)

    def _goes(self, state, **registers):
        self.state = state
        self.__dict__.update(registers)

    def _free(self, i, was, thc, passes):
        self.stopped = self.failed = self.spoiled = self.overdue = self.was_taken = 0
        self.stage = self.detail = self.given_up = self.has_passed = 0
        self.status = JobStatus.MEMORY
        if i["take"]:
            job = _told(i["packet"])
            self._goes("CLEAR", packet=i["packet"], job=job, id_too=job["id"])
        elif i["start_soon"]:
            self._goes("RENEW", count=FLUSH_CYCLES - 1, epoch=(was["epoch"] + 1) % N_EPOCHS)

    def _renew(self, i, was, thc, passes):
        self._goes("RENEW" if was["count"] else "FREE", count=was["count"] - 1)

    def _again(self, i, was, thc, passes):
        self._goes("AGAIN" if was["count"] else "CLEAR", count=was["count"] - 1)

    def _clear(self, i, was, thc, passes):
        self._goes("BEGIN", least=4095, most=0, status=JobStatus.MEMORY)

    def _begin(self, i, was, thc, passes):
        self.state = "CLEARING"

    def _clearing(self, i, was, thc, passes):
        if was["stopped"] or was["failed"] or (was["late"] and passes):
            status = JobStatus.ABORTED if was["stopped"] else JobStatus.MEMORY
            self._goes("PAUSE", status=status, count=SETTLE_CYCLES - 1)
        elif not i["clearing"] and (was["has_passed"] or not thc):
            self._goes("ARM", armed=1)

    def _arm(self, i, was, thc, passes):
        self.state = "RUN"

    def _run(self, i, was, thc, passes):
        over = was["stopped"], was["failed"], i["finished"], was["late"]
        if not any(over):
            return
        short = was["least"] < self.job["leaves"] or was["given_up"]
        ends = (JobStatus.ABORTED, JobStatus.MEMORY, ENDS[bool(short)], JobStatus.STUCK)
        status = ends[[bool(one) for one in over].index(True)]
        self._goes("PAUSE", armed=0, count=SETTLE_CYCLES - 1, status=status)
        if status == JobStatus.STUCK:
            self.detail = i["row"]

    def _pause(self, i, was, thc, passes):
        if not i["sending"]:
            self.state = "DRAIN"

    def _drain(self, i, was, thc, passes):
        if not i["quiet"] or i["in_pass"]:
            self.count = SETTLE_CYCLES - 1
            return
        self.count = (was["count"] - 1) % max(FLUSH_CYCLES, SETTLE_CYCLES)
        if not was["count"]:
            more = was["status"] in ENDS and thc and was["stage"] != DECODE
            self.state = "OVER" if more else "END"

    def _over(self, i, was, thc, passes):
        if i["over_ready"]:
            state, epoch = "DECODE", was["epoch"]
            if was["stage"] == NORMS:
                state, epoch = "AGAIN", (epoch + 1) % N_EPOCHS
            self._goes(state, stage=(was["stage"] + 1) & 3, has_passed=0, count=FLUSH_CYCLES - 1,
                       epoch=epoch)  # fmt: skip

    def _decode(self, i, was, thc, passes):
        if was["stopped"] or was["failed"] or (was["late"] and passes):
            status = JobStatus.ABORTED if was["stopped"] else JobStatus.MEMORY
            self._goes("PAUSE", status=status, count=SETTLE_CYCLES - 1)
        elif was["has_passed"] or not thc:
            self.state = "END"

    def _end(self, i, was, thc, passes):
        if i["record_ready"] or was["was_taken"]:
            self._goes("FLUSH", count=FLUSH_CYCLES - 1, epoch=(was["epoch"] + 1) % N_EPOCHS)

    def _flush(self, i, was, thc, passes):
        self._goes("FLUSH" if was["count"] else "FREE", count=was["count"] - 1)


def _place(name):
    """(First bit in a packet, mask) of a field of `Prepared`, or of its job or its table."""
    for part in ("job", "table"):
        if name in JOB[part].shape.members:
            field = JOB[part].shape[name]
            return JOB[part].offset + field.offset, (1 << field.width) - 1
    return JOB[name].offset, (1 << JOB[name].width) - 1


PLACES = {name: _place(name) for name in ("id", "codec", "gen", "tensor", "leaves", "posted")}


def _told(packet):
    """What a twin knows of a job's packet."""
    return {name: packet >> at & mask for name, (at, mask) in PLACES.items()}


def _packet(rng, thc):
    """Packet of a random job, a number."""
    width = UPSETS["job"]
    packet = int.from_bytes(rng.bytes(-(-width // 8)), "little") & (1 << width) - 1
    n_leaves = int(rng.integers(1, 5 if rng.random() < 0.3 else 1 << LEAVES_WIDTH))
    codec = int(JobCodec.THC) if thc else int(rng.integers(3))
    for name, value in (("codec", codec), ("leaves", n_leaves)):
        at, mask = PLACES[name]
        packet = packet & ~(mask << at) | value << at
    return packet


def _bytes(number, size=-(-UPSETS["job"] // 8)):
    return np.frombuffer(number.to_bytes(size, "little"), np.uint8)


class Recording:
    """One run of the twin: what goes in, and what is shown, cycle by cycle.

    watched : of (register, bit), to change one after the other in runs behind `N_QUIET`: where it
        does not matter, and where it does.
    """

    def __init__(self, seed, watched):
        rng = np.random.default_rng(seed)
        self.watchdog = (0, 30, 9, 60)[seed % 4]
        if seed % 8 == 6:  # behind which only a register that changes by itself comes
            self.watchdog = int(rng.integers(1 << 32)) >> int(rng.integers(26))
        self.signals = {"watchdog": self.watchdog}
        twin, packet = Twin(self.watchdog), _packet(rng, seed % 2)
        rare = {"stop": 0.004, "failed": 0.002, "pass_failed": 0.002, "renewed": 0.004}
        if seed % 5 == 0:
            rare = dict.fromkeys(rare, 0)
        held = {"clearing": 0.3, "in_pass": 0.15, "sending": 0.2, "quiet": 0.8}
        levels = dict.fromkeys(held, 0)
        log, self.shown = {}, []
        upsets = np.zeros((N_CYCLES, -(-sum(UPSETS.values()) // 8)), np.uint8)
        base = int(rng.integers(1 << 48))
        some = iter(rng.random(80 * N_CYCLES).tolist()).__next__  # one by one they take a minute
        for cycle in range(N_CYCLES):
            slow = some() < 0.05  # so long may a level stay
            for name, share in held.items():
                if slow or some() < 0.1:
                    levels[name] = int(some() < share)
            i = dict(levels)
            shown = twin.shown(now := (base + cycle * 977) & (1 << 48) - 1)
            i |= {name: int(some() < share) for name, share in rare.items()}
            i["take"] = int(shown["free"] and some() < 0.2)
            i["start_soon"] = int(some() < 0.1)
            i["record_ready"] = int(shown["record_valid"] and some() < 0.3)
            i["over_ready"] = int(shown["over_valid"] and some() < 0.3)
            i["passed"] = int(shown["passes"] and some() < 0.05)
            i["pass_moves"], i["progress"] = int(some() < 0.15), int(some() < 0.15)
            i["finished"] = int(twin.state == "RUN" and some() < 0.05)
            i["row"] = int(some() * (1 << 16))
            i["seen"] = int(twin.state == "RUN" and some() < 0.3)
            n_leaves = twin.job["leaves"] if twin.job else 1
            near = (n_leaves, twin.least, twin.most)[int(3 * some())]
            near ^= int(some() < 0.5) << int(LEAVES_WIDTH * some())  # or a bit away
            i["leaves"] = near if some() < 0.8 else 1 + int(some() * ((1 << LEAVES_WIDTH) - 1))
            if seed % 3 == 0:  # jobs are whole
                i["leaves"] = max(i["leaves"], n_leaves)
            i["spent_valid"] = int(seed % 3 != 0 and some() < 0.02)
            i["spent"] = int(some() * (1 << BYTES_WIDTH)) if some() < 0.8 else 0
            i["upset"] = None
            matters = twin.state in ("CLEARING", "RUN", "DECODE")  # to the job's status
            matters = matters and not (twin.failed or twin.stopped or twin.late)
            if seed >= N_QUIET and shown["busy"] and some() < (0.15 if matters else 0.02):
                name, bit = next(watched[matters])
                i["upset"] = name, 1 << bit
            elif some() < 0.02:
                i["upset"] = _upset(rng, twin)
            if i["upset"]:
                name, bits = i["upset"]
                upsets[cycle] = _bytes(bits << FIRST[name], upsets.shape[1])
            i["packet"] = packet
            self.shown.append((shown, _bytes(twin.packet) if twin.job else None))
            signals = {k: v for k, v in i.items() if k not in ("packet", "seen", "leaves", "upset")}
            signals |= {"leaves": i["seen"] | i["leaves"] << 1, "now": now}
            for name, value in signals.items():
                log.setdefault(name, []).append(value)
            log.setdefault("prepared", []).append(_bytes(packet))
            twin.cycle(i, shown)
            if i["take"]:
                packet = _packet(rng, seed % 2 or rng.random() < 0.2)
        self.signals |= {name: np.array(values) for name, values in log.items()}
        self.signals["upset"] = upsets


def _upset(rng, twin):
    """Another register, and bits of it."""
    if rng.random() < 0.5:
        name = list(STATE)[rng.integers(len(STATE))]
        return name, int(rng.integers(1, 1 << STATE[name]))
    aim = max(0, twin.watchdog - int(rng.integers(-1, 12)))  # soon, or a bit away
    if rng.random() < 0.5:
        aim ^= 1 << int(rng.integers(32))
    return "idle", (twin.idle ^ aim) & (1 << 32) - 1 or 1


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        bits = [(name, bit) for name in ("job", *COUNTERS, COPY) for bit in range(UPSETS[name])]
        order = np.random.default_rng(5).permutation(np.array(bits, object))
        watched = itertools.cycle(order), itertools.cycle(order)
        _RECORDINGS.extend(Recording(seed, watched) for seed in range(N_RUNS))
    return _RECORDINGS


def _fields(shape, trace):
    """{field: values} of a trace of a struct."""
    rows = trace if trace.ndim == 2 else encoding.pack(Shape.cast(shape), trace)
    return encoding.unpack(shape, np.ascontiguousarray(rows))


def test(model):
    """Each output in each cycle; a context that was left in the middle of a job begins anew."""
    instance = model.instance()
    for one in recordings():
        run = instance.run(
            {}, signals=one.signals, trace=[*FLAGS, "stage", "context", "over", "record", "job"],
            drain=False, max_cycles=N_CYCLES, probe_cycles=0,
        )  # fmt: skip
        for name in FLAGS:
            want = [shown[name] for shown, _ in one.shown]
            assert run.traces[name].astype(bool).tolist() == want, name
        known = [k for k, (shown, _) in enumerate(one.shown) if "stage" in shown]
        shown_there = [one.shown[k][0] for k in known]
        assert run.traces["stage"][known].tolist() == [t["stage"] for t in shown_there], "stage"
        for name, shape in (("context", Context), ("record", Record)):
            got = _fields(shape, run.traces[name])
            at = [k for k in known if name == "context" or one.shown[k][0]["record_valid"]]
            for field, values in got.items():
                want = [one.shown[k][0][name][field] for k in at]
                found = values[at].tolist()
                same = all(w in (None, f) for w, f in zip(want, found, strict=True))
                assert same, f"{name}: {field}"
        over = _fields(Over, run.traces["over"])
        contexts = [t["context"] for t in shown_there]
        assert over["valid"].astype(bool).tolist() == [s["over_valid"] for s, _ in one.shown], (
            "over"
        )
        for field in ("tensor", "gen"):
            same = [c[field] in (None, v) for c, v in zip(contexts, over[field][known].tolist(),
                                                          strict=True)]  # fmt: skip
            assert all(same), f"over: {field}"
        jobs = np.array([one.shown[k][1] for k in known])
        assert np.array_equal(run.traces["job"][known], jobs), "job"


ELSEWHERE = UPSET
ARGUED = {
    r"-mode inv .*(-wire (parity|counts)_parts|-port [AY] .*\[parts\.eq\()": (
        "where the parity of a part is the other one, it is so when it is kept, too"
    ),
}
EXPLAINED = {}
