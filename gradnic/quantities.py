"""What options take: one click type a quantity, with its unit and range.

A value that is no number, not finite or out of range is one line, "--lanes must be 4, 8, 16 or 32,
not 12", and exit status 2, before any work.
"""

import math
import re

import click
from click.core import ParameterSource

from gradnic.text_file import whole


def option(names, kind, default=None, help=None, **more):
    """`click.option` of a quantity: its names in one text; a default is shown."""
    if default is not None:
        more |= {"default": default, "show_default": True}
    return click.option(*names.split(), type=kind, help=help, **more)


class _Once:
    """Refuses an option of one value that is given twice, where click takes the last."""

    def parse_args(self, ctx, args):
        given = self.make_parser(ctx).parse_args(list(args))[2]
        for param in repeated(given):
            is_option = isinstance(param, click.Option)
            says_the_same = is_option and param.is_flag and not param.secondary_opts
            if is_option and not (says_the_same or param.multiple or param.count):
                raise Wrong("is given twice", ctx, param)
        return super().parse_args(ctx, args)


class Command(_Once, click.Command):
    """A command whose options are given once, but for those that repeat. Errors about one that is
    given call it so.
    """

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if error.args and isinstance(error.args[0], str):
                given = [param for param in self.params if param.name and _given(ctx, param.name)]
                error.args = _as_option(error.args[0], given, self.params), *error.args[1:]
            raise


def _as_option(text, given, params):
    """``only must be ...`` as ``--only must be ...``, of options that are `given`, whatever the
    function calls its argument: link bytes per cycle, link_bytes_per_cycle, n_lanes. Of a product,
    ``workers * batch``, one that is given is enough for all that are options.
    """
    name, must, rest = text.partition(" must ")
    factors = name.split(" * ")
    if not must or not any(_flag(factor, given) for factor in factors):
        return text
    return " * ".join(_flag(factor, params) or factor for factor in factors) + must + rest


def _flag(name, params):
    """The option among `params` that a function calls `name`; None if there is none."""
    flag = re.sub("[_ ]", "-", f"--{name}")
    flags = {flag for param in params for flag in param.opts if isinstance(param, click.Option)}
    return next((one for one in (flag, flag.replace("--n-", "--", 1), f"-{name}") if one in flags),
                None)  # fmt: skip


class Group(_Once, click.Group):
    """Commands of that kind, under one name."""

    command_class = Command


class Wrong(click.BadParameter):
    """A value that its option does not take; the message names option, limit and value."""

    def format_message(self):
        names = [name for name in self.param.opts if name.startswith("-")] if self.param else []
        names.sort(key=lambda name: not name.startswith("--"))
        name = names[0] if names else self.param.name.upper() if self.param else ""
        return f"{name} {self.message}".strip()


def joined(words):
    """ "a, b or c" of words."""
    *most, last = map(str, words)
    return f"{', '.join(most)} or {last}" if most else last


class _Quantity(click.ParamType):
    def fail(self, message, param=None, ctx=None):
        raise Wrong(message, ctx, param)

    def refuse(self, value, param, ctx):
        text = value if isinstance(value, str) else repr(value)
        text = text if len(text) <= 60 else f"{text[:57]}..."
        self.fail(f"must be {self.takes}, not {text or 'empty'}", param, ctx)


def _decimal(text):
    """The float of ASCII digits, with a point and an exponent or none, else ValueError."""
    form = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?\d+)?"
    if len(text) > 400 or not re.fullmatch(form, text, re.ASCII | re.IGNORECASE):
        raise ValueError(f"{text!r} is no number")
    return float(text)


class Number(_Quantity):
    """A finite number from `low` to `high` in `unit`; None: no limit on that side.

    above, below : the limit itself is not taken. whole : integers only.
    """

    def __init__(self, low=None, high=None, unit="", *, above=False, below=False, whole=False):
        self.low, self.high, self.above, self.below, self.whole = low, high, above, below, whole
        self.name = "whole" if whole else "number"
        show = "{:,}".format if whole else "{:,g}".format
        one = f"{'above' if above else 'at least'} {show(low)}" if low is not None else ""
        other = f"{'below' if below else 'at most'} {show(high)}" if high is not None else ""
        if one and other and not above:
            range = f"{show(low)} to {'below ' if below else ''}{show(high)}"
        else:
            range = " and ".join(filter(None, (one, other))) or f"a {self.name} number"
        self.takes = f"{range} {unit}".strip()

    def get_metavar(self, param, ctx=None):
        return self.name.upper()

    def convert(self, value, param, ctx):
        if isinstance(value, str):
            try:
                number = (whole if self.whole else _decimal)(value.strip())
            except ValueError:
                self.refuse(value, param, ctx)
        else:
            number = value
        if not math.isfinite(number) or not self.contains(number):
            self.refuse(value, param, ctx)
        return number

    def contains(self, number):
        """Whether `number` lies in the range."""
        low = self.low is None or number > self.low or (number == self.low and not self.above)
        high = self.high is None or number < self.high or (number == self.high and not self.below)
        return low and high


class Whole(Number):
    """An integer from `low` to `high` in `unit`."""

    def __init__(self, low=None, high=None, unit=""):
        super().__init__(low, high, unit, whole=True)


class Power(Whole):
    """A power of two from 2^low to 2^high."""

    def __init__(self, low, high):
        super().__init__(1 << low, 1 << high)
        self.takes = f"a power of two, {self.takes}"

    def contains(self, number):
        return super().contains(number) and not number & (number - 1)


