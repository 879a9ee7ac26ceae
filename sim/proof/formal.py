"""Proofs about streams: unbounded by k-induction, or bounded, with yices.

`Harness` puts a component between free inputs, assumes the stream rules of its inputs and asserts
those of its outputs; subclasses add what the component is for, and the lemmas that make that
inductive. `prove` wants every assertion to hold in all reachable states and every cover to be
reached; `check` wants the same up to a depth; `refute` wants an assertion to fail, which each
harness must do on a `twin` of its circuit with one line changed. `check_outputs` is all of it for
the ports of a large component.

Numbers of the rules are those of ZipCPU's ``faxis_slave`` as this project counts them:

1. ``valid`` is low in the cycle after reset,
2. ``valid`` does not drop before ``ready``,
3. fields beside the data are stable while stalled,
4. data is stable while stalled (all of it, kept or not),
5. no strobe without keep: streams here have no strobe, so there is nothing to prove,
6. packets have at most, 7. at least a number of beats,
8. a stall ends within a number of cycles,
9. ``keep`` is contiguous from byte 0, not empty, and all ones unless ``last``.
10. (no X after reset) is `gradnic.sim.fourstate`'s; 11. to 13. (conservation, order, each packet
forwarded or dropped) are the business of subclasses.

The reset is one of the free inputs: it may come at any time, and as often as it likes.
"""

import inspect
import time
import types
from dataclasses import dataclass

