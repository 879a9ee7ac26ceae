"""What the four machines of ``gradnic cosim`` share: refusals, gradients, the verdict."""

import importlib

import click
import numpy as np

from gradnic import quantities as q
from gradnic.arrays import load_floats
from gradnic.packages import DATA, require
from gradnic.paths import InputFile, Network, OutputFile
from gradnic.quantities import option

MACHINES = {
    "ring": "in-line cards in a ring, hosts add: INCEPTIONN",
    "star": "workers around an aggregator in the network: THC, integers, SwitchML",
    "direct": "cards with a scheduler on lossless links of a direct network",
    "card": "offload cards over Ethernet that may lose, mark and reorder",
}
N_VALUES = 235_146  # of a trained gradient
NOISE = 8192  # of noise, unless asked for
REAL = 32  # most nodes for which gradients are trained on the spot


def machine_command(name):
    """The click command of one of `MACHINES`."""
    return importlib.import_module(f"gradnic.commands.cosim_{name}").command


class Machine(q.Command):
    """Refuses another machine's option by saying whose it is."""

    def parse_args(self, ctx, args):
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            owners = [
                name
                for name in MACHINES
                if name != self.name
                and any(error.option_name in param.opts for param in machine_command(name).params)
            ]
            whose = f"; {q.joined(owners)} has it" if owners else ""
            raise click.UsageError(
                f"machine {self.name} has no option {error.option_name}{whose}", ctx
            ) from None


def codec_options(function):
    """The settings of INCEPTIONN."""
    for decorate in (
        option("--prescale", q.PRESCALE, 0, "Power of two, -128..127."),
        option("--mode", q.MODE, "strict"),
        option("--exponent", q.EXPONENT, 117, "Of the bound, 113..126; 117 is 2^-10."),
    ):
        function = decorate(function)
    return function


pcap_option = option(
    "--pcap pcap_file",
    OutputFile(),
    help="Write the frames on the wires as a capture.",
    metavar="FILE",
)


def network_options(function):
    """The options that name a network and its table."""
    for decorate in (
        option("--chunks", q.CHUNKS, help="Chunks per shard."),
        click.option(
            "--algorithm", default="multitree", show_default=True, help="As of gradnic schedule."
        ),
        option(
            "--topology",
            Network(),
            help="As of gradnic schedule, such as torus:4x4.",
            required=True,
            metavar="NAME:SIZE",
        ),
    ):
        function = decorate(function)
    return function


def fault_options(function):
    """What links do to frames."""
    for decorate in (
        option("--seed", q.SEED, 0, "Of the faults."),
        option("--reorder", q.LINK_TIME, 0, "Up to so many more, for each frame anew."),
        option("--delay", q.LINK_TIME, 10, "Cycles that a link takes."),
        click.option("--duplicate", type=q.BELOW_ONE, default=0.0, help="Share that comes twice."),
        click.option(
            "--loss", type=q.BELOW_ONE, default=0.0, help="Share of frames lost on a link."
        ),
    ):
        function = decorate(function)
    return function


def source_options(function):
    """Whose gradients, and how many values of them."""
    for decorate in (
        option(
            "--gradients files",
            InputFile(),
            help="An .npy file a node instead, float32; repeat the option.",
            multiple=True,
            metavar="FILE",
        ),
        option("--elements", q.ELEMENTS, help="Only so many values of each gradient."),
        option("--iteration", q.ITERATION, 200, "Whose gradients to sum."),
    ):
        function = decorate(function)
    return function


def load_gradients(files, nodes):
    """float32 (nodes, n) of `files`, one a worker; ValueError if they do not go together."""
    if len(files) != nodes:
        raise ValueError(f"gradients must be {nodes} files, one a node, not {len(files)}")
    arrays = [load_floats(name).reshape(-1) for name in files]
    if len({x.size for x in arrays}) != 1:
        raise ValueError(f"gradients differ in size: {[x.size for x in arrays]}")
    return np.stack(arrays)


def floats_of(n_nodes):
    """Values of what `gradients_of` makes where nothing is asked for."""
    return N_VALUES if n_nodes <= REAL else NOISE


def gradients_of(n_nodes, files, iteration, elements, progress):
    """(float32 (n_nodes, n), what they are): of `files`, else trained, else normal noise.

    Noise is for more than 32 nodes or more values than the trained network has. ValueError if the
    files do not go together or have fewer than `elements` values.
    """
    if files:
        q.only_with(False, "trained gradients, not for those of --gradients", "iteration")
        gradients = load_gradients(files, n_nodes)
        if elements and elements > gradients.shape[1]:
            raise ValueError(
                f"elements must be at most {gradients.shape[1]}, the size of the files, not "
                f"{elements}"
            )
        return np.ascontiguousarray(gradients[:, :elements]), "files"
    if n_nodes > REAL or (elements or 0) > N_VALUES:
        noise = np.random.default_rng(1).standard_normal((n_nodes, elements or NOISE))
        return noise.astype(np.float32), "normal"
    require("a gradient trained on the spot", **DATA)
    from gradnic.sim.training import network as training

    task = progress.add_task("training", total=iteration)
    kept, _ = training.train(
        [iteration],
        n_workers=n_nodes,
        loss="sum",
        on_iteration=lambda i, _: progress.update(task, completed=i),
    )
    return np.ascontiguousarray(kept[iteration][:, :elements]), "real"


def show_verdict(screen, ok, first):
    """The first mismatch, if any, and the verdict."""
    if first:
        screen.print(f"first mismatch: {first}")
    screen.print("RTL and golden cluster agree" if ok else "RTL and golden cluster DIFFER")
