"""Tools that run beside Python, each in a session of its own, so that none outlives its user.

A terminal's Ctrl-C does not reach such a tool, and neither does a signal to Python: `run` ends its
tool whatever happens, and who calls `start` does so with `kill` in a ``finally``. What still runs
when Python exits or is told to end is killed then, in all threads, and work folders are removed.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path


class ToolError(RuntimeError):
    """A tool failed or is missing: an infrastructure error, never a verdict on a circuit."""


_started = weakref.WeakSet()
_folders = set()
_ending = False
_starting, _pending = False, None


def start(command, **options):
    """A `subprocess.Popen` of `command` in a session of its own; options as there.

    ToolError once the program has been told to end.
    """
    if not _ending:
        with _signals_wait():
            process = subprocess.Popen(command, start_new_session=True, **options)
            _started.add(process)
        if not _ending:
            return process
        kill(process)
    raise ToolError(f"{command[0]} is not started: the program ends")


@contextmanager
def _signals_wait():
    """Inside, in the main thread, signals wait: a tool is started and noted, or neither."""
    global _starting, _pending
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _starting = True
    try:
        yield
    finally:
        _starting = False
        waiting, _pending = _pending, None
        if waiting:
            act, number = waiting
            act(number)


def _on_signal(number, act):
    """Have signal `number` call ``act(number)``, after a start that is under way."""

    def handler(number, _):
        global _pending
        if _starting:
            _pending = act, number
        else:
            act(number)

    signal.signal(number, handler)


def run(command, *, timeout=None, **options):
    """`subprocess.run` by `start`: whatever ends the wait ends the tool and all that it started.

    Options as of `subprocess.Popen`. Returns a `subprocess.CompletedProcess`;
    subprocess.TimeoutExpired after `timeout` seconds.
    """
    process = start(command, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        kill(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def kill(process):
    """End a process from `start`, with all that it has started itself, if it is still running."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def work_folder(parent, prefix):
    """A new folder in `parent` that is gone in the end, unless it has been renamed."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    _folders.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _folders.discard(folder)


def exit_on_signals():
    """SIGTERM and SIGHUP end tools and raise SystemExit, status 128 + number, and SIGINT raises
    KeyboardInterrupt: ``finally`` blocks run, and threads that wait for a tool go on.
    """
    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as behind a shell's &
        numbers.append(signal.SIGINT)
    for number in numbers:
        _on_signal(number, _end)


def told_to_end():
    """Has a signal said so? No tool is started any more."""
    return _ending


def _end(number):
    _end_tools()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


@contextmanager
def signals_unwind():
    """Inside, in the main thread, signals that nobody handles leave no tools and folders behind:
    SIGTERM and SIGHUP do as after `exit_on_signals`, and Ctrl-C waits until a tool is noted.
    """
    changed = {}
    if threading.current_thread() is threading.main_thread():
        usual = {
            signal.SIGTERM: (signal.SIG_DFL, _end),
            signal.SIGHUP: (signal.SIG_DFL, _end),
            signal.SIGINT: (signal.default_int_handler, _interrupt),
        }
        for number, (handler, act) in usual.items():
            if signal.getsignal(number) == handler:
                changed[number] = handler
                _on_signal(number, act)
    try:
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


def _interrupt(_):
    raise KeyboardInterrupt


def die_on_signals():
    """As a forked worker: SIGTERM ends tools and removes work folders, and then the worker, without
    unwinding, which may wait for a lock of a dead sister.
    """

    def end(number):
        _clean()
        os._exit(128 + number)

    _on_signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # see `sigterm_waits`


@contextmanager
def sigterm_waits():
    """Inside, workers may be forked: a SIGTERM to one waits until it has called `die_on_signals`.

    Python forgets a signal that comes just after a fork; who waits for that worker waits for ever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def terminate(pool):
    """End a `multiprocessing.Pool` of workers that `die_on_signals`.

    The pool sends one signal only, and then waits. Workers were seen that waited for the pool's
    lock and had not acted on it, but did on a second one; why is not known. Here signals come again
    until all workers are gone.
    """
    from multiprocessing import active_children

    ending = threading.Thread(target=pool.terminate)
    ending.start()
    while ending.is_alive():
        ending.join(0.2)
        for worker in active_children():
            worker.terminate()


def _end_tools():
    """Kill what runs. It does not wait: what the signal has interrupted may be in `Popen.wait`."""
    global _ending
    _ending = True
    for process in list(_started):
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if multiprocessing := sys.modules.get("multiprocessing"):
        for worker in multiprocessing.active_children():  # see die_on_signals
            worker.terminate()


@atexit.register
def _clean():
    _end_tools()
    for process in list(_started):
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)  # so that it writes no more
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)


def _forget():
    """A forked child has not started what its parent has."""
    _started.clear()
    _folders.clear()


os.register_at_fork(after_in_child=_forget)
