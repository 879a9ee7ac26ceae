"""Offload card on Ethernet: runs a schedule table by itself over links that lose and reorder.

A card sends a row's packets when its contributions are closed, adds in the order of ranks, and
gathers what is final. Each neighbor's packets are tracked by a `Reception`; on the way up it may
give up a share of their bytes, weighed by the leaves that a packet stands for, so that the whole
tensor never misses more than the sum of the hops' shares. Golden twin of
`gradnic.hdl.offload.core`.

Sources: docs/spec/card.md; MultiTree (ISCA 2021) for tables in the card, MLT (NSDI 2024) for
bounded loss; their composition is ours.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradnic.interface.formats import (
    GRADNIC,
    HEAD_BYTES,
    IPV4,
    UDP,
    UDP_PORT,
    Op,
)
from gradnic.interface.offload import Subtype
from gradnic.interface.params import check_range

from ..frame.ipv4 import gradnic_frame
from ..transport.mark_share import MarkShare
from ..transport.pace import Pace
from ..transport.reception import wanted_packets
from ..transport.sender import DATA
from ..transport.spray import Spray
from ..transport.tagger import CONTROL, PULL, PUSH, Packet, Rules, Tagger
from . import parser
from .plan import Plan
from .round import Round, Run

ARMED = 2  # rounds of one tensor at a time
TICK_BYTES = 1500  # what the line takes in the time of a frame


@dataclass(frozen=True)
class Tensor:
    """A registered tensor.

    tensor : int, its id. plan : `Plan`. codec : of `gradnic.models.offload.codec`. layer : int.
    p_q16 : int, share of the bytes of each neighbor that may miss on the way up, in 1/2**16: the
    end-to-end share divided by the depth of the trees. norms : id of the tensor of its THC norms.
    """

    tensor: int
    plan: Plan
    codec: Any
    layer: int = 0
    p_q16: int = 0
    norms: int | None = None


@dataclass(frozen=True)
class Settings:
    """A card's registers.

    job : int. tensors : tuple of `Tensor`. node : int, this card's SRC. peers : {node: Address}
    with the port at which each neighbor is heard. tagger : tagger.Rules, whose tensors are those
    of `tensors` in order. t_probe, t_retry : time between PROBEs, and of silence after NOT_READY.
    segment : packets that one PROBE covers at most. n_paths, spray : see `spray.Spray`.
    per_tick : frames that a port sends per tick. pace, low, high : rule of `pace.Pace` towards
    each neighbor, and its round trips in ticks; the line takes `TICK_BYTES` per frame and tick.
    at_share : a range may be given up once the rest of all that its sender sends is here, not by
    what is missing in it (see `Reception`).
    """

    job: int
    node: int
    tensors: tuple
    peers: dict
    tagger: Rules = field(default_factory=Rules)
    t_probe: int = 64
    t_retry: int = 64
    segment: int = 64
    n_paths: int = 1
    spray: str = "round_robin"
    per_tick: int = 1
    pace: str = "off"
    low: int = 0
    high: int = 0
    at_share: bool = False
    udp_port: int = UDP_PORT

    def __post_init__(self) -> None:
        check_range("node", self.node, 0, 254)
        check_range("segment", self.segment, 1, 0xFFFF)
        if self.node not in self.peers:
            raise ValueError(f"peers must have the card's own address, {self.node}")


class Card:
    """One card.

    Parameters
    ----------
    settings : Settings

    Attributes
    ----------
    rounds : {(tensor, gen): Round}
    to_host : list of (port, frame)
        Frames that are not ours, as they came.
    paces : {node: Pace}
    counters : collections.Counter
        Drops by reason: ``bad``, ``length``, ``checksum``, ``format``, ``owner``, ``config``,
        ``codec``, ``stale``, ``not_ready``, ``duplicate``, ``late``, ``early``; and ``data``,
        ``probes``, ``stops``, ``bitmaps``, ``retransmitted``, ``marked`` (arrived with CE).
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tensors = {t.tensor: t for t in settings.tensors}
        self.places = {t.tensor: i for i, t in enumerate(settings.tensors)}
        self.tagger = Tagger(settings.tagger)
        self.own = settings.peers[settings.node]
        self.speakers = {
            (a.port, a.mac, a.ip): node
            for node, a in settings.peers.items()
            if node != settings.node
        }
        self.rounds = {}
        self.retired = {}  # tensor: newest GEN that was released
        self.sprays = {node: Spray(settings.n_paths, settings.spray) for node in settings.peers}
        self.paces = {
            node: Pace(settings.pace, low=settings.low, high=settings.high)
            for node in settings.peers
        }
        self.echo = {node: MarkShare() for node in settings.peers}
        self.silent = {}  # (node, tensor, gen): time until which nothing is sent
        self.changed = False  # rows may have become ready
        self.to_host = []
        self.counters = Counter()

    def arm(self, tensor: int, gen: int, values: np.ndarray) -> None:
        """Start a round: the host's values are in place. At most two rounds of a tensor.

        values : float32 or uint32 (n_elems,); the blocks of floats for THC.
        """
        mine = [g for t, g in self.rounds if t == tensor]
        if len(mine) >= ARMED or gen in mine:
            raise ValueError(f"tensor {tensor} has rounds {mine}: cannot arm {gen}")
        armed = self.tensors[tensor]
        norms = None if armed.norms is None else self.rounds.get((armed.norms, gen))
        if armed.norms is not None and norms is None:
            raise ValueError(f"round {gen} of the norms, tensor {armed.norms}, must be armed first")
        self.rounds[tensor, gen] = Round(
            armed, self.settings.node, gen, values, norms, at_share=self.settings.at_share
        )
        self.tagger.end_round(self.places[tensor])
        self.changed = True

    def release(self, tensor: int, gen: int) -> None:
        """The host has read the result of a round that is `done`; its memory may be used anew."""
        if not self.rounds[tensor, gen].done:
            raise ValueError(f"round {gen} of tensor {tensor} is not done")
        del self.rounds[tensor, gen]
        self.retired[tensor] = gen

    def receive(
        self, frame: bytes, port: int, now: int, *, bad: bool = False
    ) -> list[tuple[int, bytes]]:
        """Take one frame; return the answers, a list of (port, frame)."""
        if not self._is_ours(frame):
            self.to_host.append((port, frame))
            return []
        reason, source = self._refusal(frame, port, bad)
        if reason:
            self.counters[reason] += 1
            return []
        self.changed = True
        header = GRADNIC.parse(frame)
        marked = IPV4.ecn.get(frame) == 3
        self.counters["marked"] += marked
        self.echo[source].packet(marked)
        body = frame[HEAD_BYTES : 14 + IPV4.total_length.get(frame)]
        path = UDP.source_port.get(frame)
        if header["op"] == Op.CONTROL and header["p0"] & 15 != Subtype.PROBE:
            return self._answered(header, body, source, path, now)
        held = self._held(header)
        if isinstance(held, str):
            return self._not_held(held, header, source, path)
        if header["op"] == Op.CONTROL:
            return self._probed(held, header, source, path, marked)
        reason = held.take(header, body, source)
        if reason == "not_ready":
            return self._not_held(reason, header, source, path)
        self.counters[reason or "data"] += 1
        return []

    def tick(self, now: int) -> list[tuple[int, bytes]]:
        """What leaves at time `now`: (port, frame), at most `per_tick` a port."""
        if self.changed:
            self._issue()
        out, room = [], Counter()
        for pace in self.paces.values():
            pace.cycle(TICK_BYTES * self.settings.per_tick, 2 * TICK_BYTES)
        for key in self._order():
            round_ = self.rounds[key]
            round_.active = [run for run in round_.active if not run.sending.done]
            for run in round_.active:
                if now < self.silent.get((run.to, *key), now):
                    continue
                pace = self.paces[run.to]
                while room[run.port] < self.settings.per_tick and pace.credit >= 0:
                    item = run.sending.next(now)
                    if item is None:
                        break
                    room[run.port] += 1
                    frame = self._sent(round_, run, *item)
                    pace.spend(len(frame))
                    out.append((run.port, frame))
        return out

    def _order(self) -> list[tuple[int, int]]:
        """Rounds in the order in which they may send."""
        return sorted(self.rounds)

    def _issue(self) -> None:
        """Start the rows that became ready; one that does may set others free."""
        self.changed = False
        for key in self._order():
            round_ = self.rounds[key]
            n_rows = len(round_.rows)
            for run in round_.issue(self.settings.segment):
                self._tag(round_, run)
            self.changed |= len(round_.rows) != n_rows

    def idle(self) -> bool:
        """Whether nothing is under way: all rounds are done."""
        return all(round_.done for round_ in self.rounds.values())

    # what comes in

    def _is_ours(self, frame: bytes) -> bool:
        return parser.is_ours(frame, self.settings.job, self.settings.udp_port, self.speakers)

    def _refusal(self, frame: bytes, port: int, bad: bool) -> tuple[str | None, Any]:
        """(why a frame of ours is dropped before anything is read, None) or (None, its sender)."""
        reason = parser.refusal(frame, port, bad, self.speakers)
        if reason is None and not self._takes(GRADNIC.tensor.get(frame)):
            reason = "config"
        return (reason, None) if reason else (None, parser.speaker(frame, port, self.speakers))

    def _takes(self, tensor: int) -> bool:
        return tensor in self.tensors

    def _last(self, tensor: int) -> int | None:
        """Newest GEN of a tensor that is over, or None."""
        return self.retired.get(tensor)

    def _held(self, header: dict[str, int]) -> Round | str:
        """The round that a packet is of, or ``stale`` or ``not_ready``."""
        tensor, gen = header["tensor"], header["gen"]
        standing = parser.standing(tensor, gen, self.rounds, self._last(tensor))
        return self.rounds[tensor, gen] if standing == "ready" else standing

    def _not_held(
        self, reason: str, header: dict[str, int], source: int, path: int
    ) -> list[tuple[int, bytes]]:
        """A stale PROBE gets STOP, since its round is over here; a new packet gets NOT_READY."""
        self.counters[reason] += 1
        is_probe = header["op"] == Op.CONTROL
        if reason == "not_ready":
            held = self._last(header["tensor"]) or 0
            return [self._control(Subtype.NOT_READY, header, source, path, arg=held)]
        return [self._control(Subtype.STOP, header, source, path)] if is_probe else []

    def _probed(
        self, round_: Round, header: dict[str, int], source: int, path: int, marked: bool
    ) -> list[tuple[int, bytes]]:
        """STOP if the range is closed, else BITMAPs; ``config`` if it is none of the sender's."""
        self.counters["probes"] += 1
        reception = round_.reception(source, header["ph"])
        if reception is None or header["seq"] + header["elems"] > len(reception.sizes):
            self.counters["config"] += 1
            return []
        part = range(header["seq"], header["seq"] + header["elems"])
        if not header["ph"] and not round_.knows_norms(part):
            return self._not_held("not_ready", header, source, path)
        if reception.probe(header["seq"], header["elems"]):
            self.counters["stops"] += 1
            return [self._control(Subtype.STOP, header, source, path, ecn=marked)]
        out = []
        for form, first, n, body in reception.bitmaps(header["seq"], header["elems"]):
            self.counters["bitmaps"] += 1
            run = header | {"seq": first, "elems": n}
            out.append(
                self._control(Subtype.BITMAP, run, source, path, ecn=marked, form=form, body=body)
            )
        return out

    def _answered(
        self, header: dict[str, int], body: bytes, source: int, path: int, now: int
    ) -> list[tuple[int, bytes]]:
        """STOP, BITMAP, NOT_READY: what they say to the runs that they are about."""
        round_ = self._held(header)
        if isinstance(round_, str):
            self.counters[round_] += 1
            return []
        if header["ecn"]:
            self.sprays[source].mark((path - self.own.udp_port) % self.settings.n_paths)
        key = header["tensor"], header["gen"]
        subtype = header["p0"] & 15
        if subtype in (Subtype.STOP, Subtype.BITMAP):
            self.paces[source].echo(header["p1"], now - header["arg"] & 0xFFFFFFFF)
        runs = [r for r in round_.runs if r.to == source and r.ph == header["ph"]]
        if subtype == Subtype.STOP:
            for run in runs:
                if (run.first, len(run.packets)) == (header["seq"], header["elems"]):
                    run.sending.stop()
        elif subtype == Subtype.BITMAP:
            try:
                wanted = wanted_packets(header["p0"] >> 7, header["seq"], header["elems"], body)
            except ValueError:
                self.counters["length"] += 1
                return []
            stamp = now - (now - header["arg"] & 0xFFFFFFFF)  # the wire has its low 32 bits
            for run in runs:
                run.sending.bitmap(stamp, wanted)
        elif subtype == Subtype.NOT_READY:
            self.silent[(source, *key)] = now + self.settings.t_retry
            for run in runs:
                if (run.first, len(run.packets)) == (header["seq"], header["elems"]):
                    run.sending.refused()
        return []

    # what goes out

    def _place(self, round_: Round) -> int:
        """Number of the tagger's threshold for this round."""
        return self.places[round_.tensor.tensor]

    def _tag(self, round_: Round, run: Run) -> None:
        """Queue and importance of each packet of a new run, which it keeps when sent again."""
        tensor = round_.tensor
        for packet in run.packets:
            codec = tensor.codec
            kind = CONTROL if codec.is_norm else PULL if run.ph else PUSH
            scored = kind == PUSH and codec.scored
            scored_packet = Packet(self._place(round_), tensor.layer, kind, scored, packet.elems)
            tag = self.tagger.tag(scored_packet, packet.values if scored else ())
            important = tag.important or not tensor.p_q16
            tos = self.settings.tagger.dscp[tag.queue][important] << 2 | 2 * important
            packet.important, packet.queue, packet.tos = int(important), tag.queue, tos
        run.start(self.settings.t_probe)

    def _sent(self, round_: Round, run: Run, kind: str, what: int, retx: int) -> bytes:
        if kind != DATA:
            if retx:
                run.sending.path = self.sprays[run.to].again(run.sending.path)
            header = {"seq": run.first, "elems": len(run.packets), "ph": run.ph, "slot": run.flow,
                      "tensor": round_.tensor.tensor, "gen": round_.gen,
                      "arg": what & 0xFFFFFFFF, "lc": run.packets[0].queue,
                      "retx": retx}  # fmt: skip
            path = self.own.udp_port + run.sending.path
            return self._control(Subtype.PROBE, header, run.to, path, arg=header["arg"])[1]
        packet = run.packets[what - run.first]
        self.counters["retransmitted"] += retx
        fields = {
            "ph": run.ph, "op": packet.op, "imp": packet.important, "retx": retx,
            "last": int(what == round_.tensor.plan.n_packets - 1), "set": round_.gen & 1,
            "job": self.settings.job, "src": self.settings.node, "gen": round_.gen,
            "lc": packet.queue, "slot": run.flow, "tensor": round_.tensor.tensor,
            "seq": packet.seq, "elems": packet.elems, "p0": packet.p0, "p1": packet.p1,
            "arg": packet.leaves << 20 | packet.check,
        }  # fmt: skip
        run.sending.path = self.sprays[run.to].next()
        sender = _Via(self.own, self.own.udp_port + run.sending.path)
        receiver = _Via(self.settings.peers[run.to], self.settings.udp_port)
        return gradnic_frame(sender, receiver, packet.tos, fields, packet.payload)

    def _control(
        self,
        subtype: int,
        header: dict[str, int],
        to: int,
        path: int,
        *,
        arg: int | None = None,
        ecn: int = 0,
        form: int = 0,
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """(port, CONTROL frame) about the packets that `header` names, on the path it came by."""
        share = self.echo[to].share
        if subtype != Subtype.PROBE:
            self.echo[to].sent()
        fields = {name: header[name] for name in ("ph", "gen", "lc", "slot", "tensor", "seq")}
        fields |= {
            "op": Op.CONTROL, "imp": 1, "set": header["gen"] & 1, "job": self.settings.job,
            "src": self.settings.node, "elems": header["elems"], "p0": form << 7 | subtype,
            "p1": share, "ecn": int(ecn), "arg": header["arg"] if arg is None else arg,
            "retx": header["retx"] if subtype == Subtype.PROBE else 0,
        }  # fmt: skip
        tos = self.settings.tagger.dscp[header["lc"]][1] << 2 | 2
        address = self.settings.peers[to]
        receiver = _Via(address, self.settings.udp_port)
        return address.port, gradnic_frame(_Via(self.own, path), receiver, tos, fields, body)


class _Via:
    """An address with another UDP port."""

    def __init__(self, address: Any, udp_port: int) -> None:
        self.mac, self.ip, self.udp_port = address.mac, address.ip, udp_port
