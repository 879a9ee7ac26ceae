"""What to set where for Corundum.

Plumbing: no golden model of its own.
"""

from gradnic.interface import params

from ..common.job_note import opens

NOTE = """\
# gradnic in Corundum

`mqnic_app_block.v` takes the place of the template's file of that name: {what} of {bits} bits a
beat on the `{tap}` tap, ports {ports}.

## Set

In the board's `config.tcl`:

```tcl
dict set params APP_ID "32'h{app_id:08x}"
dict set params APP_ENABLE "1"
dict set params APP_CTRL_ENABLE "1"
dict set params APP_AXIS_{TAP}_ENABLE "1"
{params}```

The wrapper refuses another id, another width than {bits} bits of `{stem}_DATA_WIDTH`, and fewer
ports (`IF_COUNT` times `PORTS_PER_IF`) than its cards have, when a tool elaborates it: lint it with
the board's parameters, not with the template's.{refused}

In the board's `Makefile`, instead of the template's application:

```make
SYN_FILES += app/gradnic/mqnic_app_block.v
```
{memory}{constraints}
## Find it from the host

The driver makes the auxiliary device `app_{app_id:08x}`. Registers are 32-bit words in PCIe BAR 2:

| address | what |
| --- | --- |
{windows}
Everything else reads 0 and ignores writes. `mqnic_app_block_registers.md` and `.h` have the
map of one card; `gradnic.host.{driver}` drives it by name through any pair of functions.
{polling}
## What holds at the taps

- The transmit tag (tuser 16:1) stays with its frame, coded or not, and every frame of the host is
  passed on once: completions come from the MAC and pass untouched. {ended} A frame that a card
  makes itself has tag 0, MSB 0.
{traffic}- tuser bit 0 (bad frame) counts with tlast and is kept.
{rules}"""

KEPT = """gradnic swallows no frame of
  the host, so it makes no completion up."""
ENDED = """Frames of the host to its card
  end in it: it tells of each once, with its tag and time stamp 0, among the MAC's completions."""
"""What becomes of the tags of frames to the card: without host frames, and with them."""

INLINE_TRAFFIC = """\
- The time stamp of a frame received (tuser above bit 0) stays with it. A coded frame that is
  dropped takes its own along.
- The shell inserts transmit checksums before the tap: the card writes 0 for the UDP checksum of
  what it codes and fixes the IPv4 checksum. Receive checksums and hashes are computed behind it.
"""

OFFLOAD_TRAFFIC = """\
- The time stamp of a frame received (tuser above bit 0) stays with it. Packets of the card's own
  traffic end in it, and theirs with them.
- The shell inserts transmit checksums before the tap: the card's own frames have a right IPv4
  checksum and the UDP checksum 0. Receive checksums and hashes are computed behind it.
- Frames of the host go first; `ports.floor` gives the card a share beside them. A frame waits for
  one of the card's at most.
- A packet for the card that finds no room is dropped, counted in `overrun`, and sent again.
"""

RAM_PARAMS = """\
dict set params {RAM}_ENABLE "1"
"""

RAM_REFUSED = """
So it does with `{RAM}_CH` below {channels}, an `AXI_{RAM}_DATA_WIDTH` that is not {ram_bits}, and
an `AXI_{RAM}_ADDR_WIDTH` below {address_width}. Boards with HBM: `--set ram=hbm`; with one channel:
`--set channels=1`; with four, for more of the line: `--set channels=4`."""

FOUR_CHANNELS = """
Byte a of a memory is on its channel (a / {burst}) % 2, at byte a % {burst} + a / {two_bursts} \
* {burst} (divisions without remainder).
"""

MEMORY = """
## Memory

| {RAM} channel | holds | the card's registers |
| --- | --- | --- |
{held}
{turns}
A beat of memory has {ram_bits} bits, one of the card {bits}{converted}.{opens}

Registers hold byte addresses of the channel, {address_width} bits: write the card with
`--set address_width=34` for the 16 GiB of an AU250. {path}

`{ram}_clk` of each channel and the core's clock are asynchronous; pointers cross as Gray codes.
{crossings}
While `{ram}_rst` of a channel is high, what the card wants of it waits, and frames of others pass.
A reset of the core or of a channel in the middle of a {unit} ends it: reset both before the next.
"""

OWN_PATH = """\
Nothing in the application block joins host
memory and {RAM}; gradients come and results go by a path of the board's own, such as a second DMA
engine at the memory controller."""
FRAMES = """\
Gradients come and results go by frames of
the host, within `source0` and `source1`; a DMA engine of the board's own may do it, too."""

ROUND = (("gradient, result", "`gradient_*`, `result_*`"),
         ("landing areas: ranks x tensor", "`landing_*`, `area`"))  # fmt: skip
"""What stands in a card's memories, and the registers that say where; of jobs: see `_held`."""

ROUND_OPENS = """ \
The card tells the driver
its beat, and sizes of regions follow: `OffloadDriver(read, write)` needs no parameters. Rows of the
schedule table are packed by `driver.layout`, whatever number of ports the card has; that is
`Layout.for_nodes({n_nodes}, ports=4, chunks={chunks})`: `driver.load_rows(driver.layout.pack(rows),
driver.layout.row_bytes)`."""

ROUND_POLLING = """
The block has no interrupt to give: poll `status`, or `events`, which keeps what happened until it
is written back. A round is over when `status.finished` is 1.
"""

JOBS_POLLING = """
The block has no interrupt to give: poll `status.completion`, 1 while one waits, or `events`,
which keeps what happened until it is written back.
"""

DIRECT = """
The MAC's clocks and the core's are asynchronous; pointers cross as Gray codes.
{crossings}"""

