"""Texts of an OpenNIC plugin: what the shell's build script and the 250 MHz box include."""

BUILD = """\
# Read by the build script of the shell, in the folder of this file.
read_verilog -quiet {module}.v
"""

CROSSBAR = """\
# The build script sources this file. The plugin needs no crossbar: it decodes its own windows.
"""

ADDRESS_MAP_MODULE = """\
// The build script reads this file. The plugin needs no address map: it decodes its own windows.
"""

ADDRESS_MAP = """\
// Included by box_250mhz: registers of the box go to the plugin as they are.
"""

INSTANCE = """\
// Included by box_250mhz: {n} port(s) of gradnic.
initial begin
  if (USE_PHYS_FUNC == 0 || NUM_PHYS_FUNC != {n} || NUM_CMAC_PORT != {n}) begin
    $fatal(1, "gradnic was written for {n} physical function(s) and MAC port(s)");
  end
end

// Reset pairs that nobody uses are always done.
assign mod_rst_done[15:1] = {{15{{1'b1}}}};

{module} gradnic_inst (
{pins}
);
"""

NOTE = """\
# gradnic in OpenNIC

This folder is a user plugin for the 250 MHz box: {n} port(s), each with a card between its
physical function and its MAC.

## Build

```sh
cd open-nic-shell/script
vivado -mode batch -source build.tcl -tclargs -board au250 -user_plugin FOLDER \\
    -num_cmac_port {n} -num_phys_func {n}
```

FOLDER is this one, as an absolute path. The 322 MHz box stays the shell's own. Frames of gradnic
are up to 1,514 bytes at MTU 1500: raise `-max_pkt_len` for jumbo frames.

## Find it from the host

| address in BAR 2 | what |
| --- | --- |
{windows}
Everything else of the box reads 0 and ignores writes. `{module}_registers.md` and `.h` have the
map of one card; `gradnic.host.Driver` drives it by name through any pair of functions. Reset it
through bit 0 of the shell's user reset register: settings and counters return to reset values.

## What holds at the ports

- `tuser_size` is the size of the frame as it leaves, from its first beat on: frames are stored
  first. `tkeep` agrees with it.
- `tuser_src` stays with its frame; `tuser_dst` names the MAC port on the way out, and the physical
  function of the same number on the way in.
- The shell has no mark for a bad frame. Frames that were cut at 16 KiB are dropped.
- Registers come in `axil_aclk` and cross to `axis_aclk`; the two need no fixed phase. The paths
  between them carry Gray codes: bound them with `set_max_delay -datapath_only`, or leave the two
  clocks related, as the shell has them.
"""
