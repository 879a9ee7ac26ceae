"""Independent runs of one function, here, on local processes, or on a Dask cluster; resumable.

Dask (`distributed`) places the runs, moves results and does a dead worker's work again; nothing of
that is ours. Results are kept as JSON lines, one appended as each run ends: a sweep that is killed
loses only what was running, any program reads them, and no package is needed. A finished sweep is
also written as Parquet on request (`gradnic.parquet`).
"""

import hashlib
import importlib.util
import inspect
import json
import pkgutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from gradnic import __version__, output, parquet
from gradnic import quantities as q
from gradnic.packages import require
from gradnic.paths import OutputFile
from gradnic.processes import ToolError, work_folder
from gradnic.progress import PERIOD, Progress
from gradnic.quantities import option
from gradnic.text_file import read_text

LAST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Cluster:
    """Where runs go, and where their results are kept.

    scheduler : address of a Dask scheduler, such as ``tcp://host:8786``, or None.
    workers : local processes to start where there is no scheduler; 0: all runs in this one.
    resume : file of JSON lines, or None: what stands there is not run again, the rest is appended.
    parquet : file for all runs once they are done, or None.
    """

    scheduler: str | None = None
    workers: int = 0
    resume: str | None = None
    parquet: str | None = None


parquet_option = option(
    "--parquet",
    OutputFile(".parquet"),
    help="Also all runs as a table, once they are done.",
    metavar="FILE.parquet",
)


def options(function):
    """The options of commands whose runs can be spread; `of_options` makes a `Cluster` of them."""
    for decorate in (
        parquet_option,
        option(
            "--resume",
            OutputFile(".jsonl"),
            help="Keep each run's result here; what is there already is not run again.",
            metavar="FILE.jsonl",
        ),
        option("--workers", q.Whole(0, 1024), 0, "Local Dask processes; 0: all in this one."),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="A Dask scheduler, tcp://host:8786, whose workers do the runs.",
        ),
    ):
        function = decorate(function)
    return function


def of_options(scheduler, workers, resume, parquet=None, *, workers_option="--workers"):
    """The `Cluster` that the options ask for. UsageError if both kinds are, or a package is
    missing.
    """
    if scheduler and workers:
        raise click.UsageError(f"--scheduler and {workers_option} exclude each other")
    if scheduler or workers:
        require("--scheduler" if scheduler else workers_option, cluster=("distributed",))
    if parquet:
        require("--parquet", cluster=("pyarrow",))
    return Cluster(scheduler, workers, resume, parquet)


def runs_option(function):
    """``--runs``: how many campaigns with seeds from ``--seed`` on; see `seeds_of`."""
    count = q.Whole(1, 1_000_000)
    text = "Campaigns of this size, with seeds from --seed on."
    return option("--runs", count, 1, text)(function)


def seeds_of(seed, runs):
    """Seeds of `runs` campaigns, the first of them `seed`; UsageError beyond the last seed."""
    if seed + runs - 1 > LAST_SEED:
        raise click.UsageError(f"seeds must end at {LAST_SEED}, not at {seed + runs - 1}")
    return list(range(seed, seed + runs))


