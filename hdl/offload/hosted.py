"""A core behind registers: what cards of single rounds and of jobs have in common.

Plumbing: no golden model of its own.
"""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.offload import TABLE_WORDS, Drop, Table
from gradnic.interface.register_map import RegisterMap

from ..axi.axis import Lite
from ..axi.register_bank import RegisterBank
from ..primitive.same import join, same
from ..stream.beats import FrameBeat
from .memory_side import memory_ports

PEER_WIDTH = 4
_FRAMES = ("host_tx", "mac_rx", "mac_tx", "host_rx")


class HostedCard(wiring.Component):
    """Ports, settings, tables and counters of an offload core; latency and rate are the core's.

    Settings reach the core a cycle after they are written, a table's entry two.

    Parameters
    ----------
    core : OffloadCore or a kind of it
    registers : RegisterMap
    more : dict
        Members beside these.

    Members
    -------
    host_tx, mac_rx : In; mac_tx, host_rx : Out
        A stream of `FrameBeat` for each port, with the side band of each direction.
    gradient_read, landing_read, gradient_write, landing_write : Out
        And root_read and root_write, and those of passes and residuals, if the core has them.
    bus : In(Lite)
    interrupt : Out(1)
    """

    def __init__(
        self,
        core: wiring.Component,
        registers: RegisterMap,
        more: Mapping[str, wiring.Member] | None = None,
    ) -> None:
        self.core, self.registers = core, registers
        sent = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.meta_width))
        received = stream.Signature(FrameBeat(core.port_bytes, meta_width=core.rx_meta_width))
        n = core.n_ports
        frames = {"host_tx": In(sent).array(n), "mac_tx": Out(sent).array(n),
                  "mac_rx": In(received).array(n), "host_rx": Out(received).array(n)}  # fmt: skip
        self._memory = memory_ports(core.n_bytes, core.address_width, roots=core.roots,
                                    passes=core.passes, feedback=core.feedback)  # fmt: skip
        super().__init__(
            frames
            | self._memory
            | {"bus": In(Lite(registers.address_width)), "interrupt": Out(1)}
            | (more or {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = self.core
        m.submodules.bank = bank = RegisterBank(self.registers)
        self._join(m, core, bank)
        join(m, core, self, self._memory)
        for setting, value in self._shared(core, bank) + self._settings(core, bank):
            held = Signal(len(Value.cast(setting)), reset_less=True)
            m.d.sync += held.eq(value)
            m.d.comb += setting.eq(held)
        if core.queues:
            m.d.comb += bank.queue_count.value.eq(core.queue_count)
        self._control(m, core, bank)
        self._tables(m, core, bank)
        self._count(m, core, bank)
        sticky = Value.cast(bank.sticky["events"])
        m.d.sync += self.interrupt.eq((sticky & bank.interrupts.mask).any())
        return m

    def _join(self, m, core, bank):
        """Bus and frames."""
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        join(m, core, self, _FRAMES)

    def _settings(self, core, bank):
        """[(setting of the core, its value)], beside those that all cards have."""
        raise NotImplementedError

    def _control(self, m, core, bank):
        """What begins and ends, and what the host sees of it."""
        raise NotImplementedError

    def _own_tables(self):
        """{name: number} of tables, beside those that all cards have."""
        raise NotImplementedError

    def _own_writes(self, core, chosen, address, word):
        """Statements: what is told of their entries."""
        raise NotImplementedError

    @staticmethod
    def _first(core, bank, name):
        """First beat of what the registers `name` give the address of."""
        at = Cat(bank.by_name[f"{name}_{half}"].value for half in ("low", "high"))
        return at[ceil_log2(core.n_bytes) : core.address_width]

    @staticmethod
    def _shared(core, bank):
        own, round_ = core.own, core.round
        tags = round_.tags
        return [
            (own.mac, Cat(bank.mac_low.value, bank.mac_high.value)),
            (own.ip, bank.ip.value),
            (own.node, bank.mac_high.node),
            (own.udp_port, bank.network.udp_port),
            (round_.t_probe, bank.t_probe.value),
            (round_.at_share, bank.closing.at_share),
            *((round_[name], bank.network[name]) for name in ("tos", "spray", "rule")),
            *((tags[name], bank.tags[name]) for name in ("by_sum", "source")),
            *((tags[name], bank.scores[name]) for name in ("unit", "share")),
            (tags.back_layer_start, bank.tags.back_layer),
            (tags.pull_all_important, bank.tags.results),
            (core.pace.rule, bank.pace.rule),
            (core.pace.floor, bank.pace.floor),
            *(
                (core.pace[name], bank.by_name[f"pace_{name}"].value)
                for name in ("step", "low", "high")
            ),
            (core.floor, bank.ports.floor),
            *([(core.queue_shown, bank.queue_shown)] if core.queues else []),
        ]

    def _tables(self, m, core, bank):
        """One entry for each change of ``toggle``."""
        write = bank.table_write
        word = Signal(32 * TABLE_WORDS, reset_less=True)
        toggle = Signal()
        address = Signal(16, reset_less=True)
        m.d.sync += [
            word.eq(Cat(bank.by_name[f"table_data_{k}"].value for k in range(TABLE_WORDS))),
            toggle.eq(write.toggle),
            address.eq(write.address),
        ]
        names = {table.name.lower(): int(table) for table in Table} | self._own_tables()
        chosen = {name: Signal(name=f"to_{name}") for name in names}
        for name, flag in chosen.items():
            m.d.sync += flag.eq((write.toggle != toggle) & (write.table == names[name]))
        peers = Signal(len(Value.cast(core.peers)))
        m.d.comb += [
            core.table_en.eq(chosen["rows"]),
            core.table_addr.eq(address),
            core.table_data.eq(word),
            core.place_en.eq(chosen["places"]),
            core.place_addr.eq(address),
            Value.cast(core.place_data).eq(word),
            core.neighbor.enable.eq(chosen["neighbors"]),
            core.neighbor.index.eq(address),
            Value.cast(core.neighbor.neighbor).eq(word),
            Value.cast(core.peers).eq(peers),
            core.tag_write.layer.eq(chosen["layers"]),
            core.tag_write.dscp.eq(chosen["dscps"]),
            core.tag_write.threshold.eq(chosen["threshold"]),
            core.tag_write.address.eq(address),
            core.tag_write.value.eq(word),
            *self._own_writes(core, chosen, address, word),
        ]
        if core.queues:
            m.d.comb += [
                core.queue_write.enable.eq(chosen["queues"]),
                core.queue_write.address.eq(address),
                core.queue_write.beats.eq(word),
            ]
        n_peers = len(peers) // PEER_WIDTH
        with m.If(chosen["peers"]):
            m.d.sync += peers.word_select(address[: ceil_log2(n_peers)], PEER_WIDTH).eq(word)

    def _count(self, m, core, bank):
        drops = {drop.name.lower(): core.dropped[drop] for drop in Drop}
        drops["unsound"], drops["accepted"] = drops.pop("codec"), drops.pop("none")

        def total(bits):
            return sum(bits[k] for k in range(len(bits)))

        m.d.comb += [
            *(bank.by_name[name].eq(flag) for name, flag in drops.items()),
            *same(bank, core, "sent retransmitted probes answered responses"),
            bank.given_up.eq(total(core.given_up)),
            bank.foreign.eq(total(core.crossed)),
            bank.oversize.eq(total(core.oversize)),
            bank.overrun.eq(total(core.overrun)),
            bank.outside.eq(total(core.refused)),
            bank.failed.eq(total(core.failed)),
        ]
