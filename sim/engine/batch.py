"""Batch engine: any component as a C++ library, played with numpy arrays.

A component becomes a shared library (`gradnic.sim.engine.verilated`) with the per-cycle loop of
``batch.cpp`` inside, which is compiled once, and reads from tables where a circuit's ports are:
Python is called once a run, not once a cycle. Libraries are kept under
``build/batch`` by the hash of what they are made of; several processes may build and load at
once.

A run plays like this: reset for ``reset_cycles``, then cycle 0, 1, ...: each input offers its next
beat when its stall pattern lets a new offer begin, and keeps an offer until it is taken; each
output is ready as its pattern says; between offers an input's payload is noise. Checked in every
cycle, and raised as `ProtocolError`: ``valid`` is low in reset, an offer is never withdrawn, its
payload never changes, and (each 61st cycle) ``valid`` does not wait for ``ready``. A mutant's
combinational loop that never settles is a `ProtocolError`, too.
"""

import ctypes
import pickle
import re
from pathlib import Path

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.top.rtlil import to_rtlil

from . import batch_job, design_ports, elaborated, encoding, failures, tools, verilated
from .design_ports import ports_of

ENGINE = Path(__file__).parent
PROBE_CYCLES = 61  # a prime, so that probes drift through stall patterns


class ProtocolError(AssertionError):
    """A stream rule was broken by the component, or a combinational loop does not settle."""


class DrainError(AssertionError):
    """The component did not deliver, or did not come to rest, within the cycles given."""


class Run:
    """What a run left behind.

    Members
    -------
    outputs : {port: uint8 (n, bytes)}, beats taken from each output.
    taken : {port: int64 (n,)}, the cycle of each transfer, inputs and outputs; 0 follows reset.
    cycles : int, cycles played after reset.
    signals : {port: values of the plain output at the end}; int, or bytes where wider than 64 bits.
    traces : {port: values of the plain output in each cycle}, for the ports in ``trace``.
    """

    def __init__(self, instance, request):
        self.outputs, self.taken, self.signals, self.traces = {}, {}, {}, {}
        self.cycles = 0
        self._instance, self._request = instance, request

    def unpack(self, port):
        """Fields of the beats that an output delivered, as `encoding.unpack` returns them."""
        return encoding.unpack(self._instance.model.streams[port].shape, self.outputs[port])

    def frames(self, port):
        """Frames that an output delivered, as `encoding.unpack_frames` cuts them.

        AssertionError, not ValueError, if the beats are no whole frames: the design sent them.
        """
        shape = self._instance.model.streams[port].shape
        try:
            return encoding.unpack_frames(shape, self.outputs[port])
        except ValueError as error:
            text = f"{port}: {error}"
            raise AssertionError(text + self._instance.model.save(self._request, {})) from error

    def check(self, **expected):
        """Compare whole outputs; AssertionError with the first difference and a replay command."""
        for port, beats in expected.items():
            got = self.outputs[port]
            beats = np.asarray(beats, np.uint8)
            if got.shape == beats.shape and (got == beats).all():
                continue
            n = min(len(got), len(beats))
            wrong = np.flatnonzero((got[:n] != beats[:n]).any(axis=1))
            text = f"{port}: {len(got)} beats, not {len(beats)}"
            if len(wrong):
                at = int(wrong[0])
                text = (
                    f"{port}: beat {at} is {got[at].tobytes().hex()}, not "
                    f"{beats[at].tobytes().hex()} (cycle {self.taken[port][at]}; {len(got)} beats "
                    f"came, {len(beats)} expected)"
                )
            raise AssertionError(text + self._instance.model.save(self._request, expected))


