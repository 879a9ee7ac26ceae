"""What to set where for LiteEth.

Plumbing: no golden model of its own.
"""

NOTE = """\
# gradnic in LiteEth

`{module}.v` goes between the MAC core and what it feeds: the crossbar of the IP stack, or the
frame interface of a processor. Streams are {bits} bits wide, as the MAC core's.

## Instantiate, in LiteX or Migen

```python
def insert_gradnic(soc, core, bus, host):
    \"\"\"core : LiteEthMACCore of dw={bits}; host : has a source (frames to send) and a sink.\"\"\"
    pins = dict(i_clk=ClockSignal("sys"), i_rst=ResetSignal("sys"))
    for name, ep, ours in [("host_tx", host.source, "i"), ("mac_tx", core.sink, "o"),
                           ("mac_rx", core.source, "i"), ("host_rx", host.sink, "o")]:
        theirs = "o" if ours == "i" else "i"
        for field in ("valid", "first", "last", "data", "last_be", "error"):
            pins[f"{{ours}}_{{name}}_{{field}}"] = getattr(ep, field)
        pins[f"{{theirs}}_{{name}}_ready"] = ep.ready
    for channel, fields in (("aw", "addr prot valid"), ("w", "data strb valid"),
                            ("ar", "addr prot valid")):
        for field in fields.split():
            if field != "prot":
                pins[f"i_bus_{{channel}}{{field}}"] = getattr(getattr(bus, channel), field)
        pins[f"o_bus_{{channel}}ready"] = getattr(bus, channel).ready
    for channel, fields in (("b", "resp valid"), ("r", "data resp valid")):
        for field in fields.split():
            pins[f"o_bus_{{channel}}{{field}}"] = getattr(getattr(bus, channel), field)
        pins[f"i_bus_{{channel}}ready"] = getattr(bus, channel).ready
    soc.specials += Instance("{module}", i_bus_awprot=0, i_bus_arprot=0, **pins)
    soc.platform.add_source("{module}.v")
```

`bus` is an AXI4-Lite port of 32 bits (`axi.AXILiteInterface`), in the same clock; a driver of
`gradnic.host` takes its address as `base`.
{memory}
## What holds at the ports

- One clock, that of the core's datapath (`sys`), fast enough for the line: 125 MHz at 8 bits and
  1 Gb/s.
- `mac_rx` is never stalled; a frame for which 32 KiB have no room is lost whole and counted in
  the register at 0x800.
- `mac_tx` has no gap within a frame. The MAC cannot spoil a frame, so those marked bad are dropped.
- `error` on any byte marks a frame from the MAC bad. A bad frame of ours is dropped and counted;
  a foreign one reaches the host with `error` on its last beat.
- LiteEth's own UDP stack sends a fixed ToS of 0 and cannot mark: use the native port (29440), or
  let a processor send.
"""

MEMORY = """
The offload card fetches and stores by itself, on two AXI4 ports: gradients and results on one
(with THC scratch and residuals, too), landing areas on the other. Add to the pins, and to the
SoC's bus:

```python
    memory_channels = {{
        "read": {{"ar": "id addr len size burst cache prot", "r": "id data resp"}},
        "write": {{"aw": "id addr len size burst cache prot", "w": "data strb", "b": "id resp"}},
    }}
    for memory in ("gradient", "landing"):
        port = axi.AXIInterface(data_width={memory_bits}, address_width={address}, id_width=1)
        for way, channels in memory_channels.items():
            for channel, fields in channels.items():
                endpoint, back = getattr(port, channel), channel in "rb"
                pin = f"{{memory}}_{{way}}_{{channel}}"
                names = fields.split() + ["valid"] + (["last"] if channel in "rw" else [])
                for field in names:
                    pins[f"{{'i' if back else 'o'}}_{{pin}}{{field}}"] = getattr(endpoint, field)
                pins[f"{{'o' if back else 'i'}}_{{pin}}ready"] = endpoint.ready
        soc.bus.add_master(memory, master=port)
    pins["o_interrupt"] = Signal()  # 1 while an event of the mask is set
```

A port of LiteDRAM's crossbar of its own (`LiteDRAMAXI2Native`) is faster than the SoC's bus. The
card keeps its line only if both ports take and give a beat of {memory_bits} bits a cycle.
"""
