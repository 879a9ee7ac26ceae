"""Failed batch runs as files; ``python -m gradnic.sim.engine.replay FILE`` plays one again.

A file holds the stimulus, the options and, where a comparison failed, the expected beats. The
library is found by its folder, below ``build/batch``.
"""

import json
import sys
from pathlib import Path

import numpy as np


def _get(value, arrays):
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "array":
        return arrays[inside]
    if kind == "dict":
        return {k: _get(v, arrays) for k, v in inside.items()}
    return (tuple if kind == "tuple" else list)(_get(v, arrays) for v in inside)


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
