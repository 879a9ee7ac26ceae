"""Mutation campaigns: does the bench of a block notice one wrong gate?

Yosys lists mutants of the prepared RTLIL (a cell's port bit inverted, stuck, or flipped by its
neighbor). Shards of them go into batch libraries, each mutant behind one value of a port
``mutsel``; 0 is the unmutated circuit and must pass. A test function then runs once per mutant. A
mutant is killed if the test raises AssertionError: a mismatch, a broken stream rule, or no end
within three times the cycles of the unmutated run. Any other exception is an error of the campaign,
and no kill. What survives and can reach an output is put to a proof: equivalent mutants do not
count. Where no proof is found, a block may argue that mutants are equivalent; to kill one of these
is an error. Or it names a part of which the test plays everything. The rest is listed with its
source line; a block may explain survivors, with a reason.
"""

import importlib
import json
import linecache
import multiprocessing
import os
import re
import time
import warnings
from dataclasses import asdict, dataclass, field
from functools import cache

from amaranth.hdl import UnusedElaboratable
from gradnic.hdl.top.rtlil import to_rtlil

from gradnic import processes

from ..engine import batch, tools
from ..engine.design_ports import PlainPort, ports_of
from ..proof import cone, equivalence

SHARD = 256  # mutants in one library at most: the build takes longer than the play
MARGIN = 3  # times the cycles of the unmutated run, until a mutant counts as stuck
SLACK_CYCLES = 2000
ALL = 10**8  # more mutants than any block has: Yosys does not choose then
# a $pmux of which two selects are 1 is undefined: nobody could judge a mutant that makes it so
PREPARE = "prep -flatten -top top\npmuxtree\nopt_clean\n"
ARGUED = "argued: "
INSTRUMENTED = "opt_clean"


@dataclass(frozen=True)
class Campaign:
    """One block and the test that has to notice its mutants.

    name : of the block.
    component : function without arguments that makes it.
    test : function of a `batch.Model`; returns if all is well, raises AssertionError if not. It
        should put the quickest killers first, and must be the same from call to call.
    explained : {part of a survivor's text: reason}, for survivors that are known and accepted.
    elsewhere : pattern, in the text of a mutant, of what has a campaign of its own; no such
        mutants are drawn.
    argued : {pattern in a mutant's text: why nobody can tell it from the circuit}.
    exhausted : {pattern in a mutant's text: how the test plays all that this part can be given}, of
        parts without feedback; what survives there is equivalent.
    """

    name: str
    component: object
    test: object
    explained: dict
    elsewhere: str | None = None
    argued: dict = field(default_factory=dict)
    exhausted: dict = field(default_factory=dict)

    def argument(self, mutant):
        """Why a mutant is equivalent though no proof says so; None if it is not said to be."""
        return _found(self.argued, mutant)

    def survival(self, mutant):
        """Why a mutant that survived is equivalent, though others of its kind may die; or None."""
        return _found(self.exhausted, mutant)


def _found(reasons, mutant):
    return next((why for part, why in reasons.items() if re.search(part, mutant.text)), None)


@dataclass
class Mutant:
    """One mutant and its fate: killed, equivalent, explained, open or error."""

    index: int
    command: str
    verdict: str = "open"
    reason: str = ""
    place: str = ""

    @property
    def text(self):
        """What is mutated: mode, cell, port, bits, wire, source lines, and what the last one says.

        The line itself, since its number changes with each edit of the file. A cell with neither
        wire nor line, of a choice between assignments, has ``place`` instead.
        """
        cut = self.command.removeprefix("mutate ").replace("-module top ", "")
        cut = re.sub(r"-src \S*?/((?:\w+/)?[\w.]+:\d+)\S*", r"\1", cut)
        found = re.match(r"(.+):(\d+)", self.source)
        line = linecache.getline(found[1], int(found[2])).strip() if found else ""
        return f"{cut}: {line}" if found else cut + self.place

    @property
    def source(self):
        """The last source line that Yosys names: the most specific one."""
        found = re.findall(r"-src (\S+)", self.command)
        return found[-1] if found else ""


