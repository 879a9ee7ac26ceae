"""Stream rules on the output ports of large components, for all time, one level at a time.

`prove` takes a component at its real size, leaves out what its sub-components do, and proves rules
1 to 4 and 9 of `gradnic.sim.proof.formal` on each of its output channels: streams and AXI channels,
as its signature lists them. Sub-components are cut: their outputs are free, whatever their inputs.
Where a port is fed by a channel of a sub-component, that channel is taken to obey the same rules,
and the sub-component is proven next, in the same way, at the size that it has there; and so on,
down to the registers. What the proof of a part assumes of its inputs is asserted where it is used;
as no payload depends on itself within a cycle, that is no circle.

So nothing behind the registers that decide a port is looked at: what holds with all of it free
holds for all inputs and all time. Queues give back what they were given, by rules 11 and 12, which
`tests/stream/test_queue_proofs.py` and `tests/frame/test_packet_proofs.py` prove of them; hence
what is asserted of each beat on its way in holds on its way out, rule 9 among it.
"""

import contextlib
import re
import time
from dataclasses import dataclass
from types import SimpleNamespace
from unittest import mock

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Const,
    Cover,
    Elaboratable,
    Module,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data, memory, wiring
from gradnic.hdl.stream import admission as pipeline
from gradnic.hdl.stream import delays

from . import cone, formal, solver
from .port_hints import delayed_flags, hint

#: Submodules of a `Cut`: free signals; rules 1 to 4 of channels that it gives, and what is said of
#: their payloads; rules of those that it takes; guessed delays.
PLACE = re.compile(r"cut(\d+)_(free|gives|says|takes|guess)(\d*)__(\w*?)\.")
OWN = "own_says__"
MOST_DELAY = 63


@dataclass(frozen=True)
class Proof:
    """One level: name of the class, its channels, numbers of assertions and covers, wall time."""

    name: str
    channels: tuple
    n_asserts: int
    n_covers: int
    seconds: float


def channels(component):
    """{name: (flow, channel)} of all streams and AXI channels; a channel has p, valid and ready.

    Members Xvalid and Xready make a channel; its payload are the other members whose names begin
    with X: an AXI4-Stream so has p.keep and p.last. ``fields`` are those members, by their names.
    """
    found, plain = {}, {}
    for path, flow, member, value in formal.members(component):
        name = "__".join(map(str, path))
        if member.is_signature:
            found[name] = flow, value
        else:
            plain[name] = flow, Value.cast(value)
    heads = [name.removesuffix("valid") for name in plain if name.endswith("valid")]
    for head in sorted((h for h in heads if f"{h}ready" in plain), key=len, reverse=True):
        names = [name for name in plain if name.startswith(head)]
        fields = {name.removeprefix(head): plain.pop(name) for name in names}
        flow, valid = fields.pop("valid")
        _, ready = fields.pop("ready")
        fields = {name: value for name, (_, value) in fields.items()}
        layout = data.StructLayout({name: len(value) for name, value in fields.items()})
        payload = Signal(layout, name=f"{head}payload")
        port = SimpleNamespace(p=payload, valid=valid, ready=ready, fields=fields)
        found[head.removesuffix("__t").rstrip("_")] = flow, port
    for valid, payload in hint(component).pulses:
        flow = component.signature.members[valid].flow
        p, valid = getattr(component, payload), getattr(component, valid)
        found[payload] = flow, SimpleNamespace(p=p, valid=valid, ready=Const(1))
    return found


def _join(m, port):
    for name, value in getattr(port, "fields", {}).items():
        m.d.comb += Value.cast(port.p[name]).eq(value)


def _carries(part):
    return hint(part).queue and not getattr(part, "never_full", False)


def _says(m, text, port, judge, claims, but=0):
    """Assume or assert rule 9, and what is claimed of such payloads."""
    free = ~port.valid | but
    if formal.has_keep(port.p):
        m.d.comb += judge(free | formal.keep_rule(port.p), f"{text}: {formal.KEEP_BROKEN}")
    names = dict(port.p.shape()) if isinstance(port.p, data.View) else {}
    for fields, claim in claims.items():
        if all(field in names for field in fields):
            m.d.comb += judge(free | claim(port.p), f"{text}: {', '.join(fields)}")