from amaranth.hdl import (
    Assert,
    Assume,
    Const,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data, stream, wiring

from ..engine import tools
from . import solver

KEEP_BROKEN = "keep has holes, is empty or is short"


class ProofError(AssertionError):
    """An assertion can fail, a cover cannot be reached, or a seeded bug was not found."""


@dataclass(frozen=True)
class Result:
    """What was shown.

    method : "induction" (unbounded) or "bounded". depth : cycles of induction, or of all traces.
    n_asserts, n_covers : number of each in the harness. seconds : wall time.
    """

    method: str
    depth: int
    n_asserts: int
    n_covers: int
    seconds: float


def has_keep(payload):
    """Whether rule 9 concerns a payload: it has fields ``keep`` and ``last``."""
    return isinstance(payload, data.View) and {"keep", "last"} <= dict(payload.shape()).keys()


def keep_rule(payload):
    """Rule 9 for a payload that has ``keep`` and ``last``."""
    keep = payload.keep
    # Not keep & (keep + 1): Yices 2.6.5 calls a sum of 64 bits wrong where it is right.
    contiguous = ~(keep[1:] & ~keep[:-1]).any() if len(keep) > 1 else 1
    return contiguous & keep[0] & (payload.last | keep.all())


def steady(m, name, port, judge, was_reset):
    """Assume or assert rules 1 to 4 of a stream; returns whether the last cycle was a stall."""
    payload = Value.cast(port.p)
    stalled = Signal(name=f"{name}__stalled")
    offered = Signal(len(payload), name=f"{name}__offered", reset_less=True)
    m.d.sync += [stalled.eq(port.valid & ~port.ready), offered.eq(payload)]
    m.d.comb += [
        judge(~was_reset | ~port.valid, f"{name}: valid after reset"),
        judge(~stalled | port.valid, f"{name}: valid dropped before ready"),
        judge(~stalled | (payload == offered), f"{name}: payload changed while stalled"),
    ]
    return stalled


class Harness(Elaboratable):
    """A component between free inputs, with rules 1 to 4, 8 and 9 of the module on its streams.

    component : wiring.Component in domain ``sync``; all its streams are watched.
    ready_within : {input: cycles}. Rule 8: while all outputs are ready, the input is not stalled
        longer than that.
    max_beats : {output: beats}. Rule 6, by the ``last`` field.
    keep : whether rule 9 is assumed of inputs and asserted of outputs that have ``keep``.
    constant : {input that is no stream: value}; others are free.

    `describe` is for subclasses: called with the module, it adds assertions and covers.
    """

    keep_by_beat = True  # rule 9 of each output beat is asserted here, not by the subclass

    def __init__(self, component, *, ready_within=None, max_beats=None, keep=True, constant=None):
        self.component = component
        self.ready_within = dict(ready_within or {})
        self.max_beats = dict(max_beats or {})
        self.keep = keep
        self.constant = dict(constant or {})
        self.inputs, self.outputs, self.free = {}, {}, []
        for path, flow, member, value in members(component):
            name = "__".join(map(str, path))
            if isinstance(member.signature if member.is_signature else None, stream.Signature):
                (self.inputs if flow == wiring.In else self.outputs)[name] = value
            elif flow == wiring.In and name not in self.constant:
                self.free.append(Value.cast(value))
        for port in self.inputs.values():
            self.free += [Value.cast(port.p), port.valid]
        ready = (port.ready for port in self.outputs.values())
        self.free += [flag for flag in ready if not isinstance(flag, Const)]
        self.was_reset = Signal(init=1, reset_less=True)

    def describe(self, m):
        """Assertions and covers beyond the rules."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self.component
        m.d.sync += self.was_reset.eq(ResetSignal())
        for name, value in self.constant.items():
            m.d.comb += getattr(self.component, name).eq(value)
        for name, port in self.inputs.items():
            self._watch(m, name, port, Assume)
        for name, port in self.outputs.items():
            self._watch(m, name, port, Assert)
        all_ready = ~ResetSignal()
        for port in self.outputs.values():
            all_ready &= port.ready
        for name, cycles in self.ready_within.items():
            waited = Signal(range(cycles + 2), name=f"{name}__waited")
            m.d.sync += waited.eq(
                Mux(all_ready & ~self.inputs[name].ready & (waited <= cycles), waited + 1, 0)
            )
            m.d.comb += Assert(waited <= cycles, f"{name}: stalled for more than {cycles} cycles")
        for name, beats in self.max_beats.items():
            port = self.outputs[name]
            count = Signal(range(beats + 1), name=f"{name}__beats")
            with m.If(port.valid & port.ready):
                m.d.sync += count.eq(Mux(port.p.last, 0, count + 1))
            m.d.comb += Assert(
                ~port.valid | (count < beats), f"{name}: packet of more than {beats} beats"
            )
        self.describe(m)
        return m

    def _watch(self, m, name, port, judge):
        stalled = steady(m, name, port, judge, self.was_reset)
        if self.keep and has_keep(port.p) and (judge is Assume or self.keep_by_beat):
            m.d.comb += judge(~port.valid | keep_rule(port.p), f"{name}: {KEEP_BROKEN}")
        if judge is Assert:
            if not isinstance(port.ready, Const):
                m.d.comb += Cover(stalled & port.ready, f"{name}: a stalled beat is taken")
            m.d.comb += [
                Cover(port.valid & port.ready & ~stalled, f"{name}: a beat is taken at once"),
            ]


class Conservation(Harness):
    """Rules 11 and 12 of a queue: each beat that goes in comes out, once, unchanged, in order.

    The solver picks one beat on its way in, at any time; the harness counts the beats ahead of it,
    and wants it at the output when none is left. Since any beat may be the one, and the next one
    after it, this holds for all.

    capacity : most beats inside. i, o : names of the two streams.
    offer_within : the output offers within so many cycles of a beat being inside.
    lemmas : function of (m, harness) that asserts where the picked beat stands in the circuit, in
        terms of the members below; it makes the proof inductive. full : cover the full queue.

    Rule 9 is asserted of the picked beat.

    Members for lemmas: `count` beats inside; `picking`, a beat is picked now; `tracking`, the
    picked beat is inside; `ahead`, the beats before it; `beat`, its payload.
    """

    keep_by_beat = False

    def __init__(
        self,
        component,
        *,
        capacity,
        i="i",
        o="o",
        offer_within=None,
        lemmas=None,
        full=True,
        **options,
    ):
        super().__init__(component, **options)
        self.i, self.o = self.inputs[i], self.outputs[o]
        self.capacity, self.offer_within, self.lemmas = capacity, offer_within, lemmas
        self.full = full
        self.count = Signal(range(capacity + 1))
        self.ahead = Signal(range(capacity + 1))
        self.tracking = Signal()
        self.beat = Signal(len(Value.cast(self.i.p)), reset_less=True)
        self.pick, self.picking = Signal(), Signal()
        self.free.append(self.pick)

    def describe(self, m):
        take, give = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        m.d.sync += self.count.eq(self.count + take - give)
        m.d.comb += self.picking.eq(take & self.pick & ~self.tracking)
        with m.If(~self.tracking):
            with m.If(self.picking):
                m.d.sync += [
                    self.tracking.eq(1),
                    self.beat.eq(self.i.p),
                    self.ahead.eq(self.count - give),
                ]
        with m.Elif(give):
            m.d.sync += [self.tracking.eq(self.ahead != 0), self.ahead.eq(self.ahead - 1)]
        arrived = self.tracking & self.o.valid & (self.ahead == 0)
        m.d.comb += [
            Assert(self.count <= self.capacity, "more beats inside than fit"),
            Assert(~self.o.valid | (self.count != 0), "a beat is offered that never came"),
            Assert(~self.tracking | (self.ahead < self.count), "the picked beat is lost"),
            Assert(
                ~arrived | (Value.cast(self.o.p) == self.beat), "the picked beat comes out changed"
            ),
            Cover(arrived & self.o.ready, "the picked beat comes out"),
        ]
        if self.full:
            m.d.comb += Cover(self.count == self.capacity, "the queue is full")
        if self.keep and has_keep(self.o.p):  # of the picked beat, hence of all
            beat = data.View(self.i.p.shape(), self.beat)
            m.d.comb += [
                Assert(~self.tracking | keep_rule(beat), "the picked beat's keep is broken"),
                Assert(~arrived | keep_rule(self.o.p), f"o: {KEEP_BROKEN}"),
            ]
        if self.offer_within is not None:
            waited = Signal(range(self.offer_within + 2))
            m.d.sync += waited.eq(
                Mux((self.count != 0) & ~self.o.valid, waited + (waited <= self.offer_within), 0)
            )
            m.d.comb += Assert(
                waited <= self.offer_within, f"no offer within {self.offer_within} cycles"
            )
        if self.lemmas:
            self.lemmas(m, self)


def members(component):
    """(path, flow, member, value) of each stream and each plain port of a component."""

    def walk(signature, obj, path):
        for name, member in signature.members.items():  # of an input: flipped already
            value, flow = getattr(obj, name), member.flow
            for where, item in _elements(value, member.dimensions, (*path, name)):
                inner = member.signature if member.is_signature else None
                if inner is None or isinstance(inner, stream.Signature):
                    yield where, flow, member, item
                else:
                    yield from walk(inner, item, where)

    yield from walk(component.signature, component, ())


def _elements(value, dimensions, path):
    if not dimensions:
        return [(path, value)]
    return [
        leaf
        for k in range(dimensions[0])
        for leaf in _elements(value[k], dimensions[1:], (*path, k))
    ]


def prove(harness, *, k=4, cover_depth=20, timeout=300):
    """Prove all assertions for all time by k-induction, and reach all covers; returns a `Result`.

    k : cycles of the induction; the base case is checked as far. ProofError with what failed.
    """
    return _run(harness, "induction", k, cover_depth, timeout)


def check(harness, *, depth=20, cover_depth=None, timeout=300):
    """Check all assertions in all traces of `depth` cycles, and reach all covers."""
    return _run(harness, "bounded", depth, cover_depth or depth, timeout)


def check_outputs(component, *, depth=20, timeout=300, **options):
    """Rules 1 to 4, and 6, 8, 9 as `options` of `Harness` ask, on all ports, in `depth` cycles."""
    return check(Harness(component, **options), depth=depth, timeout=timeout)


def refute(harness, *, depth=20, timeout=300):
    """Find a trace of at most `depth` cycles that fails an assertion; returns the assertion's text.

    ProofError if there is none: then the harness does not see the seeded bug.
    """
    with solver.Model(harness, timeout) as bench:
        failed = bench.failures(bench.finish(bench.start("bmc", "-t", str(depth))))
    if not failed:
        raise ProofError(f"the seeded bug is not seen within {depth} cycles")
    return failed[0]


def twin(module, *texts):
    """A copy of a Python module in which some text of the source reads otherwise: a seeded bug.

    texts : old, new, old, new, ... ValueError unless each old text stands there exactly once.
    """
    source = inspect.getsource(module)
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        n = source.count(old)
        if n != 1:
            raise ValueError(f"{module.__name__} must have {old!r} once, not {n} times")
        source = source.replace(old, new)
    copy = types.ModuleType(f"{module.__name__}_twin")
    copy.__package__, copy.__file__ = module.__package__, module.__file__
    exec(compile(source, module.__file__, "exec"), copy.__dict__)
    return copy


def _run(harness, method, depth, cover_depth, timeout):
    start = time.monotonic()
    with solver.Model(harness, timeout) as bench:
        n_asserts, n_covers = settle(bench, method, depth, cover_depth)
    return Result(method, depth, n_asserts, n_covers, time.monotonic() - start)


def settle(bench, method, depth, cover_depth):
    """Have a `solver.Model` answered; returns the numbers of assertions and covers."""
    runs = {"base": bench.start("base", "-t", str(depth))}
    if bench.n_covers:
        runs["cover"] = bench.start("cover", "-c", "-t", str(cover_depth))
    open_steps = bench.step(depth) if method == "induction" else []
    logs = {name: bench.finish(run) for name, run in runs.items()}
    problems = [f"fails: {text}" for text in bench.failures(logs["base"])]
    problems += [f"not inductive: {text}" for text in open_steps]
    unreached = bench.named(r"Unreached cover statement at", logs.get("cover", ""))
    problems += [f"cover not reached: {text}" for text in unreached]
    if problems:
        raise ProofError("; ".join(problems))
    for name, log in logs.items():
        if "Status: passed" not in log and "Status: PASSED" not in log:
            raise tools.ToolError(f"{name}: no verdict:\n{log[-2000:]}")
    return len(bench.asserts), bench.n_covers
