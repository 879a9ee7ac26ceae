"""Texts of an OpenNIC plugin: what the shell's build script and the 250 MHz box include.

Plumbing: no golden model of its own.
"""

from gradnic.interface.card_memory import OFFSET, REGISTERS

from ..common.fan import WINDOW_BITS
from ..common.job_note import opens

URAM_KIB = 32  # of a block, 8 bytes wide
URAM_COLUMNS = 8  # of a word of 512 bits

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
  if ($bits(s_axis_qdma_h2c_tvalid) != {n}) begin // NUM_QDMA, which older shells do not have
    $fatal(1, "gradnic was written for one QDMA: build with -num_qdma 1");
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

This folder is a user plugin for the 250 MHz box: {n} port(s), {what} between
physical function and MAC.

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
map of one card; `gradnic.host.{driver}` drives it by name through any pair of functions.
Reset it through bit 0 of the shell's user reset register: settings and counters return to reset
values. An access that comes in the reset waits for its end; of those under way as it begins, reads
may give 0 and writes be lost: read a register before you ask for a reset.
{memory}
## What holds at the ports

- `tuser_size` is the size of the frame as it leaves, from its first beat on: frames are stored
  first. `tkeep` agrees with it.
- `tuser_src` stays with its frame{own}.
- `tuser_dst` names the MAC port on the way out, and the physical function of the same number on
  the way in.
- The shell has no mark for a bad frame. Frames that were cut at 16 KiB are dropped.
- Registers come in `axil_aclk` and cross to `axis_aclk`; the two need no fixed phase. The paths
  between them carry Gray codes: `gradnic_250mhz.xdc` bounds them (`read_xdc -ref`), or leave the
  two clocks related, as the shell has them.
"""

MEMORY = """
The box has no interrupt to give: poll {polled}, or `events`, which keeps what happened until it is
written back. {over}

## Memory

The card's memory is on the chip, in `axis_aclk`: {kib} KiB for gradients, results{and_scratch}, and
{kib} KiB of landing areas ({areas}), {n_uram} UltraRAM blocks in all; `--set memory_kib=` sets
the size of each. Addresses in the card's registers begin at 0 in both. A burst of the card outside
of its memory is answered with an error and counted in `refused`; the card counts what it read so
in `failed`, and what it wrote in `outside`.

The host fills and reads it {page_kib} KiB at a time; the register `page` says what the window
shows, see `{module}_memory_registers.md` and `.h`. Page 0 begins with byte 0 of the gradient
memory; the landing memory follows it at {kib} KiB. Words are 32 bits, little-endian, without
byte strobes. Words behind both memories read 0, are written nowhere, and are counted in `outside`
of that map.

{opens}

One word is under way at a time, so this path is for small tensors and for bringing a card up, not
for the line's rate: see shells.md of gradnic for what was measured.
"""

ROUND_OPENS = """\
```python
from gradnic.host import OffloadDriver

card = OffloadDriver(read, write, base=0x{base:x})
card.memory.store("gradient", 0, gradient.tobytes())
card.register("gradient", 0, gradient.size)
result = card.memory.load("gradient", result_address, 4 * gradient.size)
```"""

JOBS_OPENS = """\
`card.memory.store("gradient", address, octets)` of the driver fills it,
`card.memory.load("gradient", address, n_bytes)` reads it.

"""


def note(module, n, base, *, kib=None, jobs=None):
    """The page for a plugin `module` of `n` ports at address `base`.

    kib : KiB of each memory of an offload card; None for in-line cards. jobs : a
    `gradnic.interface.params.Jobs`, of a card that takes them.
    """
    if kib is None:
        places = [(f"0x{base + (k << WINDOW_BITS):06x}", f"card of port {k}") for k in range(n)]
        values = {"what": "each with a card", "driver": "InlineDriver", "own": "", "memory": ""}
    else:
        window = REGISTERS.window("words")
        at = base + OFFSET + window.offset
        places = [
            (f"0x{base:06x}", "the card"),
            (f"0x{base + OFFSET:06x}", "registers of its memory"),
            (f"0x{at:06x} - 0x{at + window.n_bytes - 1:06x}", window.doc),
        ]
        page_kib = window.n_bytes // 1024
        n_uram = 2 * URAM_COLUMNS * -(-kib // (URAM_COLUMNS * URAM_KIB))
        values = {
            "what": "one offload card" + (" that takes jobs" if jobs else ""),
            "driver": "JobDriver" if jobs else "OffloadDriver",
            "own": ", and is 0 with frames of the card",
            "memory": MEMORY.format(
                kib=kib, n_uram=n_uram, page_kib=page_kib, module=module, **_use(jobs, base)
            ),
        }
    windows = "".join(f"| {at} | {what} |\n" for at, what in places)
    return NOTE.format(n=n, module=module, windows=windows, **values)


def _use(jobs, base):
    """What `MEMORY` says of a card's driver and regions."""
    if not jobs:
        return {
            "polled": "`status`",
            "over": "A round is over when `status.finished` is 1.",
            "and_scratch": "",
            "areas": "ranks x tensor",
            "opens": ROUND_OPENS.format(base=base),
        }
    return {
        "polled": "`status.completion`",
        "over": "A completion waits while `status.completion` is 1.",
        "and_scratch": " and scratch" if jobs.thc else "",
        "areas": "engines x ranks x tensor",
        "opens": JOBS_OPENS + opens(jobs, hex(base)),
    }
