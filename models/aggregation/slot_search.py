"""Explicit-state search of slot rules: why a slot needs a generation once paths reorder.

One slot pair, N workers, R rounds, a bounded number of retransmissions, any packet may be lost.
Every order of arrivals is tried, breadth first, so that a trace of a fault is a shortest one.
Safety only: no worker may be sent a sum for its round that is not each worker's contribution to
that round, once.

`SwitchmlRule` keeps one bit per worker and set and clears the other set's bit on each arrival
(SwitchML, NSDI 2021); it assumes paths that keep their order. `GenerationRule` is that of
`gradnic.models.aggregation.unit`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any


class SwitchmlRule:
    """State: two sets of (bitmap, count, contributions)."""

    def start(self, n_workers: int) -> tuple:
        """State of an empty slot pair."""
        self.n_workers = n_workers
        return ((0, 0, ()), (0, 0, ()))

    def arrive(
        self, state: tuple, worker: int, round: int
    ) -> tuple[tuple, tuple[int, ...], tuple | None]:
        """Take worker's packet of `round`; returns (state, receivers, sum) or (state, (), None)."""
        sets = list(state)
        bit, own, other = 1 << worker, round % 2, 1 - round % 2
        bitmap, count, total = sets[own]
        seen = bool(bitmap & bit)
        sets[other] = (sets[other][0] & ~bit, *sets[other][1:])
        if seen:
            answer = ((worker,), total) if count == 0 else ((), None)
            return (tuple(sets), *answer)
        total = ((worker, round),) if bitmap == 0 else tuple(sorted((*total, (worker, round))))
        count = self.n_workers - 1 if count == 0 else count - 1
        sets[own] = (bitmap | bit, count, total)
        if count == 0:
            return tuple(sets), tuple(range(self.n_workers)), total
        return tuple(sets), (), None


class GenerationRule:
    """State: two sets of (generation, bitmap, contributions); closed once all bits are set."""

    def start(self, n_workers: int) -> tuple:
        """State of an empty slot pair."""
        self.n_workers = n_workers
        return ((-1, 0, ()), (-1, 0, ()))

    def arrive(
        self, state: tuple, worker: int, round: int
    ) -> tuple[tuple, tuple[int, ...], tuple | None]:
        """Take worker's packet of `round`; returns (state, receivers, sum) or (state, (), None)."""
        sets = list(state)
        everyone, bit = (1 << self.n_workers) - 1, 1 << worker
        generation, bitmap, total = sets[round % 2]
        if round < generation:
            return state, (), None
        if round > generation:
            bitmap, total = 0, ()
        if bitmap == everyone:
            return state, (worker,), total
        if bitmap & bit:
            return state, (), None
        bitmap, total = bitmap | bit, tuple(sorted((*total, (worker, round))))
        sets[round % 2] = (round, bitmap, total)
        receivers = tuple(range(self.n_workers)) if bitmap == everyone else ()
        return tuple(sets), receivers, total if receivers else None


def search(
    rule: SwitchmlRule | GenerationRule,
    *,
    n_workers: int,
    n_rounds: int,
    retransmits: int,
    in_order: bool,
    limit: int = 2_000_000,
) -> tuple[int, list | None]:
    """Try every run; returns (states seen, shortest trace to a wrong sum, or None).

    in_order : bool, whether each path between worker and switch keeps its order.
    retransmits : int, copies in all. RuntimeError above `limit` states.
    """
    everyone = range(n_workers)
    right = {r: tuple(sorted((w, r) for w in everyone)) for r in range(n_rounds)}
    up = tuple(((w, 0),) for w in everyone)
    first = (rule.start(n_workers), (0,) * n_workers, up, ((),) * n_workers, retransmits)
    parents: dict = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for deed, successor, wrong in _steps(rule, state, right, n_rounds, in_order):
            if successor in parents:
                continue
            parents[successor] = (state, deed)
            if wrong:
                return len(parents), _trace(parents, successor)
            if len(parents) > limit:
                raise RuntimeError(f"more than {limit} states")
            queue.append(successor)
    return len(parents), None


def _steps(
    rule: SwitchmlRule | GenerationRule,
    state: tuple,
    right: dict[int, tuple],
    n_rounds: int,
    in_order: bool,
) -> Iterator[tuple]:
    """All (what happens, next state, whether a wrong sum leaves) from `state`."""
    slots, rounds, up, down, copies = state
    for worker in range(len(rounds)):
        for i in _choices(up[worker], in_order):
            _, round = up[worker][i]
            left_up = _take(up, worker, i)
            after, receivers, total = rule.arrive(slots, worker, round)
            # a result goes to whoever waits for this set: the header echoes the round
            wrong = total is not None and any(
                rounds[w] == round and total != right[round] for w in receivers
            )
            answers = list(down)
            for w in receivers:
                answers[w] = _put(answers[w], (round, total), in_order)
            yield (
                f"worker {worker} round {round} arrives",
                (after, rounds, left_up, tuple(answers), copies),
                wrong,
            )
            yield f"a packet of worker {worker} is lost", (slots, rounds, left_up, down, copies), 0
        for i in _choices(down[worker], in_order):
            round, _ = down[worker][i]
            left = _take(down, worker, i)
            yield f"a result for worker {worker} is lost", (slots, rounds, up, left, copies), 0
            if round != rounds[worker]:
                yield f"worker {worker} ignores round {round}", (slots, rounds, up, left, copies), 0
                continue
            advanced = _replace(rounds, worker, round + 1)
            sent = up
            if round + 1 < n_rounds:
                sent = _replace(up, worker, _put(up[worker], (worker, round + 1), in_order))
            yield f"worker {worker} accepts round {round}", (slots, advanced, sent, left, copies), 0
        if copies and rounds[worker] < n_rounds:
            sent = _replace(up, worker, _put(up[worker], (worker, rounds[worker]), in_order))
            deed = f"worker {worker} sends round {rounds[worker]} again"
            yield deed, (slots, rounds, sent, down, copies - 1), 0


def _choices(packets: tuple, in_order: bool) -> Iterable[int]:
    """Places of the packets that may arrive next."""
    if not packets:
        return ()
    return (0,) if in_order else [i for i, p in enumerate(packets) if p not in packets[:i]]


def _put(packets: tuple, packet: tuple, in_order: bool) -> tuple:
    return (*packets, packet) if in_order else tuple(sorted((*packets, packet)))


def _take(queues: tuple, worker: int, i: int) -> tuple:
    packets = queues[worker]
    return _replace(queues, worker, packets[:i] + packets[i + 1 :])


def _replace(values: tuple, i: int, value: Any) -> tuple:
    return (*values[:i], value, *values[i + 1 :])


def _trace(parents: dict, state: Any) -> list:
    deeds = []
    while parents[state]:
        state, deed = parents[state]
        deeds.append(deed)
    return deeds[::-1]
