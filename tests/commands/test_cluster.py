"""Runs on a cluster: two worker processes, one killed; resumed by content; errors in one line."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pandas
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from gradnic import cli, cluster
from gradnic.cluster import Cluster, key_of, spread
from gradnic.processes import ToolError

# Dask's own warnings, of versions and of ports, say nothing about these runs
pytestmark = pytest.mark.filterwarnings("ignore")


def squared(log):
    """A function that notes each run in a file; sent as it is, workers need not import this."""

    def run(x):
        with Path(log).open("a") as file:
            file.write(f"{x} {os.getpid()}\n")
        return {"x": x, "square": x * x, "tenth": x / 10}

    return run


def ran(log):
    return [int(line.split()[0]) for line in log.read_text().splitlines()]


def test_a_killed_worker_s_work_is_done_again(tmp_path):
    log, marker = tmp_path / "log", tmp_path / "killed"

    def run(x):
        if x == 3 and not marker.exists():
            marker.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        with Path(log).open("a") as file:
            file.write(f"{x} {os.getpid()}\n")
        return x * x

    kept = tmp_path / "kept.jsonl"
    got = spread(run, [{"x": x} for x in range(12)], Cluster(workers=2, resume=str(kept)))
    assert got == [x * x for x in range(12)]
    assert marker.exists()
    assert set(ran(log)) == set(range(12))
    assert len({line.split()[1] for line in log.read_text().splitlines()}) >= 2
    assert sorted(json.loads(line)["result"] for line in kept.read_text().splitlines()) == got


def test_a_run_that_kills_its_workers_is_named():
    def run(x):
        os.kill(os.getpid(), signal.SIGKILL)

    import dask
    import distributed  # noqa: F401, its settings

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        pytest.raises(ToolError, match=r'^1 workers died of the run of {"x": 5}$'),
    ):
        spread(run, [{"x": 5}], Cluster(workers=1))


def test_a_scheduler_that_ends_is_named():
    """As its end does: what is under way is cancelled."""
    import distributed

    def slow(x):
        time.sleep(3)

    def cancel():
        client = distributed.default_client()
        client.cancel([distributed.Future(key) for key in list(client.futures)])

    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as local:
        where = Cluster(scheduler=local.scheduler_address)
        threading.Timer(1, cancel).start()
        with pytest.raises(ToolError, match="the Dask scheduler is gone, and 2 of 2 runs with it"):
            spread(slow, [{"x": 1}, {"x": 2}], where)


def test_local_workers_leave_no_folder(tmp_path):
    """Dask leaves files of locks in dask-scratch-space."""
    import dask

    log, folder = tmp_path / "log", tmp_path / "temporary"
    folder.mkdir()
    with dask.config.set({"temporary-directory": str(folder)}):
        spread(squared(str(log)), [{"x": 1}, {"x": 2}], Cluster(workers=1))
    assert ran(log) == [1, 2]
    assert not list(folder.iterdir())


def test_what_was_kept_is_not_run_again(tmp_path):
    log, kept = tmp_path / "log", tmp_path / "sub" / "kept.jsonl"
    run, where = squared(str(log)), Cluster(resume=str(kept))
    work = [{"x": x} for x in (1, 2, 3)]
    first = spread(run, work, where)
    assert first == [{"x": x, "square": x * x, "tenth": x / 10} for x in (1, 2, 3)]
    assert spread(run, [*work, {"x": 4}], where)[:3] == first
    assert ran(log) == [1, 2, 3, 4]
    text = kept.read_text()
    kept.write_text(text[:-20])  # killed while it wrote: that one is run again
    assert spread(run, [*work, {"x": 4}], where)[3]["square"] == 16
    assert ran(log) == [1, 2, 3, 4, 4]
    assert kept.read_text() == text
    kept.write_text(text[:-1])  # killed before the line's end: nothing is missing
    assert spread(run, [*work, {"x": 4}], where)[3]["square"] == 16
    assert ran(log) == [1, 2, 3, 4, 4]
    assert kept.read_text() == text
    kept.write_text("no results\n" + text)
    with pytest.raises(ValueError, match=r"holds no results of runs: 'no results'"):
        spread(run, work, where)


def test_who_takes_results_of_other_sources_is_told(tmp_path, capsys, monkeypatch):
    """A circuit may have changed since: what was kept of it says nothing of the new one."""
    run, where = squared(str(tmp_path / "log")), Cluster(resume=str(tmp_path / "kept.jsonl"))
    spread(run, [{"x": 1}, {"x": 2}], where)
    spread(run, [{"x": 1}, {"x": 3}], where)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cluster, "sources", lambda: "others")
    spread(run, [{"x": 1}, {"x": 2}, {"x": 4}], where)
    said = " has 2 of 3 runs of another version of gradnic's sources; a new file plays them again"
    assert capsys.readouterr().err == f"{where.resume}{said}\n"
    assert ran(tmp_path / "log") == [1, 2, 3, 4]


def test_a_key_is_the_function_and_its_arguments():
    run = squared("x")
    keys = {key_of(run, {"a": 1, "b": 2}), key_of(run, {"b": 2, "a": 1}), key_of(run, {"a": 2})}
    assert len(keys) == 2
    assert key_of(ran, {"a": 2}) not in keys


def test_transport_gives_the_same_on_two_processes(tmp_path):
    words = ["transport", "--bytes", "100kB", "--p", "0,0.02", "--runs", "1", "--json", "-"]
    kept = ["--resume", f"{tmp_path}/t.jsonl", "--parquet", f"{tmp_path}/t.parquet"]
    alone, two = (
        CliRunner().invoke(cli.cli, [*words, *more]) for more in ([], ["--workers", "2", *kept])
    )
    assert alone.exit_code == two.exit_code == 0, two.output
    assert json.loads(alone.stdout) == json.loads(two.stdout)
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 2
    assert parquet.read_table(tmp_path / "t.parquet")["item.p"].to_pylist() == [0, 0.02]


def test_workers_keep_freed_memory_and_seldom_look_at_themselves():
    """Dask's settings took a fifth of a worker's time."""
    import dask

    here = Cluster(workers=1)
    assert spread(os.getenv, [{"key": "MALLOC_TRIM_THRESHOLD_"}], here) == [None]
    names = ("distributed.admin.tick.interval", "distributed.worker.profile.enabled")
    assert spread(dask.config.get, [{"key": name} for name in names], here) == ["500ms", False]


def test_arguments_have_any_name():
    """Also those of Dask's `submit`: `accuracy` has one called workers."""

    def run(**given):
        return given

    names = ("workers", "key", "priority", "retries", "pure", "item")
    work = [{name: [k] for name in names} for k in range(2)]
    assert spread(run, work, Cluster(workers=1)) == work