class Instance:
    """One copy of the design, with its own state; many of them fit in one process."""

    def __init__(self, model):
        self.model = model
        self._library = model.library
        self._self = self._library.batch_new()
        self._pending = None
        self._n_runs = 0

    def __del__(self):
        if getattr(self, "_self", None):
            self._library.batch_delete(self._self)
            self._self = None

    def run(
        self,
        inputs=None,
        outputs=None,
        *,
        stalls=None,
        seed=1,
        signals=None,
        trace=(),
        until=None,
        reset=True,
        reset_cycles=2,
        drain=True,
        max_cycles=None,
        idle_cycles=256,
        probe_cycles=PROBE_CYCLES,
    ):
        """Play one run.

        inputs : {port: beats}, uint8 (n, bytes); inputs that are not named offer nothing.
        outputs : names of the outputs that may deliver, None for all: a beat from any other raises.
        stalls : {port: stall}. A duty within 0..1 (the chance that an input without an offer begins
            one, or that an output is ready, in a cycle; 1 if not given), a pattern of 0 and 1, one
            a cycle and repeated, or (pattern once, then duty or pattern).
        seed : of the duties and of the noise between offers.
        signals : {port: value or one value a cycle, the last one held}; kept between runs.
        trace : names of plain outputs to record in every cycle.
        until : {port: n_beats}; the run ends when all these have delivered so many.
        reset : False goes on from the state of the run before.
        drain : the run ends when all beats were taken and nothing moved for `idle_cycles`; False
            plays exactly `max_cycles` (or to `until`) instead, which may stop in mid-packet.
        max_cycles : default 20,000 + 100 per beat given.
        probe_cycles : cycles between checks that valid does not wait for ready; 0 for none.

        Returns a `Run`. ProtocolError if a rule is broken, DrainError if the cycles are used up.
        """
        model, keep = self.model, []
        inputs, stalls = dict(inputs or {}), dict(stalls or {})
        until = dict(until or {})
        model.known("input", inputs, model.inputs)
        model.known("stream", stalls, model.streams)
        model.known("plain input", signals or (), model.levels)
        model.known("plain output", trace, model.probes)
        model.known("output", until, model.outputs)
        model.known("output", outputs or (), model.outputs)
        if self._pending and not reset:
            raise ValueError(f"the run before stopped with {self._pending} offered: reset first")
        if not drain and max_cycles is None and not until:
            raise ValueError("max_cycles or until must be given where drain is False")
        signals = {**model.fixed, **(signals or {})}
        arrays = {name: self._checked(name, beats) for name, beats in inputs.items()}
        if max_cycles is None:
            max_cycles = 20_000 + 100 * sum(map(len, arrays.values()))
        max_cycles = model.bound(max_cycles)
        traced = batch_job.bits([name in trace for name in model.probes] or [0])
        ends = self._ends(arrays, stalls, signals, until, keep)
        job = batch_job.Job(*ends, traced.ctypes.data)
        job.reset_cycles = reset_cycles if reset else 0
        job.max_cycles, job.idle_cycles = max_cycles, idle_cycles
        job.probe_cycles, job.drain, job.seed = probe_cycles, drain, seed
        result = batch_job.Result()
        self._library.batch_run(self._self, ctypes.byref(job), ctypes.byref(result))
        request = {
            "inputs": arrays,
            "options": {
                "outputs": None if outputs is None else list(outputs),
                "stalls": stalls,
                "seed": seed,
                "signals": signals,
                "trace": list(trace),
                "until": until,
                "reset_cycles": reset_cycles,
                "drain": drain,
                "max_cycles": max_cycles,
                "idle_cycles": idle_cycles,
                "probe_cycles": probe_cycles,
            },
            "fresh": self._n_runs == 0,
        }
        self._n_runs += 1
        run = Run(self, request)
        run.cycles = result.cycles
        model.note(result.cycles)
        if result.code == batch_job.UNSETTLED:
            raise ProtocolError(_unsettled(f"at cycle {result.cycle}") + model.save(request, {}))
        self._collect(run, trace)
        self._judge(run, result, outputs, until)
        return run

    def _checked(self, name, beats):
        """Beats of an input as one array; an error if they are no beats of it."""
        beats = np.ascontiguousarray(beats)
        port = self.model.streams[name]
        encoding.unpack(port.shape, beats[:0])  # complains about type and size
        unused = -Shape.cast(port.shape).width % 8
        if unused and len(beats) and int(beats[:, -1].max()) >> (8 - unused):
            raise ValueError(f"{name}: the top {unused} bits of a beat must be 0")
        return beats

    def _ends(self, arrays, stalls, signals, until, keep):
        """What plays at inputs, outputs and plain inputs; arrays it points at go into `keep`."""
        model = self.model
        feeds = (batch_job.Feed * (len(model.inputs) + 1))()
        for i, name in enumerate(model.inputs):
            beats = arrays.get(name, np.zeros((0, 1), np.uint8))
            keep.append(beats)
            feeds[i] = batch_job.Feed(
                beats.ctypes.data, len(beats), batch_job.stalled(stalls.get(name, 1), keep)
            )
        sinks = (batch_job.Sink * (len(model.outputs) + 1))()
        for i, name in enumerate(model.outputs):
            sinks[i] = batch_job.Sink(
                batch_job.stalled(stalls.get(name, 1), keep), until.get(name, -1)
            )
        levels = (batch_job.Level * (len(model.levels) + 1))()
        for i, name in enumerate(model.levels):
            if name in signals:
                values = batch_job.as_values(model.levels[name], signals[name])
                keep.append(values)
                levels[i] = batch_job.Level(values.ctypes.data, len(values))
        return feeds, sinks, levels

    def _collect(self, run, trace):
        model, library = self.model, self._library
        cycles = ctypes.POINTER(ctypes.c_int64)()
        data = ctypes.POINTER(ctypes.c_uint8)()
        offered = ctypes.c_int64()
        self._pending = None
        for i, name in enumerate(model.inputs):
            n = library.batch_in_taken(self._self, i, ctypes.byref(cycles), ctypes.byref(offered))
            run.taken[name] = _copied(cycles, n, np.int64)
            if offered.value:
                self._pending = name
        for i, name in enumerate(model.outputs):
            n = library.batch_out_taken(self._self, i, ctypes.byref(cycles), ctypes.byref(data))
            size = model.streams[name].size
            run.taken[name] = _copied(cycles, n, np.int64)
            run.outputs[name] = _copied(data, n * size, np.uint8).reshape(n, size)
        for i, (name, port) in enumerate(model.probes.items()):
            run.signals[name] = self.read(name)
            if name in trace:
                n = library.batch_trace(self._self, i, ctypes.byref(data))
                rows = _copied(data, n, np.uint8).reshape(-1, port.size)
                run.traces[name] = encoding.unpack(Shape.cast(port.shape), rows)

    def read(self, name):
        """Value of a plain output now: int, or bytes where it is wider than 64 bits."""
        port = self.model.probes[name]
        row = np.zeros((1, port.size), np.uint8)
        index = list(self.model.probes).index(name)
        if not self._library.batch_read(self._self, index, row.ctypes.data):
            raise ProtocolError(_unsettled(f"as {name} is read"))
        value = encoding.unpack(Shape.cast(port.shape), row)
        return value[0].tobytes() if value.ndim == 2 else int(value[0])

    def _judge(self, run, result, outputs, until):
        model = self.model
        counts = ", ".join(f"{name} {len(taken)}" for name, taken in run.taken.items())
        if result.code in batch_job.BROKEN:
            name = list(model.outputs)[result.port]
            text = (
                f"{name}: {batch_job.BROKEN[result.code]} at cycle {result.cycle} (taken: {counts})"
            )
            raise ProtocolError(text + model.save(run._request, {}))
        if result.code == batch_job.TIMEOUT:
            wanted = "".join(f", {name} {n} wanted" for name, n in until.items())
            text = f"not drained after {result.cycles} cycles (taken: {counts}{wanted})"
            raise DrainError(text + model.save(run._request, {}))
        if outputs is not None:
            for name in model.outputs:
                if name not in outputs and len(run.taken[name]):
                    text = f"{name}: {len(run.taken[name])} beats, not 0"
                    raise AssertionError(text + model.save(run._request, {}))


