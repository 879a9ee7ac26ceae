"""Progress of long work: bars on a terminal, a line every ten seconds elsewhere, all on stderr."""

import threading
from contextlib import contextmanager

import click
from rich import progress as rich_progress
from rich.console import Console

PERIOD = 10  # seconds


class Progress(rich_progress.Progress):
    """`rich.progress.Progress` on standard error; what is not a terminal gets plain lines."""

    def __init__(self):
        super().__init__(console=Console(stderr=True, highlight=False), transient=True)
        self._over = threading.Event()
        self._beat = threading.Thread(target=self._speak, daemon=True)

    def start(self):
        if self.console.is_terminal:
            super().start()
        else:
            self._beat.start()

    def stop(self):
        self._over.set()
        if self.console.is_terminal:
            super().stop()

    def _speak(self):
        while not self._over.wait(PERIOD):
            task = next((task for task in reversed(self.tasks) if not task.finished), None)
            if task:
                click.echo(line_of(task), err=True)


def line_of(task):
    """One line on a task of `rich`: what it does, how far it is, for how long it has run."""
    digits = ",.4g" if (task.total or 0) < 100 else ",.0f"  # of a share, or of a count
    far = f", {task.completed:{digits}} of {task.total:{digits}}" if task.total else ""
    return f"{task.description}{far}, {task.elapsed or 0:.0f} s"


@contextmanager
def status(text):
    """A context for one stage of unknown length; gives a function that names the next stage."""
    with Progress() as progress:
        stages = [progress.add_task(text, total=None)]

        def say(text):
            progress.update(stages[-1], total=1, completed=1, visible=False)
            stages.append(progress.add_task(text, total=None))

        yield say
