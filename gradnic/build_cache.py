"""What is compiled once and kept: folders under ``build/`` that several processes may want."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from gradnic import processes


def build_root():
    """Folder of all that is generated: ``GRADNIC_BUILD``, else ``build`` in the working folder."""
    return Path(os.environ.get("GRADNIC_BUILD", "build")).absolute()


@contextmanager
def locked(folder):
    """Hold the lock of a kept folder: one makes it, the others wait.

    `gradnic.processes.ToolError` where nothing can be written beside it.
    """
    from filelock import FileLock

    folder = Path(folder)
    lock = FileLock(folder.parent / f".{folder.name}.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise processes.ToolError(
            f"{folder.parent} takes nothing that is compiled: {error.strerror}; the environment's "
            "GRADNIC_BUILD names another folder than build"
        ) from None
    try:
        yield
    finally:
        lock.release()


def kept(folder, make):
    """The `folder`, made by ``make(work)`` in a work folder beside it if it is not there yet.

    It appears whole, by a rename. What a killed process has left of it is removed.
    """
    folder = Path(folder)
    if not folder.exists():
        with locked(folder):
            if not folder.exists():
                prefix = f".build-{folder.name}-"
                for left in folder.parent.glob(f"{prefix}*"):
                    shutil.rmtree(left, ignore_errors=True)
                with (
                    processes.signals_unwind(),
                    processes.work_folder(folder.parent, prefix) as work,
                ):
                    make(work)
                    work.rename(folder)
    return folder
