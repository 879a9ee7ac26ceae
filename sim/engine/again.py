"""What the programs that play failed runs again say, and how they end."""

import sys
from collections.abc import Callable, Sequence

from gradnic.output import one_line
from gradnic.processes import ToolError

REFUSED = (OSError, ValueError, LookupError, TypeError, ToolError)


def main(paths: Sequence[str], what: str, play: Callable[[str], str]) -> int:
    """Play each of `paths`; exit status 1 if a run fails again, 2 if one cannot be played.

    what : what `paths` are, for who names none. play : function of a path, returns what is said of
    a run that passes; AssertionError if it fails.
    """
    if not paths:
        print(f"Error: name {what}", file=sys.stderr)
        return 2
    status = 0
    for path in paths:
        try:
            print(f"{path}: passes, {play(path)}")
        except AssertionError as error:
            print(f"{path}: fails again: {error}")
            status = max(status, 1)
        except REFUSED as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            print(f"Error: {path}: {one_line(text or repr(error))}", file=sys.stderr)
            status = 2
    return status
