"""Offload card with jobs: its core, and the registers by which a host posts them.

Golden model, without registers: `gradnic.models.offload.job_card`.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import wiring

from gradnic.interface.host_frame import OPTIONS, OUI
from gradnic.interface.job import COMPLETION, DESCRIPTOR
from gradnic.interface.job_card import CELLS, HOSTED, JOBS, LEVELS, N_SOURCES, REGISTERS
from gradnic.interface.schedule_table import Layout

from ..primitive.same import by_name, join, meet, same
from ..transport.records import UNIT
from .host_port import COUNTED
from .host_side import HostSide
from .host_tap import ByDestination
from .hosted import HostedCard
from .job_core import JobCore
from .job_window import STREAMS, JobWindow

_HOST_MEMORY = {"port_read": "host_read", "port_write": "host_write"}  # of the side, of the card


class JobCard(HostedCard):
    """`JobCore` behind registers: `gradnic.interface.job_card.REGISTERS`.

    Latency and rate are the core's. Fill tables and settings, then write a descriptor to ``post_0``
    and behind, and change ``job.post``; a completion is in ``completion_0`` and behind while
    ``status.completion``, and leaves when ``job.take`` changes.

    Parameters
    ----------
    n_bytes, n_ports, layout, others : as of `JobCore`
    host : bool
        True: the host reaches memory, registers and jobs by frames at port 0, too; see `HostSide`.
        Registers are those of `HOSTED` then; ports have beats as wide as the card's.
    n_nodes : int
        What ``build`` and HELLO tell of the layout of tables.
    tells : bool
        With `host`: ``taken``, a stream of `Taken` for each port, a word for each frame of the host
        there that ends in the card. Until it is taken, those behind it wait.

    Members: see `HostedCard`; with `host` two more memory ports, host_read and host_write, on the
    memory of the gradient port.
    """

    def __init__(
        self,
        n_bytes: int,
        n_ports: int,
        layout: Layout,
        *,
        host: bool = False,
        n_nodes: int = 0,
        tells: bool = False,
        **sizes: Any,
    ) -> None:
        core, self.side = self._core(n_bytes, n_ports, layout, **sizes), None
        self.n_nodes = n_nodes
        if not host:
            super().__init__(core, REGISTERS)
            return
        if core.narrow:
            raise ValueError(f"port_bytes must be {n_bytes} with host, not {core.port_bytes!r}")
        self.side = side = HostSide(
            n_bytes, n_ports, core.address_width, HOSTED.address_width,
            self._build(core) | {"n_nodes": n_nodes, "n_rows": core.depth},
            meta_width=core.meta_width, rx_meta_width=core.rx_meta_width, tells=tells,
        )  # fmt: skip
        members = side.signature.members
        more = {host: members[port] for port, host in _HOST_MEMORY.items()}
        if tells:
            more["taken"] = members["taken"].array(n_ports)
        super().__init__(core, HOSTED, more)

    @staticmethod
    def _build(core):
        """What HELLO tells of the card."""
        built = {
            "inc": core.inc, "bf16": core.bf16, "scale": core.scale, "thc": core.thc,
            "gives_up": core.gives_up, "feedback": core.feedback, "maxima": core.maxima,
            "any_bits": core.bits == 8, "queues": core.queues != 0,
        }  # fmt: skip
        return {
            "beat_bytes": core.n_bytes,
            "n_peers": 1 << core.layout.peer,
            "options": sum(bool(built[name]) << k for k, name in enumerate(OPTIONS)),
            "n_ports": core.n_ports, "n_active": core.n_active, "n_tables": core.n_tables,
            "n_chunks": core.n_chunks, "n_packets": core.n_packets, "n_ranks": core.n_ranks,
            "address_width": core.address_width,
        }  # fmt: skip

    def _core(self, n_bytes, n_ports, layout, **sizes):
        return JobCore(n_bytes, n_ports, layout, **sizes)

    def _join(self, m, core, bank):
        side = self.side
        if side is None:
            super()._join(m, core, bank)
            return
        m.submodules.host_side = side
        ways = [
            (wiring.flipped(self.bus), side.bus),
            (side.registers, bank.bus),
            (wiring.flipped(self.host_tx[0]), side.host_tx),
            (side.core_tx, core.host_tx[0]),
            (core.host_rx[0], side.core_rx),
            (side.host_rx, wiring.flipped(self.host_rx[0])),
        ]
        for k in range(core.n_ports):
            ways += [
                (wiring.flipped(self.mac_rx[k]), side.mac_rx[k]),
                (side.from_network[k], core.mac_rx[k]),
                (core.mac_tx[k], wiring.flipped(self.mac_tx[k])),
            ]
        for k in range(1, core.n_ports):  # frames to the host address leave nowhere
            guard = ByDestination(core.n_bytes, meta_width=core.meta_width)
            m.submodules[f"host_guard{k}"] = guard
            m.d.comb += guard.mac.eq(side.port_mac)
            self._drop(m, guard.mine, self.taken[k] if side.tells else None)
            ways += [
                (wiring.flipped(self.host_tx[k]), guard.i),
                (guard.others, core.host_tx[k]),
                (core.host_rx[k], wiring.flipped(self.host_rx[k])),
            ]
        if side.tells:
            ways.append((side.taken, wiring.flipped(self.taken[0])))
        for source, sink in ways:
            wiring.connect(m, source, sink)
        join(m, side, self, _HOST_MEMORY, _HOST_MEMORY)
        told = by_name(side)
        chosen = Cat(bank.host_low.value, bank.host_high.value)
        mac = Signal(48, init=OUI << 24)  # right from the first cycle on: nothing gets past it
        m.d.sync += mac.eq(
            Mux(bank.host_high.chosen, chosen, Cat(bank.mac_low.value[:24], Const(OUI, 24)))
        )
        m.d.comb += [
            side.port_mac.eq(mac),
            side.port_udp_port.eq(core.own.udp_port),
            side.port_regions.eq(core.sources),
            side.port_events.eq(bank.host.events),
            side.port_t_event.eq(bank.t_event.value),
            side.ip.eq(bank.host_ip.value),
            *(bank.by_name[f"host_{k}"].eq(told[f"port_{k}"]) for k in COUNTED),
            *(bank.by_name[f"host_{k}"].eq(told[k]) for k in ("bad", "overrun", "answered")),
            bank.spoofed.eq(sum(side.spoofed[k] for k in range(core.n_ports))),
        ]

    @staticmethod
    def _drop(m, frames, taken):
        """Frames end here, each with a word in `taken` if that is not None."""
        if taken is None:
            m.d.comb += frames.ready.eq(1)
            return
        m.d.comb += [
            taken.valid.eq(frames.valid & frames.p.last),
            taken.p.meta.eq(frames.p.meta),
            frames.ready.eq(~frames.p.last | taken.ready),
        ]

    def _settings(self, core, bank):
        round_ = core.round
        return [
            *self._of_thc(core, bank),
            (round_.job, bank.mac_high.tenant),
            (round_.geometry.packet, bank.packet.units),
            *((round_.codec[name], bank.codec[name]) for name in ("exponent", "paper", "prescale")),
            (core.watchdog, bank.watchdog.value),
            (core.landing, bank.landing.beats),
            (core.unplaced, self._unplaced(core, bank, "landing", core.n_engines)),
            *(
                (core.landings[k], self._first(core, bank, f"landing{k}"))
                for k in range(core.n_engines)
            ),
            *(
                (core.sources[k].first, self._first(core, bank, f"source{k}"))
                for k in range(N_SOURCES)
            ),
            *(
                (core.sources[k].n_beats, bank.by_name[f"source{k}_beats"].value)
                for k in range(N_SOURCES)
            ),
        ]

    @staticmethod
    def _unplaced(core, bank, name, n):
        """Whether one of `n` addresses is none of this card's memory, as after reset."""
        words = ("low", "high")
        return Cat(
            Cat(bank.by_name[f"{name}{k}_{half}"].value for half in words)[core.address_width :]
            for k in range(n)
        ).any()

    def _of_thc(self, core, bank):
        if not core.passes:
            return []
        codec, rules = core.round.codec, [(core.thc_rules.bits, bank.thc.bits)]
        if core.bits == 4:
            levels = Cat(bank.by_name[f"levels_{k}"].value for k in range(4))
            rules = [(Value.cast(codec.levels), levels)]
        return [
            *rules,
            (core.thc_rules.log4, bank.thc.log4),
            (core.thc_rules.t_fixed, bank.thc.clip),
            (core.thc_rules.unit, bank.thc_unit.unit),
            (core.thc_rules.g, bank.thc.g),
            (core.thc_rules.middle, bank.thc_middle.level),
            (core.thc_rules.own_scale, bank.thc_own.scale),
            (codec.g, bank.thc.g),
            (codec.index_p0, bank.thc.index_p0),
            (codec.index_p1, bank.thc_unit.index_p1),
            (core.scratch, bank.scratch.beats),
            (core.scratch_unplaced, self._unplaced(core, bank, "scratch", core.n_active)),
            *(
                (core.scratches[k], self._first(core, bank, f"scratch{k}"))
                for k in range(core.n_active)
            ),
        ]

    def _control(self, m, core, bank):
        """Descriptor, completion, what the host sees."""
        m.submodules.window = window = JobWindow()
        if self.side is None:
            meet(m, window, core, STREAMS)
        else:
            self._two_hosts(m, core, window)
        words = [bank.by_name[f"post_{k}"].value for k in range(DESCRIPTOR.n_bytes // 4)]
        octets = Cat(word[24 - 8 * j :][:8] for word in words for j in range(4))
        for field in DESCRIPTOR:
            m.d.comb += window.job[field.name].eq(Cat(octets[a:b] for a, b in field.slices))
        record = Signal(8 * COMPLETION.n_bytes)
        for field in COMPLETION:
            m.d.comb += Cat(record[a:b] for a, b in field.slices).eq(window.record[field.name])
        for k in range(COMPLETION.n_bytes // 4):
            word = Cat(record[8 * (4 * k + j) :][:8] for j in reversed(range(4)))
            m.d.comb += bank.by_name[f"completion_{k}"].value.eq(word)
        m.d.comb += [
            window.posts.eq(bank.job.post),
            window.takes.eq(bank.job.take),
            window.aborts.eq(bank.job.abort),
            *same(window.named, bank.job, "id any"),
            bank.status.active.eq(core.active),
            bank.status.idle.eq(core.finished),
            bank.status.completion.eq(window.record_valid),
            bank.status.aborting.eq(window.aborting),
            *same(bank.status, core, "inc thc feedback n_active n_engines n_tables"),
            *same(bank.status, core, "bf16 scale maxima"),
            bank.status.any_bits.eq(core.bits == 8),
            bank.status.gives_up.eq(core.gives_up),
            bank.status.queues.eq(core.queues != 0),
            bank.build.bytes.eq(core.n_bytes),
            bank.build.ports.eq(core.n_ports),
            bank.build.ranks.eq(core.n_ranks),
            bank.build.nodes.eq(self.n_nodes),
            bank.build.peer_bits.eq(core.layout.peer),
            bank.longest.units.eq(core.max_elems // UNIT),
            bank.capacity.rows.eq(core.depth),
            bank.capacity.chunks.eq(core.n_chunks),
        ]
        was_waiting = Signal()
        leaves = (window if self.side is None else core).completions.ready
        m.d.sync += was_waiting.eq(window.record_valid & ~leaves)  # the next one counts anew
        m.d.comb += [
            bank.events.ended.eq(window.record_valid & ~was_waiting),
            bank.events.overrun.eq(window.overrun),
            bank.events.failed.eq(core.failed.any()),
            bank.events.outside.eq(core.refused.any()),
            bank.events.renewed.eq(core.renewed),
            bank.renewals.eq(core.renewed),
        ]

    def _two_hosts(self, m, core, window):
        """Jobs and completions by registers and by frames."""
        side, ended = self.side, core.completions
        wiring.connect(m, window.abort, core.abort)
        m.d.comb += [
            core.post.valid.eq(window.post.valid | side.port_posts),
            Value.cast(core.post.p).eq(Mux(window.post.valid, window.post.p, side.port_job)),
            window.post.ready.eq(core.post.ready),
            side.port_posted.eq(side.port_posts & core.post.ready & ~window.post.valid),
            side.port_full.eq(~core.post.ready),
            window.completions.valid.eq(ended.valid),
            window.completions.p.eq(ended.p),
            side.port_record_valid.eq(ended.valid),
            side.port_record.eq(ended.p),
            ended.ready.eq(side.port_take | (~side.port_events & window.completions.ready)),
        ]

    def _own_tables(self):
        return {"jobs": JOBS, "cells": CELLS, "levels": LEVELS}

    def _own_writes(self, core, chosen, address, word):
        cells = []
        if core.passes:
            cells = [
                core.thc_cell.enable.eq(chosen["cells"]),
                core.thc_cell.index.eq(address),
                Value.cast(core.thc_cell.cell).eq(word),
            ]
        if core.bits > 4:
            cells += [
                core.level_write.enable.eq(chosen["levels"]),
                core.level_write.index.eq(address),
                core.level_write.level.eq(word),
            ]
        return [
            core.job_table.enable.eq(chosen["jobs"]),
            core.job_table.index.eq(address),
            Value.cast(core.job_table.table).eq(word),
            *cells,
        ]


def card(*, n_bytes, n_ports, n_nodes, n_rows, n_chunks, port_bytes=0, pass_bytes=0, **sizes):
    """The card for tables of up to `n_nodes` nodes; parameters as of
    `gradnic.interface.params.Jobs`, and ``rx_meta_width`` as of `OffloadCore`.
    """
    layout = Layout.for_card(n_nodes, n_chunks)
    return JobCard(
        n_bytes, n_ports, layout, depth=n_rows, n_chunks=n_chunks,
        port_bytes=port_bytes or None, pass_bytes=pass_bytes or None, n_nodes=n_nodes, **sizes,
    )  # fmt: skip
