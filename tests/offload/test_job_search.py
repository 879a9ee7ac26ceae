"""The job rule, searched whole: three nodes, three jobs, two of them active."""

from itertools import product

import pytest
from gradnic.models.offload.job_search import JobRule, rooted_trees, search

CHAIN, STAR = (-1, 0, 1), (-1, 0, 0)
MIXED = (CHAIN, (1, -1, 1), (2, 2, -1))


@pytest.mark.parametrize("first", [CHAIN, STAR])
def test_no_deadlock_and_nothing_lost_or_counted_twice(first):
    """The first job's tree is one of all up to the nodes' names, the others' are all there are."""
    trees = rooted_trees(3)
    assert len(trees) == 9
    n_states = 0
    for others in product(trees, trees):
        n, wrong = search((first, *others))
        assert wrong is None
        n_states += n
    assert n_states > 500_000


@pytest.mark.parametrize("n_active", [1, 2])
@pytest.mark.parametrize("n_aborts", [0, 1])
def test_any_number_of_contexts_and_an_abort(n_active, n_aborts):
    n_states, wrong = search(MIXED, JobRule(n_active=n_active), n_aborts=n_aborts)
    assert wrong is None
    assert n_states > 200


@pytest.mark.parametrize(
    ("rule", "trees", "what"),
    [
        (JobRule(orders=((0, 1, 2), (1, 2, 0), (2, 0, 1))), MIXED, "stuck"),
        (JobRule(n_active=1, orders=((0, 1, 2), (1, 0, 2), (0, 1, 2))), MIXED, "stuck"),
        (JobRule(answers_old=False), MIXED, "stuck"),
        (JobRule(keeps_ledger=False), MIXED, "counted"),
        (JobRule(tells_rounds=False), (CHAIN,) * 3, "counted"),
    ],
)
def test_a_broken_rule_is_caught(rule, trees, what):
    _, wrong = search(trees, rule)
    assert wrong[0] == what


def test_the_limit_is_told():
    with pytest.raises(RuntimeError, match="more than 100 states"):
        search(MIXED, limit=100)
