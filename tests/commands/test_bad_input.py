"""Bad input, command by command: one line on stderr that names it, status 2, nothing left.

Each row of ``bad_input.txt`` is a command, "=>", and a part of the line; ``x{300}`` is 300 times
an x, and ``\\n`` a line end. They all run in this process, in a folder of files that are wrong in
one way each.
"""

import itertools
import json
import os
import re
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


JOBS = {  # of `gradnic cosim card --jobs`
    "jobs-none": [],
    "jobs-text": "jobs",
    "jobs-numbers": [1, 2],
    "words": [{"bytes": "64KiB"}],
    "null": [{"bytes": None}],
    "fraction": [{"bytes": 64.5}],
    "odd": [{"bytes": 66}],
    "negative": [{"bytes": -4}],
    "huge": [{"bytes": 1 << 36}],
    "endless": [{"elems": float("inf")}],
    "nan": [{"elems": float("nan")}],
    "list-size": [{"elems": [1]}],
    "true": [{"bytes": True}],
    "kind": [{"bytes": 64, "kind": [1]}],
    "kind-word": [{"bytes": 64, "kind": "fp64"}],
    "collective": [{"bytes": 64, "collective": "scatter"}],
    "at-word": [{"bytes": 64, "at": "soon"}],
    "at-negative": [{"bytes": 64, "at": -5}],
    "at-late": [{"bytes": 64, "at": 10_000_001}],
    "nodes": [{"bytes": 64, "nodes": 5}],
    "nodes-none": [{"bytes": 64, "nodes": []}],
    "nodes-twice": [{"bytes": 64, "nodes": [1, 1]}],
    "nodes-word": [{"bytes": 64, "nodes": ["a"]}],
    "nodes-far": [{"bytes": 64, "nodes": [0, 9]}],
    "root": [{"bytes": 64, "root": None}],
    "root-far": [{"bytes": 64, "collective": "reduce", "root": 9}],
    "ids": [{"bytes": 64, "id": 1}] * 2,
    "mean-beside-thc": [{"bytes": 64, "codec": "thc"}, {"bytes": 64, "op": "mean"}],
    "second": [{"bytes": 64}, {"bytes": 64, "colour": 1}],
}
THREE = [{"id": 0}, {"id": 1}, {"id": 2}]
LINKS = [{"source": 0, "target": 1}, {"source": 1, "target": 2}]


def node_link(nodes=THREE, links=LINKS, **more):
    return {"nodes": nodes, "links": links, **more}


def one_link(**values):
    return node_link(links=[{**LINKS[0], "bandwidth": 1, **values}, {**LINKS[1], "bandwidth": 1}])


NETWORKS = {  # of NetworkX, but for the last ones, which are ours
    "multi": node_link(links=LINKS + LINKS[:1], multigraph=True),
    "weights": node_link(links=[{**LINKS[0], "weight": 2}, LINKS[1]]),
    "both": {
        "nodes": [{"id": 0}, {"id": 1}],
        "links": [{"source": 0, "target": 1}],
        "edges": [],
    },
    "unlinked": {"nodes": THREE},
    "nameless": node_link([{}]),
    "bare": node_link([1, 2]),
    "fast": one_link(bandwidth="fast"),
    "listed": one_link(bandwidth=[1]),
    "partly": node_link(links=[{**LINKS[0], "bandwidth": 100}, LINKS[1]]),
    "true-speed": one_link(bandwidth=True),
    "digits": one_link(bandwidth=10**400),
    "inf": one_link(bandwidth="1e999"),
    "low": one_link(bandwidth=-1),
    "late": one_link(latency=-1),
    "when": one_link(latency="nan"),
    "twice": node_link(THREE + THREE[:1]),
    "list-id": node_link([{"id": [1]}, {"id": [1]}]),
    "object-id": node_link([{"id": {}}, {"id": 1}]),
    "stranger": node_link(links=[{"source": 0, "target": 7}]),
    "self": node_link(links=[*LINKS, {"source": 0, "target": 0}]),
    "lonely": node_link(links=LINKS[:1]),
    "double": node_link(links=LINKS + LINKS[:1]),
    "switches": node_link([{**node, "switch": True} for node in THREE]),
    "alone": node_link(THREE[:1], []),
    "far": {"nodes": 3, "links": [[0, -(1 << 70)]]},
    "ports": {"nodes": 2, "links": [[0, 1]], "ports": 1.5},
    "nine-ports": {"nodes": 2, "links": [[0, 1]], "ports": 9},
    "word-directed": node_link(directed="false"),
    "own-directed": {"nodes": 2, "links": [[0, 1]], "directed": "false"},
    "null-links": {"nodes": 2, "links": None},
    "key": {"nodes": 2, "links": [[0, 1]], "switch": 1},
}


def graphml(inside):
    key = '<key id="b" attr.name="bandwidth"/>'
    return f'<graphml>{key}<graph edgedefault="undirected">{inside}</graph></graphml>'


def graphml_link(bandwidth):
    ends = '<node id="0"/><node id="1"/><edge source="0" target="1">'
    return graphml(f'{ends}<data key="b">{bandwidth}</data></edge>')


def astra(kinds, counts, bandwidth="1", latency="1"):
    names = zip(("topology", "npus_count", "bandwidth", "latency"),
                (kinds, counts, bandwidth, latency), strict=True)  # fmt: skip
    return "".join(f"{name}: [ {value} ]\n" for name, value in names)


def laughs():
    """An entity of ten times ten times ... characters."""
    names = "abcdefghijk"
    text = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in itertools.pairwise(names))
    return f'<!DOCTYPE l [<!ENTITY a "ha">{text}]><graphml><graph>&k;</graph></graphml>'