def _signals(value):
    value = Value.cast(value)
    return [value] if isinstance(value, Signal) and len(value) else []


def _things(part):
    """Whatever a part has: (name, thing) of its attributes, of theirs, and so on."""
    work, visited = [("", part)], set()
    while work:
        name, item = work.pop()
        yield name, item
        if isinstance(item, data.View):
            work.append((name, item.as_value()))
        elif isinstance(item, list | tuple):
            work += [(name, inner) for inner in item]
        elif isinstance(item, dict):
            work += item.items()
        elif _has_more(item) and id(item) not in visited:
            visited.add(id(item))
            work += vars(item).items()


def _has_more(item):
    return hasattr(item, "signature") or type(item).__module__.startswith("gradnic")


def _inner_signals(part):
    """Signals that are attributes of a part, or of what it has: others may read them."""
    return [item for _, item in _things(part) if isinstance(item, Signal) and len(item)]


def _description(part):
    """A value that is the same for two parts only if they have the same circuit."""
    found = [type(part)]
    for name, item in _things(part):
        if isinstance(item, Signal):
            item = item.name, item.shape()
        elif isinstance(item, data.View):
            item = item.shape()
        elif isinstance(item, list | tuple | dict) or _has_more(item):
            item = type(item).__name__, len(item) if isinstance(item, list | tuple | dict) else 0
        found.append((name, repr(item)))
    return tuple(found)


class Cut(Elaboratable):
    """Stands for a part of the component: its outputs are free, and its channels have rules.

    Each rule and each free signal is in a submodule of its own, named as `PLACE` says.
    """

    def __init__(self, part, number, root, ghosts):
        self.part, self.number, self.hint = part, number, hint(part)
        self.root, self.ghosts = root, ghosts

    def elaborate(self, platform):
        m = Module()
        if isinstance(self.part, memory.Memory):
            for port in self.part.read_ports:
                value = Value.cast(port.data)
                m.d.comb += value.eq(AnySeq(len(value)))
            return m
        ports = channels(self.part)
        self._free(m, ports)
        was_reset = Signal(init=1, reset_less=True)
        m.d.sync += was_reset.eq(ResetSignal())
        for name, (flow, port) in ports.items():
            gives = flow == wiring.Out
            judge = Assume if gives else Assert
            place = self._place(m, "gives" if gives else "takes", name)
            says = self._place(m, "says", name) if gives else place
            text = f"{type(self.part).__name__}.{name}"
            _join(m, port)
            if gives:
                formal.steady(place, text, port, judge, was_reset)
            if _carries(self.part) or not self.hint.queue:
                claims = self.root.claims if self.hint.queue else {}
                _says(says, text, port, judge, claims, but=0 if gives else self._discards())
        if self.hint.requires:
            place = self._place(m, "takes", "")
            self.ghosts[id(self.part)] = self.hint.requires(place, self.part, Assert, Assume)
        if self.hint.delay:
            first, second = (getattr(self.part, name) for name in self.hint.delay)
            for k, late in enumerate([first, *delayed_flags(m, first, MOST_DELAY)]):
                place = self._place(m, f"guess{k}", "")
                place.d.comb += Assert(
                    second == late,
                    " is not a constant time behind ".join(reversed(self.hint.delay)),
                )
        return m

    def _discards(self):
        """What comes in now never leaves."""
        return self.part.discard if getattr(self.part, "commits", False) else 0

    def _place(self, m, what, name):
        place = Module()
        m.submodules[f"cut{self.number}_{what}__{name}"] = place
        return place

    def _free(self, m, ports):
        owner, flows, signals = {}, {}, {}
        for name, (_, port) in ports.items():
            for value in (port.valid, *getattr(port, "fields", {"": port.p}).values()):
                owner |= {id(signal): name for signal in _signals(value)}
        for _, member, value in self.part.signature.flatten(self.part):
            for signal in _signals(value):
                flows[id(signal)], signals[id(signal)] = member.flow, signal
        signals |= {id(signal): signal for signal in _inner_signals(self.part)}
        free = [s for key, s in signals.items() if flows.get(key) != wiring.In]
        for k, signal in enumerate(free):
            place = self._place(m, f"free{k}", owner.get(id(signal), ""))
            place.d.comb += signal.eq(AnySeq(len(signal)))