def test_accuracy_gives_the_same_on_a_process_of_its_own():
    words = ["accuracy", "--values", "4096", "--trials", "1", "--workers", "1,2", "--json", "-"]
    alone, other = (
        CliRunner().invoke(cli.cli, [*words, *more]) for more in ([], ["--processes", "1"])
    )
    assert alone.exit_code == other.exit_code == 0, other.output
    assert json.loads(alone.stdout) == json.loads(other.stdout)


def test_a_finished_sweep_is_a_parquet_table(tmp_path):
    """Read back by pandas: types, texts and lists as JSON, runs that were kept and those of now."""
    table, kept = tmp_path / "t.parquet", str(tmp_path / "t.jsonl")

    def run(x, name):
        many = {"list": [x, [name]], "deep": {"half": x / 2, "ok": x > 1, "big": 10**30}}
        return {"x": x, "mixed": x if x > 1 else name, "real": 1 if x == 1 else 0.5, **many}

    work = [{"x": x, "name": f"n{x}"} for x in (3, 1, 2)]
    spread(run, work[:2], Cluster(resume=kept))
    assert not table.exists()
    spread(run, work, Cluster(resume=kept, parquet=str(table)))
    read = pandas.read_parquet(table)
    assert read["key"].tolist() == [key_of(run, item) for item in work]
    assert read["item.x"].tolist() == read["result.x"].tolist() == [3, 1, 2]
    assert read["item.name"].tolist() == ["n3", "n1", "n2"]
    assert read["result.deep.half"].tolist() == [1.5, 0.5, 1.0]
    assert read["result.deep.ok"].tolist() == [True, False, True]
    assert read["result.real"].tolist() == [0.5, 1.0, 0.5]
    assert [json.loads(text) for text in read["result.list"]] == [[x, [f"n{x}"]] for x in (3, 1, 2)]
    assert read["result.mixed"].tolist() == ["3", '"n1"', "2"]
    assert json.loads(read["result.deep.big"][0]) == 10**30
    types = dict(read.dtypes.astype(str))
    assert (types["item.x"], types["result.real"], types["result.deep.ok"]) == (
        "int64", "float64", "bool")  # fmt: skip
    spread(run_of_number, [{"x": 2}], Cluster(parquet=str(table)))
    assert pandas.read_parquet(table)["result"].tolist() == [4]


def run_of_number(x):
    return x * x


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"scheduler": "tcp://127.0.0.1:9", "workers": 2}, "exclude each other"),
        ({"scheduler": "nowhere:x", "workers": 0}, "no Dask scheduler answers at nowhere:x"),
    ],
)
def test_mistakes_are_named(where, message):
    with pytest.raises(Exception, match=message):
        spread(ran, [{"log": 1}], cluster.of_options(**where, resume=None))


def test_workers_with_another_gradnic_are_named(monkeypatch):
    """They ended with their first run, and the sweep waited for others without a word."""
    import distributed

    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as local:
        where = Cluster(scheduler=local.scheduler_address)
        assert spread(run_of_number, [{"x": 3}], where) == [9]
        monkeypatch.setattr(cluster, "__version__", "99")
        with pytest.raises(ValueError, match=r"need gradnic 99: inproc://\S+ has \d"):
            spread(run_of_number, [{"x": 3}], where)


