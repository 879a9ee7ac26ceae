"""Mutation campaign of a context of jobs: each output of each cycle against a twin."""

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

N_BYTES, WIDTH, N_CYCLES, N_RUNS = 16, 32, 1500, 40
N_EPOCHS = 1 << EPOCH_WIDTH
JOB = Prepared(N_BYTES, WIDTH)
FLAGS = ("free", "busy", "clear", "start", "reset", "passes", "overs", "mute", "closed", "tells",
         "stalls")  # fmt: skip
ENDS = (JobStatus.DONE, JobStatus.SHORT)
_RECORDINGS = []


def component():
    """The circuit under mutation."""
    return JobContext(N_BYTES, WIDTH)


class Twin:
    """A context, cycle for cycle. job : what its packet says, or None."""

    def __init__(self, watchdog):
        self.watchdog, self.state, self.job, self.armed, self.epoch = watchdog, "FREE", None, 0, 0
        self.status, self.detail, self.least, self.most, self.given_up = 0, 0, 0, 0, 0
        self.stopped = self.failed = self.spoiled = self.overdue = self.was_told = 0
        self.idle = self.late = self.count = self.stage = self.has_passed = 0
        self.ended = [0, 0]

    def shown(self, now):
        """Outputs of a cycle: flags by name; stage, context, over and record where there are."""
        s, thc = self.state, self.job is not None and self.job["codec"] == JobCodec.THC
        reset = s in ("RENEW", "FLUSH", "AGAIN")
        closed = reset or s in ("DRAIN", "OVER", "DECODE", "END")
        told = {
            "free": s == "FREE", "busy": s not in ("FREE", "RENEW", "FLUSH"),
            "clear": s == "CLEAR", "start": s == ("ARM" if thc else "BEGIN"), "reset": reset,
            "overs": s == "OVER", "closed": closed, "mute": closed or s == "HUSH",
            "passes": thc and not self.has_passed and s in ("CLEARING", "DECODE"),
            "tells": not self.was_told and (s == "END" or self.overdue),
            "stalls": self.late and s in ("HUSH", "DRAIN", "OVER", "END"),
        }  # fmt: skip
        told = {name: bool(flag) for name, flag in told.items()}
        if self.job is None:
            return told | {"thc": False}
        gen = (self.job["gen"] - (thc and self.stage == NORMS)) & 0xFFFF
        good = self.status in ENDS
        record = {
            "id": self.job["id"], "status": self.status, "detail": self.detail,
            "leaves_least": self.least if good and self.most else 0,
            "leaves_most": self.most if good else 0, "given_up": self.given_up if good else 0,
            "cycles": (now - self.job["posted"]) & (1 << Record["cycles"].width) - 1,
        }  # fmt: skip
        context = {"armed": self.armed, "tensor": self.job["tensor"], "gen": gen,
                   "epoch": self.epoch}  # fmt: skip
        return told | {"thc": thc, "stage": self.stage, "context": context, "record": record}

    def cycle(self, i, shown):
        """Inputs `i` of a cycle by name."""
        was = dict(self.__dict__)
        s, good = self.state, self.status in ENDS
        thc, passes, finishes = shown["thc"], shown["passes"], self.state in ("OVER", "END")
        ends, late, armed = s in ("HUSH", "DRAIN"), self.late, self.armed
        if armed:
            moves = i["progress"]
        else:
            moves = i["pass_moves"] if passes else not (self.ended[0] or finishes)
        self.late = int(self.watchdog != 0 and self.idle >= self.watchdog)
        self.idle = 0 if moves else self.idle + 1
        overdue = self.ended[1] and (late or (self.spoiled and good)) and not self.overdue
        self.ended = [int(ends), self.ended[0]]
        if overdue:
            self.overdue, self.status, self.detail = 1, JobStatus.MEMORY, 0
        self.was_told |= i["told"]
        if i["seen"]:
            self.least, self.most = min(was["least"], i["leaves"]), max(was["most"], i["leaves"])
        if i["spends"] and armed:
            self.given_up = (self.given_up + i["spent"]) & (1 << GIVEN_WIDTH) - 1
        self.stopped |= i["stop"] and shown["busy"]
        self.failed |= (i["failed"] and armed) or i["pass_failed"] or i["renewed"]
        self.spoiled |= i["renewed"]
        self.has_passed |= i["passed"]
        getattr(self, "_" + s.lower())(i, was, thc, passes)

    def _goes(self, state, **registers):
        self.state = state
        self.__dict__.update(registers)

    def _free(self, i, was, thc, passes):
        self.stopped = self.failed = self.spoiled = self.overdue = self.was_told = 0
        self.stage = self.detail = self.given_up = 0
        if i["take"]:
            self._goes("CLEAR", job=i["job"])
        elif i["nears"]:
            self._goes("RENEW", count=FLUSH_CYCLES - 1, epoch=(was["epoch"] + 1) % N_EPOCHS)

    def _renew(self, i, was, thc, passes):
        self._goes("RENEW" if was["count"] else "FREE", count=was["count"] - 1)

    def _again(self, i, was, thc, passes):
        self._goes("AGAIN" if was["count"] else "CLEAR", count=was["count"] - 1)

    def _clear(self, i, was, thc, passes):
        self._goes("BEGIN", least=4095, most=0, has_passed=0)

    def _begin(self, i, was, thc, passes):
        self.state = "CLEARING"

    def _clearing(self, i, was, thc, passes):
        if was["stopped"] or was["failed"] or (was["late"] and passes):
            status = JobStatus.ABORTED if was["stopped"] else JobStatus.MEMORY
            self._goes("HUSH", status=status, count=SETTLE_CYCLES - 1)
        elif not i["clearing"] and (was["has_passed"] or not thc):
            self._goes("ARM", armed=1)

    def _arm(self, i, was, thc, passes):
        self.state = "RUN"

    def _run(self, i, was, thc, passes):
        over = was["stopped"], was["failed"], i["finished"], was["late"]
        if not any(over):
            return
        short = was["least"] < self.job["n_leaves"] or was["given_up"]
        ends = (JobStatus.ABORTED, JobStatus.MEMORY, ENDS[bool(short)], JobStatus.STUCK)
        status = ends[[bool(one) for one in over].index(True)]
        self._goes("HUSH", armed=0, count=SETTLE_CYCLES - 1, status=status)
        if status == JobStatus.STUCK:
            self.detail = i["row"]

    def _hush(self, i, was, thc, passes):
        if not i["speaking"]:
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
        if i["recorded"]:
            state, epoch = "DECODE", was["epoch"]
            if was["stage"] == NORMS:
                state, epoch = "AGAIN", (epoch + 1) % N_EPOCHS
            self._goes(state, stage=was["stage"] + 1, has_passed=0, count=FLUSH_CYCLES - 1,
                       epoch=epoch)  # fmt: skip

    def _decode(self, i, was, thc, passes):
        self.count = SETTLE_CYCLES - 1
        if was["stopped"] or was["failed"] or (was["late"] and passes):
            self._goes("HUSH", status=JobStatus.ABORTED if was["stopped"] else JobStatus.MEMORY)
        elif was["has_passed"]:
            self.state = "END"

    def _end(self, i, was, thc, passes):
        if i["told"] or was["was_told"]:
            self._goes("FLUSH", count=FLUSH_CYCLES - 1, epoch=(was["epoch"] + 1) % N_EPOCHS)

    def _flush(self, i, was, thc, passes):
        self._goes("FLUSH" if was["count"] else "FREE", count=was["count"] - 1)