def listed(commands, netlist):
    """Mutants of commands, numbered from 1."""
    mutants = [Mutant(i, command) for i, command in enumerate(commands, 1)]
    around = cache(netlist.names_around)
    for mutant in mutants:
        if not re.search(" -(wire|src) ", mutant.command):
            cell = re.search(r" -cell (\S+)", mutant.command)[1].removeprefix("\\")
            given, fed = around(cell)
            mutant.place = f" -given {','.join(given)} -feeds {','.join(fed)}"
    return mutants


def load(block):
    """Campaign of a block: module ``gradnic.sim.mutation.<block>``."""
    module = importlib.import_module(f"gradnic.sim.mutation.{block}")
    explained = getattr(module, "EXPLAINED", {})
    elsewhere = getattr(module, "ELSEWHERE", None)
    argued = getattr(module, "ARGUED", {})
    exhausted = getattr(module, "EXHAUSTED", {})
    return Campaign(block, module.component, module.test, explained, elsewhere, argued, exhausted)


class _Mutated(batch.Model):
    """A library with one mutant chosen, whose runs may not take much longer than the control's."""

    def __init__(self, model, mutsel, limits):
        self.__dict__.update(model.__dict__)
        self.fixed = {"mutsel": mutsel}
        self.limits, self.n_runs = limits, 0

    def note(self, cycles):
        """Keep the cycles of the control's runs, for `bound`."""
        if self.fixed["mutsel"] == 0:
            self.limits.append(cycles)

    def bound(self, max_cycles):
        """The most cycles that this run may take."""
        self.n_runs += 1
        if self.fixed["mutsel"] == 0 or self.n_runs > len(self.limits):
            return max_cycles
        return min(max_cycles, MARGIN * self.limits[self.n_runs - 1] + SLACK_CYCLES)

    def save(self, request, expected):
        """Mutants leave no files behind: their replay is the campaign with ``--only``."""
        return ""


def unmatched(campaign):
    """Patterns of what is argued, exhausted or explained that no mutant of the block has.

    Which other bit of its port turns one is drawn: any stands for the ``-ctrlbit`` of a pattern.
    """
    _, _, commands, netlist = prepare(campaign.component(), None, 1, campaign.elsewhere)
    texts = "\n".join(mutant.text for mutant in listed(commands, netlist))
    patterns = {each: each for each in (*campaign.argued, *campaign.exhausted)}
    patterns |= {each: re.escape(each) for each in campaign.explained}
    for each, pattern in patterns.items():
        patterns[each] = re.sub(
            r"-ctrlbit(\\? )(?:\([^)]*\)|[^\s()])+?(?=\)*\\? )", r"-ctrlbit\1\\d+", pattern
        )
    return [each for each, pattern in patterns.items() if not re.search(pattern, texts)]


def prepare(component, count, seed, elsewhere=None):
    """RTLIL to mutate, and the list of mutants: (text, ports, commands, netlist).

    count : None, all that Yosys knows.

    Mutants of the clock are left out: no equivalence proof can judge them. So are repeats, those
    that `elsewhere` matches, and enables and resets of memory ports that read without a clock:
    Yosys insists that they are 1 and 0.
    """
    streams, plain = ports_of(component.signature)
    text = to_rtlil(component, name="top", emit_src=True)
    root = tools.build_root() / "mutate"
    root.mkdir(parents=True, exist_ok=True)
    with processes.work_folder(root, ".list-") as work:
        (work / "design.il").write_text(text)
        script = f"read_rtlil design.il\n{PREPARE}write_rtlil prepped.il\nwrite_json prepped.json\n"
        tools.yosys(script, folder=work, outputs=["prepped.il", "prepped.json"])
        module = json.loads((work / "prepped.json").read_text())["modules"]["top"]
        cells = module["cells"].values()
        # Yosys finds about three mutants per port bit, and never ends when asked for nearly all
        most = sum(len(bits) for cell in cells for bits in cell["connections"].values())
        if count is None:
            listed = ALL
        elif not 1 <= count <= most:
            raise ValueError(f"count must be within 1..{most}, not {count}")
        else:
            listed = count + count // 4 + 16  # spare ones for those left out
            listed = min(most, 4 * listed) if elsewhere else listed
        script = f"read_rtlil prepped.il\nmutate -list {listed} -seed {seed} -o mutants.txt\n"
        tools.yosys(script, folder=work, outputs=["mutants.txt"], timeout=600)
        prepped = (work / "prepped.il").read_text()
        lines = (work / "mutants.txt").read_text().splitlines()
    seen, commands = set(), []
    for line in lines:
        bare = line.split(" -wire ")[0].split(" -src ")[0]
        away = elsewhere and re.search(elsewhere, line)
        if bare not in seen and not away and not _left_out(module, line):
            seen.add(bare)
            commands.append(line)
    return prepped, (streams, plain), commands[:count], cone.Netlist(module)


