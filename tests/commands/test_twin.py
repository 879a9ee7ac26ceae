"""``gradnic twin``: cards that another program finds by the JSON, until they are ended."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp
from gradnic.interface.job import Job, JobCodec

PATIENCE = 60  # seconds, on a busy machine


def served(tmp_path, *words):
    """(process, what its JSON says), once its cards are there."""
    told = tmp_path / "twin.json"
    program = [sys.executable, "-m", "gradnic", "twin", "--port", "0", "--json", str(told), *words]
    run = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    while not told.exists():
        if run.poll() is not None or time.monotonic() > end:
            run.kill()
            raise AssertionError(run.communicate())
        time.sleep(0.05)
    return run, json.loads(told.read_text())


@pytest.mark.parametrize(("words", "codec"), [((), 0), (("--thc", "--block", "64"), JobCodec.THC)])
def test_another_program_sums_on_them(tmp_path, words, codec):
    run, told = served(tmp_path, "--topology", "ring:3", "--loss", "0.01", *words)
    try:
        assert (told["engine"], told["topology"], len(told["cards"])) == ("golden", "ring:3", 3)
        assert told["tables"] == ["all_reduce", "reduce_scatter", "all_gather"]
        assert sorted(told["roots"]) == [0, 1, 2]
        assert [card["host_ip"] for card in told["cards"]] == [
            f"198.51.100.{2 * k}" for k in range(3)
        ]
        x = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)
        x[:, 0] = 1000  # spoils THC's first block, of 64
        ends = [(card["address"], card["port"]) for card in told["cards"]]
        links = [FrameHost(*udp(*end), patience=PATIENCE) for end in ends]
        cards = list(map(FramedCard, links))
        assert [card.own for card in cards] == [(k, 0x020000000000 + k) for k in range(3)]
        for card, mine in zip(cards, x, strict=True):
            card.link.store(0, mine)
            card.post(Job(id=1, tensor=1, gen=2, elems=1000, source=0, result=8192, codec=codec))
        totals = []
        for link in links:
            assert link.completion(PATIENCE).status == 0
            totals.append(np.frombuffer(link.load(8192, 4000), np.float32))
            link.close()
        wanted = (x.mean(0) if codec else x.sum(0))[64:]
        assert all((total == totals[0]).all() for total in totals)
        error = ((totals[0][64:] - wanted) ** 2).sum()
        assert error <= (0.1 if codec else 1e-12) * (wanted**2).sum()
    finally:
        run.send_signal(signal.SIGTERM)
        shown, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 143
    assert "3 golden cards, multitree on ring:3" in shown
    assert "frames of hosts" in said
    assert "Traceback" not in said