def _job(rng, thc):
    """(What a twin knows of a random job, its packet as bytes.)."""
    size = -(-Shape.cast(JOB).width // 8)
    row = np.frombuffer(rng.bytes(size), np.uint8).copy()
    value = int.from_bytes(row.tobytes(), "little") & (1 << Shape.cast(JOB).width) - 1
    fields = {"codec": int(JobCodec.THC) if thc else int(rng.integers(3))}
    place = JOB["job"].offset
    known = {}
    for name, codec in fields.items():
        field = JOB["job"].shape[name]
        at = place + field.offset
        value = value & ~((1 << field.width) - 1 << at) | codec << at
    for name in ("id", "codec", "gen", "tensor"):
        field = JOB["job"].shape[name]
        known[name] = value >> place + field.offset & (1 << field.width) - 1
    leaves = JOB["table"].shape["leaves"]
    at, n_leaves = JOB["table"].offset + leaves.offset, int(rng.integers(1, 5))
    n_leaves = n_leaves if rng.random() < 0.3 else int(rng.integers(1, 1 << LEAVES_WIDTH))
    value = value & ~((1 << leaves.width) - 1 << at) | n_leaves << at
    known["n_leaves"] = n_leaves
    known["posted"] = value >> JOB["posted"].offset & (1 << JOB["posted"].width) - 1
    return known, np.frombuffer(value.to_bytes(size, "little"), np.uint8)


class Recording:
    """One run of the twin: what goes in, and what is shown, cycle by cycle."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.watchdog = (0, 30, 9, 60)[seed % 4]
        self.signals = {"watchdog": self.watchdog}
        twin, job = Twin(self.watchdog), _job(rng, seed % 2)
        rare = {"stop": 0.004, "failed": 0.002, "pass_failed": 0.002, "renewed": 0.004}
        if seed % 5 == 0:
            rare = dict.fromkeys(rare, 0)
        held = {"clearing": 0.3, "in_pass": 0.15, "speaking": 0.2, "quiet": 0.8}
        levels = dict.fromkeys(held, 0)
        log, rows, self.shown = {}, [], []
        base = int(rng.integers(1 << 48))
        for cycle in range(N_CYCLES):
            slow = rng.random() < 0.05  # so long may a level stay
            for name, share in held.items():
                if slow or rng.random() < 0.1:
                    levels[name] = int(rng.random() < share)
            i = dict(levels)
            shown = twin.shown(now := (base + cycle * 977) & (1 << 48) - 1)
            i |= {name: int(rng.random() < share) for name, share in rare.items()}
            i["take"] = int(shown["free"] and rng.random() < 0.2)
            i["nears"] = int(rng.random() < 0.1)
            i["told"] = int(shown["tells"] and rng.random() < 0.3)
            i["recorded"] = int(shown["overs"] and rng.random() < 0.3)
            i["passed"] = int(shown["passes"] and rng.random() < 0.05)
            i["pass_moves"], i["progress"] = (int(x) for x in rng.random(2) < 0.15)
            i["finished"] = int(twin.state == "RUN" and rng.random() < 0.05)
            i["row"] = int(rng.integers(1 << 16))
            i["seen"] = int(twin.state == "RUN" and rng.random() < 0.3)
            n_leaves = twin.job["n_leaves"] if twin.job else 1
            near = rng.choice([n_leaves, twin.least, twin.most])  # or a bit away
            near ^= rng.choice([0, 1 << rng.integers(LEAVES_WIDTH)])
            i["leaves"] = int(near if rng.random() < 0.8 else rng.integers(1, 1 << LEAVES_WIDTH))
            if seed % 3 == 0:  # jobs are whole
                i["leaves"] = max(i["leaves"], n_leaves)
            i["spends"] = int(seed % 3 != 0 and rng.random() < 0.02)
            i["spent"] = int(rng.integers(1 << BYTES_WIDTH)) if rng.random() < 0.8 else 0
            i["job"] = job[0]
            self.shown.append((shown, rows[-1][1] if twin.job else None))
            told = {k: v for k, v in i.items() if k not in ("job", "seen", "leaves")}
            told |= {"leaves": i["seen"] | i["leaves"] << 1, "now": now}
            for name, value in told.items():
                log.setdefault(name, []).append(value)
            log.setdefault("prepared", []).append(job[1])
            if i["take"]:
                rows.append((cycle, job[1]))
            twin.cycle(i, shown)
            if i["take"]:
                job = _job(rng, seed % 2 or rng.random() < 0.2)
        self.signals |= {name: np.array(values) for name, values in log.items()}


def recordings():
    """What the test plays, made once."""
    if not _RECORDINGS:
        _RECORDINGS.extend(Recording(seed) for seed in range(N_RUNS))
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
        told = [one.shown[k][0] for k in known]
        assert run.traces["stage"][known].tolist() == [t["stage"] for t in told], "stage"
        for name, shape in (("context", Context), ("record", Record)):
            got = _fields(shape, run.traces[name])
            at = [k for k in known if name == "context" or one.shown[k][0]["tells"]]
            for field, values in got.items():
                want = [int(one.shown[k][0][name][field]) for k in at]
                assert values[at].tolist() == want, f"{name}: {field}"
        over = _fields(Over, run.traces["over"])
        contexts = [t["context"] for t in told]
        assert over["valid"].astype(bool).tolist() == [s["overs"] for s, _ in one.shown], "over"
        for field in ("tensor", "gen"):
            assert over[field][known].tolist() == [c[field] for c in contexts], f"over: {field}"
        jobs = np.array([one.shown[k][1] for k in known])
        assert np.array_equal(run.traces["job"][known], jobs), "job"


ARGUED = {}
EXPLAINED = {"idle, late = Signal(32)": "shows after more than 2,000 cycles without progress alone"}