def test_no_workers_are_told_once_each_time(capsys):
    over, left = threading.Event(), [{}, {}, {"a": 1}, {}]

    class Client:
        def nthreads(self):
            if len(left) == 1:
                over.set()
            return left.pop(0)

    cluster._watch(Client(), "tcp://here:1", over, period=0)
    said = "tcp://here:1 has no workers: runs wait for some\n"
    assert capsys.readouterr().err == 2 * said


def test_sizes_of_simulate_are_runs(tmp_path):
    """One size as ever; several are a list, the same on two processes, kept by content."""
    words = ["simulate", "--topology", "torus:4x4", "--json", "-"]
    one = CliRunner().invoke(cli.cli, [*words, "--bytes", "32KiB"])
    both = [*words, "--bytes", "32KiB,2MiB"]
    alone = CliRunner().invoke(cli.cli, both)
    kept = f"{tmp_path}/s.jsonl"
    two = CliRunner().invoke(cli.cli, [*both, "--workers", "2", "--resume", kept])
    assert one.exit_code == alone.exit_code == two.exit_code == 0, two.output
    runs = [[json.loads(one.stdout)], json.loads(alone.stdout), json.loads(two.stdout)]
    cycles = [[run["cycles_total"] for run in found] for found in runs]
    assert cycles[0] == cycles[1][:1]
    assert cycles[1] == cycles[2]
    assert len(cycles[1]) == len(Path(kept).read_text().splitlines()) == 2


CAMPAIGNS = {
    "soak": {"packets": 7, "attacks": 2, "cycles": 9, "answers": 1},
    "fuzz": {"bad": 5, "cycles": 9},
}


@pytest.mark.parametrize("name", CAMPAIGNS)
@pytest.mark.parametrize("bad", [None, 4])
def test_campaigns_of_several_seeds(monkeypatch, tmp_path, name, bad):
    """Seeds from the first on, sums, and status 1 with the seed that failed."""
    from gradnic.commands import fuzz, soak

    counts, played = CAMPAIGNS[name], []

    def play(seed, **_):
        played.append(seed)
        if seed == bad:
            return {"ok": False, "seed": seed, "first": "cycle 3: 1 is not 2"}
        return {"ok": True, "seed": seed, **counts, "shown": {"kinds": {}}, "line": "agree"}

    monkeypatch.setattr({"soak": soak, "fuzz": fuzz}[name], "play", play)
    words = [name, "--runs", "3", "--seed", "3", "--resume", f"{tmp_path}/r.jsonl", "--json", "-"]
    run = CliRunner().invoke(cli.cli, words)
    assert run.exit_code == (bad is not None), run.output
    found = json.loads(run.stdout)
    assert [one["seed"] for one in found["runs"]] == played == [3, 4, 5]
    assert found["ok"] is (bad is None)
    if name == "fuzz":  # what is for the screen is not in it
        assert not {"shown", "line"} & {key for one in found["runs"] for key in one}
    n = 2 if bad else 3
    assert {key: found[key] for key in counts} == {key: n * v for key, v in counts.items()}
    again = CliRunner().invoke(cli.cli, words)
    assert json.loads(again.stdout) == found
    assert played == [3, 4, 5]


def test_seeds_end():
    run = CliRunner().invoke(cli.cli, ["soak", "--seed", "4294967295", "--runs", "2"])
    assert run.exit_code == 2
    assert "seeds must end at 4294967295, not at 4294967296" in run.output


def test_parts_of_a_mutation_campaign_make_it():
    from gradnic.sim.mutation import run as mutate

    campaign = mutate.Campaign("toy", None, None, {})
    fates = ["killed", "equivalent", "killed", "open", "error", "explained", "killed"]
    mutants = [mutate.Mutant(i, f"mutate {i}", fate) for i, fate in enumerate(fates, 1)]
    whole = mutate._report(campaign, 7, 1, mutants, 6.0)
    parts = [mutate._report(campaign, 7, 1, mutants[k::3], 2.0) for k in range(3)]
    assert mutate.merged(parts) == whole


def test_seeds_of_a_block_make_its_result():
    from gradnic.fpga.flow.measure import merged

    def one(seed, mhz):
        reached = {"fmax_mhz": mhz, "fmax_mhz_seeds": [mhz], "seeds": [seed], "seconds": 2.0}
        rate = {"gbps": mhz / 2, "gbps_per_klut": mhz, "lut": 500}
        return reached | rate | {"critical_path": str(mhz)}

    found = merged([one(1, 200.0), one(2, 260.0), one(3, 220.0)])
    assert (found["fmax_mhz"], found["fmax_mhz_seeds"]) == (220.0, [200.0, 260.0, 220.0])
    assert (found["seeds"], found["seconds"], found["critical_path"]) == ([1, 2, 3], 6.0, "220.0")
    assert (found["gbps"], found["gbps_per_klut"]) == (110.0, 220.0)
