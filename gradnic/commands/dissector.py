"""``gradnic dissector``: a Wireshark dissector from the field tables."""

import click

from gradnic import __version__
from gradnic import quantities as q
from gradnic.host import dissector
from gradnic.interface.formats import UDP_PORT
from gradnic.output import console, json_option, write_json, write_whole
from gradnic.paths import OutputFile
from gradnic.quantities import option


@click.command(cls=q.Command, name="dissector")
@option("--out", OutputFile(), "build/gradnic.lua", "File to write.")
@json_option
def command(out, json_file):
    """Write a Wireshark dissector (Lua) of gradnic frames.

    Captures of a simulated run come from `gradnic cosim ring --pcap FILE`.

    \b
    Example:
      gradnic dissector --out gradnic.lua
      tshark -X lua_script:gradnic.lua -r run.pcap
    """
    write_whole(out, dissector.lua(__version__))
    console(json_file).print(f"wrote {out}", soft_wrap=True)
    write_json(json_file, {"file": out, "port": UDP_PORT, "fields": dissector.names()})
