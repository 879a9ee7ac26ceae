"""Words and blocks of sums for the benches of the reduce unit and of what is built on it."""

import numpy as np
from gradnic.hdl.reduction.reduce import Op
from gradnic.models.reduction.summing import in_order

NAMES = {op: op.name.lower() for op in Op}


def words(rng, n, lanes):
    """Random words, every fourth a float of everyday size, every eighth a corner."""
    values = rng.integers(0, 1 << 32, (n, lanes), dtype=np.uint32)
    values[::4] = rng.standard_normal((len(values[::4]), lanes)).astype(np.float32).view("u4")
    corners = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0xFFFFFFFF], np.uint32)
    values[::8] = rng.choice(corners, (len(values[::8]), lanes))
    return values


def beats(model, port, values, **fields):
    """Beats of a port whose ``data`` are lanes: `values`, (n_beats, n_lanes) of any item size."""
    data = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return model.pack(port, data=data, **fields)


def ends(parts):
    """Which beats are the last ones of `parts`."""
    return np.concatenate([np.arange(len(part)) == len(part) - 1 for part in parts])


def blocks(rng, model, integers, prefix=""):
    """(Jobs, streams of `Summing`, its sums) of 60 blocks."""
    jobs, own, more, want = [], [], [], []
    for _ in range(60):
        n, ranks, op = (int(x) for x in rng.integers([1, 0, 0], [21, 5, 5 if integers else 2]))
        op = op if integers else int((Op.FLOAT, Op.MAXIMUM)[op])
        jobs.append((n, ranks, op))
        own.append(words(rng, n, 2))
        parts = [words(rng, n, 2) for _ in range(ranks)]
        more += parts
        want.append(in_order(own[-1], parts, NAMES[op]))
    names = ("n_beats", "n_contributions", "op")
    told = dict(zip(names, np.array(jobs).T, strict=True))
    streams = {
        f"{prefix}jobs": model.pack(f"{prefix}jobs", **told),
        f"{prefix}own": beats(model, f"{prefix}own", np.concatenate(own), last=ends(own)),
        f"{prefix}contributions": beats(
            model, f"{prefix}contributions", np.concatenate(more), last=ends(more)
        ),
    }
    return jobs, streams, beats(model, f"{prefix}sums", np.concatenate(want), last=ends(want))
