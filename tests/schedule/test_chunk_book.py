"""States of chunks, access by access, in the order in which the book takes them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gradnic.hdl.schedule.chunk_book import EVENTS, ChunkBook
from gradnic.models.schedule import chunk_book as golden
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.schedule_table import Layout

LAYOUT = replace(Layout.for_nodes(16, chunks=8), wait=3)
MOST = 2**LAYOUT.wait - 1
N_CHUNKS, IN_USE = 16, 13
KNOWN = 4  # cycles from an access to its result
LATER = {"early": 1, "foreign": 4, "extra": 5, "grew": KNOWN, "finished": KNOWN}
"""Cycles from an event until it is told what it was."""
PORTS = (*EVENTS, "asks", "looks")


@pytest.fixture(scope="module")
def model():
    return batch.build(ChunkBook(LAYOUT, N_CHUNKS, 1))


def accesses(rng, n):
    """{port: chunks}: some chunks are seldom meant, so that their states stay rare."""
    chunks = {}
    for name in PORTS:
        weights = np.where(np.arange(N_CHUNKS) < 5, 12.0, 2.0 if name == "added" else 1.0)
        chunks[name] = rng.choice(N_CHUNKS, n, p=weights / weights.sum())
    chunks["released"] = chunks["released"][: n // 40]
    chunks["finals"] = chunks["finals"][: n // 20]
    return chunks


def play(instance, model, chunks, *, running, stalls):
    """A run with these accesses, drained, and time to clear the other bank."""
    plain = {"chunks": IN_USE, "running": running, "swap": 0}
    inputs = {name: model.pack(name, chunks[name]) for name in PORTS[:-1]}
    inputs["looks"] = model.pack("looks", chunk=chunks["looks"], slot=1)
    return instance.run(
        inputs,
        signals=plain,
        reset=False,
        stalls=stalls,
        idle_cycles=64,
        trace=("answered", "answer", "result", "clean", *LATER),
    )


def state_of(value):
    """(added, released, final) of an answer or a result."""
    value = int(value)
    return value & MOST, value >> LAYOUT.wait & 1, value >> LAYOUT.wait + 1


def check(run, book, chunks):
    """All that the run told is what `book` says, access by access; returns what was told."""
    order = sorted((t, name, k) for name in PORTS for k, t in enumerate(run.taken[name]))
    cycles = [t for t, *_ in order]
    assert len(set(cycles)) == len(cycles)  # one access a cycle
    told = {name: set() for name in LATER}
    answers, states = {}, {}
    for t, name, k in order:
        chunk = int(chunks[name][k])
        if name in EVENTS:
            for what in book.event(name, chunk):
                told[what].add(t + LATER[what])
        elif name == "asks":
            answers[t + KNOWN] = book.state(chunk)
        if chunk < IN_USE:
            states[t + KNOWN] = book.state(chunk)
    for name, cycles in told.items():
        assert set(np.flatnonzero(run.traces[name])) == cycles, name
    assert set(np.flatnonzero(run.traces["answered"])) == set(answers)
    assert {t: state_of(run.traces["answer"][t]) for t in answers} == answers
    if book.running:
        assert {t: state_of(run.traces["result"][t]) for t in states} == states
    return {name: len(cycles) for name, cycles in told.items()}


def begun(model):
    """An instance whose bank is clear: what memory holds at first is not."""
    instance = model.instance()
    run = instance.run(
        signals={"chunks": IN_USE, "running": 0, "swap": 0},
        drain=False,
        max_cycles=40,
        probe_cycles=0,
        trace=("clean",),
    )
    assert run.traces["clean"][-1]
    swap(instance)
    return instance


def swap(instance):
    """Change banks: the other one is clear."""
    instance.run(signals={"swap": [1, 0]}, reset=False, drain=False, max_cycles=8, probe_cycles=0)


@pytest.mark.parametrize("duty", [1, 0.2, 0.05])
def test_states_are_those_of_the_model(model, duty):
    rng, instance = stimulus.rng("chunk book", duty), begun(model)
    seen = dict.fromkeys(LATER, 0)
    for tensor in range(6):
        chunks, running = accesses(rng, 240), int(tensor != 2)
        book = golden.ChunkBook(MOST, IN_USE)
        book.running = bool(running)
        stalls = dict.fromkeys(PORTS, duty)
        run = play(instance, model, chunks, running=running, stalls=stalls)
        for name, n in check(run, book, chunks).items():
            seen[name] += n
        assert run.traces["clean"][-1]
        swap(instance)
    assert min(seen.values()) > 10


def test_an_access_a_cycle_events_first(model):
    """All ports offer in every cycle: they are served one after the other, without a gap."""
    chunks = accesses(stimulus.rng("chunk book", "order"), 100)
    run = play(begun(model), model, chunks, running=1, stalls={})
    for before, name in pairwise(PORTS):
        assert run.taken[name][0] == run.taken[before][-1] + 1
        assert np.ptp(run.taken[name]) == len(chunks[name]) - 1
