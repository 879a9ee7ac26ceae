"""One AXI4-Lite port for several cards.

Plumbing: no golden model of its own.
"""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...axi.axis import OKAY, Lite
from ...axi.channel import Channel
from ...primitive.same import by_name

WINDOW_BITS = 12  # of a card, where there are several


def side_by_side(n, inner_width, *, window_bits=WINDOW_BITS):
    """Windows of `n` subordinates that are alike, one every ``2 ** window_bits`` bytes.

    ValueError unless each has room there.
    """
    if inner_width > window_bits:
        raise ValueError(f"inner_width must be at most {window_bits}, not {inner_width!r}")
    return [(k << window_bits, inner_width) for k in range(n)]


class LiteFan(wiring.Component):
    """Gives each of several subordinates a window of the manager's addresses.

    One read and one write are under way at a time; 2 cycles more than the subordinate takes, each
    way. A read goes on once the write that was whole when its address came has been answered, so
    that it cannot overtake the write; writes wait for no read. Addresses in no window read 0 and
    writes there do nothing; all are answered OKAY, so that a host may scan. Address and data of a
    write may come in either order.

    Parameters
    ----------
    windows : list of (int, int)
        First byte and bits of a byte address of each subordinate, at least one; each begins at a
        multiple of its size, and behind the one before.
    address_width : int
        Bits of a byte address from the manager.
    leaves : bool
        Subordinates may be reset while the manager is not.

    Members
    -------
    i : In(Lite(address_width))
        Ready, answers and their valid come from registers.
    o0, o1, ... : Out(Lite(bits of its window)); ``outs`` are all of them
    away : In(len(windows)), with leaves
        The subordinate is asked for nothing, and what it was asked for is answered as where no
        window is. Rises before its reset ends, and falls behind it.
    """

    def __init__(
        self, windows: Sequence[tuple[int, int]], *, address_width: int = 16, leaves: bool = False
    ) -> None:
        if not windows:
            raise ValueError("windows must be at least one, not none")
        stop = 0
        for first, width in windows:
            if first % (1 << width) or first < stop or first + (1 << width) > 1 << address_width:
                raise ValueError(
                    f"windows must be apart, at multiples of their sizes and within "
                    f"{1 << address_width} bytes, not {1 << width} bytes at {first:#x}"
                )
            stop = first + (1 << width)
        self.windows = list(windows)
        self.n = len(self.windows)
        outputs = {f"o{k}": Out(Lite(width)) for k, (_, width) in enumerate(self.windows)}
        self.leaves = leaves
        away = {"away": In(self.n)} if leaves else {}
        super().__init__({"i": In(Lite(address_width)), **outputs, **away})
        self.outs = [by_name(self)[name] for name in outputs]

    def elaborate(self, platform):
        m = Module()
        behind = Signal()  # the read is, of a write without an answer yet
        written, under_way = self._route(m, "aw", "w", "b", ("resp",))
        self._route(m, "ar", None, "r", ("data", "resp"), behind)
        with m.If(written):
            m.d.sync += behind.eq(0)
        with m.Elif(self.i.arvalid & self.i.arready):
            m.d.sync += behind.eq(under_way)
        return m

    def _route(self, m, request, words, answer, fields, behind=0):
        """One direction: hold the request, offer it to its window, hold the answer.

        request, words, answer : prefixes of the channels; no words: None. fields : of the answer.
        Returns the cycle in which a request is answered, and whether one that is not is whole in
        the next cycle.
        """
        asks = [request, *([words] if words else [])]
        came = {c: Channel(self.i, c) for c in asks}
        held = {
            c: {
                name: Signal.like(one, name=f"held_{c}{name}")
                for name, one in channel.fields.items()
            }
            for c, channel in came.items()
        }
        # Of each channel: free, taken and to be offered, or taken by the subordinate.
        has = {c: Signal(name=f"has_{c}") for c in asks}
        sent = {c: Signal(name=f"sent_{c}") for c in asks}
        window = Signal(range(self.n + 1), name=f"{request}_window")
        done = Signal(name=f"{answer}_done")
        ready = Signal(name=f"{answer}_taken")

        for c, channel in came.items():
            m.d.comb += channel.ready.eq(~has[c])
            with m.If(channel.valid & ~has[c]):
                m.d.sync += [has[c].eq(1), *channel.take(held[c], *held[c])]
                if c == request:
                    m.d.sync += window.eq(self.n)
                    for k, (first, width) in enumerate(self.windows):
                        with m.If(channel["addr"][width:] == first >> width):
                            m.d.sync += window.eq(k)
        whole = Signal(name=f"{request}_whole")
        comes = Cat(has[c] | came[c].valid for c in asks).all()
        asked = Signal(name=f"{answer}_asked")  # an answer before that is none
        m.d.comb += [
            whole.eq(Cat(has.values()).all()),
            asked.eq(Cat(sent.values()).all()),
        ]

        replies = [Channel(o, answer) for o in self.outs]
        nobody = Signal(name=f"{answer}_nobody")
        m.d.comb += nobody.eq(window == self.n)
        for k, o in enumerate(self.outs):
            mine = whole & (window == k) & ~behind
            if self.leaves:
                mine &= ~self.away[k] & ~done  # nor when it is back, and this was answered
                with m.If((window == k) & self.away[k]):
                    m.d.comb += nobody.eq(1)
            m.d.comb += replies[k].ready.eq(mine & asked & ~done)
            for c in asks:
                channel = Channel(o, c)
                m.d.comb += [*channel.put(held[c], *held[c]), channel.valid.eq(mine & ~sent[c])]
                with m.If(channel.valid & channel.ready):
                    m.d.sync += sent[c].eq(1)
        valids = Array(reply.valid for reply in replies)
        m.d.comb += ready.eq(whole & ~done & ~behind & (nobody | (asked & valids[window])))
        given = Channel(self.i, answer)
        m.d.comb += given.valid.eq(done)
        with m.If(ready):
            m.d.sync += done.eq(1)
            for name in fields:
                values = Array(reply[name] for reply in replies)
                none = OKAY if name == "resp" else 0
                m.d.sync += given[name].eq(Mux(nobody, none, values[window]))
        with m.If(done & given.ready):
            m.d.sync += done.eq(0)
            m.d.sync += [signal.eq(0) for signal in (*has.values(), *sent.values())]
        return ready, comes & ~done
