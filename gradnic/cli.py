"""The ``gradnic`` command: finds its sub-commands in `gradnic.commands`, one file each."""

import importlib
import os
import sys
import warnings

import click

from . import __version__, packages, processes
from .errors import Unfinished
from .output import one_line

COMMANDS = {
    "verilog": "Verilog of a named top, with its ports and an instantiation",
    "gradients": "real gradients of a small network, as .npy files",
    "codec": "compress, decompress or measure an .npy file with a golden model",
    "schedule": "schedule tables for a topology, proven, with their distance to the bound",
    "simulate": "one all-reduce on the network model, to thousands of nodes",
    "transport": "time of a tensor under loss, over the share that may be missing",
    "cosim": "machines of RTL cards, one all-reduce each, against golden clusters",
    "twin": "cards without hardware at UDP sockets or TAP devices, golden or of RTL",
    "synth": "LUT, FF, BRAM, Fmax and Gb/s of a block, by Yosys and nextpnr",
    "sweep": "all 2^32 floats through the RTL value path, against model and bound",
    "soak": "millions of packets, and of attacks, through the RTL aggregator",
    "chain": "floats in bulk through the RTL compressor and decompressor, all compared",
    "fuzz": "bad frames in volume through an RTL card, with good ones between them",
    "upsets": "register bits of an offload card that change by themselves: what becomes of it",
    "goodput": "share of the link that RTL offload cards fill, also beside other traffic",
    "budget": "whether memory of boards keeps up with their lines, for an offload card",
    "mutate": "mutants of a block: does its bench notice one wrong gate?",
    "fpga": "bitstream of a board's self-test, by YoWASP's tools alone",
    "accuracy": "error of THC beside the compressors a user would pick instead",
    "bench": "speed of the golden codec beside zfp, a BF16 cast and zlib",
    "train": "trains with the golden codec in the loop: accuracy, wire ratio, error",
    "reproduce": "claims of five papers beside ours: training time, accuracy, what differs",
    "dissector": "Wireshark dissector of gradnic frames, from the field tables",
    "report": "one HTML page with all of it, pictures first",
}


class _Commands(click.Group):
    """Imports a sub-command when it is called, so that ``--help`` needs no heavy package."""

    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return None
        try:
            return importlib.import_module(f"gradnic.commands.{name}").command
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.startswith("gradnic."):
                raise
            raise click.UsageError(packages.advice(name, [missing.name])) from missing

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gradnic")
def cli():
    """Generate, prove, simulate and measure the datapath that moves gradients.

    \b
    Example:
      gradnic verilog --preset inline8 --out build/verilog
    """


def _place(error):
    """The file that an error is about, standard output if that takes nothing, or None."""
    if not isinstance(error, OSError) or error.filename is not None:
        return getattr(error, "filename", None)
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or it is told again
        return "standard output"
    except AttributeError:  # closed
        pass
    return None


def main(words=None):
    """Run the command line. A user's mistake is one line on stderr and exit status 2.

    words : list of arguments; None: those of the process.
    """
    processes.exit_on_signals()
    # Amaranth's, of the parts of a circuit whose making was broken off
    warnings.filterwarnings("ignore", message=".* created but never used$")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not every name fits every locale
            stream.reconfigure(errors="backslashreplace")
    called = " ".join((sys.argv[1:] if words is None else words)[:1])
    try:
        status = cli(words, prog_name="gradnic", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = 2
    except click.ClickException as error:
        click.echo(f"Error: {one_line(error.format_message())}", err=True)
        status = 2
    except click.Abort:  # Ctrl-C
        click.echo("interrupted", err=True)
        status = 130
    except BrokenPipeError:  # who read standard output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "gradnic") or os.environ.get("GRADNIC_TRACEBACK"):
            raise
        click.echo(f"Error: {packages.advice(f'gradnic {called}', [module])}", err=True)
        status = 2
    except (ValueError, OSError, MemoryError, processes.ToolError) as error:
        if os.environ.get("GRADNIC_TRACEBACK"):
            raise
        place = _place(error)
        text = str(error) or repr(error) if place is None else f"{place}: {error.strerror}"
        tail = isinstance(error, processes.ToolError)  # a tool's own last lines
        click.echo(f"Error: {text if tail else one_line(text)}", err=True)
        status = 2
    except Unfinished as error:
        if os.environ.get("GRADNIC_TRACEBACK"):
            raise
        click.echo(f"Error: {one_line(str(error))}", err=True)
        status = 1
    sys.exit(status if isinstance(status, int) else 0)
