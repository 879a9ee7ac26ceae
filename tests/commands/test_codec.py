"""``gradnic codec`` and ``gradnic gradients``: files go round, mistakes cost a line and no file."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from gradnic.models import inceptionn

from gradnic import cli, coded_file


def run(*arguments):
    return CliRunner().invoke(cli.cli, [str(a) for a in arguments])


@pytest.fixture
def gradient(tmp_path):
    x = np.random.default_rng(2).laplace(0, 0.02, (7, 5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    return tmp_path / "x.npy", x


@pytest.mark.parametrize(
    "setting", [{}, {"exponent": 121, "mode": "paper"}, {"prescale": -3, "rounding": "nearest"}]
)
def test_files_go_round(gradient, tmp_path, setting):
    path, x = gradient
    options = [word for key, value in setting.items() for word in (f"--{key}", value)]
    result = run("codec", "compress", path, tmp_path / "x.inc", *options, "--json", "-")
    assert result.exit_code == 0, result.output
    unit = inceptionn.compress(x, **setting)
    assert json.loads(result.stdout)["coded_bytes"] == len(unit)
    assert unit in (tmp_path / "x.inc").read_bytes()
    assert run("codec", "decompress", tmp_path / "x.inc", tmp_path / "y.npy").exit_code == 0
    y = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(y, inceptionn.image(x, **setting), strict=True)


def test_scalar_goes_round(tmp_path):
    np.save(tmp_path / "x.npy", np.float32(0.25))
    assert run("codec", "compress", tmp_path / "x.npy", tmp_path / "x.inc").exit_code == 0
    assert run("codec", "decompress", tmp_path / "x.inc", tmp_path / "y.npy").exit_code == 0
    assert np.load(tmp_path / "y.npy").shape == ()


def test_either_byte_order_is_read(gradient, tmp_path):
    path, x = gradient
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    for name in (path, tmp_path / "big.npy"):
        assert run("codec", "compress", name, tmp_path / f"{name.stem}.inc").exit_code == 0
    assert (tmp_path / "big.inc").read_bytes() == (tmp_path / f"{path.stem}.inc").read_bytes()


def test_stats_keys(gradient, tmp_path):
    result = run("codec", "stats", gradient[0], "--json", tmp_path / "s.json")
    assert result.exit_code == 0, result.output
    stats = json.loads((tmp_path / "s.json").read_text())
    keys = {"value_ratio", "payload_ratio", "wire_ratio", "nmse", "max_abs_error", "bound"}
    assert keys <= set(stats)
    assert stats["max_abs_error"] < stats["bound"] == 2**-10


def wrong_files(folder):
    np.save(folder / "double.npy", np.ones(3))
    np.save(folder / "empty.npy", np.ones(0, np.float32))
    np.savez(folder / "archive.npy.npz", x=np.ones(3, np.float32))
    (folder / "nothing.npy").write_bytes(b"")
    (folder / "text.npy").write_text("hello")
    with (folder / "two.npy").open("wb") as file:
        np.save(file, np.ones((2, 3), np.float32))
        np.save(file, np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.npy"], "missing.npy"),
        (["double.npy"], "must hold float32, not float64"),
        (["empty.npy"], "not shape (0,)"),
        (["archive.npy.npz"], "must be an .npy file"),
        (["nothing.npy"], "must be an .npy file"),
        (["text.npy"], "must be an .npy file"),
        (["two.npy"], "must hold one array: more comes behind the first, of (2, 3)"),
        (["good.npy", "--exponent", "112"], "not 112"),
        (["good.npy", "--prescale", "200"], "not 200"),
        (["good.npy", "--mode", "fast"], "not fast"),
        (["good.npy", "--mode", "paper", "--rounding", "nearest"], "not 'nearest'"),
    ],
)
def test_mistakes_are_errors_without_a_file(tmp_path, arguments, words):
    wrong_files(tmp_path)
    np.save(tmp_path / "good.npy", np.ones(3, np.float32))
    options = arguments[1:]
    for verb, rest in [("stats", []), ("compress", [tmp_path / "out"])]:
        result = run("codec", verb, tmp_path / arguments[0], *rest, *options)
        assert result.exit_code == 2 or isinstance(result.exception, ValueError), result.output
        assert words in result.output + str(result.exception)
    assert not (tmp_path / "out").exists()


def test_damaged_coded_files_are_refused(gradient, tmp_path):
    run("codec", "compress", gradient[0], tmp_path / "x.inc")
    data = (tmp_path / "x.inc").read_bytes()
    for damaged in (b"", data[:9], data[:-1], data + b"\0", data[:50] + b"\xff" + data[51:]):
        (tmp_path / "bad.inc").write_bytes(damaged)
        result = run("codec", "decompress", tmp_path / "bad.inc", tmp_path / "y.npy")
        assert isinstance(result.exception, ValueError)
    assert not (tmp_path / "y.npy").exists()


def test_coded_file_layout():
    data = coded_file.pack(b"\x01\x00\x7a", (1, 1), exponent=117, mode="paper", prescale=-1)
    assert data[:27] == b"GRADNIC\x01" + bytes([0xF5, 0xFF, 2]) + bytes([1, *[0] * 7] * 2)
    assert data[27:30] == b"\x01\x00\x7a"
    setting = {"exponent": 117, "mode": "paper", "prescale": -1}
    assert coded_file.unpack(data) == (b"\x01\x00\x7a", (1, 1), setting)


def test_gradients_are_written(tmp_path):
    options = ["--iterations", "1,3", "--workers", 2, "--batch", 5, "--out", tmp_path / "g"]
    result = run("gradients", *options, "--json", tmp_path / "g.json")
    assert result.exit_code == 0, result.output
    files = json.loads((tmp_path / "g.json").read_text())["files"]
    assert [f["file"] for f in files] == [f"sum_{i:04d}_w{w}.npy" for i in (1, 3) for w in range(2)]
    for entry in files:
        x = np.load(tmp_path / "g" / entry["file"])
        assert (x.dtype, x.shape) == (np.float32, (235146,))
        assert np.isclose(np.abs(x).max(), entry["max_abs"])


@pytest.mark.parametrize("text", ["", "1,x", "1.5"])
def test_iterations_that_are_no_integers(tmp_path, text):
    result = run("gradients", "--iterations", text, "--out", tmp_path / "g")
    assert result.exit_code == 2
    assert not (tmp_path / "g").exists()
