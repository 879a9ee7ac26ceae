"""Outputs go where they are told: through links, devices and FIFOs, never over what must stay."""

import json
import os
import stat
import threading
from pathlib import Path

import click
import pytest

from gradnic import cli, output, paths

WORDS = ["schedule", "--topology", "ring:3", "--algorithm", "ring"]


def gradnic(*words):
    with pytest.raises(SystemExit) as end:
        cli.main([*WORDS, *map(str, words)])
    return end.value.code


def is_result(text):
    return json.loads(text)["topology"] == "ring:3"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_link_is_followed(folder):
    (folder / "store").mkdir()
    real = folder / "store" / "real.json"
    real.write_text("old")
    (folder / "link.json").symlink_to("store/real.json")
    (folder / "far.json").symlink_to("link.json")
    (folder / "new.json").symlink_to("store/new.json")
    for name in ("link", "far", "new"):
        assert gradnic("--json", f"{name}.json") == 0
        assert (folder / f"{name}.json").is_symlink()
    assert is_result(real.read_text())
    assert is_result((folder / "store" / "new.json").read_text())
    assert sorted(path.name for path in (folder / "store").iterdir()) == ["new.json", "real.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a device node")
def test_a_device_is_written_through(folder):
    null = folder / "null"
    os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for option in ("--json", "--table"):
        name = null if option == "--json" else folder / "null.h"
        if not name.exists():
            name.symlink_to("null")
        assert gradnic(option, name) == 0
        assert stat.S_ISCHR(null.stat().st_mode)
    full = folder / "full"
    os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    assert gradnic("--json", full) == 2


@pytest.mark.parametrize("late", [False, True])
def test_a_fifo_reaches_its_reader(folder, late):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Timer(0.3 if late else 0, lambda: got.append(pipe.read_text()))
    reader.start()
    assert gradnic("--json", pipe) == 0
    reader.join()
    assert is_result(got[0])
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_fifo_without_a_reader_is_an_error(folder, monkeypatch, capsys):
    monkeypatch.setattr(output, "READER", 0.2)
    os.mkfifo(folder / "pipe")
    assert gradnic("--json", "pipe") == 2
    assert capsys.readouterr().err == "Error: pipe: nobody reads this FIFO\n"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002, 0])
