"""Which rank has which card: one each, of all nodes of the table, or all ranks are told."""

import re

import pytest

from gradnic.host.ranks import Held, check_cards

MAC = 0x020000000000


def held(*nodes, n_nodes=None):
    return [Held(node, MAC + node, n_nodes) for node in nodes]


def test_a_card_for_each_rank_is_right_in_any_order():
    check_cards(held(0))
    check_cards(held(1, 0, 2))
    check_cards(held(1, 0, n_nodes=2))
    check_cards([Held(0, MAC), Held(1, MAC + 1, 2)])


@pytest.mark.parametrize(
    ("cards", "said"),
    [
        (
            held(0, 1, n_nodes=4),
            "world size must be 4, the nodes of the cards' table, not 2: no rank has node 2 or 3",
        ),
        (
            held(0, 1, 1, n_nodes=2),
            "world size must be 2, the nodes of the cards' table, not 3: "
            "ranks 1 and 2 have one card, node 1 (02:00:00:00:00:01)",
        ),
        (
            held(0, 1, 5, n_nodes=2),
            "world size must be 2, the nodes of the cards' table, not 3: rank 2 has node 5",
        ),
        (
            held(1, 1, 1, 3),
            "4 ranks must have the cards of nodes 0 to 3, one each: ranks 0, 1 and 2 have one "
            "card, node 1 (02:00:00:00:00:01); no rank has node 0 or 2",
        ),
        (
            [Held(0, MAC), Held(0, MAC + 9)],
            "2 ranks must have the cards of nodes 0 to 1, one each: ranks 0 and 1 have cards that "
            "say they are node 0 (02:00:00:00:00:00 and 02:00:00:00:00:09); no rank has node 1",
        ),
        (
            [Held(0, MAC, 2), Held(1, MAC + 1, 3)],
            "tables of the ranks' cards have different numbers of nodes: [2, 3]",
        ),
    ],
)
def test_others_are_told_with_their_numbers(cards, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        check_cards(cards)
