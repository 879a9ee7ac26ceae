"""Offload cards whose register bits change: what becomes of rounds or jobs whose results are known.

What carries values is counted apart from what controls. A hang is not left to a reset: rounds and
jobs are aborted first, and those after them are looked at.
"""

import re
from collections import Counter

import numpy as np

from .job_upsets import Ring, carries
from .round_upsets import Pair

CARDS = {"rounds": Pair, "jobs": Ring, "thc": lambda **options: Ring(thc=True, **options)}


def upsets(n, *, cards="rounds", seed=1, beside=False, among=None):
    """One register bit of a card changes during a round, `n` times; what became of it.

    cards : of `CARDS`. seed : number, or a list of them. beside : only registers that all contexts
    share, which no end of a job resets. among : pattern of names of registers; ValueError where
    none has it. AssertionError if a reset does not heal a card.

    fates, of registers that carry values and others. masked: the round is exact and nothing was
    counted. repaired: exact, with frames dropped or sent again. detected: wrong or not complete,
    and a reason, a fault, a completion or a watchdog says so. silent: wrong, and nothing says so.
    hangs: rounds that did not end by themselves, and what helped: "abort", or "reset". after: what
    helped others, and those that an abort ended, if the round after them was wrong: the "next"
    round, tables "written anew", or "reset". resets : of both. found : the registers of those, and
    of what was silent.
    """
    rng = np.random.default_rng(seed)
    played = CARDS[cards](seed=rng)
    played.round()
    usual, exact, _ = played.round()
    assert exact
    n_bits = played.cluster.call("state_bits")
    names = [played.cluster.call("state_name", bit).decode() for bit in range(n_bits)]
    widths = Counter(names)
    away = r"\bengine\d" if beside else r"(?!)"
    bits = [
        bit
        for bit, name in enumerate(names)
        if not re.search(away, name) and re.search(among or "", name)
    ]
    if not bits:
        raise ValueError(f"no register has {among!r} in its name")
    fates = {"control": Counter(), "datapath": Counter()}
    hangs, after, found = Counter(), Counter(), []
    for _ in range(n):
        node, bit, at = (
            int(rng.integers(m)) for m in (len(played.cluster.books), len(bits), usual)
        )
        bit = bits[bit]
        name = names[bit]
        kind = "datapath" if carries(name, widths[name]) else "control"
        before = played.counts()
        cycles, exact, statuses = played.round((node, bit, at))
        counted = played.counts()
        noted = any(counted[flag] != before[flag] for flag in played.flags)
        if exact:
            fate = "repaired" if noted or played.repeats(cycles, usual) else "masked"
        else:
            fate = "detected" if noted or cycles is None or played.tells(statuses) else "silent"
        fates[kind][fate] += 1
        hangs_now = cycles is None
        helped = what_helps(played) if not hangs_now or played.abort() else "reset"
        if hangs_now:
            hangs["reset" if helped == "reset" else "abort"] += 1
        if helped and not (hangs_now and helped == "reset"):
            after[helped] += 1
        if fate == "silent" or helped:
            where = {"node": node, "bit": bit, "cycle": at, "register": name}
            found.append(where | {"fate": fate, "kind": kind, "helped": helped})
        if helped == "reset":
            played.restart()
            assert played.round()[1], f"bit {bit} of card {node}, {name}: reset does not heal"
    return {
        "upsets": n,
        "register_bits": len(bits),
        "fates": {kind: dict(counts) for kind, counts in fates.items()},
        "hangs": dict(hangs),
        "after": dict(after),
        "resets": hangs["reset"] + after["reset"],
        "found": found,
    }


def what_helps(cards):
    """What helps until the results of a round are exact again: "" if nothing is wrong."""
    for helped in ("", "next", "written anew"):
        if helped == "written anew":
            cards.reload()
        cycles, exact, _ = cards.round()
        if exact:
            return helped
        if cycles is None and not cards.abort():
            break
    return "reset"


def merged(parts):
    """What `upsets` gives, of several of them together."""

    def total(name):
        return dict(sum((Counter(part[name]) for part in parts), Counter()))

    return {
        "upsets": sum(part["upsets"] for part in parts),
        "register_bits": parts[0]["register_bits"],
        "fates": {
            kind: dict(sum((Counter(part["fates"][kind]) for part in parts), Counter()))
            for kind in parts[0]["fates"]
        },
        "hangs": total("hangs"),
        "after": total("after"),
        "resets": sum(part["resets"] for part in parts),
        "found": [one for part in parts for one in part["found"]],
    }