def key_of(function, item):
    """Name of a run by its content: the function, the text of its module, and its arguments.

    Hexadecimal. Other modules do not count: a new version of them takes a new file.
    """
    module = inspect.getmodule(function)
    text = inspect.getsource(module) if module else ""
    parts = [
        f"{function.__module__}.{function.__qualname__}",
        text,
        json.dumps(item, sort_keys=True),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def sources():
    """Digest of all sources of gradnic, by which a kept result says what it is a result of."""
    state = hashlib.sha256()
    for package in ("gradnic", "gradnic.hdl", "gradnic.models", "gradnic.sim"):
        spec = importlib.util.find_spec(package)
        for folder in map(Path, spec.submodule_search_locations if spec else ()):
            for path in sorted(folder.rglob("*")):
                if path.suffix in (".py", ".cpp", ".h", ".json"):
                    state.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return state.hexdigest()[:20]


def spread(function, work, cluster=None, *, name="runs"):
    """[function(**item) for item in work], on the cluster; shows progress.

    function : of a module that the workers can import; its results are what JSON can hold.
    work : list of dicts of arguments, likewise. The first run that fails raises its error here;
    a run is given up when three workers have died of it. ToolError for that, and if the scheduler
    ends.
    """
    cluster = cluster or Cluster()
    kept = _Kept(cluster.resume)
    keys = [key_of(function, item) for item in work]
    missing = {key: item for key, item in zip(keys, work, strict=True) if key not in kept.results}
    if others := len(kept.others.intersection(keys)):
        known = f"{cluster.resume} has {others} of {len(set(keys))} runs"
        click.echo(
            f"{known} of another version of gradnic's sources; a new file plays them again",
            err=True,
        )
    with Progress() as bar:
        task = bar.add_task(name, total=len(set(keys)), completed=len(set(keys)) - len(missing))
        for key, result in _done(function, missing, cluster):
            kept.add(key, missing[key], result)
            bar.advance(task)
    results = [kept.results[key] for key in keys]
    if cluster.parquet:
        parquet.write(cluster.parquet, keys, work, results)
    return results


def _done(function, missing, cluster):
    """(key, result) of each run as it ends."""
    if not missing:
        return
    if not (cluster.scheduler or cluster.workers):
        for key, item in missing.items():
            yield key, function(**item)
        return
    import distributed

    ended = 0
    with _client(cluster) as client:
        runs = {client.submit(_call, function, item, pure=False): key
                for key, item in missing.items()}  # fmt: skip
        for run in distributed.as_completed(runs):
            try:
                result = run.result()
            except distributed.client.FutureCancelledError as error:
                raise ToolError(
                    f"the Dask scheduler is gone, and {len(runs) - ended} of {len(runs)} runs with "
                    f"it: {error.reason}"
                ) from None
            except distributed.KilledWorker as error:
                raise ToolError(
                    f"{error.allowed_failures + 1} workers died of the run of "
                    f"{json.dumps(missing[runs[run]])}"
                ) from None
            ended += 1
            yield runs[run], result


def _call(function, item):
    """A run, on a worker: `submit` itself has arguments called workers, key, priority ..."""
    return function(**item)


@contextmanager
def _client(cluster):
    import dask
    import distributed

    if cluster.scheduler:
        try:
            client = distributed.Client(cluster.scheduler, timeout="10s")
        except (OSError, ValueError) as error:
            raise ValueError(f"no Dask scheduler answers at {cluster.scheduler}: {error}") from None
        over = threading.Event()
        watch = threading.Thread(target=_watch, args=(client, cluster.scheduler, over))
        with client:
            _check_workers(client, cluster.scheduler)
            watch.start()
            try:
                yield client
            finally:
                over.set()
                watch.join()
        return
    environment = dask.config.get("distributed.nanny.pre-spawn-environ")
    quiet = {  # what Dask does beside the runs takes a third of a worker's time
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",  # a look at its own event loop
        # freed memory is kept: to give it back at once costs more than an array's sums
        "distributed.nanny.pre-spawn-environ": {
            name: value for name, value in environment.items() if name != "MALLOC_TRIM_THRESHOLD_"
        },
    }
    with (
        work_folder(dask.config.get("temporary-directory", None), "dask-") as folder,
        dask.config.set(quiet | {"temporary-directory": str(folder)}),  # files of locks stay in it
        distributed.LocalCluster(
            n_workers=cluster.workers,
            threads_per_worker=1,
            dashboard_address=None,
            # its port is asked for all the same: any that is free, for sweeps side by side
            scheduler_kwargs={"dashboard_address": ":0"},
            silence_logs="CRITICAL",
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def _check_workers(client, address):
    """ValueError where a worker has another gradnic than this process, or none: it would end with
    its first run, and the run wait for the next worker.
    """
    found = client.run(pkgutil.resolve_name, "gradnic:__version__", on_error="return")
    for worker, version in sorted(found.items()):
        if version != __version__:
            has = version if isinstance(version, str) else f"none ({version})"
            raise ValueError(f"workers of {address} need gradnic {__version__}: {worker} has {has}")


def _watch(client, address, over, period=PERIOD):
    """Tell of each time that no workers are left, until it is `over`."""
    alone = False
    while not over.is_set():
        try:
            none = not client.nthreads()
        except OSError:  # who waits for a run hears that, too
            return
        if none and not alone:
            click.echo(f"{address} has no workers: runs wait for some", err=True)
        alone = none
        over.wait(period)


_BEGIN = '{"key": "'  # of every line


class _Kept:
    """Results by key, and the file that they are appended to."""

    def __init__(self, path):
        self.results, self.others, self._path = {}, set(), path and Path(path)
        if not self._path or not self._path.exists():
            return
        lines = read_text(self._path, largest=1 << 28).splitlines(True)
        for line in lines:
            try:
                row = json.loads(line)
                self.results[row["key"]] = row["result"]
                if row.get("sources") != sources():
                    self.others.add(row["key"])
            except (ValueError, KeyError, TypeError, RecursionError):
                cut = line is lines[-1] and not line.endswith("\n")  # while it was written
                if not cut or line[: len(_BEGIN)] != _BEGIN[: len(line)]:
                    said = line.rstrip("\n")[:60]
                    raise ValueError(f"{path} holds no results of runs: {said!r}") from None
                self._path.write_text("".join(lines[:-1]))
                return
        if lines and not lines[-1].endswith("\n"):
            with self._path.open("a") as file:
                file.write("\n")

    def add(self, key, item, result):
        self.results[key] = result = json.loads(json.dumps(result))  # as if it had been read
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                row = {"key": key, "item": item, "result": result, "sources": sources()}
                file.write(json.dumps(row) + "\n")


def end(screen, results, counts, json_file):
    """Show a table of campaigns, write them, and exit with status 1 if one of them failed.

    results : dicts with ``ok``, ``seed``, and ``first``, the difference, or `counts`.
    """
    rows = [(r["seed"], *(r.get(name, "") for name in counts), r.get("first", "agrees")[:60])
            for r in results]  # fmt: skip
    screen.print(output.table("campaigns, circuit against model", ("seed", *counts, ""), rows))
    failed = [r for r in results if not r["ok"]]
    write = {"ok": not failed, "runs": results}
    write |= {name: sum(r.get(name, 0) for r in results) for name in counts}
    screen.print(f"{len(results) - len(failed)} of {len(results)} agree")
    output.write_json(json_file, write)
    if failed:
        raise SystemExit(1)
