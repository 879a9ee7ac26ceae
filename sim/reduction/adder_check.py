"""The FP32 adder against SMT-LIB's floats for all pairs, and against numpy for very many."""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from gradnic.hdl.reduction.float_add import NAN, FloatAdd
from gradnic.hdl.top.rtlil import to_rtlil
from gradnic.models.reduction.float_add import add

from gradnic import processes

from ..engine import tools
from ..engine.bitslice import Pipeline

CHUNK = 1 << 18  # pairs that stay in the caches
_WIRES = """
(* techmap_celltype = "$dff" *)
module as_wire(CLK, D, Q);
parameter WIDTH = 1;
parameter CLK_POLARITY = 1;
input CLK;
input [WIDTH-1:0] D;
output [WIDTH-1:0] Q;
assign Q = D;
endmodule
"""
_PREPARE = """
read_rtlil design.il
prep -flatten -top top
techmap -map wires.v
opt -full
opt_clean
write_smt2 -stbv -wires design.smt2
"""
_QUESTION = f"""
(declare-const s |top_s|)
(define-fun a () (_ FloatingPoint 8 24) ((_ to_fp 8 24) (|top_n a| s)))
(define-fun b () (_ FloatingPoint 8 24) ((_ to_fp 8 24) (|top_n b| s)))
(define-fun sum () (_ FloatingPoint 8 24) (fp.add RNE a b))
(define-fun o () (_ BitVec 32) (|top_n o| s))
(assert (not (ite (fp.isNaN sum) (= o #x{NAN:08x}) (= ((_ to_fp 8 24) o) sum))))
(check-sat)
"""


def prove(component=None, timeout=600):
    """Ask z3 whether some pair has another sum than ``fp.add RNE``: "unsat" is the proof.

    The registers of the adder become wires: a pipeline without feedback computes the same. Takes
    40 s; a wrong adder is found faster by `refute`. ToolError if z3 gives no answer.
    """

    def answer(question):
        z3 = Path(sys.executable).parent / "z3"
        done = processes.run(
            [str(z3), f"-T:{timeout}", str(question)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return done.stdout.strip(), done.stderr

    return _asked(component, answer)


def refute(component, timeout=60):
    """Ask Bitwuzla what `prove` asks z3: "sat" if some pair has another sum.

    It finds one in less than a second, where z3 takes up to half a minute, but is no faster at the
    proof. ToolError if it gives no answer.
    """
    import bitwuzla  # only here: nobody else needs it

    def answer(question):
        options = bitwuzla.Options()
        options.set(bitwuzla.Option.TIME_LIMIT_PER, 1000 * timeout)
        parser = bitwuzla.Parser(bitwuzla.TermManager(), options)
        parser.parse(str(question), parse_only=True)
        return str(parser.bitwuzla().check_sat()), ""

    return _asked(component, answer)


def _asked(component, answer):
    """What `answer`, called with the question's file, says: "sat" or "unsat"."""
    with tempfile.TemporaryDirectory(dir=_root("adder")) as folder:
        folder = Path(folder)
        text = to_rtlil(component or FloatAdd(), name="top", emit_src=False)
        (folder / "design.il").write_text(text)
        (folder / "wires.v").write_text(_WIRES)
        tools.yosys(_PREPARE, folder=folder, outputs=["design.smt2"])
        question = folder / "question.smt2"
        question.write_text((folder / "design.smt2").read_text() + _QUESTION)
        said, error = answer(question)
    if said not in ("sat", "unsat"):
        raise tools.ToolError(f"the solver answers {said!r} {error!r}")
    return said


def _root(name):
    root = tools.build_root() / name
    root.mkdir(parents=True, exist_ok=True)
    return root


@cache
def adder():
    """The pipeline as a function of two arrays."""
    return Pipeline(FloatAdd(), word=("a", "b"), outputs=["o"], latency=FloatAdd.latency)


def patterns(level=1):
    """Words with odd exponents and fractions, of both signs: uint32.

    Level 1: 216 of them, 46,656 pairs. Level 2: 2,752, 7.6 million pairs. Fractions are runs of
    ones and zeros and their neighbors; exponents those at which formats, roundings, shifts change.
    """
    if level == 1:
        exponents = [0, 1, 102, 126, 127, 128, 151, 254, 255]
        fractions = [0, 1, 2, 1 << 22, (1 << 22) - 1, (1 << 23) - 1]
        fractions += [0x555555, 0x2AAAAA, (1 << 23) - 2, (1 << 22) + 1, 1 << 11, (1 << 12) - 1]
    else:
        exponents = [0, 1, 2, 3, 23, 24, 25, 100, 101, 102, 103, 104, 125, 126, 127, 128, 129]
        exponents += [130, 149, 150, 151, 152, 153, 154, 228, 229, 230, 231, 252, 253, 254, 255]
        ones = [(1 << k) - 1 for k in range(24)]
        fractions = ones + [((1 << 23) - 1) ^ x for x in ones[1:23]]
        fractions = sorted(set(fractions))[:43]
    exponents, fractions = np.uint32(exponents), np.uint32(fractions)
    words = (exponents[:, None] << np.uint32(23) | fractions).reshape(-1)
    return np.concatenate([words, words | np.uint32(1 << 31)])


def random_pairs(n, generator):
    """uint32 (2, n): half of them any words, half with exponents within 30 of each other."""
    words = generator.integers(0, 1 << 32, (2, n), dtype=np.uint32)
    near = words[:, : n // 2]
    step = generator.integers(-30, 31, near.shape[1])
    exponent = ((near[0] >> 23 & 255).astype(np.int64) + step) & 255
    near[1] = near[1] & np.uint32(0x807FFFFF) | exponent.astype(np.uint32) << np.uint32(23)
    return words


def compare(pairs):
    """Number of pairs, uint32 (2, n), whose sum is not the model's."""
    want = add(*pairs.view(np.float32)).view(np.uint32)
    return int(np.count_nonzero(adder()(pairs)["o"] != want))


def campaign(n_random, *, level=2, seed=1, jobs=None, progress=None):
    """All pairs of `patterns` and `n_random` random ones: a dict of counts and seconds."""
    begin = time.monotonic()
    words = patterns(level)

    def corner(at):
        rows = words[at : at + 64]
        pairs = np.stack([np.repeat(rows, len(words)), np.tile(words, len(rows))])
        return pairs.shape[1], compare(pairs)

    def noise(k):
        size = min(CHUNK, n_random - k * CHUNK)
        generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(k,)))
        return size, compare(random_pairs(size, generator))

    counts = {}
    adder()
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:  # C++ and numpy leave the lock free
        for name, work, keys in (
            ("corner", corner, range(0, len(words), 64)),
            ("random", noise, range(-(-n_random // CHUNK))),
        ):
            done = wrong = 0
            for size, differ in pool.map(work, keys):
                done, wrong = done + size, wrong + differ
                if progress:
                    progress(name, done)
            counts |= {f"{name}_pairs": done, f"{name}_mismatches": wrong}
    ok = not counts["corner_mismatches"] and not counts["random_mismatches"]
    return {**counts, "ok": ok, "seconds": round(time.monotonic() - begin, 1)}
