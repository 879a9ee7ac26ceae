"""``gradnic cosim``: four machines of RTL cards, one all-reduce each, against golden clusters."""

import click

from gradnic import quantities as q

from .cosim_parts import MACHINES, machine_command


class _Machines(q.Group):
    """The four machines; what was one command with all of their options is refused."""

    def list_commands(self, ctx):
        return list(MACHINES)

    def get_command(self, ctx, name):
        return machine_command(name) if name in MACHINES else None

    def parse_args(self, ctx, args):
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            raise click.UsageError(f"name the machine first: gradnic cosim {new_spelling(args)}")
        return super().parse_args(ctx, args)

    def format_commands(self, ctx, formatter):
        with formatter.section("Machines"):
            formatter.write_dl(list(MACHINES.items()))


def new_spelling(args):
    """The arguments of the command that was ``gradnic cosim`` with `args`."""
    words = [part for arg in args for part in (arg.split("=", 1) if arg[:2] == "--" else [arg])]
    machine, kept = "ring", []
    if "--topology" in words:
        frame = "frame" in words[1:] and words[words.index("frame") - 1] == "--link"
        machine = "card" if frame else "direct"
    if "--aggregator" in words:
        machine = "star"
    rest = iter(words)
    for word in rest:
        if word == "--link":
            next(rest, None)
        elif word != "--aggregator":
            kept.append(word)
    return " ".join([machine, *kept])


@click.command(cls=_Machines, name="cosim")
def command():
    """Sum gradients over cards of RTL; compare each frame and replica with golden cards.

    One command a machine, each with options of its own. Gradients are those of `gradnic gradients`
    with --loss sum, made on the spot, unless files are given. Exit status 1 if anything differs.

    \b
    Example:
      gradnic cosim ring --nodes 4 --codec inceptionn --lanes 8 --json -
      gradnic cosim star --workers 4 --codec thc --loss 0.01 --reorder 64 --json -
      gradnic cosim direct --topology torus:4x4 --algorithm multitree --elements 8192 --json -
      gradnic cosim card --topology torus:4x4 --codec thc --loss 0.01 --p 0.02 --spray
    """
