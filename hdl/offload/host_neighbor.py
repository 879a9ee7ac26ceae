"""The card as a neighbor of its host: answers to ARP and ICMP echo requests for its address.

Golden model: `gradnic.models.offload.host_neighbor`.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradnic.interface.formats import ETHERNET, IPV4
from gradnic.interface.neighbor import (
    ARP,
    ECHO_WORD,
    ETHERTYPE_ARP,
    ICMP,
    STORE_BYTES,
)

from ..frame.length_guard import LengthGuard
from ..frame.packet_fifo import PacketFIFO
from ..primitive.names import signals
from ..stream.beats import FrameBeat
from ..stream.slice import Slice

KEPT = range(ARP.sender_mac.byte, ARP.sender_ip.stop)  # bytes that later beats of answers need
N_HEAD = 64  # bytes from the first beat on that an answer may differ in, whole beats


class HostNeighbor(wiring.Component):
    """Answers each request with a frame as long as it: 1 beat per cycle, 9 cycles behind its end.

    Checksums are brought up to date, not looked at: a broken one stays broken. Never waits: a
    request that finds no room among `STORE_BYTES` is lost.

    Parameters
    ----------
    n_bytes : int
        Bytes of a beat, 16, 32 or 64.

    Members
    -------
    mac, ip : In(48), In(32)
        The host address, and the IPv4 address that the card has for its host.
    i, o : In, Out(stream.Signature(FrameBeat(n_bytes)))
        Requests, as `HostTap` finds them; always ready. Answers, which come from registers.
    answered, bad, overrun : Out(1), Out(1), Out(2)
        Counts of this cycle: answers that left; requests that are dropped, marked bad; that
        have no room, or are longer than `STORE_BYTES`.
    """

    def __init__(self, n_bytes: int) -> None:
        if n_bytes not in (16, 32, 64):
            raise ValueError(f"n_bytes must be 16, 32 or 64, not {n_bytes!r}")
        self.n_bytes = n_bytes
        frames = stream.Signature(FrameBeat(n_bytes))
        super().__init__(
            {
                "mac": In(48),
                "ip": In(32),
                "i": In(frames),
                "o": Out(frames),
                "answered": Out(1),
                "bad": Out(1),
                "overrun": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, shape = self.n_bytes, FrameBeat(self.n_bytes)
        m.submodules.guard = guard = LengthGuard(n, max_bytes=STORE_BYTES)
        m.submodules.whole = whole = PacketFIFO(shape, STORE_BYTES // n, drop="bad", lossy=True)
        m.submodules.slice = out = Slice(shape)
        wiring.connect(m, wiring.flipped(self.i), guard.i)
        wiring.connect(m, guard.o, whole.i)
        wiring.connect(m, out.o, wiring.flipped(self.o))
        index = Signal(range(N_HEAD // n + 1))
        take = whole.o.valid & whole.o.ready
        m.d.comb += [
            out.i.valid.eq(whole.o.valid),
            out.i.p.eq(whole.o.p),
            whole.o.ready.eq(out.i.ready),
            self.overrun.eq(whole.overflow + guard.oversize),
        ]
        m.d.sync += [
            self.bad.eq(self.i.valid & self.i.p.last & self.i.p.bad),
            self.answered.eq(self.o.valid & self.o.ready & self.o.p.last),
        ]
        with m.If(take):
            with m.If(whole.o.p.last):
                m.d.sync += index.eq(0)
            with m.Elif(index != N_HEAD // n):
                m.d.sync += index.eq(index + 1)
        self._edit(m, index, take, whole.o.p.data, out.i.p.data)
        return m

    def _edit(self, m, index, take, asked, answer):
        """Beats of the answer's head from those of the request's."""
        n = self.n_bytes
        kept = Signal(8 * (KEPT.stop - KEPT.start), reset_less=True)
        was_arp, is_arp = signals("was_arp is_arp")
        kind = Cat(asked[a:b] for a, b in ETHERNET.ethertype.slices)
        m.d.comb += is_arp.eq(Mux(index == 0, kind == ETHERTYPE_ARP, was_arp))
        m.d.sync += was_arp.eq(is_arp)
        for beat in range(N_HEAD // n):
            here = range(n * beat, n * (beat + 1))

            def octet(k, here=here):
                """Byte k of the request, now; None: it is not known now."""
                if k in here:
                    return asked[8 * (k - here.start) :][:8]
                return kept[8 * (k - KEPT.start) :][:8] if k in KEPT else None

            answers = self._arp(octet), self._echo(octet)
            with m.If(index == beat):
                for k in here:
                    if any(k in answer for answer in answers):
                        of_arp, of_echo = (answer.get(k, octet(k)) for answer in answers)
                        m.d.comb += answer[8 * (k - here.start) :][:8].eq(
                            Mux(is_arp, of_arp, of_echo)
                        )
            with m.If((index == beat) & take):
                for k in KEPT:
                    if k in here:
                        m.d.sync += kept[8 * (k - KEPT.start) :][:8].eq(octet(k))

    def _both(self, octet):
        """{byte of the answer: its value}, whatever was asked."""
        return _moved(ETHERNET.destination, ETHERNET.source, octet) | _put(
            ETHERNET.source, self.mac
        )

    def _arp(self, octet):
        return (
            self._both(octet)
            | _put(ARP.operation, Const(2, 16))
            | _put(ARP.sender_mac, self.mac)
            | _put(ARP.sender_ip, self.ip)
            | _moved(ARP.target_mac, ARP.sender_mac, octet)
            | _moved(ARP.target_ip, ARP.sender_ip, octet)
        )

    def _echo(self, octet):
        old = [octet(ICMP.checksum.byte + k) for k in (1, 0)]
        answer = self._both(octet) | _put(IPV4.source, self.ip) | _put(ICMP.type, Const(0, 8))
        answer |= _moved(IPV4.destination, IPV4.source, octet)
        if any(part is None for part in old):
            return answer
        total = Cat(old) + ECHO_WORD  # RFC 1141: that word becomes 0
        return answer | _put(ICMP.checksum, total[:16] + total[16])


def _put(field, value):
    """{byte: value}: `field` of an answer, of whole bytes."""
    return {field.byte + k: value[8 * (field.n_bytes - 1 - k) :][:8] for k in range(field.n_bytes)}


def _moved(field, source, octet):
    """The same, for what `source` is in the request."""
    return {field.byte + k: octet(source.byte + k) for k in range(field.n_bytes)}