def test_a_new_file_gets_what_the_umask_leaves(folder, mask):
    before = os.umask(mask)
    try:
        assert gradnic("--json", "deep/private.json", "--table", "t.h") == 0
    finally:
        os.umask(before)
    for name in ("deep/private.json", "t.h"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o666 & ~mask


def test_an_old_file_keeps_its_mode(folder):
    (folder / "old.json").write_text("old")
    (folder / "old.json").chmod(0o640)
    assert gradnic("--json", "old.json") == 0
    assert stat.S_IMODE((folder / "old.json").stat().st_mode) == 0o640
    assert is_result((folder / "old.json").read_text())


def test_a_plain_file_is_whole_or_as_it_was(folder, monkeypatch):
    target = folder / "old.json"
    target.write_text("old")

    def fails(*_):
        raise OSError(28, "No space left on device", "old.json")

    monkeypatch.setattr(os, "replace", fails)
    assert gradnic("--json", target) == 2
    assert target.read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["old.json"]


def test_standard_output_by_its_other_names(folder, capfd):
    for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert gradnic("--json", name) == 0
        out = capfd.readouterr().out
        assert is_result(out[out.index("{") :])


def test_an_input_stays(folder):
    net = folder / "net.txt"
    net.write_text("0 1\n1 2\n2 0\n")
    (folder / "link").symlink_to("net.txt")
    for name in ("net.txt", "link", "./net.txt"):
        with pytest.raises(SystemExit) as end:
            cli.main(["schedule", "--topology", "file:net.txt", "--json", name])
        assert end.value.code == 2
    assert net.read_text() == "0 1\n1 2\n2 0\n"


def commands(group, name="gradnic"):
    """(name, command) of all that can be called."""
    for word in group.list_commands(None):
        command = group.get_command(None, word)
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{name} {word}", command


def written(param):
    """The type of the file or folder that an option or argument names, or None."""
    types = param.type.types if isinstance(param.type, click.Tuple) else [param.type]
    outputs = paths.OutputFile, paths.OutputFolder
    return next((kind for kind in types if isinstance(kind, outputs)), None)


WRITTEN = [
    pytest.param(command, param, id=f"{name} {param.opts[0]}")
    for name, command in commands(cli.cli)
    for param in command.params
    if written(param)
]


def asked(command, param, place):
    """Let a command read words that name an output; what else it misses comes after that."""
    if isinstance(param, click.Option):
        words = [param.opts[0]]
    else:  # arguments before it are inputs
        arguments = [p for p in command.params if isinstance(p, click.Argument)]
        words = [__file__] * arguments.index(param)
    before = ["msccl"] if isinstance(param.type, click.Tuple) else ["x"] * (param.nargs - 1)
    command.make_context(command.name, [*words, *before, str(place)])


@pytest.mark.parametrize(("command", "param"), WRITTEN)
def test_outputs_are_looked_at_before_the_work(folder, command, param):
    """A folder in place of a file, and a file in place of a folder, while words are read."""
    kind = written(param)
    is_file = isinstance(kind, paths.OutputFile)
    place = folder / f"taken{kind.endings[0] if is_file and kind.endings else ''}"
    place.mkdir() if is_file else place.touch()
    with pytest.raises(click.UsageError, match="Is a directory" if is_file else "Not a directory"):
        asked(command, param, place)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize(("command", "param"), WRITTEN)
def test_a_place_that_takes_no_file_is_told_before_the_work(command, param):
    """Root has access to /proc, where no file can be made."""
    ending = (getattr(written(param), "endings", ()) or ("",))[0]
    with pytest.raises(click.UsageError, match="Permission denied"):
        asked(command, param, f"/proc/x{ending}")


def test_a_file_that_cannot_be_replaced_is_told_before_the_work():
    if Path("/proc/version").exists():
        with pytest.raises(click.UsageError, match="/proc/version: Permission denied"):
            paths.OutputFile().convert("/proc/version", None, None)


def test_exports_repeat(folder):
    words = ["--export", "msccl", "a.xml", "--export", "msccl", "b.xml"]
    assert gradnic(*words, "--export", "chakra", "c", "--export", "msccl++", "d.json") == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"a.xml", "b.xml", "c.0.et", "c.1.et", "c.2.et", "d.json"}
    assert (folder / "a.xml").read_text() == (folder / "b.xml").read_text()
    assert gradnic("--export", "msccl", "e.xml", "--export", "msccl++", "e.xml") == 2
    assert not (folder / "e.xml").exists()


ONCE = [
    pytest.param(command, param.opts[0], id=f"{name} {param.opts[0]}")
    for name, command in commands(cli.cli)
    for param in command.params
    if isinstance(param, click.Option) and not (param.multiple or param.is_flag)
]


@pytest.mark.parametrize(("command", "flag"), ONCE)
def test_an_option_of_one_value_is_given_once(command, flag):
    with pytest.raises(click.UsageError) as caught:
        command.make_context(command.name, [flag, "1", flag, "2"])
    assert "is given twice" in caught.value.format_message()


def test_an_option_that_repeats_says_so():
    for name, command in commands(cli.cli):
        for param in command.params:
            if isinstance(param, click.Option) and param.multiple:
                assert "repeat" in (param.help or "").lower(), f"{name} {param.opts[0]}"


def test_whatever_is_written_has_a_type_that_looks():
    """An option or argument that names a file or folder is one of an input or an output."""
    kinds = paths.OutputFile, paths.OutputFolder, paths.InputFile, click.Tuple
    for name, command in commands(cli.cli):
        for param in command.params:
            told = f"{param.metavar} {param.type.name}".upper().split()
            if {"FILE", "FOLDER", "PATH", "DIRECTORY"} & set(told):
                assert isinstance(param.type, kinds), f"{name} {param.name}"


def test_a_folder_that_takes_no_file_is_told_by_the_file_asked_for():
    with pytest.raises(OSError, match=r"'/proc/x\.json'") as caught:
        output.write_whole("/proc/x.json", "text")
    assert caught.value.filename == "/proc/x.json"
