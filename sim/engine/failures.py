"""Failed batch runs, saved as files."""

import json

import numpy as np

from . import tools


def _put(value, arrays):
    """`value` as JSON; arrays go to `arrays` and leave their index."""
    if isinstance(value, np.ndarray) or (isinstance(value, list) and len(value) > 8):
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": {k: _put(v, arrays) for k, v in value.items()}}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_put(v, arrays) for v in value]}
    return value.item() if isinstance(value, np.generic) else value


def save(model, request, expected):
    """Write a failed run; returns a text for the error: where it is and how to play it again.

    A run that went on from an earlier one cannot be replayed alone; its file says so.
    """
    arrays = []
    content = {**request, "expected": {k: np.asarray(v) for k, v in expected.items()}}
    text = json.dumps(_put(content, arrays))
    name = f"{model.folder.name}-{tools.digest(text, *[a.tobytes() for a in arrays])[:8]}.npz"
    path = tools.build_root() / "failures" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {f"a{i}": a for i, a in enumerate(arrays)}
    np.savez_compressed(path, folder=str(model.folder), content=text, **named)
    if not request["fresh"]:
        return f"\nstimulus: {path} (the instance had run before: play its runs from the first)"
    return f"\nreplay: python -m gradnic.sim.engine.replay {path}"