def _left_out(module, line):
    if re.search(r" -port (CLK|RD_CLK|WR_CLK) | -wire clk ", line):
        return True
    fixed = re.search(r" -cell (\S+) -port RD_(?:EN|ARST|SRST) -portbit (\d+)", line)
    if not fixed:
        return False
    clocked = module["cells"][fixed[1].removeprefix("\\")]["parameters"]["RD_CLK_ENABLE"]
    return clocked[::-1][int(fixed[2])] == "0"


def _library(campaign, prepped, ports, shard):
    """Batch model of the circuit with the mutants of `shard` behind ``mutsel`` = 1, 2, ..."""
    streams, plain = ports
    width = len(shard).bit_length()
    lines = [
        m.command.replace("mutate ", f"mutate -ctrl mutsel {width} {i} ", 1)
        for i, m in enumerate(shard, 1)
    ]
    prepare = "\n".join([*lines, INSTRUMENTED])
    select = PlainPort("mutsel", width, True)
    name = f"mutants-{campaign.name}"
    return batch.build_rtlil(prepped, streams, [*plain, select], name=name, prepare=prepare)


def _play(campaign, prepped, ports, shard, part):
    """Fates of mutants `part`, places in a shard; RuntimeError if the unmutated circuit fails."""
    model = _library(campaign, prepped, ports, shard)
    limits = []
    try:
        campaign.test(_Mutated(model, 0, limits))
    except AssertionError as failure:
        raise RuntimeError(f"{campaign.name}: the unmutated circuit fails: {failure}") from failure
    for i in part:
        mutant = shard[i]
        try:
            campaign.test(_Mutated(model, i + 1, limits))
        except AssertionError as failure:
            mutant.verdict = "killed"
            mutant.reason = str(failure).strip().splitlines()[0][:200] if str(failure) else "assert"
            if campaign.argument(mutant):
                mutant.verdict = "error"
                mutant.reason = f"killed, though it is said that {campaign.argument(mutant)}"
        except Exception as failure:
            mutant.verdict, mutant.reason = "error", f"{type(failure).__name__}: {failure}"[:200]
    return [shard[i] for i in part]


def _judge(campaign, streams, netlist, mutant, prove):
    for part, reason in campaign.explained.items():
        if part in mutant.text:
            mutant.verdict, mutant.reason = "explained", reason
            return mutant
    argument = campaign.argument(mutant) or campaign.survival(mutant)
    if not netlist.matters(mutant.command):
        mutant.verdict, mutant.reason = "equivalent", "reaches no output"
    elif argument:
        mutant.verdict, mutant.reason = "equivalent", f"{ARGUED}{argument}"
    elif prove:
        masks = {
            f"{port.name}__payload": f"{port.name}__valid"
            for port in streams
            if not port.is_input and port.has_valid
        }
        how = equivalence.proven(netlist, masks, mutant.command)
        if how:
            mutant.verdict, mutant.reason = "equivalent", f"proven by {how}"
    return mutant


