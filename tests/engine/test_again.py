"""Failed runs that are played again: what cannot be is one line and status 2, never a pass."""

import numpy as np
import pytest
from gradnic.sim.engine import again, replay, runner


@pytest.mark.parametrize("program", [replay, runner])
def test_no_run_is_no_pass(program, capsys):
    assert program.main([]) == 2
    assert capsys.readouterr().err.startswith("Error: name a ")


def test_what_holds_no_run_is_told(tmp_path, capsys):
    np.save(tmp_path / "array.npy", np.ones(2))
    np.savez(tmp_path / "other.npz", a=1)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "other.npz").read_bytes()[:60])
    for name in ("text", "empty.npz"):
        (tmp_path / name).write_text("text"[: 4 * (name == "text")])
    names = [*sorted(path.name for path in tmp_path.iterdir()), "missing"]
    for program, said in ((replay, "holds no failed run"), (runner, "holds no request.json of a")):
        assert program.main([str(tmp_path / name) for name in names]) == 2
        seen = capsys.readouterr()
        lines = seen.err.splitlines()
        assert (len(lines), seen.out) == (len(names), "")
        for line, name in zip(lines[:-1], names[:-1], strict=True):
            assert f"{name}: {said}" in line
        assert "missing: " in lines[-1]


def test_status_is_that_of_the_worst(capsys):
    def play(path):
        assert path != "bad", "beat 3 differs"
        if path == "gone":
            raise ValueError("its library is gone")
        return "7 cycles"

    assert again.main(["good"], "a file", play) == 0
    assert again.main(["good", "bad", "good"], "a file", play) == 1
    assert again.main(["gone", "bad"], "a file", play) == 2
    seen = capsys.readouterr()
    assert "bad: fails again: beat 3 differs" in seen.out
    assert seen.err == "Error: gone: its library is gone\n"
