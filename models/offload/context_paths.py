"""Ways to and from the contexts of a card: whose a packet is, what vanishes, and what goes first.

Golden twin of `gradnic.hdl.offload.context_paths`.
"""

from collections.abc import Sequence


def context_of(ready: bool, context: int, epoch: int, epochs: Sequence[int]) -> int | None:
    """Context that a packet goes to whole, or None where it vanishes.

    ready : it came for a round under way, in `context`, whose epoch was `epoch` then; any other
    goes to context 0, which answers it. epochs : of all contexts as the packet leaves the gate: in
    another one its round is over.
    """
    if not ready:
        return 0
    return context if epochs[context] == epoch else None


def steered(
    packets: Sequence[tuple[bool, int, int, int, Sequence[int]]], epochs: Sequence[int]
) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """(Heads, beats with their ``last``) by context, in their order, where epochs stay.

    packets : (ready, context, epoch, head, beats) as of `context_of`.
    """
    heads: list[list[int]] = [[] for _ in epochs]
    values: list[list[tuple[int, int]]] = [[] for _ in epochs]
    for ready, context, epoch, head, beats in packets:
        to = context_of(ready, context, epoch, epochs)
        if to is not None:
            heads[to].append(head)
            values[to] += [(beat, int(k == len(beats) - 1)) for k, beat in enumerate(beats)]
    return heads, values


def order(layers: Sequence[int], begun: Sequence[int]) -> list[int]:
    """Contexts in the order in which their packets leave: the lower layer, then the older.

    layers : by context, the class. begun : when each began, no two alike.
    """
    return sorted(range(len(layers)), key=lambda k: (layers[k], begun[k]))
