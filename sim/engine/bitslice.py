"""Bit-parallel simulation of small free-running pipelines: 256 independent words per cycle.

Yosys turns a component into gates and flip-flops; each gate becomes one operation on 256-bit
vectors in C++, one bit per word, and each flip-flop one vector of state. Against simulating words
one after the other, that is the factor that makes all 2^32 inputs of a value path a matter of
minutes. The component must not stall, have no reset state and take one word per cycle; its
pipeline is played cycle by cycle, so misaligned registers show.
"""

import ctypes
import json
import shutil
from pathlib import Path

import numpy as np
from gradnic.hdl.top.rtlil import to_rtlil

from gradnic import build_cache

from . import tools
from .gates import GATES, HEADER

WORDS = 256  # that one vector holds
_SCRIPT = """
read_rtlil design.il
synth -flatten -top top
dfflegalize -cell $_DFF_P_ 01
opt_clean
write_json gates.json
"""
_LOOP = r"""
#include "gates.h"

// Word 8 k + c is column c of vector k, so that words load as they lie.
static void to_planes(const uint32_t *words, V *planes) {
	std::memcpy(planes, words, 32 * sizeof(V));
	transpose(planes);
}

static void to_words(V *planes, uint32_t *words) {
	transpose(planes);
	std::memcpy(words, planes, 32 * sizeof(V));
}

struct State { V q[N_STATE + 1]; };
"""


