"""One AXI4-Lite port for several cards."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..axi import OKAY, Lite


class LiteFan(wiring.Component):
    """Gives each of `n` subordinates a window of ``2 ** window_bits`` bytes, the first at 0.

    One read and one write are under way at a time, each without regard to the other; 2 cycles more
    than the subordinate takes, each way. Addresses past the subordinate's own, and past the last
    window, read 0 and writes there do nothing; all are answered OKAY, so that a host may scan.
    Address and data of a write may come in either order.

    Parameters
    ----------
    n : int
        Subordinates, at least 1.
    address_width : int
        Bits of a byte address from the manager.
    inner_width : int
        Bits of a byte address of the subordinates, at most `window_bits`.
    window_bits : int
        Bits of a byte address within a window.

    Members
    -------
    i : In(Lite(address_width))
        Ready, answers and their valid come from registers.
    o0, o1, ... : Out(Lite(inner_width))
    """

    def __init__(self, n, *, inner_width, address_width=16, window_bits=12):
        if n < 1 or n << window_bits > 1 << address_width:
            raise ValueError(
                f"n must be 1 to {1 << address_width - window_bits} windows of {1 << window_bits} "
                f"bytes, not {n!r}"
            )
        if inner_width > window_bits:
            raise ValueError(f"inner_width must be at most {window_bits}, not {inner_width!r}")
        self.n = n
        self.inner_width = inner_width
        self.window_bits = window_bits
        outputs = {f"o{k}": Out(Lite(inner_width)) for k in range(n)}
        super().__init__({"i": In(Lite(address_width)), **outputs})

    def elaborate(self, platform):
        m = Module()
        self._route(m, "ar", "araddr", (), "r", ("rdata", "rresp"))
        self._route(m, "aw", "awaddr", ("wdata", "wstrb"), "b", ("bresp",))
        return m

    def _route(self, m, request, address, others, answer, fields):
        """One direction: hold the request, offer it to its window, hold the answer."""
        i = self.i
        outs = [getattr(self, f"o{k}") for k in range(self.n)]
        channels = [request, *(["w"] if others else [])]
        held = {name: Signal.like(getattr(i, name), name=f"held_{name}") for name in (address,)}
        held |= {name: Signal.like(getattr(i, name), name=f"held_{name}") for name in others}
        protection = Signal(3, name=f"held_{request}prot")
        # Of each channel: free, taken and to be offered, or taken by the subordinate.
        has = {c: Signal(name=f"has_{c}") for c in channels}
        sent = {c: Signal(name=f"sent_{c}") for c in channels}
        window = Signal(range(self.n + 1), name=f"{request}_window")
        done = Signal(name=f"{answer}_done")
        ready = Signal(name=f"{answer}_taken")

        for c in channels:
            m.d.comb += getattr(i, f"{c}ready").eq(~has[c])
            with m.If(getattr(i, f"{c}valid") & ~has[c]):
                m.d.sync += has[c].eq(1)
                if c == request:
                    place = getattr(i, address)[self.window_bits :]
                    past = getattr(i, address)[self.inner_width : self.window_bits].any()
                    m.d.sync += [
                        held[address].eq(getattr(i, address)),
                        protection.eq(getattr(i, f"{request}prot")),
                        window.eq(self.n),
                    ]
                    with m.If((place < self.n) & ~past):
                        m.d.sync += window.eq(place)
                else:
                    m.d.sync += [held[name].eq(getattr(i, name)) for name in others]
        whole = Signal(name=f"{request}_whole")
        m.d.comb += whole.eq(has[request] & (has["w"] if others else 1))

        for k, o in enumerate(outs):
            mine = whole & (window == k)
            m.d.comb += [
                getattr(o, address).eq(held[address]),
                getattr(o, f"{request}prot").eq(protection),
                *(getattr(o, name).eq(held[name]) for name in others),
                *(getattr(o, f"{c}valid").eq(mine & ~sent[c]) for c in channels),
                getattr(o, f"{answer}ready").eq(mine & ~done),
            ]
            for c in channels:
                with m.If(getattr(o, f"{c}valid") & getattr(o, f"{c}ready")):
                    m.d.sync += sent[c].eq(1)
        valids = Array([*(getattr(o, f"{answer}valid") for o in outs), 1])
        m.d.comb += ready.eq(whole & ~done & valids[window])
        m.d.comb += getattr(i, f"{answer}valid").eq(done)
        with m.If(ready):
            m.d.sync += done.eq(1)
            for name in fields:
                empty = OKAY if name.endswith("resp") else 0
                values = Array([*(getattr(o, name) for o in outs), empty])
                m.d.sync += getattr(i, name).eq(values[window])
        with m.If(done & getattr(i, f"{answer}ready")):
            m.d.sync += done.eq(0)
            m.d.sync += [signal.eq(0) for signal in (*has.values(), *sent.values())]
