"""Lists of jobs for cards of RTL, as ``gradnic cosim card --jobs`` reads them."""

from dataclasses import dataclass, fields

from gradnic.models.offload.job_judge import ELEM_BYTES
from gradnic.models.schedule.builders.collectives import COLLECTIVES

from gradnic.interface.job import ALIGN, Job, JobCodec, Kind, Operation
from gradnic.quantities import joined
from gradnic.text_file import read_json

LATEST = 10_000_000  # cycles: the last that a job may be posted at
TOO_LONG = 1 << 24  # elements of a job that all cards refuse: it has no memory here
CODECS = {
    "none": JobCodec.RAW32, "bf16": JobCodec.RAW16, "inceptionn": JobCodec.INCEPTIONN,
    "thc": JobCodec.THC,
}  # fmt: skip
KINDS = {"fp32": Kind.FP32, "bf16": Kind.BF16}
PLACES = ("source", "result", "residual", "kept", "scratch", "landing")
"""Where memory may fail. residual, kept : what a job with feedback reads of it, and writes.
scratch, landing : of each context and engine what no shorter job reaches.
"""
_NAMES = {one.name for one in fields(Job)}
_BESIDE = {"bytes", "at", "nodes", "root", "abort", "errors", "silent"}
_TOLD = {"class"} | _BESIDE | _NAMES - {"layer"}
_WORDS = {
    "collective": {name: number for number, name in enumerate(COLLECTIVES)},
    "codec": CODECS,
    "kind": KINDS,
    "op": {"sum": Operation.SUM, "mean": Operation.MEAN, "max": Operation.MAX},
}


@dataclass
class Posted:
    """A job of the run: when it is posted, and the nodes that post it (None: all). root : of reduce
    and broadcast. named : the table is the one that the job says, not the one of its collective.
    abort : when all who post it abort it, if it has not ended. errors : (node, one of `PLACES`)
    whose memory answers with errors there, or (node, place, cycle, how many) from which on it does,
    for so many. silent : as that, where it does not answer.
    """

    job: Job
    at: int = 0
    nodes: tuple | None = None
    root: int = 0
    named: bool = False
    abort: int | None = None
    errors: tuple | None = None
    silent: tuple | None = None

    def posters(self, n_nodes):
        """Nodes of `n_nodes` that post it."""
        return range(n_nodes) if self.nodes is None else self.nodes


def buckets(n, n_bytes, *, codec="none", kind="fp32", **fields):
    """`n` jobs of `n_bytes` bytes each, all posted at once; ValueError if those are no floats.

    told : further fields, as of `from_dicts`.
    """
    size = ELEM_BYTES[KINDS[kind]]
    if n_bytes % size:
        raise ValueError(f"bytes must be a multiple of {size}, not {n_bytes}")
    one = {"bytes": n_bytes, "kind": kind, **fields}
    return from_dicts([one] * n, codec=codec)


def read(path, *, codec="none"):
    """The jobs of a JSON file: see `from_dicts`. ValueError for one that is none."""
    jobs = read_json(path)
    if not isinstance(jobs, list) or not all(isinstance(one, dict) for one in jobs):
        raise ValueError(f"{path}: must be a list of objects, one a job")
    if not jobs:
        raise ValueError(f"{path}: must have a job at least, not an empty list")
    return from_dicts(jobs, codec=codec)