class Pipeline:
    """A component as a function of arrays of words.

    component : `wiring.Component` without streams, in domain ``sync``. word : its input that takes
    one word per cycle, at most 32 bits, or a tuple of such. outputs : names of outputs, at most 32
    bits each. latency : cycles from a word to its outputs. Other inputs are settings, constant in
    a call.
    """

    def __init__(self, component, *, word, outputs, latency):
        self.words = (word,) if isinstance(word, str) else word
        self.outputs, self.latency = list(outputs), latency
        text = to_rtlil(component, name="top", emit_src=False)
        key = tools.digest(
            text,
            repr((self.words, self.outputs)),
            Path(__file__).read_text(),
            HEADER.read_text(),
            tools.yosys_version(),
        )
        root = tools.build_root() / "bitslice"
        folder = build_cache.kept(root / key, lambda work: self._build(text, work))
        self.settings = json.loads((folder / "settings.json").read_text())
        self._play = ctypes.CDLL(str(folder / "pipeline.so")).play

    def __call__(self, words, **settings):
        """Outputs of `words`, uint32 (n,), or (n_inputs, n) where several inputs take words:
        {name: uint32 (n,)}. Settings: name=integer.
        """
        if sorted(settings) != sorted(self.settings):
            raise ValueError(f"settings must be {sorted(self.settings)}, not {sorted(settings)}")
        words = np.ascontiguousarray(words, np.uint32).reshape(len(self.words), -1)
        n_words = words.shape[1]
        padded = np.ascontiguousarray(np.pad(words, ((0, 0), (0, -n_words % WORDS))))
        results = np.empty((len(self.outputs), padded.shape[1]), np.uint32)
        levels = [settings[n] >> k & 1 for n, w in self.settings.items() for k in range(w)]
        levels = np.array(levels or [0], np.uint32)
        self._play(
            ctypes.c_void_p(padded.ctypes.data),
            ctypes.c_int64(padded.shape[1] // WORDS),
            ctypes.c_int64(self.latency),
            ctypes.c_void_p(levels.ctypes.data),
            ctypes.c_void_p(results.ctypes.data),
        )
        return {name: results[k, :n_words] for k, name in enumerate(self.outputs)}

    def _build(self, text, work):
        (work / "design.il").write_text(text)
        tools.yosys(_SCRIPT, folder=work, outputs=["gates.json"])
        module = json.loads((work / "gates.json").read_text())["modules"]["top"]
        code, settings = self._code(module)
        (work / "pipeline.cpp").write_text(code)
        (work / "settings.json").write_text(json.dumps(settings))
        shutil.copy(HEADER, work)
        flags = ["-std=c++17", "-O2", "-march=native", "-fPIC", "-shared", "-w"]
        flags += [f"-DN_COPIES={WORDS}"]
        command = [tools.compiler(), *flags, "pipeline.cpp", "-o", "pipeline.so"]
        tools.call(command, folder=work, timeout=600, log="compiler.log")

    def _code(self, module):
        ports = module["ports"]
        kinds = {cell["type"] for cell in module["cells"].values()} - {"$scopeinfo"}
        if odd := sorted(kinds - set(GATES) - {"$_DFF_P_"}):
            raise ValueError(f"a pipeline must have gates and plain registers only, not {odd}")
        names = {"0": "zero", "1": "ones", "x": "zero"}
        lines, state, gates = [], [], {}

        def name(bit):
            return names.get(bit, f"n{bit}")

        settings = {
            port: len(entry["bits"])
            for port, entry in ports.items()
            if entry["direction"] == "input" and port not in ("clk", "rst", *self.words)
        }
        level = 0
        for port, entry in ports.items():
            if entry["direction"] != "input" or port in ("clk", "rst"):
                continue
            for k, bit in enumerate(entry["bits"]):
                if port in self.words:
                    plane = 32 * self.words.index(port) + k
                    lines.append(f"const V {name(bit)} = planes[{plane}];")
                else:
                    lines.append(f"const V {name(bit)} = zero - levels[{level}];")
                    level += 1
        for cell in module["cells"].values():
            pins = {pin: bits[0] for pin, bits in cell["connections"].items() if bits}
            if cell["type"] == "$_DFF_P_":
                lines.append(f"const V {name(pins['Q'])} = s.q[{len(state)}];")
                state.append(pins["D"])
            elif cell["type"] in GATES:
                gates[pins.pop("Y")] = (GATES[cell["type"]], pins)
        done = set()

        def emit(bit):  # gates in the order of the signals' flow
            stack = [bit]
            while stack:
                bit = stack[-1]
                if bit in done or bit not in gates:
                    stack.pop()
                    continue
                template, pins = gates[bit]
                missing = [b for b in pins.values() if b in gates and b not in done]
                if missing:
                    stack += missing
                    continue
                operands = {pin: name(b) for pin, b in pins.items()}
                lines.append(f"const V {name(bit)} = {template.format(**operands)};")
                done.add(bit)
                stack.pop()

        for bit in list(gates):
            emit(bit)
        for k, bit in enumerate(state):
            lines.append(f"s.q[{k}] = {name(bit)};")
        lines.append("if (!results) return;")
        for k, port in enumerate(self.outputs):
            bits = ports[port]["bits"]
            lines.append(f"{{ V out[32] = {{{', '.join(name(b) for b in bits)}}};")
            lines.append(f"to_words(out, results + {k} * total); }}")
        body = "\n\t".join(lines)
        return (
            f"#define N_STATE {len(state)}\n{_LOOP}\n"
            "static void cycle(State &s, const V *planes, const uint32_t *levels,\n"
            "                  uint32_t *results, int64_t total) {\n"
            f"\tconst V zero = {{}}, ones = ~zero;\n\t{body}\n}}\n\n"
            'extern "C" void play(const uint32_t *words, int64_t n, int64_t latency,\n'
            "                     const uint32_t *levels, uint32_t *results) {\n"
            f"\tState s = {{}};\n\tV planes[{32 * len(self.words)}] = {{}};\n"
            "\tfor (int64_t t = 0; t < n + latency; t++) {\n"
            f"\t\tfor (int64_t k = 0; t < n && k < {len(self.words)}; k++)\n"
            f"\t\t\tto_planes(words + {WORDS} * (k * n + t), planes + 32 * k);\n"
            "\t\tuint32_t *out = t < latency ? nullptr : "
            f"results + {WORDS} * (t - latency);\n"
            f"\t\tcycle(s, planes, levels, out, {WORDS} * n);\n\t}}\n}}\n"
        ), settings
