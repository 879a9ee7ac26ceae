"""``gradnic cosim card`` with jobs: what a file may say, and a run with one that is refused."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from gradnic.models.offload.cluster import LinkFaults
from gradnic.sim.offload import job_figures, job_judge, job_list, job_run, run

from gradnic import cli
from gradnic.errors import Unfinished
from gradnic.interface.formats import GRADNIC, Op
from gradnic.interface.job import JobCodec, JobStatus, Refusal


def test_links_run_at_the_rate_of_a_file(tmp_path):
    """GB/s of ASTRA-sim are bytes a cycle at 1 GHz; a port of 4 lanes takes 16."""
    cycles = {}
    jobs = tmp_path / "jobs.json"
    told = [{"bytes": 12288}, {"bytes": 64, "kind": "bf16"}]  # a card that takes all
    jobs.write_text(json.dumps(told))
    for rate in 2, 64:
        file, report = tmp_path / "ring.json", tmp_path / "report.json"
        lists = {"topology": ["Ring"], "npus_count": [3], "bandwidth": [rate], "latency": [1]}
        file.write_text(json.dumps(lists))
        words = f"cosim card --topology file:{file} --algorithm ring --jobs {jobs}"
        words += f" --json {report}"
        result = CliRunner().invoke(cli.cli, words.split())
        assert result.exit_code == 0, result.output
        got = json.loads(report.read_text())
        assert got["link_bytes_per_cycle"] == min(rate, 16)
        cycles[rate] = got["cycles"]
    assert cycles[2] > 4 * 4096 / 2 > cycles[64]  # a third of the bytes, four times


def test_links_are_as_long_as_a_files(tmp_path, monkeypatch):
    """Where all are alike and no --delay is given; the network model has what the cards have."""
    heard = []
    monkeypatch.setattr(run, "cosim", lambda *_, faults, **__: heard.append(faults.delay))
    file = tmp_path / "ring.txt"
    for latency, words, delay in ((300, "", 300), (300, "--delay 7", 7), (0.5, "", 1)):
        file.write_text("".join(f"{a} {b} 1 {latency}\n" for a, b in ("01", "12", "20")))
        result = CliRunner().invoke(cli.cli, f"cosim card --topology file:{file} {words}".split())
        assert isinstance(result.exception, TypeError)  # there is no outcome
        assert heard.pop() == delay
    for last, told in (("2 0 1 9", "9 to 300"), ("2 0", "10 to 300")):
        file.write_text(f"0 1 1 300\n1 2 1 300\n{last}\n")
        result = CliRunner().invoke(cli.cli, f"cosim card --topology file:{file}".split())
        assert f"are {told} cycles long, and those between cards are alike: give --delay" in str(
            result.exception
        )
        result = CliRunner().invoke(cli.cli, f"cosim card --topology file:{file} --delay 3".split())
        assert heard.pop() == 3


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ([], "must have a job at least, not an empty list"),
        (
            [{"bytes": 64, "color": 1}],
            "job 0 has no field 'color', but abort, .*, class, .*",
        ),
        ([{"bytes": 64, "elems": 17}], "job 0: 17 elems are 68 bytes, not 64"),
        ([{"bytes": 64, "elems": 16, "kind": "bf16"}], "job 0: 16 elems are 32 bytes, not 64"),
        ([{"bytes": 64, "id": 70000}], "id must be 0 to 65535, not 70000"),
        ([{"bytes": 64, "class": 8}], "layer must be 0 to 7, not 8"),
        ([{"bytes": 64, "at": 9, "abort": 8}], "job 0: abort must be 9 cycles or later, not 8"),
        (
            [{"bytes": 64, "errors": 1}],
            "job 0: errors must be a node and source, result, .*, not 1",
        ),
        (
            [{"bytes": 64, "errors": [0, "source", 1]}],
            "job 0: errors must be .*, and with times two numbers of cycles, not",
        ),
        ([{"bytes": 64, "errors": [0, "source", -1, 9]}], "job 0: errors must be 0 to .*, not -1"),
        ([{"bytes": 64, "errors": [0, "kept"]}], "job 0: kept must be of a job with feedback"),
        (
            [{"bytes": 64, "errors": [0, "scratch"]}],
            "job 0: scratch must be of a job with codec thc",
        ),
        (
            [{"bytes": 64, "silent": [0, "source"]}],
            "job 0: silent must be a node, source, .* cycles",
        ),
        ([{"bytes": 64, "silent": [0, "source", -1, 9]}], "job 0: silent must be 0 to .*, not -1"),
        ([{"bytes": 64, "table": "x"}], "job 0: table must be a whole number, not 'x'"),
        ([{"bytes": 64, "id": 1}, {"bytes": 64}], "ids of jobs must differ"),
        ({"bytes": 64}, "must be a list of objects, one a job"),
        ([7], "must be a list of objects, one a job"),
    ],
)
def test_mistakes_in_a_file_are_one_line(told, line, tmp_path):
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(told))
    with pytest.raises(ValueError, match=line):
        job_list.read(path)


def test_rates_by_hand():
    """Jobs of 4 beats: the first ends at 20, three more at 4 cycles each, one was refused."""
    jobs = [{"posted": 10, "done": at, "bytes": 256, "status": 0} for at in (20, 24, 28, 32)]
    jobs.append({"posted": 10, "done": 900, "bytes": 256, "status": 2})
    assert job_figures.input_rate(jobs, 64) == 16 / 22
    assert job_figures.steady_rate(jobs, 64, 1) == 12 / 12
    assert job_figures.steady_rate(jobs, 64, 2) == 8 / 8
    assert job_figures.steady_rate(jobs, 64, 4) is None


def test_what_a_file_does_not_say_is_chosen():
    one, two = job_list.from_dicts(
        [{"bytes": 100, "class": 3}, {"elems": 17, "at": 9, "nodes": [0, 1], "tensor": 5}],
        codec="inceptionn",
    )
    assert (one.job.id, one.job.elems, one.job.layer, one.job.tensor) == (0, 25, 3, 0)
    assert (two.job.id, two.job.elems, two.job.layer, two.job.tensor) == (1, 17, 0, 5)
    assert one.job.codec == JobCodec.INCEPTIONN
    assert (one.job.source, two.job.source, one.job.result, two.job.result) == (0, 128, 256, 384)
    assert (two.at, two.nodes) == (9, (0, 1))


def test_addresses_that_jobs_name_have_memory():
    """Up to a limit, behind which cards refuse them."""
    told = {"elems": 16, "feedback": True, "residual": 10_000, "source": 4096}
    jobs = [one.job for one in job_list.from_dicts([told], codec="thc")]
    assert job_run._bytes_of(jobs, True) == 640_000 + 2 * 64
    far = [replace(jobs[0], source=job_run.NAMED - 64, feedback=0), replace(jobs[0], residual=0)]
    assert job_run._bytes_of(far, True) == job_run.NAMED
    far[0] = replace(far[0], source=job_run.NAMED)
    assert job_run._bytes_of(far, True) == 4096 + 64


def test_line_share_is_time_with_payload_over_all_ports():
    data = bytearray(64 + 1000)
    GRADNIC.op.put(data, Op.RAW)
    control = bytearray(64)
    GRADNIC.op.put(control, Op.CONTROL)
    frame, time = bytes(data), (1064 + 24) / 16
    sent = [(100, 0, 0, frame), (300, 0, 0, frame), (300, 1, 0, frame), (900, 1, 0, bytes(control))]
    assert job_figures.line_share(sent, 16) == pytest.approx(3 * time / (2 * (200 + time)))
    assert job_figures.line_share(sent[3:], 16) == 0


def test_jobs_that_name_their_codecs_have_its_settings(tmp_path, monkeypatch):
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps([{"elems": 8, "codec": name} for name in ("thc", "inceptionn")]))
    seen = {}

    def cosim(*given, **options):
        seen.update(options)
        raise Unfinished("seen")

    monkeypatch.setattr(job_run, "cosim", cosim)
    words = f"cosim card --topology ring:3 --jobs {path} --block 64 --exponent 120 --mode paper"
    told = CliRunner().invoke(cli.cli, words.split())
    assert str(told.exception) == "seen"
    assert seen["block"] == 64
    assert seen["settings"] == {"exponent": 120, "mode": "paper", "prescale": 0}


def test_a_node_never_posts_a_job_and_one_is_too_long(tmp_path):
    """Beside a share that may miss; others have their memory."""
    path, out = tmp_path / "jobs.json", tmp_path / "out.json"
    told = [{"bytes": 800, "p_q16": 9000}, {"elems": 1 << 24}]
    told.append({"bytes": 64, "collective": "broadcast", "nodes": [0, 1]})
    told.append({"bytes": 64, "kind": "bf16", "codec": "bf16"})
    path.write_text(json.dumps(told))
    words = f"cosim card --topology ring:3 --algorithm ring --jobs {path} --codec inceptionn"
    words += f" --watchdog 20000 --json {out}"
    result = CliRunner().invoke(cli.cli, words.split())
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())["jobs"]
    assert [one["status"] for one in found] == [
        JobStatus.DONE, JobStatus.REFUSED, JobStatus.STUCK, JobStatus.DONE
    ]  # fmt: skip
    assert found[1]["detail"] == Refusal.LENGTH
    words = words.replace("--watchdog 20000", "--watchdog 0")
    result = CliRunner().invoke(cli.cli, words.split())
    assert "Without --watchdog nothing ends jobs that some nodes never post, or fail: 2" in str(
        result.exception
    )


@pytest.mark.parametrize("watchdog", [5, 600])
def test_a_watchdog_that_is_short_ends_jobs_by_time(tmp_path, watchdog):
    """What it ended is not compared with golden cards, whose times are others; the rest is."""
    path, out = tmp_path / "jobs.json", tmp_path / "out.json"
    told = [{"bytes": 800, "class": 3}, {"bytes": 64, "nodes": [0, 1]}, {"bytes": 16384}]
    path.write_text(json.dumps([*told, {"bytes": 64, "kind": "bf16", "codec": "inceptionn"}]))
    words = f"cosim card --topology ring:3 --algorithm ring --jobs {path} --loss 0.1"
    result = CliRunner().invoke(cli.cli, f"{words} --watchdog {watchdog} --json {out}".split())
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert 0 < found["not_compared"] <= 11
    assert "ends that the watchdog explains are not compared" in result.output


THC = {"elems": 64, "codec": "thc", "feedback": True, "tensor": 7, "residual": 64}
APART = {"elems": 16, "result": 4096, "nodes": [0, 2]}


@pytest.mark.parametrize(
    ("told", "user", "writer", "byte"),
    [
        ([{"elems": 16}, {"elems": 16, "source": 128}], 1, 0, 128),
        ([{"elems": 16, "result": 64}, {"elems": 16}], 1, 0, 64),
        ([{"elems": 16, "result": 4096}, {"elems": 48, "result": 4032}], 1, 0, 4096),
        ([THC, THC | {"tensor": 8, "half": 1}], 0, 1, 4096),
        ([THC, THC | {"half": 1, "gen": 3}], None, None, None),
        ([{"elems": 16, "source": 0}, {"elems": 16, "source": 0}], None, None, None),
        ([{"elems": 16, "result": 0}], None, None, None),
        ([{"elems": 1 << 24}, {"elems": 16}], None, None, None),
        ([{"elems": 16, "result": 1 << 40}] * 2, None, None, None),  # refused: they write nothing
        ([{"elems": 16, "result": 4096}, {"elems": 16, "result": 4096, "codec": 7}],
         None, None, None),
        ([{"elems": 16, "source": 4097}, {"elems": 16, "result": 4096}], None, None, None),
        ([APART, APART | {"nodes": [1]}], None, None, None),  # other nodes' memories
        ([APART, {"elems": 16, "source": 4096, "nodes": [2]}], 1, 0, 4096),
        ([APART, {"elems": 16, "source": 4096}], 1, 0, 4096),
        ([THC, THC | {"half": 1, "gen": 3, "abort": 9}], 0, 1, 4096),
    ],
)  # fmt: skip
def test_jobs_keep_off_what_others_write(told, user, writer, byte, monkeypatch):
    """Else it depends on times which of them is first, and golden cards have others."""

    class Sound(Exception):
        pass

    def stop(*_, **__):
        raise Sound

    monkeypatch.setattr(job_run, "JobCluster", stop)
    line = f"job {user} must keep off what job {writer} writes, not share its byte {byte}"
    with pytest.raises(Sound if user is None else ValueError, match=None if user is None else line):
        job_run.cosim("ring:3", "ring", job_list.from_dicts(told))


def test_a_long_watchdog_explains_no_end():
    jobs, faults = [SimpleNamespace(elems=1000, codec=JobCodec.RAW32)], LinkFaults(delay=50)
    assert job_judge.sound_watchdog(2000, replace(faults, loss=0.1), jobs, 16, n_nodes=3) == 64_180
    assert job_judge.sound_watchdog(2000, faults, jobs, 16, n_nodes=3) == 12_180
    assert job_judge.sound_watchdog(2000, faults, jobs, 16, n_nodes=3, memory_latency=90) == 12_780
    jobs.append(SimpleNamespace(elems=0, codec=JobCodec.THC))
    assert job_judge.sound_watchdog(2000, faults, jobs, 16, n_nodes=3) == 15_360


def test_jobs_of_a_file_run_beside_one_that_is_refused(tmp_path, monkeypatch):
    path, out, plot = tmp_path / "jobs.json", tmp_path / "out.json", tmp_path / "jobs.svg"
    told = [{"bytes": 4096, "class": 7}, {"elems": 0}, {"bytes": 1024, "class": 0, "at": 600}]
    told.append({"bytes": 800, "collective": "reduce_scatter", "kind": "bf16", "codec": "bf16"})
    told[-1]["op"] = "mean"
    path.write_text(json.dumps(told))
    words = f"cosim card --topology ring:3 --algorithm ring --jobs {path} --codec inceptionn"
    words += f" --loss 0.01 --json {out} --plot {plot}"
    words += " --memory ddr4-2400 --channels 1 --clock 2000"
    result = CliRunner().invoke(cli.cli, words.split())
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert (found["ok"], found["bit_exact"], found["mismatches"]) == (True, True, 0)
    assert [(one["id"], one["class"], one["status"]) for one in found["jobs"]] == [
        (0, 7, 0), (1, 0, 3), (2, 0, 0), (3, 0, 0)
    ]  # fmt: skip
    assert found["jobs"][1]["detail"] == Refusal.LENGTH
    assert "refused: length" in result.output
    assert all(one["posted"] < one["done"] <= found["cycles"] for one in found["jobs"])
    assert 0 < found["line_share"] < 1
    assert found["memory"] == "ddr4-2400"
    assert found["cycles"] > 4800  # 4,245 where each port takes a beat a cycle
    assert found["golden"] == "cards"
    assert "<svg" in plot.read_text()
    monkeypatch.setattr(job_run, "MOST", 0)  # the time goes by the elements, too
    assert CliRunner().invoke(cli.cli, words.split()).exit_code == 0
    monkeypatch.setattr(job_run, "SLOW", 0)
    result = CliRunner().invoke(cli.cli, words.split())
    assert isinstance(result.exception, Unfinished)


def jobs_by(words, told, tmp_path):
    """What ``gradnic cosim card`` writes of jobs."""
    path, out = tmp_path / "jobs.json", tmp_path / "out.json"
    path.write_text(json.dumps(told))
    words = f"cosim card --algorithm ring --jobs {path} {words} --json {out}"
    result = CliRunner().invoke(cli.cli, words.split())
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert (found["ok"], found["mismatches"], found["golden"]) == (True, 0, "cards")
    assert f": {found['frames_dropped']}, {found['frames_marked']}" in result.output
    return found


def test_switches_between_cards_drop_packets_of_jobs(tmp_path):
    """Copies of frames fill the queue before the node that is two links away."""
    told = [{"bytes": 16384, "codec": "none"}, {"bytes": 800, "kind": "bf16", "codec": "bf16"}]
    words = "--topology mesh:1x3 --codec inceptionn --duplicate 0.9"
    found = jobs_by(f"{words} --queue 2048 --mark 1024", told, tmp_path)
    assert found["frames_dropped"] > 5
    assert found["frames_marked"] > 5
    assert [one["status"] for one in found["jobs"]] == [JobStatus.DONE] * 2


def test_ports_of_half_a_beat_with_queues_of_their_own(tmp_path):
    """Packets leave twice as slowly as they are made, and queues drop what does not fit them."""
    told = [{"bytes": 8192, "class": 3}, {"bytes": 8192, "class": 3}, {"bytes": 800}]
    words = "--topology ring:3 --port-lanes 2 --queue 2048 --mark 1024 --egress card"
    found = jobs_by(words, told, tmp_path)
    assert (found["lanes"], found["port_lanes"]) == (4, 2)
    assert found["frames_dropped"] > 5
    assert found["frames_marked"] > 5
    assert found["cycles"] > 2 * 2 * 2 / 3 * 16384 / 16  # of lines that take 8 bytes a cycle
    assert [one["status"] for one in found["jobs"]] == [JobStatus.DONE] * 3