def run(campaign, *, count, seed=1, jobs=None, shard=SHARD, only=None, part=(0, 1), prove=True,
        progress=None):  # fmt: skip
    """Play a campaign.

    count, seed : how many mutants, and which sample of them.
    jobs : processes, default one a core.
    only : index of the one mutant to play, from 1.
    part : (k, n): every n-th mutant from number k on, from 0; all parts together are the campaign.
    prove : False leaves survivors open that could reach an output, and saves about a minute each
        for a large block.
    progress : called with (stage, done, total) as work proceeds.

    Returns a dict: ``block count seed control killed equivalent argued explained open errors score
    seconds mutants``; argued ones are among the equivalent, score is killed / (count - equivalent),
    None if nothing is left to count.
    ValueError for a count that the block does not have or an `only` outside it; RuntimeError if
    the control fails.
    """
    start = time.monotonic()
    # tests make components only to ask them for their sizes
    warnings.filterwarnings("ignore", category=UnusedElaboratable)
    progress = progress or (lambda stage, done, total: None)
    prepped, ports, commands, netlist = prepare(
        campaign.component(), count, seed, campaign.elsewhere
    )
    mutants = listed(commands, netlist)
    if only is not None:
        if not 1 <= only <= len(mutants):
            raise ValueError(f"only must be within 1..{len(mutants)}, not {only}")
        mutants = [mutants[only - 1]]
    mutants = mutants[part[0] :: part[1]]
    n_shards = max(1, -(-len(mutants) // shard))
    shards = [mutants[k::n_shards] for k in range(n_shards)]
    n_parts = -(-(jobs or os.cpu_count() or 1) // n_shards)  # of a library that is built once
    unseen = [m for m in mutants if not netlist.matters(m.command)]  # they would play to the end
    work = []
    for shard in shards:
        seen = [i for i, mutant in enumerate(shard) if mutant not in unseen]
        parts = [seen[k::n_parts] for k in range(n_parts)]
        work += [(campaign, prepped, ports, shard, part) for part in parts if part]
    work = work or [(campaign, prepped, ports, shards[0], [])]  # the control
    played = unseen
    for fates in _spread(_play, work, jobs):
        played += fates
        progress("mutants", len(played), len(mutants))
    mutants = sorted(played, key=lambda m: m.index)
    left = [m for m in mutants if m.verdict == "open"]
    work = [(campaign, ports[0], netlist, m, prove) for m in left]
    for i, judged in enumerate(_spread(_judge, work, jobs), 1):
        mutants[next(k for k, m in enumerate(mutants) if m.index == judged.index)] = judged
        progress("survivors", i, len(left))
    return _report(campaign, count, seed, mutants, time.monotonic() - start)


def run_part(block, count, seed, part, prove):
    """`run` of one part of a block's campaign, in one process: what a cluster's worker does."""
    return run(load(block), count=count, seed=seed, part=part, prove=prove, jobs=1)


def merged(reports):
    """The report of a campaign out of those of all its parts; seconds are summed."""
    rows = sorted((row for report in reports for row in report["mutants"]),
                  key=lambda row: row["index"])  # fmt: skip
    names = ("count", "killed", "equivalent", "explained", "open", "argued", "errors", "seconds")
    whole = reports[0] | {name: sum(report[name] for report in reports) for name in names}
    counted = whole["count"] - whole["equivalent"]
    score = whole["killed"] / counted if counted else None
    return whole | {"score": score, "seconds": round(whole["seconds"], 1), "mutants": rows}


def _spread(function, work, jobs):
    """Results of `function` for each tuple of `work`, as they come, from `jobs` processes."""
    jobs = min(jobs or os.cpu_count() or 1, len(work))
    if jobs <= 1:
        for item in work:
            yield function(*item)
        return
    global _current
    _current = function, work  # children inherit it: tests need not be importable by name
    try:
        with warnings.catch_warnings(), processes.sigterm_waits():
            # Python 3.12 warns of threads that numpy has at rest; the children do not use them
            warnings.simplefilter("ignore", DeprecationWarning)
            pool = multiprocessing.get_context("fork").Pool(
                jobs, initializer=processes.die_on_signals
            )
        try:
            yield from pool.imap_unordered(_one, range(len(work)))
            pool.close()
            pool.join()
        finally:
            processes.terminate(pool)
    finally:
        _current = None


_current = None


def _one(index):
    function, work = _current
    return function(*work[index])


def _report(campaign, count, seed, mutants, seconds):
    verdicts = [m.verdict for m in mutants]
    tally = {v: verdicts.count(v) for v in ("killed", "equivalent", "explained", "open")}
    counted = len(mutants) - tally["equivalent"]
    replay = f"gradnic mutate {campaign.name} --count {count} --seed {seed} --only"
    rows = [
        asdict(m) | {"text": m.text, "source": m.source, "replay": f"{replay} {m.index}"}
        for m in mutants
    ]
    return {
        "block": campaign.name,
        "count": len(mutants),
        "seed": seed,
        "control": "passes",
        **tally,
        "argued": sum(m.reason.startswith(ARGUED) for m in mutants),
        "errors": verdicts.count("error"),
        "score": tally["killed"] / counted if counted else None,
        "seconds": round(seconds, 1),
        "mutants": rows,
    }
