"""What to set where for Corundum."""

NOTE = """\
# gradnic in Corundum

`mqnic_app_block.v` takes the place of the template's file of that name: {n_ports} card{s} of {bits}
bits a beat on the `{tap}` tap, ports {ports}.

## Set

In the board's `config.tcl`:

```tcl
dict set params APP_ID "32'h{app_id:08x}"
dict set params APP_ENABLE "1"
dict set params APP_CTRL_ENABLE "1"
dict set params APP_AXIS_{TAP}_ENABLE "1"
```

The wrapper refuses another id, and another width than {bits} bits of `{stem}_DATA_WIDTH`, when
simulation or synthesis elaborates it.

In the board's `Makefile`, instead of the template's application:

```make
SYN_FILES += app/gradnic/mqnic_app_block.v
```
{constraints}
## Find it from the host

The driver makes the auxiliary device `app_{app_id:08x}`. Registers are 32-bit words in PCIe BAR 2:

| address | what |
| --- | --- |
{windows}
Everything else reads 0 and ignores writes. `mqnic_app_block_registers.md` and `.h` have the
map of one card; `gradnic.host.Driver` drives it by name through any pair of functions.

## What holds at the taps

- The transmit tag (tuser 16:1) stays with its frame, coded or not, and every frame of the host is
  passed on once: completions come from the MAC and pass untouched. gradnic swallows no frame of
  the host, so it makes no completion up. A frame that a card makes itself has tag 0, MSB 0.
- The time stamp of a frame received (tuser above bit 0) stays with it. A coded frame that is
  dropped takes its own along.
- The shell inserts transmit checksums before the tap: the card writes 0 for the UDP checksum of
  what it codes and fixes the IPv4 checksum. Receive checksums and hashes are computed behind it.
- tuser bit 0 (bad frame) counts with tlast and is kept.
{rules}"""

DIRECT = """
The MAC's clocks and the core's are asynchronous; pointers cross as Gray codes. In an XDC file, for
each port and pair of clocks, both ways:

```tcl
set_max_delay -datapath_only -from [get_clocks CORE] -to [get_clocks MAC_TX] 3.0
```
"""

DIRECT_RULES = """\
- `direct_rx` is never stalled. A frame for which the store of 32 KiB has no room is lost whole and
  counted in the register at 0x800 of the card's window.
- Frames on `direct_tx` are stored before they leave: tvalid stays high over a frame.
- A reset of the MAC resets the card and its registers: the host writes its settings again.
"""

SYNC_RULES = """\
- `sync_rx` stalls only while the host takes no foreign frames; the shell's receive FIFO holds on.
"""


def note(options, bits, window_bits):
    """The page for a `Corundum` with beats of `bits` bits and windows of 2**window_bits bytes."""
    n, direct = options.n_ports, options.tap == "direct"
    size = 1 << window_bits
    windows = "".join(
        f"| 0x{k * size:06x} - 0x{(k + 1) * size - 1:06x} | card of port {k} |\n" for k in range(n)
    )
    return NOTE.format(
        n_ports=n,
        s="s" if n > 1 else "",
        bits=bits,
        tap=options.tap,
        TAP=options.tap.upper(),
        ports=f"0 to {n - 1}" if n > 1 else "0",
        stem="AXIS" if direct else "AXIS_SYNC",
        app_id=options.app_id,
        constraints=DIRECT if direct else "",
        windows=windows,
        rules=DIRECT_RULES if direct else SYNC_RULES,
    )