def _unsettled(when):
    return f"a combinational loop does not settle {when}"


def _copied(pointer, n, dtype):
    if not n:
        return np.zeros(0, dtype)
    return np.ctypeslib.as_array(pointer, (n,)).astype(dtype, copy=True)


class Model:
    """A loaded library: makes instances, and packs beats for their ports.

    Members
    -------
    streams : {name: StreamPort}; inputs, outputs: the same, by direction.
    levels, probes : {name: PlainPort}, plain inputs and outputs.
    folder : where the library, its C++ and its RTLIL are kept.
    fixed : {name: value} of plain inputs in every run that does not set them itself.
    """

    def __init__(self, folder, streams, plain):
        self.folder = Path(folder)
        self.streams = {p.name: p for p in streams}
        self.inputs = {p.name: p for p in streams if p.is_input}
        self.outputs = {p.name: p for p in streams if not p.is_input}
        self.levels = {p.name: p for p in plain if p.is_input}
        self.probes = {p.name: p for p in plain if not p.is_input}
        self.fixed = {}
        self.library = ctypes.CDLL(str(self.folder / "model.so"))
        for name in ("batch_new", "batch_delete", "batch_run"):
            getattr(self.library, name).restype = None
        self.library.batch_read.restype = ctypes.c_bool
        self.library.batch_new.restype = ctypes.c_void_p
        pointer = ctypes.c_void_p
        self.library.batch_delete.argtypes = [pointer]
        self.library.batch_run.argtypes = [pointer, pointer, pointer]
        self.library.batch_read.argtypes = [pointer, ctypes.c_int64, pointer]
        for name, n in (("batch_in_taken", 2), ("batch_out_taken", 2), ("batch_trace", 1)):
            function = getattr(self.library, name)
            function.restype = ctypes.c_int64
            function.argtypes = [pointer, ctypes.c_int64, *[pointer] * n]

    def known(self, kind, names, ports):
        """ValueError if one of `names` is not among `ports`."""
        for name in names:
            if name not in ports:
                raise ValueError(f"{kind} must be among {sorted(ports)}, not {name!r}")

    def bound(self, max_cycles):
        """The most cycles that the next run may take, where it asked for `max_cycles`."""
        return max_cycles

    def note(self, cycles):
        """Told after each run how many cycles it took."""

    def instance(self):
        """A new copy of the design, in its power-on state."""
        return Instance(self)

    def run(self, inputs=None, outputs=None, **options):
        """Play one run on a new instance: see `Instance.run`."""
        return Instance(self).run(inputs, outputs, **options)

    def pack(self, port, plain=None, /, **fields):
        """Beats for a port: `encoding.pack` with the port's payload."""
        return encoding.pack(
            self.streams[port].shape, *([] if plain is None else [plain]), **fields
        )

    def pack_frames(self, port, frames, **fields):
        """Beats of frames for a port: `encoding.pack_frames` with the port's payload."""
        return encoding.pack_frames(self.streams[port].shape, frames, **fields)

    def save(self, request, expected):
        """Keep a failed run below ``build/failures``; returns a text with the replay command."""
        return failures.save(self, request, expected)