def from_dicts(jobs, *, codec="none"):
    """`Posted` of dicts with ``bytes`` or ``elems``; optional ``class``, ``at``, ``nodes``,
    ``root``, ``abort``, ``errors``, ``silent`` and any field of `Job`; collective, codec and kind
    by name or number. What is not said is chosen: ids from 0, tensors by id, tables by collective,
    addresses one behind the other, results behind all sources, residuals behind all results.
    ValueError names the job, its field and what that takes.
    """
    if not jobs:
        raise ValueError("jobs must be at least 1, not 0")
    sizes = [_size(k, one) for k, one in enumerate(jobs)]
    steps = [-(-4 * n // ALIGN) * ALIGN if 0 < n < TOO_LONG else 0 for n in sizes]
    half, at, made = sum(steps), 0, []
    for k, (one, n, step) in enumerate(zip(jobs, sizes, steps, strict=True)):
        named = {"layer" if name == "class" else name: value for name, value in one.items()}
        unknown = sorted(set(named) - _NAMES - _BESIDE)
        if unknown:
            raise ValueError(f"job {k} has no field {unknown[0]!r}, but {joined(sorted(_TOLD))}")
        chosen = {"id": k, "gen": 1, "elems": n, "source": at, "result": half + at,
                  "codec": CODECS[codec]}  # fmt: skip
        values = chosen | {name: value for name, value in named.items() if name in _NAMES}
        for name, words in _WORDS.items():
            if isinstance(values.get(name), str):
                if values[name] not in words:
                    raise ValueError(
                        f"job {k}: {name} must be {joined(words)}, not {values[name]!r}"
                    )
                values[name] = words[values[name]]
        values.setdefault("tensor", values["id"])
        if "feedback" in values and isinstance(values["feedback"], bool):
            values["feedback"] = int(values["feedback"])
        values = {name: _whole(k, name, value) for name, value in values.items()}
        if values.get("feedback") and "residual" not in values:
            values["residual"] = (2 * half + 2 * at) // ALIGN
        posted, abort = _time(k, "at", named.get("at", 0)), named.get("abort")
        if abort is not None and _time(k, "abort", abort) < posted:
            raise ValueError(f"job {k}: abort must be {posted:,} cycles or later, not {abort}")
        job = Job(**values)
        made.append(
            Posted(
                job, posted, _nodes(k, named.get("nodes")),
                _whole(k, "root", named.get("root", 0)), "table" in named, abort,
                _errors(k, named.get("errors"), job), _silent(k, named.get("silent"), job),
            )
        )  # fmt: skip
        at += step
    if len({one.job.id for one in made}) != len(made):
        raise ValueError("ids of jobs must differ")
    return made


def _whole(k, name, value):
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"job {k}: {name} must be a whole number, not {value!r}")
    return value


def _time(k, name, value):
    if not 0 <= _whole(k, name, value) <= LATEST:
        raise ValueError(f"job {k}: {name} must be 0 to {LATEST:,} cycles, not {value}")
    return value


def _size(k, one):
    """Elements of job k."""
    n_bytes, width = _whole(k, "bytes", one.get("bytes", 0)), _width(one)
    if n_bytes % width:
        raise ValueError(f"job {k}: bytes must be a multiple of {width}, not {n_bytes}")
    elems = _whole(k, "elems", one.get("elems", n_bytes // width))
    if "bytes" in one and elems * width != n_bytes:
        raise ValueError(f"job {k}: {elems} elems are {elems * width} bytes, not {n_bytes}")
    return elems


def _nodes(k, value):
    """Nodes that post job k, a tuple, or None for all."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or len({*map(repr, value)}) < len(value):
        raise ValueError(f"job {k}: nodes must be a list of different nodes, not {value!r}")
    return tuple(_whole(k, "nodes", node) for node in value)


def _errors(k, value, job):
    """(node, place) of job k, and (cycle, how many) if it says them, or None."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) not in (2, 4) or value[1] not in PLACES:
        raise ValueError(
            f"job {k}: errors must be a node and {joined(PLACES)}, and with times two numbers of "
            f"cycles, not {value!r}"
        )
    return _where(k, "errors", value, job)


def _silent(k, value, job):
    """(node, place, cycle, how many) of job k, or None."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 4 or value[1] not in PLACES:
        raise ValueError(
            f"job {k}: silent must be a node, {joined(PLACES)}, and two numbers of cycles, not "
            f"{value!r}"
        )
    return _where(k, "silent", value, job)


def _where(k, name, value, job):
    """Node and place of job k, and times."""
    node, place, *times = value
    return (
        _whole(k, name, node),
        _place(k, place, job),
        *(_time(k, name, t) for t in times),
    )


def _place(k, place, job):
    """The place, if the job has one."""
    if place in ("residual", "kept") and not job.feedback:
        raise ValueError(f"job {k}: {place} must be of a job with feedback")
    if place == "scratch" and job.codec != JobCodec.THC:
        raise ValueError(f"job {k}: {place} must be of a job with codec thc")
    return place


def _width(fields):
    """Bytes of an element of such a job."""
    kind = fields.get("kind", Kind.FP32)
    kind = KINDS.get(kind, kind) if isinstance(kind, str) else kind
    return ELEM_BYTES.get(kind, 4) if isinstance(kind, int) else 4


def check_apart(posted):
    """ValueError if a job reads or writes what another one writes: what comes of it would depend on
    times. Jobs with THC of one tensor follow each other, and one may go on with what another left,
    unless one of them is aborted. Jobs that no node posts both have memories apart.

    posted : without those that cards refuse, which neither read nor write.
    """
    regions = []  # (first, stop, is written, whose)
    for one in posted:
        job = one.job
        size = ELEM_BYTES.get(job.kind, 4) * job.elems
        regions += [(job.source, job.source + size, False, one)]
        regions += [(job.result, job.result + size, True, one)]
        if job.feedback and job.codec == JobCodec.THC:
            for half in range(2):
                at = job.residual_at(half)
                regions.append((at, at + 4 * job.elems, half != job.half, one))
    before = []
    for region in sorted(regions, key=lambda region: region[:2]):
        first, stop, written, one = region
        before = [other for other in before if other[1] > first]
        for *_, other_written, other in before:
            shares = other is not one and (written or other_written) and _meet(one, other)
            if shares and not _follow(one, other):
                writer, user = (one, other) if written else (other, one)
                raise ValueError(
                    f"job {user.job.id} must keep off what job {writer.job.id} writes, not share "
                    f"its byte {first}"
                )
        if stop > first:
            before.append(region)


def _meet(one, other):
    """Whether some node posts both."""
    return None in (one.nodes, other.nodes) or bool({*one.nodes} & {*other.nodes})


def _follow(one, other):
    """Whether one of them may go on with what the other left, whatever the order."""
    jobs = one.job, other.job
    thc = all(job.codec == JobCodec.THC for job in jobs)
    return thc and jobs[0].tensor == jobs[1].tensor and one.abort is other.abort is None
