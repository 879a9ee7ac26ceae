"""`gradnic verilog --shell`: files, note, and one line for each mistake."""

import json

import pytest
from click.testing import CliRunner
from gradnic.hdl import shells

from gradnic import cli
from gradnic import quantities as q
from gradnic.commands.verilog import split_changes
from gradnic.interface import params


def gradnic(*words):
    return CliRunner().invoke(cli.cli, ["verilog", *words])


def test_files_of_a_shell(tmp_path):
    words = ["--preset", "inline4", "--shell", "liteeth", "--set", "bits=8"]
    words += ["--set", "max_floats=336", "--out", str(tmp_path), "--json", str(tmp_path / "j")]
    run = gradnic(*words)
    assert run.exit_code == 0, run.output
    result = json.loads((tmp_path / "j").read_text())
    assert result["shell"] == "liteeth"
    assert result["options"] == {"bits": 8}
    assert result["parameters"]["max_floats"] == 336
    stem = "gradnic_liteeth"
    wanted = [f"{stem}.v", f"{stem}.xdc", f"{stem}.sdc", f"{stem}.md"]
    wanted += [f"{stem}_registers.md", f"{stem}_registers.h"]
    wanted += [f"{stem}_tap_registers.md", f"{stem}_tap_registers.h"]
    assert result["files"] == [str(tmp_path / name) for name in wanted]
    verilog = (tmp_path / f"{stem}.v").read_text()
    assert "module gradnic_liteeth(" in verilog
    head = verilog[: verilog.index("/*")]
    assert "inline4 in liteeth for generic" in head
    assert "max_floats=336" in head
    assert "bits=8" in head
    note = (tmp_path / f"{stem}.md").read_text()
    assert "Streams are 8 bits wide" in note
    assert note in run.output  # no terminal: as it is
    assert "GRADNIC_INLINE_CONTROL" in (tmp_path / f"{stem}_registers.h").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shell", "coyote"], "shell must be one of corundum, opennic, liteeth, not 'coyote'"),
        (["--shell", "liteeth", "--set", "bits=9"], "bits must be 8, 16, 32 or 64, not 9"),
        (["--shell", "liteeth", "--set", "bits=x"], "bits must be a number, not 'x'"),
        (["--shell", "corundum", "--set", "port=2"], "must be set as tap=… or n_ports=…"),
        (["--shell", "corundum", "--name", "x"], "leave --name out"),
        (["--shell", "liteeth", "--set", "meta_width=3"], "leave meta_width out"),
    ],
)
def test_mistakes(words, said):
    run = gradnic("--preset", "inline4", *words)
    assert run.exit_code != 0
    assert said in run.output + str(run.exception)


def test_only_cards_fit():
    run = gradnic("--preset", "compressor4", "--shell", "liteeth")
    assert run.exit_code == 2
    assert "liteeth takes a card, such as inline16, not compressor4" in run.output


@pytest.mark.parametrize(
    ("shell", "change", "said"),
    [
        ("opennic", "n_ports=4", "n_ports must be 1 or 2, not 4"),
        ("opennic", "memory_kib=100", "memory_kib must be a power of two, 4 to 8192, not 100"),
        ("opennic", "n_ports=2", "the card must have 512 bits a beat, not 128"),
        ("liteeth", "n_ports=2", "n_ports must be 1 at a MAC core, not 2"),
    ],
)
def test_offload_cards_that_do_not_fit(shell, change, said):
    run = gradnic("--preset", "offload128", "--set", change, "--shell", shell)
    assert run.exit_code != 0
    assert said in run.output + str(run.exception)


def test_options_by_text():
    chosen = shells.shell("corundum", ("tap=direct", "app_id=0x12345678", "bits=64"))
    assert (chosen.tap, chosen.app_id, chosen.bits) == ("direct", 0x12345678, 64)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("jobs128", {"thc": 1, "feedback": 1}),
        ("offload128thc", {"thc": 0, "scale": 1}),
        ("jobs128", {"n_active": 4, "n_engines": 3}),
        ("offload128", {"n_bytes": 64, "port_bytes": 32}),
        ("direct2", {"n_lanes": 32, "n_ports": 8}),
    ],
)
def test_changes_stand_in_any_order(preset, changes):
    """Each pair fits, and the second change alone does not fit the preset."""
    words = [f"{key}={value}" for key, value in changes.items()]
    with pytest.raises(ValueError, match="must be"):
        params.preset(preset, words[1:])
    for order in (words, words[::-1]):
        found = params.preset(preset, order)
        assert {key: getattr(found, key) for key in changes} == changes


def test_several_tables_are_of_a_power_of_two():
    with pytest.raises(ValueError, match="n_rows must be a power of two where n_tables is 4"):
        params.preset("jobs128", ("n_rows=513",))
    assert params.preset("jobs128", ("n_rows=513", "n_tables=1")).n_rows == 513


def test_a_key_is_set_once():
    """As of ``synth jobs128+n_ports=1+n_ports=2``, and of a shell by both spellings."""
    with pytest.raises(ValueError, match="n_ports must be set once, not to 1 and 2"):
        params.preset("jobs128", ("n_ports=1", "n_ports=2"))
    with pytest.raises(ValueError, match="tap must be set once, not to sync and direct"):
        shells.shell("corundum", ("tap=sync", "tap=direct"))
    words = ["--preset", "inline4", "--shell", "corundum"]
    run = gradnic(*words, "--set", "n_ports=1", "--set", "shell.n_ports=2")
    assert "n_ports must be set once, not to 1 and 2" in run.output + str(run.exception)


def test_whole_numbers_are_decimal_or_hexadecimal():
    assert params.preset("scheduler64", ("n_rows=0x10",)).n_rows == 16
    assert params.preset("scheduler64", ("n_nodes=017",)).n_nodes == 17
    assert shells.shell("corundum", ("n_ports=010",)).n_ports == 10
    assert q.Whole(0, 99).convert("0X2a", None, None) == 42
    for word in ("0b11", "0o17", "1_6", "0x", "0x_1", "x1", "+-1", "\u0661"):
        with pytest.raises(ValueError, match="n_ports must be a number"):
            shells.shell("corundum", (f"n_ports={word}",))
        with pytest.raises(ValueError, match="n_rows must be a number"):
            params.preset("scheduler64", (f"n_rows={word}",))
        with pytest.raises(q.Wrong):
            q.Whole(0, 99).convert(word, None, None)


def test_a_key_of_both_may_be_for_the_shell():
    changes = ("bits=8", "shell.bits=64", "shell.n_ports=2", "n_active=1", "tap=sync")
    own, others = split_changes(changes, "jobs128")
    assert (own, others) == (["bits=8", "n_active=1"], ["bits=64", "n_ports=2", "tap=sync"])
