"""Failed batch runs as files; ``python -m gradnic.sim.engine.replay FILE`` plays one again.

A file holds the stimulus, the options and, where a comparison failed, the expected beats. The
library is found by its folder, below ``build/batch``.
"""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np

from . import again


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
    """The model, the inputs, the options and the expected beats of a file that `save` wrote.

    ValueError for another file, and where the library is gone.
    """
    from . import batch

    with Path(path).open("rb") as raw:
        if not zipfile.is_zipfile(raw):
            raise ValueError("holds no failed run")
    try:
        with np.load(path) as file:
            folder = Path(str(file["folder"]))
            arrays = [file[f"a{i}"] for i in range(len(file.files) - 2)]
            content = _get(json.loads(str(file["content"])), arrays)
    except (ValueError, LookupError, TypeError, zipfile.BadZipFile):
        raise ValueError("holds no failed run") from None
    return batch.load(folder), content["inputs"], content["options"], content["expected"]


def _play(path):
    model, inputs, options, expected = load(path)
    run = model.run(inputs, **options)
    run.check(**expected)
    return f"{run.cycles} cycles"


def main(arguments):
    """Replay each file; exit status 1 if a run fails again, with its reason, 2 if it cannot."""
    return again.main(arguments, "a file of build/failures", _play)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
