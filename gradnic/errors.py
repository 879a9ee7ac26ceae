"""Errors that are findings: the command line tells them in one line, with exit status 1."""


class Unfinished(RuntimeError):
    """A simulation that does not end: who waits, for what or since when."""