class PortHarness(formal.Harness):
    """The rules on output channels of a component whose parts are cut.

    names, said : channels to watch, those in `said` by rule 9 alone.
    lag : cycles of the hint's `delay`.

    Members for lemmas: `component`; `ghost`, what its requirement gives, and `ghosts`, those of
    parts by id; `delayed`, the first of the two ports of `delay` in the cycles before; `parts`
    that are cut, and those that are `opened`;
    `made`, signals of the component's module and of `gradnic.hdl.stream`'s `admission` and `delays`
    by name.
    """

    def __init__(self, component, names, said=(), lag=0):
        super().__init__(component)
        self.hint = hint(component)
        self.inputs = {n: p for n, (f, p) in channels(component).items() if f == wiring.In}
        self.outputs = {n: p for n, (f, p) in channels(component).items() if f == wiring.Out}
        self.outputs = {name: self.outputs[name] for name in sorted({*names, *said})}
        self.said = set(said) - set(names)
        self.keep = False  # rule 9 is in `OWN` submodules
        self.lag = lag
        self.parts, self.opened, self.ghosts, self.made = [], [], {}, {}
        self.lags = {}  # {number of a part: cycles from the first to the second port of its delay}
        self.used = {}  # {number of a part: ({its channels with all rules}, {those with 9 alone})}

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.component
        m.d.sync += self.was_reset.eq(ResetSignal())
        for name, port in self.inputs.items():
            _join(m, port)
            _says(m, name, port, Assume, {})
        for name, port in self.outputs.items():
            _join(m, port)
            m.submodules[f"{OWN}{name}"] = says = Module()
            if name in self.said:
                says.d.comb += Cover(port.valid, f"{name}: a beat is offered")
            else:
                self._watch(m, name, port, Assert)
            if not self.hint.queue:
                _says(says, name, port, Assert, {})
        if self.hint.delay:
            first, second = (getattr(dut, name) for name in self.hint.delay)
            self.delayed = delayed_flags(m, first, self.lag)
            m.d.comb += Assume(second == [first, *self.delayed][-1])
        if self.hint.requires:
            self.ghost = self.hint.requires(m, dut, Assume, Assert)
        if self.hint.lemmas:
            after = self.hint.lemmas(m, self)
            if after:
                m.submodules.after = _Later(after)
        return m

    @contextlib.contextmanager
    def cut(self):
        """While this lasts, components inside elaborate to a `Cut`."""

        def wrapped(original):
            def elaborate(part, platform):
                if part is self.component:
                    return original(part, platform)
                if type(part).__name__ in self.hint.opened:
                    self.opened.append(part)
                    return original(part, platform)
                self.parts.append(part)
                return Cut(part, len(self.parts) - 1, self.hint, self.ghosts)

            return elaborate

        own = type(self.component).elaborate.__globals__
        classes = [wiring.Component]
        for cls in classes:
            classes += cls.__subclasses__()
        with contextlib.ExitStack() as stack:
            for cls in dict.fromkeys(classes):
                if "elaborate" in vars(cls):
                    new = wrapped(cls.elaborate)
                    stack.enter_context(mock.patch.object(cls, "elaborate", new))
            for names in (vars(pipeline), vars(delays), own):
                if "Signal" in names:
                    stack.enter_context(mock.patch.dict(names, Signal=_Noted(self.made)))
            yield

    def needless(self, netlist):
        """Leaves out the rules of channels that do not feed the ports; sets `used`."""
        cells = netlist["cells"]
        drivers, inputs = {}, {}
        for name, cell in cells.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    drivers |= dict.fromkeys(bits, name)
                else:
                    inputs.setdefault(name, set()).update(bits)
        places = {name: PLACE.search(name) for name in cells}
        checks = {name for name, cell in cells.items() if cell["type"] == "$check"}
        wanted = {name for name in checks if not places[name]}
        seen = set()
        work = [(name, OWN not in name) for name in wanted]  # and whether more than rule 9 is meant
        while work:
            name, whole = work.pop()
            if (name, whole) in seen:
                continue
            seen.add((name, whole))
            place = places[name]
            if place and place[2] == "free" and place[4]:
                new = self._rules(place, places, checks, whole) - wanted
                wanted |= new
                work += [(check, False) for check in new if places[check][2] == "takes"]
            if cells[name]["type"] not in cone.REGISTERS:
                work += [(drivers[bit], whole) for bit in inputs.get(name, ()) if bit in drivers]
        for number, (full, said) in list(self.used.items()):
            said -= full
            if hint(self.parts[number]).queue and not full:  # its own proofs say so
                del self.used[number]
        for check in checks:
            place = places[check]
            same = cells[check]["connections"]["A"] == ["1"]  # Yosys has made one register of both
            if place and place[2] == "guess" and same and int(place[1]) in self.used:
                self.lags[int(place[1])] = int(place[3])
        return lambda name: name.removeprefix("\\") not in wanted

    def _rules(self, place, places, checks, whole):
        """The rules that go with a channel of a part; `whole`: not rule 9 alone."""
        number, channel = place.group(1, 4)
        kinds = ("gives", "says") if whole else ("says",)
        mine = {name for name in checks if places[name] and places[name][1] == number}
        rules = {name for name in mine if places[name][4] == channel and places[name][2] in kinds}
        if not rules:
            return set()
        self.used.setdefault(int(number), (set(), set()))[not whole].add(channel)
        return rules | {name for name in mine if places[name][2] == "takes"}


