"""Tools that run beside Python, each in a session of its own, so that none outlives its user.

A terminal's Ctrl-C does not reach such a tool, and neither does a signal to Python: whoever starts
one must end it with `kill` in a ``finally``. What still runs when Python exits is killed then.
"""

import atexit
import os
import signal
import subprocess
import sys
import weakref


class ToolError(RuntimeError):
    """A tool failed or is missing: an infrastructure error, never a verdict on a circuit."""


_started = weakref.WeakSet()


def start(command, **options):
    """A `subprocess.Popen` of `command` in a session of its own; options as there."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    _started.add(process)
    return process


def kill(process):
    """End a process from `start`, with all that it has started itself, if it is still running."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def exit_on_signals():
    """Turn SIGTERM and SIGHUP into SystemExit, status 128 + number: ``finally`` blocks run."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@atexit.register
def _kill_all():
    for process in list(_started):
        kill(process)
