"""Bad input, command by command: one line on stderr that names it, status 2, nothing left.

Each row of ``bad_input.txt`` is a command, "=>", and a part of the line. They all run in this
process, in a folder of files that are wrong in one way each.
"""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from gradnic import cli, coded_file

ROWS = Path(__file__).with_name("bad_input.txt").read_text()


def npy(header, body=b"", version=(1, 0)):
    """Bytes of an .npy file of version 1.0 with this header, true or not."""
    text = f"{header}\n".encode()
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text + body


def claim(shape, descr="<f4"):
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files that are wrong in one way each."""
    root = tmp_path_factory.mktemp("bad")
    good = np.arange(8, dtype=np.float32)
    arrays = {"good": good, "nine": np.ones(9, np.float32), "double": np.ones(3),
              "int": np.ones(3, np.int32), "bigendian": np.ones(3, ">f4"),
              "empty": np.ones(0, np.float32)}  # fmt: skip
    for name, x in arrays.items():
        np.save(root / f"{name}.npy", x)
    np.savez(root / "archive.npz", x=good)
    np.save(root / "objects.npy", np.array([{}, 1], object), allow_pickle=True)
    np.save(root / "structured.npy", np.zeros(2, [("a", "f4")]))
    data = (root / "good.npy").read_bytes()
    files = {
        "nothing.npy": b"",
        "text.npy": b"hello",
        "cut.npy": data[:-3],
        "claims13.npy": npy(claim("(10000000000000,)"), bytes(32)),
        "claims30.npy": npy(claim(f"({10**30},)"), bytes(32)),
        "product.npy": npy(claim("(4294967296, 4294967296)"), bytes(32)),
        "negative.npy": npy(claim("(-8,)"), bytes(32)),
        "version9.npy": npy(claim("(8,)"), bytes(32), version=(9, 9)),
        "deep.npy": npy("(" * 900 + ")" * 900),
        "bytes.txt": bytes(range(128, 256)),
        "words.txt": b"zero one two three four\n",
        "negative.txt": b"0 1 -1\n",
        "nan.txt": b"0 1 nan\n",
        "loop.txt": b"0 0\n0 1\n",
        "apart.txt": b"0 1\n2 3\n",
        "ring.txt": b"0 1\n1 2\n2 0\n",
        "broken.json": b'{"nodes": 3, ',
        "list.json": b'{"nodes": [1], "links": 3}',
    }
    coded = coded_file.pack(b"\x01\x00\x7a", (1, 1), exponent=117, mode="strict", prescale=0)
    setting = {"exponent": 117, "mode": "strict", "prescale": 0}
    files |= {
        "coded.inc": coded,
        "short.inc": coded[:9],
        "cut.inc": coded[:-1],
        "flipped.inc": coded[:20] + b"\xff" + coded[21:],
        "grown.inc": coded + b"\0",
        "claims.inc": coded_file.pack(b"\x01\x00\x7a", (10**13,), **setting),
        "exponent.inc": coded_file.pack(b"\x01\x00\x7a", (1,), **setting | {"exponent": 3}),
        "dims.inc": coded_file.pack(b"\x01\x00\x7a", (1,) * 200, **setting),
    }
    for name, content in files.items():
        (root / name).write_bytes(content)
    for name in ("folder", "folder.h", "folder.png"):
        (root / name).mkdir()
    (root / "link.npy").symlink_to("good.npy")
    os.link(root / "good.npy", root / "hard.npy")
    (root / "loop.npy").symlink_to("loop.npy")
    (root / "dangling").symlink_to("folder/../good.npy")
    results = ["", "[]", "{}", '{"iterations": {}, "nodes": "x", "exponent": 1}', "\xff" * 9]
    for k, text in enumerate(results, 1):
        (root / f"broken{k}").mkdir()
        (root / f"broken{k}" / "result.json").write_text(text)
    return root


def rows():
    """[(command, part of the line)]."""
    return [tuple(line.split(" => ")) for line in ROWS.splitlines() if line]


class Program:
    """What `click.testing.CliRunner` calls as it would the ``gradnic`` command."""

    name = "gradnic"

    @staticmethod
    def main(args, **_):
        cli.main(list(args))


def state(root):
    """Names, kinds and bytes of all that is below a folder."""
    return {
        str(path.relative_to(root)): path.lstat().st_mode
        if path.is_symlink() or path.is_dir()
        else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def split(words):
    return ["" if word == "''" else word for word in words.split()]


def test_there_are_two_hundred():
    assert len(rows()) >= 200
    first = {words.split()[0] for words, _ in rows()}
    assert first >= set(cli.COMMANDS)


@pytest.mark.parametrize(("words", "line"), rows())
def test_one_line_and_nothing_left(words, line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = state(folder)
    done = CliRunner().invoke(Program, split(words))
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert line in done.stderr
    assert state(folder) == before


def test_the_files_are_wrong_only_in_one_way(folder, monkeypatch):
    """What they are beside is right: the good ones pass."""
    monkeypatch.chdir(folder)
    for words in ("codec stats good.npy --json -", "schedule --topology file:ring.txt --json -"):
        done = CliRunner().invoke(Program, split(words))
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)
    assert Path("good.npy").stat().st_nlink == 2
