"""The slot rule, searched: SwitchML's fails once paths reorder, in eight steps; ours does not."""

import pytest
from gradnic.models.aggregation.slot_search import GenerationRule, SwitchmlRule, search


def test_shadow_set_holds_on_ordered_paths():
    states, trace = search(SwitchmlRule(), n_workers=2, n_rounds=4, retransmits=2, in_order=True)
    assert trace is None
    assert states > 1000


def test_shadow_set_fails_under_reordering_in_eight_steps():
    _, trace = search(SwitchmlRule(), n_workers=2, n_rounds=3, retransmits=1, in_order=False)
    assert len(trace) == 8
    assert sum("again" in deed for deed in trace) == 1


@pytest.mark.parametrize(
    ("n_workers", "n_rounds", "retransmits"), [(2, 4, 1), (2, 3, 2), (3, 2, 1)]
)
def test_generations_hold_under_reordering(n_workers, n_rounds, retransmits):
    states, trace = search(
        GenerationRule(),
        n_workers=n_workers,
        n_rounds=n_rounds,
        retransmits=retransmits,
        in_order=False,
    )
    assert trace is None
    assert states > 100


def test_the_search_sees_a_broken_generation_rule():
    """A rule that claims a set without clearing its sum."""

    class Forgetful(GenerationRule):
        def arrive(self, state, worker, round):
            generation, _, total = state[round % 2]
            if round > generation >= 0:
                sets = list(state)
                sets[round % 2] = (round, 0, total)
                state = tuple(sets)
            return super().arrive(state, worker, round)

    _, trace = search(Forgetful(), n_workers=2, n_rounds=3, retransmits=0, in_order=True)
    assert trace is not None
