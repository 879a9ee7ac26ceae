"""Failed batch runs as files; ``python -m gradnic.sim.replay FILE`` plays one again.

A file holds the stimulus, the options and, where a comparison failed, the expected beats. The
library is found by its folder, below ``build/batch``.
"""

import json
import sys
from pathlib import Path

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


def _get(value, arrays):
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "array":
        return arrays[inside]
    if kind == "dict":
        return {k: _get(v, arrays) for k, v in inside.items()}
    return (tuple if kind == "tuple" else list)(_get(v, arrays) for v in inside)


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
    return f"\nreplay: python -m gradnic.sim.replay {path}"


def load(path):
    """The model, the inputs, the options and the expected beats of a file that `save` wrote."""
    from . import batch

    with np.load(path) as file:
        folder = Path(str(file["folder"]))
        arrays = [file[f"a{i}"] for i in range(len(file.files) - 2)]
        content = _get(json.loads(str(file["content"])), arrays)
    return batch.load(folder), content["inputs"], content["options"], content["expected"]


def main(arguments):
    """Replay each file; exit status 1 if a run fails again, with its reason."""
    status = 0
    for path in arguments:
        model, inputs, options, expected = load(path)
        try:
            run = model.run(inputs, **options)
            run.check(**expected)
        except AssertionError as error:
            print(f"{path}: fails again: {error}")
            status = 1
        else:
            print(f"{path}: passes, {run.cycles} cycles")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
