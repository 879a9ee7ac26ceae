"""The Wireshark dissector: its Lua against the field tables, tshark's values against a parse."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.sim.frame import frames as makers
from gradnic.sim.frame import pcap

from gradnic import cli
from gradnic.host import dissector
from gradnic.interface.formats import GRADNIC, PARAMETERS, UDP_PORT, Op


def some_frames():
    """One frame of every op, with noise in all other fields of the head."""
    rng = np.random.default_rng(7)
    frames = []
    for op in Op:
        noise = {f.name: int(rng.integers(0, 1 << f.width)) for f in GRADNIC}
        noise |= {"ver": 1, "op": int(op)}
        frames.append(makers.native_frame(makers.gradient(rng, 3), **noise))
    return frames


def test_offsets_and_masks_are_those_of_the_tables():
    """The bits that the Lua takes from a frame, computed here, are the field's value."""
    text = dissector.lua("test")
    declared = dict(re.findall(r"^f\.(\w+) = ProtoField\.u?int\d+\((.*)\)$", text, re.M))
    places = re.findall(r"t:add\(f\.(\w+), buffer\((\d+), (\d+)\)\)", text)
    assert len(places) == len(dissector.names())
    frame = some_frames()[0]
    fields = {field.name: (None, field) for field in GRADNIC}
    for op, header in PARAMETERS.items():
        stem = op.name.lower().replace("_", "")
        fields |= {f"{stem}_{field.name}": (op, field) for field in header}
    for name, start, length in places:
        op, field = fields[name]
        name_there, *_, last = declared[name].split(", ")
        assert name_there == f'"{dissector.abbreviation(field, op)}"'
        whole = int.from_bytes(frame[42 + int(start) :][: int(length)], "big")
        mask = int(last, 16) if last.startswith("0x") else (1 << 8 * int(length)) - 1
        value = (whole & mask) >> (mask & -mask).bit_length() - 1
        assert value == field.get(frame) & (1 << field.width) - 1, name


def test_command(tmp_path):
    out = tmp_path / "gradnic.lua"
    run = CliRunner().invoke(cli.cli, ["dissector", "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert f'DissectorTable.get("udp.port"):add({UDP_PORT}, gradnic)' in out.read_text()


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_sees_the_same_values(tmp_path):
    frames = some_frames()
    pcap.write_pcap(tmp_path / "a.pcap", enumerate(frames))
    (tmp_path / "gradnic.lua").write_text(dissector.lua("test"))

    def tshark(*words):
        command = ["tshark", "-X", "lua_script:gradnic.lua", "-r", "a.pcap", *words]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        return run.stdout.rstrip("\n").split("\n")

    headers = [(None, GRADNIC), *PARAMETERS.items()]
    columns = [(op, field) for op, header in headers for field in header]
    named = [word for op, field in columns for word in ("-e", dissector.abbreviation(field, op))]
    rows = [line.split(",") for line in tshark("-T", "fields", "-E", "separator=,", *named)]
    assert len(rows) == len(frames)
    for frame, row in zip(frames, rows, strict=True):
        kind = Op(GRADNIC.op.get(frame))
        for (op, field), seen in zip(columns, row, strict=True):
            if op in (None, kind):
                assert int(seen, 0) == field.get(frame), (kind, field.name)
            else:
                assert seen == "", (kind, field.name)
    summary = tshark("-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info")
    for frame, line in zip(frames, summary, strict=True):
        head = GRADNIC.parse(frame)
        assert line.startswith(f"gradnic\t{Op(head['op']).name} ")
        assert line.endswith(f" seq {head['seq']}, {head['elems']} elements")
