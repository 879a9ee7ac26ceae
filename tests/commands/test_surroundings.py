"""Where commands run: locales, closed and full outputs, folders that take nothing, no home."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradnic import cli, output

STATS = ["codec", "stats", "x.npy"]
RING = ["schedule", "--topology", "ring:3", "--algorithm", "ring"]


def gradnic(*words, **options):
    """What `python -m gradnic` does in a process of its own."""
    return subprocess.run([sys.executable, "-m", "gradnic", *words], capture_output=True,
                          timeout=120, **options)  # fmt: skip


def main(*words):
    """Exit status of a command in this process."""
    with pytest.raises(SystemExit) as end:
        cli.main([*map(str, words)])
    return end.value.code


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(8, dtype=np.float32))
    return tmp_path


class Stream(io.TextIOWrapper):
    """Standard output of an encoding, whose bytes may have no place to go."""

    def __init__(self, encoding="utf-8", error=None):
        raw = io.BytesIO()
        super().__init__(raw, encoding, write_through=True)
        self.raw_bytes = raw
        if error:
            self.write = self.flush = lambda *_: (_ for _ in ()).throw(error)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_beyond_the_locale(folder, monkeypatch, encoding):
    """A file's name may be in no encoding at all: it is spelled out, and the work done."""
    for name in ("netz-größe.txt", os.fsdecode(b"net\xff.txt"), "網.txt"):
        Path(name).write_text("0 1\n1 2\n2 0\n")
        stream = Stream(encoding)
        monkeypatch.setattr(sys, "stdout", stream)
        words = ["schedule", "--topology", f"file:{name}", "--algorithm", "ring"]
        assert (
            main(*words, "--table", "t.json", "--export", "msccl", "t.xml", "--json", "r.json") == 0
        )
        stream.flush()
        assert b"ring on file:net" in stream.raw_bytes.getvalue() or name[0] == "網"
        shown = os.fsencode(name).decode(errors="backslashreplace")
        assert json.loads(Path("r.json").read_text())["topology"] == f"file:{shown}"
        assert json.loads(Path("t.json").read_text())
        assert "<algo name=" in Path("t.xml").read_text()
    assert (
        main("schedule", "--topology", "file:" + os.fsdecode(b"net\xff.txt"), "--plot", "t.svg")
        == 0
    )
    assert "<svg" in Path("t.svg").read_text()


def test_files_are_utf8_in_every_locale(folder):
    """Neither what is read nor what is written goes by the locale's encoding."""
    Path("net.txt").write_text("zürich 1\n1 2\n2 zürich\n", encoding="utf-8")
    env = {name: it for name, it in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = "schedule --topology file:net.txt --algorithm ring --json -"
    done = gradnic(*words.split(), env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 3


def test_a_reader_that_is_gone_is_no_error(folder):
    """As ``gradnic ... | head -1``: no traceback, and nothing on standard error."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "gradnic", *STATS], stdout=write,
                          stderr=subprocess.PIPE, timeout=120)  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("words", [STATS, [*STATS, "--json", "-"], ["--help"]])
def test_closed_standard_output(folder, words):
    """As ``gradnic ... >&-``: there is nobody to tell, and no traceback."""
    done = gradnic(*words, preexec_fn=lambda: os.close(1))
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    if words[-1] == "-":
        assert done.stderr == b"Error: standard output: Bad file descriptor\n"
    assert done.returncode == (2 if words[-1] == "-" else 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [STATS, [*STATS, "--json", "-"], ["--version"]])
def test_standard_output_on_a_full_disk(folder, words):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-m", "gradnic", *words], stdout=full,
                              stderr=subprocess.PIPE, timeout=120)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == b"Error: standard output: No space left on device"
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("option", ["--json", "--table", "--plot", "--export"])
def test_a_full_disk_is_named(folder, capsys, option):
    name = {"--table": "full.h", "--plot": "full.svg"}.get(option, "full")
    Path(name).symlink_to("/dev/full")
    words = [option, "msccl", name] if option == "--export" else [option, name]
    assert main(*RING, *words) == 2
    assert capsys.readouterr().err == f"Error: {name}: No space left on device\n"


def test_a_disk_that_fills_up_leaves_the_old_file(folder, monkeypatch, capsys):
    """A plain file is replaced whole or not at all; the part that was written is gone."""
    Path("r.json").write_text("old")

    class Full(io.FileIO):
        def write(self, data):
            super().write(bytes(data)[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(output, "open", lambda handle, mode: Full(handle, mode), raising=False)
    assert main(*RING, "--json", "r.json") == 2
    assert capsys.readouterr().err == "Error: r.json: No space left on device\n"
    assert sorted(path.name for path in folder.iterdir()) == ["r.json", "x.npy"]
    assert Path("r.json").read_text() == "old"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_a_folder_that_takes_nothing(folder, capsys):
    """As somebody who may read there and not write."""
    assert main("codec", "compress", "x.npy", "x.inc") == 0  # all that it imports is there
    for path in (folder, *folder.parents):
        path.chmod(0o755)
        if path.parent.name == "tmp" or path.parent == path.parent.parent:
            break
    capsys.readouterr()
    os.setresuid(65534, 65534, 0)
    try:
        for words, name in ((("codec", "compress", "x.npy", "y.inc"), folder),
                            (("codec", "stats", "x.npy", "--json", "deep/y"), folder / "deep"),
                            (("codec", "compress", "x.npy", "x.inc"), "x.inc"),
                            (("gradients", "--out", "g"), "g")):  # fmt: skip
            assert main(*words) == 2
            assert capsys.readouterr().err == f"Error: {name}: Permission denied\n"
    finally:
        os.setresuid(0, 0, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["x.inc", "x.npy"]


@pytest.mark.parametrize("home", [None, "", "/nowhere", "/dev/null"])
def test_without_a_home(folder, monkeypatch, home):
    monkeypatch.delenv("MPLCONFIGDIR", raising=False)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    assert main(*RING, "--plot", "t.svg", "--json", "r.json") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["r.json", "t.svg", "x.npy"]


BROKEN_OFF = """
from gradnic import cli
from gradnic.hdl.inline.card import InlineCard

elaborate = InlineCard.elaborate

def broken_off(card, platform):
    made = elaborate(card, platform)
    raise KeyboardInterrupt

InlineCard.elaborate = broken_off
cli.main(["verilog", "--preset", "inline4"])
"""


def test_ctrl_c_while_a_circuit_is_made_is_one_word():
    """Amaranth has a line for each part that was made and not used, 250 of them."""
    run = subprocess.run([sys.executable, "-c", BROKEN_OFF], capture_output=True, text=True)
    assert run.returncode == 130
    assert run.stderr.split() == ["interrupted"]
