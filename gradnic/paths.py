"""Files and folders that options name: click types that look before the work begins.

An input must be there and readable; an output must be possible; no output is an input, and no two
outputs are one file.
"""

import errno
import os
import sys
import tempfile

import click

from gradnic.text_file import network_file

_INPUTS, _OUTPUTS = "gradnic.inputs", "gradnic.outputs"


def _same(a, b):
    """Whether two paths are one plain file, there or to be."""
    if not all(os.path.isfile(path) or not os.path.exists(path) for path in (a, b)):
        return False
    if os.path.exists(a) and os.path.exists(b):
        return os.path.samefile(a, b)
    return os.path.realpath(a) == os.path.realpath(b)


def _note(ctx, kind, path):
    """Keep `path` as of `kind`; UsageError if it is an input and an output, or two outputs."""
    if ctx is None:
        return
    for other in (_INPUTS, _OUTPUTS):
        for known in ctx.meta.get(other, ()):
            if kind == other == _INPUTS or not _same(path, known):
                continue
            if kind == other:
                raise click.UsageError(f"{path} and {known} are two outputs in one file", ctx)
            source, target = (known, path) if kind == _OUTPUTS else (path, known)
            raise click.UsageError(f"{target} would overwrite the input {source}", ctx)
    ctx.meta[kind] = [*ctx.meta.get(kind, ()), path]


def _refuse(path, number, ctx):
    raise click.UsageError(f"{path or 'an empty name'}: {os.strerror(number)}", ctx)


class _Path(click.ParamType):
    name = "file"

    def convert(self, value, param, ctx):
        path = os.fspath(value)
        if not path:
            _refuse(path, errno.ENOENT, ctx)
        if "\0" in path:
            raise click.UsageError("a file's name must be without NUL", ctx)
        try:
            os.lstat(path)
            os.stat(path)
        except FileNotFoundError:
            pass
        except OSError as error:  # too long, a loop of links, a file for a folder
            _refuse(path, error.errno, ctx)
        self.look(path, ctx)
        return path


class InputFile(_Path):
    """A file to read."""

    def look(self, path, ctx):
        if not os.path.exists(path):
            _refuse(path, errno.ENOENT, ctx)
        if os.path.isdir(path):
            _refuse(path, errno.EISDIR, ctx)
        if not os.access(path, os.R_OK):
            _refuse(path, errno.EACCES, ctx)
        _note(ctx, _INPUTS, path)


class Network(click.ParamType):
    """The name of a topology, of which ``file:PATH`` is an input file."""

    name = "NAME:SIZE"

    def convert(self, value, param, ctx):
        if value.startswith("file:"):
            InputFile().convert(network_file(value.removeprefix("file:"))[0], param, ctx)
        return value


class OutputFile(_Path):
    """A file to write; its folder is made. stdout : ``-`` is standard output.

    endings : those that the name may have; all if empty.
    """

    def __init__(self, *endings, stdout=False):
        self.endings, self.stdout = endings, stdout

    def look(self, path, ctx):
        if self.stdout and path == "-":
            if sys.stdout is None:
                _refuse("standard output", errno.EBADF, ctx)
            return
        if self.endings and os.path.splitext(path)[1] not in self.endings:
            raise click.UsageError(f"{path} must end in {' or '.join(self.endings)}", ctx)
        if os.path.isdir(path):
            _refuse(path, errno.EISDIR, ctx)
        if os.path.exists(path):
            if not os.access(path, os.W_OK):
                _refuse(path, errno.EACCES, ctx)
            folder = os.path.dirname(os.path.realpath(path))
            if os.path.isfile(path) and os.access(folder, os.W_OK) and not _takes_files(folder):
                _refuse(path, errno.EACCES, ctx)
        else:
            check_folder(os.path.dirname(os.path.realpath(path)), ctx)
        _note(ctx, _OUTPUTS, path)


def check_files(names):
    """UsageError if one of the files `names`, which follow from what the user asked for, cannot be
    written, or is an input.
    """
    ctx = click.get_current_context(silent=True)
    outputs = ctx.meta.get(_OUTPUTS, []) if ctx else []
    for name in names:
        OutputFile().convert(name, None, ctx)
        if ctx:
            ctx.meta[_OUTPUTS] = outputs  # they differ among themselves


class OutputFolder(_Path):
    """A folder to write to; it is made if need be."""

    name = "folder"

    def look(self, path, ctx):
        check_folder(path, ctx)


def check_folder(path, ctx=None):
    """UsageError if the folder `path` is not there and cannot be made, or takes no file."""
    there = os.path.realpath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        _refuse(there if there != os.path.realpath(path) else path, errno.ENOTDIR, ctx)
    if not (os.access(there, os.W_OK | os.X_OK) and _takes_files(there)):
        _refuse(path, errno.EACCES, ctx)


def _takes_files(folder):
    """Whether a file can be made in a folder: root has access to /proc, which takes none."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
