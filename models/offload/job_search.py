"""Explicit-state search of the job rule: what a queue, contexts and STOP may never do.

A few nodes run a few jobs, each an all-reduce along a tree of its own: partial sums go up, the
result comes down. At most `n_active` jobs are active on a node, in its order of posting. Every
interleaving is tried, every loss (a packet that never arrives before its sender is done) and every
copy (a packet that arrives again, whenever). Two things are asked of every state that is reached:

- safety: no node ever holds a sum that counts a contribution twice, or a result that misses one;
- progress: from here every job can still end on every node, with nothing but what senders that are
  active now send again. Were there a circle of jobs that wait for each other, or a sender that
  nobody answers, this would fail.

Any node may abort a job, `n_aborts` times in all; its host then ends the job on the other nodes,
sooner or later, and all that is asked above still holds for the others.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

IDLE, ACTIVE, DONE, ABORTED = range(4)
TWICE = 2  # counts stop here


@dataclass(frozen=True)
class JobRule:
    """What cards do; the defaults are the rule, all else is to be caught.

    n_active : int. orders : for each node its order of posting, or None: the same everywhere.
    answers_old : bool, a PROBE of a job that is over here gets STOP. keeps_ledger : bool, a copy of
    what is here changes nothing. tells_rounds : bool, GEN tells jobs of one tensor apart.
    """

    n_active: int = 2
    orders: tuple | None = None
    answers_old: bool = True
    keeps_ledger: bool = True
    tells_rounds: bool = True


@dataclass(frozen=True)
class Node:
    """A node in one job. up : nodes whose partial sums came. counts : contributions in the sum, by
    node. heard : nodes that have STOPped what this one sends. result : contributions, or None.
    """

    phase: int = IDLE
    up: frozenset = frozenset()
    counts: tuple = ()
    heard: frozenset = frozenset()
    result: tuple | None = None


class _Job:
    """All states of one job by number, and its steps from each, found when they are asked for."""

    def __init__(self, parents: tuple[int, ...], rule: JobRule) -> None:
        self.parents, self.rule, n = parents, rule, len(parents)
        self.nodes = range(n)
        self.children = [[c for c in self.nodes if parents[c] == v] for v in self.nodes]
        self.states, self.numbers, self._steps = [], {}, []
        self.first = self.number((Node(),) * n)

    def number(self, state: tuple[Node, ...]) -> int:
        if state not in self.numbers:
            self.numbers[state] = len(self.states)
            self.states.append(state)
            self._steps.append(None)
        return self.numbers[state]

    def steps(self, number: int) -> list[tuple[str, int, int, bool]]:
        """[(kind, node, next, fair)]: kind is start, abort or packet."""
        if self._steps[number] is None:
            self._steps[number] = list(self._find(self.states[number]))
        return self._steps[number]

    def wrong(self, number: int) -> bool:
        """Whether a contribution is counted twice, or a result is not of all nodes, once each."""
        for node in self.states[number]:
            if TWICE in node.counts or (node.result and set(node.result) != {1}):
                return True
        return False

    def _find(self, state: tuple[Node, ...]) -> Iterator[tuple[str, int, int, bool]]:
        for v, node in enumerate(state):
            if node.phase == IDLE:
                counts = tuple(int(v == u) for u in self.nodes)
                yield "start", v, self._with(state, v, Node(ACTIVE, counts=counts)), True
            elif node.phase == ACTIVE:
                yield "abort", v, self._with(state, v, Node(ABORTED)), False
            for to, is_up in self._sends(state, v):
                if node.phase in (ACTIVE, DONE):
                    after = self.arrives(state, v, to, is_up, self.content(state, v, is_up))
                    yield "packet", to, after, node.phase == ACTIVE
                if node.phase == ACTIVE and self._answers(state, v, to, is_up):
                    heard = _replaced(node, heard=node.heard | {to})
                    yield "packet", v, self._with(state, v, heard), True

    def _sends(self, state: tuple[Node, ...], v: int) -> Iterator[tuple[int, bool]]:
        """(to, is_up) of what a node sends, or has sent."""
        node = state[v]
        if self.parents[v] >= 0 and node.up == frozenset(self.children[v]):
            yield self.parents[v], True
        if node.result:
            yield from ((c, False) for c in self.children[v])

    @staticmethod
    def content(state: tuple[Node, ...], v: int, is_up: bool) -> Any:
        return state[v].counts if is_up else state[v].result

    def _answers(self, state: tuple[Node, ...], v: int, to: int, is_up: bool) -> bool:
        """Whether the receiver answers a PROBE of this by STOP."""
        there = state[to]
        if there.phase in (DONE, ABORTED):
            return self.rule.answers_old
        return there.phase == ACTIVE and (v in there.up if is_up else there.result is not None)

    def arrives(
        self, state: tuple[Node, ...], v: int, to: int, is_up: bool, content: tuple[int, ...]
    ) -> int:
        """The state after a packet of v; its number."""
        there = state[to]
        if there.phase != ACTIVE:
            return self.number(state)
        if is_up and (v not in there.up or not self.rule.keeps_ledger):
            counts = tuple(min(a + b, TWICE) for a, b in zip(there.counts, content, strict=True))
            there = _replaced(there, up=there.up | {v}, counts=counts)
        elif not is_up and there.result is None:
            there = _replaced(there, result=content)
        return self._with(state, to, there)

    def _with(self, state: tuple[Node, ...], v: int, node: Node) -> int:
        """Number of the state with another node, which ends if nothing is left to do."""
        if node.phase == ACTIVE:
            up = self.children[v]
            if self.parents[v] < 0 and node.up == frozenset(up) and node.result is None:
                node = _replaced(node, result=node.counts)
            to = {*up, *([self.parents[v]] if self.parents[v] >= 0 else [])}
            if node.result and node.heard == to:
                node = _replaced(node, phase=DONE)
        return self.number((*state[:v], node, *state[v + 1 :]))


def rooted_trees(n: int) -> list[tuple[int, ...]]:
    """All trees on n nodes with a root, as tuples of parents; the root has -1."""
    return [p for p in product(range(-1, n), repeat=n) if _is_tree(p)]


def _is_tree(parents: tuple[int, ...]) -> bool:
    if parents.count(-1) != 1:
        return False
    for v in range(len(parents)):
        seen = set()
        while v >= 0 and v not in seen:
            seen.add(v)
            v = parents[v]
        if v >= 0:
            return False
    return True


def search(
    trees: Sequence[Sequence[int]],
    rule: JobRule | None = None,
    *,
    n_aborts: int = 0,
    limit: int = 3_000_000,
) -> tuple[int, tuple[str, Any] | None]:
    """Try everything; (states seen, None or what is wrong: ``counted`` or ``stuck``, a state).

    trees : one tuple of parents a job, by node; the root has -1. RuntimeError above `limit` states.
    """
    rule = rule or JobRule()
    jobs = [_Job(tuple(parents), rule) for parents in trees]
    n_nodes = len(trees[0])
    orders = rule.orders or (tuple(range(len(jobs))),) * n_nodes
    first = (*(job.first for job in jobs), n_aborts)
    before = {first: []}  # by state: those from which a fair step leads here
    ends, queue = [], deque([first])
    while queue:
        state = queue.popleft()
        phases = [
            [node.phase for node in job.states[s]] for job, s in zip(jobs, state[:-1], strict=True)
        ]
        if all(phase in (DONE, ABORTED) for row in phases for phase in row):
            ends.append(state)
        for j, after, fair, spent in _steps(jobs, state, phases, orders, rule):
            following = (*state[:j], after, *state[j + 1 : -1], state[-1] - spent)
            if following not in before:
                if jobs[j].wrong(after):
                    return len(before), ("counted", _shown(jobs, following))
                if len(before) > limit:
                    raise RuntimeError(f"more than {limit} states")
                before[following] = []
                queue.append(following)
            if fair:
                before[following].append(state)
    good, queue = set(ends), deque(ends)
    while queue:
        for state in before[queue.popleft()]:
            if state not in good:
                good.add(state)
                queue.append(state)
    for state in before:
        if state not in good:
            return len(before), ("stuck", _shown(jobs, state))
    return len(before), None


def _steps(
    jobs: Sequence[_Job],
    state: tuple[int, ...],
    phases: list[list[int]],
    orders: tuple,
    rule: JobRule,
) -> Iterator[tuple[int, int, bool, int]]:
    """(job, its next state, fair, aborts spent) of everything that may happen."""
    for j, job in enumerate(jobs):
        aborted = ABORTED in phases[j]
        for kind, v, after, fair in job.steps(state[j]):
            if kind == "start":
                order = orders[v]
                earlier = order[: order.index(j)]
                active = sum(phases[k][v] == ACTIVE for k in range(len(jobs)))
                if active < rule.n_active and all(phases[k][v] != IDLE for k in earlier):
                    yield j, after, True, 0
            elif kind == "abort":
                if aborted:  # its host has heard
                    yield j, after, True, 0
                elif state[-1]:
                    yield j, after, False, 1
            elif after != state[j]:
                yield j, after, fair, 0
        if not rule.tells_rounds:
            for k, other in enumerate(jobs):
                if k != j and other.parents == job.parents:
                    yield from _strays(job, other, state, j, k)


def _strays(
    job: _Job, other: _Job, state: tuple[int, ...], j: int, k: int
) -> Iterator[tuple[int, int, bool, int]]:
    """Packets of job k that are taken for packets of job j."""
    there = other.states[state[k]]
    for v in job.nodes:
        if there[v].phase in (ACTIVE, DONE):
            for to, is_up in other._sends(there, v):
                strange = (TWICE,) * len(there)  # none of it belongs here
                after = job.arrives(job.states[state[j]], v, to, is_up, strange)
                if after != state[j]:
                    yield j, after, False, 0


def _replaced(node: Node, **fields: Any) -> Node:
    state: dict[str, Any] = {
        "phase": node.phase, "up": node.up, "counts": node.counts, "heard": node.heard,
        "result": node.result,
    }  # fmt: skip
    return Node(**(state | fields))


def _shown(jobs: Sequence[_Job], state: tuple[int, ...]) -> tuple:
    return tuple(job.states[s] for job, s in zip(jobs, state[:-1], strict=True))