TEXTS = {
    "net.0.et": "0 1\n1 2\n2 0\n",  # right: an input to overwrite
    "jobs-cut.json": '[{"bytes":64}, {"by',
    "jobs-deep.json": "[" * 100_000,
    "jobs-latin.json": '[{"byt\xe9s":64}]'.encode("latin1"),
    "deep.json": '{"nodes":' + "[" * 100_000,
    "net.gexf": "<?xml version='1.0'?><gexf><graph/></gexf>",
    "cut.graphml": "<graphml><graph>",
    "none.graphml": "<graphml/>",
    "empty.graphml": "",
    "nan.graphml": graphml_link("nan"),
    "word.graphml": graphml_link("1_0"),
    "endless.graphml": graphml('<node id="0"/><edge source="0"/>'),
    "nobody.graphml": graphml(""),
    "laughs.graphml": laughs(),
    "bytes.graphml": b"\xff\xff<graphml/>",
    "empty.yml": "",
    "none.yml": astra("", "", "", ""),
    "inf.yml": astra("Ring", "inf"),
    "fraction.yml": astra("Ring", "4.5"),
    "negative.yml": astra("Ring", "-4"),
    "many.yml": astra("FullyConnected", "1048576"),
    "length.yml": astra("Ring, Ring", "4"),
    "kind.yml": astra("Donut", "4"),
    "slow.yml": astra("Ring", "4", bandwidth="0"),
    "wide.yml": astra("Ring", "4", bandwidth="100"),
    "crawl.yml": astra("Ring", "4", bandwidth="1e-6"),
    "early.yml": astra("Ring", "4", latency="-1"),
    "many-ns3.txt": "1000000000000 0 1\n0 1 1Gbps 1us 0\n",
    "count-ns3.txt": "3 0 5\n0 1 1Gbps 1us 0\n",
    "unit-ns3.txt": "2 0 1\n0 1 1Gbps 1fortnight 0\n",
    "short-ns3.txt": "2 0 1\n0 1 1Gbps\n",
    "simai-ns3.txt": "2 8 0 0 1\n\n0 1 1Gbps 1us 0\n",
    "key-twice.json": '{"nodes": 2, "links": [[0, 1]], "links": [[1, 0]]}',
    "dimacs.col": "c a ring\np edge 3 3\ne 1 2\ne 2 3\ne 3 1\n",
    "switch-ns3.txt": "3 1 2\n9\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n",
    "vertex-ns3.txt": "2 0 1\n0 7 1Gbps 1us 0\n",
    "long.txt": "x" * (1 << 20),
    "inf.txt": "0 1 inf\n1 2\n",
    "under.txt": "0 1 1_0\n1 2 10\n",
    "digits.txt": "0 1 1e308\n1 2 1e308\n",
    "tiny.txt": "0 1 5e-324\n1 2 5e-324\n",
    "just.txt": "0 1 1.00000001\n1 2\n",
    "much.txt": "0 1 1 1000000000.0001\n1 2\n",
    "far.txt": "0 1 1 1e308\n1 2\n",
    "nul.txt": "0 1\0\n1 2\n",
    "latin.txt": "m\xfcnchen 1\n1 2\n".encode("latin1"),
    "half.txt": "0 1\n1 2\n".encode("utf-16")[:-1],
    "comment.txt": "# nothing\n",
    "bytes.jsonl": b"\xff\xfe\0\n{}\n",
    "deep.jsonl": "[" * 100_000 + "\n{}\n",
    "words.jsonl": "hello\nworld\n",
    "word.jsonl": "hello\n",
    "other.jsonl": "hello",
    "list.jsonl": "[1]\n[2]\n",
}
HEADERS = {  # of .npy files
    "square": claim("(-1, -8)"),
    "narrow": claim("(8,)", "<f2"),
    "complex": claim("(2,)", "<c8"),
    "letters": claim("(2,)", "<U4"),
    "more": "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), 'x': 1}",
    "call": "__import__('os').system('touch called')",
    "float": claim("(8.0,)"),
    "scalar": claim("8"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files that are wrong in one way each."""
    root = tmp_path_factory.mktemp("bad")
    good = np.arange(8, dtype=np.float32)
    arrays = {"good": good, "nine": np.ones(9, np.float32), "double": np.ones(3),
              "int": np.ones(3, np.int32), "bigendian": np.ones(3, ">f8"),
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
        "heading.txt": b"source target\n0 1\n1 2\n2 0\n",
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
    files |= {f"{name}.npy": npy(header, bytes(32)) for name, header in HEADERS.items()}
    files |= {"head.npy": data[:9], "magic.npy": data[:6]}
    files |= {f"{name}.json": json.dumps(it) for name, it in (JOBS | NETWORKS).items()}
    for name, content in (files | TEXTS).items():
        (root / name).write_bytes(content.encode() if isinstance(content, str) else content)
    (root / "taken").mkdir()
    names = ("sum_0001_w0.npy", "inline8.v", "index.html")
    for name in ("folder", "folder.h", "folder.png", "trace.0.et",
                 *(f"taken/{name}" for name in names)):  # fmt: skip
        (root / name).mkdir()
    (root / "zero.json").symlink_to("/dev/zero")
    (root / "loop.jsonl").symlink_to("loop.jsonl")
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
    """The arguments that a row's command line means."""

    def meant(word):
        word = re.sub(r"(\w|\(.+?\))\{(\d+)\}", lambda m: m[1].strip("()") * int(m[2]), word)
        return word.encode().decode("unicode_escape") if "\\" in word else word

    return ["" if word == "''" else meant(word) for word in words.split()]


def test_there_are_four_hundred():
    assert len(rows()) >= 400
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
