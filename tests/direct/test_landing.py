"""Messages become words at their places; what names another node's share is told, and not kept."""

import numpy as np
import pytest
from gradnic.hdl.direct.landing import Contributions, Landing, Places
from gradnic.models.direct.landing import land
from gradnic.models.direct.link import message
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.flit import Share

N_LANES, N_CHUNKS, N_WORDS = 8, 16, 256
SHARE = Share(N_LANES, 64 * 8 + 20, 9, np.array([0, 1, 2, 0, 5, 3, 0, 0, 1]))  # 16 flits, last 5
GRID = [{}, {"words": 0.4}, {"flits": 0.3}, {"flits": 0.8, "words": 0.7}]
FLITS, LAST_FLITS = SHARE.chunk_flits


def row(shape, **values):
    bits = shape.const(values).as_value().value
    return np.frombuffer(bits.to_bytes(-(-shape.size // 8), "little"), np.uint8)[None]


def length(first, count):
    return sum(LAST_FLITS if c == SHARE.live - 1 else FLITS for c in range(first, first + count))


def sound(rng):
    """Contributions of every chunk and rank, and final chunks, alone and together."""
    for chunk, ranks in enumerate(SHARE.ranks.tolist()):
        for rank in rng.permutation(ranks).tolist():
            yield {"first": chunk, "count": 1, "rank": rank}
    for first, count in ((0, 9), (8, 1), (3, 2), (7, 2), (4, 1)):
        yield {"gather": 1, "first": first, "count": count, "rank": 0}
    yield {"first": 4, "count": 2, "rank": 2}


def flits_of(rng, heads, more=0):
    """Messages of these heads, each with `more` flits than its chunks have."""
    for k, its in enumerate(heads):
        n = length(its["first"], its["count"]) + more
        payload = rng.integers(0, 256, (n, 16), np.uint8)
        yield message(its | {"flow": k, "step": 7}, payload, packets=k % 3 == 2)


def play(flits, **options):
    model = batch.build(Landing(N_LANES, n_chunks=N_CHUNKS, n_words=N_WORDS))
    part, shape = model.instance(), Contributions(N_WORDS)
    ranks = SHARE.ranks.tolist()
    entries = [row(shape, base=int(b), ranks=r) for b, r in zip(SHARE.base, ranks, strict=True)]
    part.run(
        signals={"entry_en": [1] * len(ranks) + [0], "entry_addr": [*range(len(ranks)), 0],
                 "entry": np.concatenate([*entries, entries[0]])},
        drain=False, max_cycles=len(ranks) + 1,
    )  # fmt: skip
    places = row(
        Places(N_CHUNKS, N_WORDS), chunk_words=SHARE.chunk_words, chunk_flits=FLITS,
        last_flits=LAST_FLITS, live=SHARE.live,
    )  # fmt: skip
    names = {name: flits[name].astype(np.uint8) for name in ("data", "head", "last")}
    run = part.run(
        {"flits": model.pack("flits", **names)},
        signals={"places": places, "enable": 1}, reset=False, **options,
    )  # fmt: skip
    return model, run


def check(flits, **options):
    model, run = play(flits, **options)
    words, foreign = land(flits, SHARE)
    numbers = {
        name: [int(getattr(word, name)) for word in words]
        for name in ("address", "landing", "ends", "chunk", "rank")
    }
    data = np.array([word.data for word in words], "<u4").reshape(-1, N_LANES)
    run.check(words=model.pack("words", data=data, **numbers))
    assert run.signals["foreign"] == foreign
    return run, foreign


@pytest.mark.parametrize("stalls", GRID, ids=str)
def test_words_go_to_their_places(stalls):
    rng = stimulus.rng("landing")
    flits = np.concatenate(list(flits_of(rng, sound(rng))))
    run, foreign = check(flits, stalls=stalls)
    assert not foreign
    if not stalls:
        assert np.ptp(run.taken["flits"]) == len(flits) - 1
        assert run.taken["words"][-1] - run.taken["flits"][-1] == 3


@pytest.mark.parametrize(
    ("its", "more"),
    [
        ({"first": 4, "count": 1, "rank": 5}, 0),  # a rank too many
        ({"first": 0, "count": 1, "rank": 0}, 0),  # of a chunk that gets none
        ({"gather": 1, "first": 9, "count": 1, "rank": 0}, 0),  # a chunk too many
        ({"gather": 1, "first": 8, "count": 2, "rank": 0}, 0),
        ({"gather": 1, "first": 200, "count": 1, "rank": 0}, 0),
        ({"gather": 1, "first": 2, "count": 1, "rank": 0}, -1),  # too short, too long
        ({"gather": 1, "first": 2, "count": 1, "rank": 0}, 1),
        ({"gather": 1, "first": 2, "count": 2, "rank": 0}, -20),
        ({"first": 4, "count": 1, "rank": 3}, 17),
        ({"first": 4, "count": 0, "rank": 3}, 16),
    ],
)
@pytest.mark.parametrize("stalls", [{}, {"flits": 0.7, "words": 0.5}], ids=str)
def test_what_is_foreign_is_told_and_the_next_lands(its, more, stalls):
    rng = stimulus.rng("foreign")
    parts = [*flits_of(rng, [its], more), *flits_of(rng, sound(rng))]
    _, foreign = check(np.concatenate(parts), stalls=stalls)
    assert foreign


def test_payload_without_a_head_is_foreign():
    rng = stimulus.rng("headless")
    parts = list(flits_of(rng, [{"gather": 1, "first": 2, "count": 1}, *sound(rng)]))
    _, foreign = check(np.concatenate([parts[0][1:], *parts]))
    assert foreign


def test_nothing_is_taken_before_a_round():
    rng = stimulus.rng("landing")
    flits = np.concatenate(list(flits_of(rng, [{"gather": 1, "first": 0, "count": 1}])))
    model = batch.build(Landing(N_LANES, n_chunks=N_CHUNKS, n_words=N_WORDS))
    names = {name: flits[name].astype(np.uint8) for name in ("data", "head", "last")}
    run = model.run(
        {"flits": model.pack("flits", **names)}, signals={"enable": 0}, drain=False, max_cycles=50
    )
    assert len(run.taken["flits"]) == 0