CROSSINGS = """\
A file that is scoped to the card's instances constrains each crossing and touches no other path
between those clocks. In the board's `Makefile`:

```make
XDC_FILES += app/gradnic/gradnic_card.xdc
```

and at the end of `config.tcl`, which runs once files are in the project:

```tcl
set card_xdc [get_files gradnic_card.xdc]
set_property SCOPED_TO_REF gradnic_card $card_xdc
set_property PROCESSING_ORDER LATE $card_xdc
set_property USED_IN_SYNTHESIS false $card_xdc
```

For Quartus it is `gradnic_card.sdc`, which finds the instances by itself.
"""
"""Vivado would else look for the registers below the top, and before clocks are there."""

DIRECT_RULES = """\
- `direct_rx` is never stalled. A frame for which the store of 32 KiB has no room is lost whole and
  counted in the register at 0x800 of the card's window.
- Frames on `direct_tx` are stored before they leave: tvalid stays high over a frame.
- A reset of the MAC resets the card and its registers: the host writes its settings again. While
  it lasts, as without a link, they read 0, writes are lost, and frames of the host wait. Frames
  that were inside are lost, and with those on their way out their completions, for which the
  shell's transmit engine waits: where links come and go, take the `sync` tap.
"""

SYNC_RULES = """\
- `sync_rx` stalls only while the host takes no foreign frames. In front of this tap stand 32 beats
  of the shell's asynchronous FIFO, no more: where they are full, the shell marks frames bad, and
  the card drops those of its own (`bad`) and passes the others on with their mark.
- Boards whose sync tap has 64 bits (10G without doubled clocks): `--set shell.bits=64`, for
  in-line and for offload cards; frames are widened in the block.
"""


def note(options, cards, window_bits):
    """The page for a `Corundum` around `InlineCards` or `OffloadCards`, in 2**window_bits bytes."""
    n, direct = cards.n_ports, options.tap == "direct"
    size = 1 << window_bits
    windows = "".join(
        f"| 0x{k * size:06x} - 0x{(k + 1) * size - 1:06x} | {cards.window(k)} |\n"
        for k in range(cards.n_cards)
    )
    return NOTE.format(
        bits=cards.bits,
        tap=options.tap,
        TAP=options.tap.upper(),
        ports=f"0 to {n - 1}" if n > 1 else "0",
        stem="AXIS" if direct else "AXIS_SYNC",
        app_id=options.app_id,
        constraints=DIRECT.format(crossings=CROSSINGS) if direct else "",
        windows=windows,
        rules=DIRECT_RULES if direct else SYNC_RULES,
        **cards.note(),
    )


def inline_note(n_cards):
    """What `NOTE` says of in-line cards."""
    return {
        "what": f"{n_cards} card{'s' if n_cards > 1 else ''}",
        "driver": "InlineDriver",
        "params": "",
        "refused": "",
        "memory": "",
        "polling": "",
        "traffic": INLINE_TRAFFIC,
        "ended": KEPT,
    }


def _held(parameters):
    """[(what a memory holds, the registers that say where)], of the two memories of a card."""
    if not isinstance(parameters, params.Jobs):
        return ROUND
    parts, registers = ["gradients and results"], ["`source0_*`, `source1_*`"]
    if parameters.thc:
        parts.append("scratch of each context")
        registers.append("`scratch<k>_*`, `scratch`")
    if parameters.feedback:
        parts.append("residuals")
        registers.append("within `source<k>_*`")
    landing = "landing areas: engines x ranks x tensor", "`landing<k>_*`, `landing`"
    return (", ".join(parts), ", ".join(registers)), landing


def _table(held, channels):
    """Rows of the note's table: which channel holds what."""
    if channels == 1:
        (first, where), (landing, its) = held
        return f"| 0 | {first}, and {landing}, which share its rate | {where}, {its} |"
    numbers = ("0", "1") if channels == 2 else ("0, 1", "2, 3")
    rows = zip(numbers, held, strict=True)
    return "\n".join(f"| {k} | {what} | {where} |" for k, (what, where) in rows)


def offload_note(parameters, ram, channels, ram_bits):
    """What `NOTE` says of an offload card of `gradnic.interface.params.Offload`."""
    bits, n_nodes = 8 * parameters.n_bytes, parameters.n_nodes
    jobs = isinstance(parameters, params.Jobs)
    hosted = jobs and bool(parameters.host)
    chunks = -(-parameters.n_chunks // n_nodes)
    opened = ROUND_OPENS.format(n_nodes=n_nodes, chunks=chunks)
    if jobs:
        opened = "\n\n" + opens(parameters)
    bursts = {"burst": 2 * bits, "two_bursts": 4 * bits}
    values = {
        "bits": bits,
        "ram": ram,
        "RAM": ram.upper(),
        "channels": channels,
        "held": _table(_held(parameters), channels),
        "turns": FOUR_CHANNELS.format(**bursts) if channels == 4 else "",
        "ram_bits": ram_bits,
        "converted": ": bursts are converted in the block" if ram_bits > bits else "",
        "address_width": parameters.address_width,
        "unit": "job" if jobs else "round",
        "opens": opened,
        "path": FRAMES if hosted else OWN_PATH.format(RAM=ram.upper()),
    }
    return {
        "what": "one offload card" + (" that takes jobs" if jobs else ""),
        "driver": "JobDriver" if jobs else "OffloadDriver",
        "params": RAM_PARAMS.format(**values),
        "refused": RAM_REFUSED.format(**values),
        "memory": MEMORY.format(**values, crossings=CROSSINGS),
        "polling": JOBS_POLLING if jobs else ROUND_POLLING,
        "traffic": OFFLOAD_TRAFFIC,
        "ended": ENDED if hosted else KEPT,
    }