class _Noted:
    """Stands for `Signal`, and keeps what it makes by name."""

    def __init__(self, made):
        self.made = made

    def __call__(self, *args, src_loc_at=0, **options):
        signal = Signal(*args, src_loc_at=src_loc_at + 1, **options)
        self.made[Value.cast(signal).name] = signal
        return signal

    def like(self, *args, src_loc_at=0, **options):
        return Signal.like(*args, src_loc_at=src_loc_at + 1, **options)


class _Later(Elaboratable):
    """Lemmas that are added when the circuit has been elaborated."""

    def __init__(self, lemmas):
        self.lemmas = lemmas

    def elaborate(self, platform):
        m = Module()
        self.lemmas(m)
        return m


def prove(component, names=None, said=(), *, lag=0, timeout=300, done=None):
    """Prove the rules on output channels of a component, and on those that feed them.

    names, said, lag : see `PortHarness`. done : what has been shown before, and is not shown again;
    added to. Returns the `Proof` of each new level, this one first.
    """
    done = {} if done is None else done
    if names is None:
        names = {name for name, (flow, _) in channels(component).items() if flow == wiring.Out}
    shown, shown_said = done.setdefault((_description(component), lag), (set(), set()))
    names, said = set(names) - shown, set(said) - shown - shown_said
    if not names | said:
        return []
    start = time.monotonic()
    harness = PortHarness(component, names, said, lag)
    with harness.cut(), solver.Model(harness, timeout) as bench:
        try:
            k, deep = harness.hint.k, harness.hint.deep + lag
            counts = formal.settle(bench, "induction", k, deep)
        except formal.ProofError as error:
            raise formal.ProofError(f"{type(component).__name__}: {error}") from None
    seconds = time.monotonic() - start
    proofs = [Proof(type(component).__name__, tuple(sorted(harness.outputs)), *counts, seconds)]
    for number, (whole, rest) in harness.used.items():
        part = harness.parts[number]
        if hint(part).delay and number not in harness.lags:
            first, second = hint(part).delay
            text = f"{second} is not {first} a constant number of cycles ago"
            raise formal.ProofError(f"{type(component).__name__}: {text}")
        options = {"lag": harness.lags.get(number, 0), "timeout": timeout, "done": done}
        proofs += prove(part, whole, rest, **options)
    shown |= names
    shown_said |= said
    return proofs