class Multiple(Whole):
    """A multiple of `step` from `step` to `high` in `unit`."""

    def __init__(self, step, high, unit=""):
        super().__init__(step, high, unit)
        self.step = step
        self.takes = f"a multiple of {step}, {self.takes}"

    def contains(self, number):
        return super().contains(number) and number % self.step == 0


class OneOf(_Quantity):
    """One of a few words or numbers, as it is spelled here."""

    name = "choice"

    def __init__(self, *values):
        self.values = values
        self.takes = joined(values)

    def get_metavar(self, param, ctx=None):
        return f"[{'|'.join(map(str, self.values))}]"

    def convert(self, value, param, ctx):
        for known in self.values:
            if str(value) == str(known):
                return known
        self.refuse(value, param, ctx)

    def shell_complete(self, ctx, param, incomplete):
        words = map(str, self.values)
        return [click.shell_completion.CompletionItem(w) for w in words if w.startswith(incomplete)]


class Listed(_Quantity):
    """Values of one quantity with commas between, at least one, none of them twice; a list."""

    name = "list"

    def __init__(self, each):
        self.each = each
        self.takes = f"{each.takes}, with commas between"

    def get_metavar(self, param, ctx=None):
        return f"{self.each.get_metavar(param, ctx)},..."

    def convert(self, value, param, ctx):
        if not isinstance(value, str):
            return value
        return once(ctx, param, [self.each.convert(part, param, ctx) for part in value.split(",")])


def once(ctx, param, values):
    """The values, none of them twice: as a callback, of an option that repeats."""
    if found := repeated(values):
        raise Wrong(f"names {found[0]} twice", ctx, param)
    return values


def repeated(values):
    """Those of the values that were there before, in their order."""
    return [value for k, value in enumerate(values) if value in values[:k]]


class Size(_Quantity):
    """A number of bytes: ``4096``, ``32KiB``, ``100MB``; bits as ``2Gb`` or ``2Gbit``.

    A capital B is bytes and a small b bits everywhere; K, M, G and T go by 1000, Ki, Mi, Gi and Ti
    by 1024. low, high : in bytes. step : only multiples of it.
    """

    name = "size"
    _FACTORS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

    def __init__(self, low=1, high=1 << 50, *, step=1):
        self.low, self.high, self.step = low, high, step
        kind = "whole bytes" if step == 1 else f"bytes, a multiple of {step}"
        self.takes = f"{low:,} to {high:,} {kind}, such as 4096, 32KiB, 100MB or 2Gb (bits)"

    def get_metavar(self, param, ctx=None):
        return "SIZE"

    def convert(self, value, param, ctx):
        if not isinstance(value, str):
            return value
        try:
            n_bytes = parse_size(value)
        except ValueError:
            n_bytes = None
        if n_bytes is None or not self.low <= n_bytes <= self.high or n_bytes % self.step:
            self.refuse(value, param, ctx)
        return n_bytes


def parse_size(text):
    """Bytes in ``2MiB``, ``100MB``, ``2Gb`` (bits) or ``4096``; ValueError for anything else."""
    form = r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[0-9]{1,2})?\s*([kKMGT]?)(i?)(B|b|bits?|bytes?|)"
    found = re.fullmatch(form, text.strip()[:100])
    if not found or (found[4] and not found[3]):
        raise ValueError(f"bytes must be a number with B, KiB, MiB, KB or MB, not {text!r}")
    number = float(found[1] + (found[2] or ""))
    factor = (1024 if found[4] else 1000) ** Size._FACTORS[found[3].lower()]
    bits = found[5] in ("b", "bit", "bits")
    size = number * factor / (8 if bits else 1)
    if not math.isfinite(size) or size != int(size):
        raise ValueError(f"bytes must be a whole number, not {text!r}")
    return int(size)


def given(name):
    """Whether the command line has the option; outside of a command nothing was given."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx) and _given(ctx, name)


def _given(ctx, name):
    return ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE


def only_with(holds, what, *names):
    """UsageError if one of the options `names` is given although `holds` is false.

    Outside of a command, such as in a process of a cluster, nothing was given.
    """
    ctx = click.get_current_context(silent=True)
    for name in names:
        if not holds and given(name):
            param = next(p for p in ctx.command.params if p.name == name)
            flags = "/".join([param.opts[0], *param.secondary_opts])
            raise click.UsageError(f"{flags} is for {what}", ctx)


BELOW_ONE = Number(0, 1, below=True)  # shares that would end nothing at 1: loss, missing
SHARE = Number(0, 1)
SEED = Whole(0, 2**32 - 1)
EXPONENT = Whole(113, 126)
MODE = OneOf("strict", "paper")
ROUNDING = OneOf("trunc", "nearest")
PRESCALE = Whole(-128, 127)
LANES = OneOf(4, 8, 16, 32)
FRAME_FLOATS = Whole(1, 2104, "floats a frame")
BLOCK = OneOf(64, 256, 1024, 4096)  # THC's B
NODE = Whole(0, 1 << 20)
CHUNKS = Whole(1, 65536)
ELEMENTS = Whole(1, 1 << 24)
ITERATION = Whole(1, 1_000_000)
JOBS = Whole(1, 1024)
LINK_TIME = Whole(0, 1_000_000, "cycles")
LATENCY = Whole(1, 1_000_000, "cycles")