def load(folder):
    """The `Model` of a library that was built before; ValueError if its folder is gone."""
    try:
        streams, plain = pickle.loads((Path(folder) / "ports.pickle").read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{folder} is gone: run the test that built it again") from None
    return Model(folder, streams, plain)


def build(component, *, platform=None, name=None):
    """Build, or find, the library of a component.

    component : wiring.Component with its clock in domain ``sync``, or none.
    platform : passed to ``elaborate``.
    name : for messages; default the component's class.

    Returns a `Model`. ValueError for a component with other clocks; `tools.ToolError` if a tool
    fails.
    """
    streams, plain = ports_of(component.signature)
    name = name or type(component).__name__
    if platform is not None:
        text = to_rtlil(component, name="top", platform=platform, emit_src=False)
        return build_rtlil(text, streams, plain, name=name)
    circuit = elaborated.design(component, look=lambda text: _check_ports(text, streams, plain))
    return _model(circuit, streams, plain, name)


def build_rtlil(text, streams, plain, *, name="top", prepare=verilated.PREPARE):
    """Build, or find, the library of RTLIL whose module ``top`` has these ports."""
    _check_ports(text, streams, plain)
    return _model(verilated.design(text, prepare=prepare), streams, plain, name)


def _check_ports(text, streams, plain):
    top = text[text.rindex("module \\top\n") :]
    top = top[: top.index("\nend\n")]  # Amaranth writes the submodules behind it
    port = r"\n  wire (?:signed )?(?:width \d+ )?(?:input|output) +\d+ +(?:signed )?\\(\S+)(?=\n)"
    wires = set(re.findall(port, top))  # `^` would be looked for at each character
    expected = {p.name for p in plain}
    for p in streams:
        expected |= {f"{p.name}__payload", f"{p.name}__valid", f"{p.name}__ready"}
    if odd := sorted(wires - expected - {"clk", "rst"}):
        raise ValueError(f"a component must have one clock domain, sync, not also {odd}")


def _model(circuit, streams, plain, name):
    streams, plain = list(streams), list(plain)
    loop, harness, common = (
        {file: (ENGINE / file).read_text()}
        for file in ("batch.cpp", "batch_circuit.cpp", "batch.h")
    )
    sources = harness | common | {"ports.h": design_ports.header(streams, plain)}
    more = {"ports.pickle": pickle.dumps((streams, plain))}
    folder = verilated.library(
        tools.build_root() / "batch",
        name,
        circuit,
        sources,
        objects=[verilated.engine(loop | common)],
        more=more,
    )
    return Model(folder, streams, plain)
