"""Bulk runs of stream components: 256 copies at once, each with packets of its own.

`gradnic.sim.engine.batch` plays one copy, checks every stream rule and tells the cycle of every
transfer.
Here volume counts: gates on bit planes (`gradnic.sim.engine.gates`), beats in and out as numpy
arrays, and nothing in Python but the comparison.
"""

import ctypes
import shutil
from pathlib import Path

import numpy as np
from amaranth.hdl import Shape
from gradnic.hdl.top.rtlil import to_rtlil

from gradnic import build_cache
from gradnic.errors import Unfinished

from . import gates, tools
from .design_ports import ports_of

COPIES = gates.COPIES
DRIVER = Path(__file__).with_name("bulk.cpp")


class _Queue(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_void_p), ("most", ctypes.c_int64), ("counts", ctypes.c_void_p)]


class _Job(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.POINTER(_Queue)),
        ("outputs", ctypes.POINTER(_Queue)),
        ("reset_cycles", ctypes.c_int64),
        ("max_cycles", ctypes.c_int64),
        ("idle_cycles", ctypes.c_int64),
        ("stalls", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
    ]


class Bulk:
    """256 copies of a component whose ports are all streams, in domain ``sync``.

    Building takes a minute for the engines at 16 lanes; libraries are kept under ``build/bulk``.
    """

    def __init__(self, component):
        streams, plain = ports_of(component.signature)
        if plain:
            raise ValueError(f"a bulk component must have streams only, not {plain[0].name}")
        self.inputs = {port.name: port for port in streams if port.is_input}
        self.outputs = {port.name: port for port in streams if not port.is_input}
        text = to_rtlil(component, name="top", emit_src=False)
        sources = [Path(file).read_text() for file in (DRIVER, gates.HEADER, gates.__file__)]
        key = tools.digest(text, *sources, Path(__file__).read_text(), tools.yosys_version())
        root = tools.build_root() / "bulk"
        folder = build_cache.kept(root / key, lambda work: self._build(text, work))
        self._play = ctypes.CDLL(str(folder / "bulk.so")).play_streams
        self._play.restype = ctypes.c_int64

    def row_bytes(self, port):
        """Bytes of a beat's row: its payload in whole words of 32 bits."""
        known = self.inputs | self.outputs
        return -(-Shape.cast(known[port].shape).width // 32) * 4

    def run(self, inputs, most, *, max_cycles, idle_cycles=256, stalls=0, seed=1):
        """Play all copies from reset until no output has had a beat for `idle_cycles`.

        inputs : {port: (rows, counts)}: uint8 (n, 256, row_bytes), the beats' bits, little-endian,
            and int64 (256,), how many of them count.
        most : {port: beats} that a copy may give, to make room.
        stalls : 0 for none; n: every port waits, at either side, in one cycle of 2^n at random.

        Returns ({port: (rows, counts)} of the outputs, cycles). `Unfinished` where max_cycles were
        not enough.
        """
        keep = []

        def queue(port, rows, counts):
            rows = np.ascontiguousarray(rows, np.uint8)
            counts = np.ascontiguousarray(counts, np.int64)
            if rows.shape[1:] != (COPIES, self.row_bytes(port)) or counts.shape != (COPIES,):
                expected = ("n", COPIES, self.row_bytes(port))
                raise ValueError(f"{port}: rows must have shape {expected}, not {rows.shape}")
            keep.append((rows, counts))
            return _Queue(rows.ctypes.data, len(rows), counts.ctypes.data)

        given = [queue(port, *inputs[port]) for port in self.inputs]
        n_given = len(keep)
        seen = [
            queue(
                port, np.zeros((most[port], COPIES, self.row_bytes(port)), np.uint8), [0] * COPIES
            )
            for port in self.outputs
        ]
        job = _Job((_Queue * len(given))(*given), (_Queue * len(seen))(*seen))
        job.reset_cycles, job.max_cycles, job.idle_cycles = 4, max_cycles, idle_cycles
        job.stalls, job.seed = stalls, seed
        cycles = self._play(ctypes.byref(job))
        if cycles < 0:
            raise Unfinished(f"not drained after {max_cycles} cycles")
        return dict(zip(self.outputs, keep[n_given:], strict=True)), cycles

    def _build(self, text, work):
        (work / "design.il").write_text(text)
        code, given, seen = gates.write(work)
        (work / "circuit.cpp").write_text(code)
        (work / "ports.h").write_text(self._ports(given, seen))
        shutil.copy(DRIVER, work)
        command = [tools.compiler(), *gates.FLAGS, "bulk.cpp", "-o", "bulk.so"]
        tools.call(command, folder=work, timeout=3600, log="compiler.log")

    def _ports(self, given, seen):
        """C++ that says which planes belong to which stream."""
        lines = ["#pragma once", f"constexpr int RST = {given['rst'][0]};"]
        names = {"Input": [], "Output": []}
        for kind, ports, forth, back in (
            ("Input", self.inputs, given, seen),
            ("Output", self.outputs, seen, given),
        ):
            for name, port in ports.items():
                first, width = forth[f"{name}__payload"]
                planes = {"payload": first, "width": width, "valid": forth[f"{name}__valid"][0]}
                planes["ready"] = back[f"{name}__ready"][0] if port.has_ready else -1
                body = " ".join(f"static constexpr int {k} = {v};" for k, v in planes.items())
                lines.append(f"struct Port_{name} {{ {body} }};")
                names[kind].append(f"{kind}<Port_{name}>")
        lines += [f"#define {kind.upper()}S {', '.join(each)}" for kind, each in names.items()]
        return "\n".join([*lines, ""])
