"""Words of the engine become the flits of messages, with a head each or one a packet."""

import numpy as np
import pytest
from amaranth.lib import data
from gradnic.hdl.direct.port import FlitPort
from gradnic.models.direct.link import fields, head, message
from gradnic.models.direct.port import payload
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.flit import HEAD

N_LANES, CREDITS = 8, 1024
WORD = data.StructLayout({"data": 32 * N_LANES, "n_flits": range(3), "last": 1})
GRID = [{}, {"flits": 0.4}, {"words": 0.5, "heads": 0.2}, {"words": 0.7, "flits": 0.6}]
LENGTHS = [1, 2, 3, 8, 9, 16, 17, 20, 40]  # words: of a flit, a packet, and more


def messages(rng):
    for length in [*LENGTHS, *rng.integers(1, 20, 8).tolist()]:
        words = rng.integers(0, 1 << 32, (length, N_LANES), np.uint32)
        n_flits = np.full(length, 2)
        n_flits[-1] = rng.integers(1, 3)
        n_flits[length // 2 :: 5] = 1  # a chunk's last word
        its = {name: int(rng.integers(1 << width)) for name, width in HEAD.items()}
        yield its | {"more": 0, "spare": 0}, words, n_flits


@pytest.mark.parametrize("packets", [0, 1])
@pytest.mark.parametrize("stalls", GRID, ids=str)
def test_messages(packets, stalls):
    model = batch.build(FlitPort(WORD, CREDITS))
    sent = list(messages(stimulus.rng("port", packets)))
    heads = {name: [its[name] for its, _, _ in sent] for name in HEAD}
    words = np.concatenate([words for _, words, _ in sent])
    last = np.concatenate([np.arange(len(words)) == len(words) - 1 for _, words, _ in sent])
    run = model.run(
        {
            "heads": model.pack("heads", **heads),
            "words": model.pack(
                "words", data=words, n_flits=np.concatenate([n for *_, n in sent]),
                last=last.astype(int),
            ),
        },
        signals={"packets": packets, "credit": 0},
        stalls=stalls,
        trace=["sent"],
    )  # fmt: skip
    flits = np.concatenate(
        [message(its, payload(words, n), packets=bool(packets)) for its, words, n in sent]
    )
    assert len(flits) <= CREDITS
    names = {name: flits[name].astype(np.uint8) for name in ("data", "head", "last")}
    run.check(flits=model.pack("flits", **names))
    assert run.traces["sent"].sum() == len(sent)
    if not stalls:
        assert np.ptp(run.taken["flits"]) == len(flits) - 1
        assert run.taken["flits"][-1] - run.taken["words"][-1] == 1 + sent[-1][2][-1]


def test_the_model_of_heads_and_words():
    its = {name: 1 for name in HEAD} | {"first": 0xABCD}
    assert fields(head(its)) == its
    assert head({"gather": 1, "flow": 0x1234}).tolist()[:6] == [1, 0, 0, 0, 0x34, 0x12]
    words = np.arange(8, dtype=np.uint32).reshape(1, 8)
    assert payload(words, [1]).view("<u4").tolist() == [[0, 1, 2, 3]]
    flits = message({"count": 2}, np.zeros((33, 16), np.uint8), packets=True)
    assert np.flatnonzero(flits["head"]).tolist() == [0, 17, 34]
    assert [fields(flit)["more"] for flit in flits["data"][flits["head"]]] == [0, 1, 1]
    assert np.flatnonzero(flits["last"]).tolist() == [35]
