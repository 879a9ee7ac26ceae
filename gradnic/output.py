"""What a command leaves behind: tables for people, JSON for programs, whole files or none."""

import contextlib
import errno
import io
import json
import math
import os
import secrets
import stat
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from gradnic.paths import OutputFile

json_option = click.option(
    "--json",
    "json_file",
    type=OutputFile(stdout=True),
    metavar="FILE",
    help="Also write the result as JSON; - is stdout.",
)
list_option = click.option(
    "--list", "listing", is_flag=True, help="Only list what there is to choose from."
)
PICTURES = (".png", ".svg", ".pdf")
READER = 10  # seconds that a FIFO is given to find a reader


_OWN = ".gradnic-"  # what names of files begin with until they are whole


def write_whole(path, data):
    """Write bytes or text to `path` so that a reader sees the old file or the whole new one.

    Links are followed; a file keeps its mode, a new one gets what the umask leaves. What is no
    plain file, such as a device or a FIFO, is written through, and so is the file that is standard
    output or standard error already. OSError with `path` in it if that cannot be done.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        old = os.stat(path)
    except FileNotFoundError:
        old = None
    try:
        if old and not stat.S_ISREG(old.st_mode):
            _write_through(path, data, is_fifo=stat.S_ISFIFO(old.st_mode))
        elif old and (stream := _standard(old)):
            stream.flush()
            stream.buffer.write(data)
            stream.buffer.flush()
        else:
            _replace(Path(os.path.realpath(path)), data, old)
    except OSError as error:
        is_own = error.filename is None or Path(error.filename).name.startswith(_OWN)
        if is_own and not isinstance(error, BrokenPipeError):
            error.filename = os.fspath(path)  # not ours, or none, as of a full disk
        raise


def _standard(found):
    """The one of stdout and stderr that is the file with status `found`, or None."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(number), found) and hasattr(stream, "buffer"):
                return stream
    return None


def _replace(path, data, old):
    path.parent.mkdir(parents=True, exist_ok=True)
    if old and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    name = path.with_name(f"{_OWN}{secrets.token_hex(8)}")
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with open(handle, "wb") as file:
                file.write(data)
            if old:
                os.chmod(name, stat.S_IMODE(old.st_mode))
                with contextlib.suppress(PermissionError):
                    os.chown(name, old.st_uid, old.st_gid)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except PermissionError:
        if not old:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)) from None
        path.write_bytes(data)  # its folder takes no new file


def _write_through(path, data, *, is_fifo):
    flags = os.O_WRONLY | (os.O_NONBLOCK if is_fifo else 0)
    give_up = time.monotonic() + READER
    while True:
        try:
            handle = os.open(path, flags)
            break
        except OSError as error:
            if not is_fifo or error.errno != errno.ENXIO:
                raise
            if time.monotonic() > give_up:
                raise ValueError(f"{path}: nobody reads this FIFO") from None
            time.sleep(0.05)
    os.set_blocking(handle, True)
    with open(handle, "wb") as file:
        file.write(data)


def write_picture(path, figure, **options):
    """Write a matplotlib figure to `path`, whose ending, of `PICTURES`, says how: no date and no
    random names, the same picture is the same bytes. options : of ``savefig``.
    """
    import matplotlib

    ending, data = Path(path).suffix, io.BytesIO()
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending)
    with matplotlib.rc_context({"svg.hashsalt": "gradnic"}):
        figure.savefig(data, format=ending[1:], metadata=dated, **options)
    write_whole(path, data.getvalue())


def write_json(path, result):
    """Write `result` as JSON to `path`; ``-`` is standard output, None writes nothing."""
    if path is None:
        return
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_whole(path, text)


class Screen(Console):
    """The console for people. Figures are never cut: what is no terminal has no edge, and a table
    that is too wide for a terminal goes beyond it.
    """

    def __init__(self, *, stderr=False):
        super().__init__(stderr=stderr, highlight=False)
        if not self.is_terminal:
            self.width = 1000

    def print(self, *objects, **options):
        set_width = self._width
        if len(objects) == 1 and isinstance(objects[0], Table):
            wide = self.options.update(max_width=100_000)
            self.width = max(self.width, Measurement.get(self, wide, objects[0]).minimum)
        super().print(*objects, **options)
        self._width = set_width


def console(json_file=None):
    """The console for people: stderr where stdout carries JSON."""
    return Screen(stderr=json_file == "-")


def one_line(text, most=1000):
    """`text` as one line of at most `most` characters: what would move the cursor is spelled out,
    and the middle of what is longer left out.
    """
    kept = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if len(kept) <= most:
        return kept
    return f"{kept[: most // 2]} [...] {kept[-most // 2 :]}"


def figure(value):
    """A number as tables show it: whole from 10,000 on, else 4 digits, powers of ten only below
    a thousandth and from 10^15 on.
    """
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    if 1e4 <= abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.4g}"


def table(title, columns, rows):
    """A `rich` table of `rows` (sequences as long as `columns`); numbers right-justified."""
    rows = list(rows)
    result = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in rows)
        result.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        result.add_row(*map(figure, row))
    return result
