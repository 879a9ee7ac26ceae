"""The aggregator: a bump in the wire for each worker, around one aggregation unit."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradnic.interface.aggregator import MAX_FRAME, MAX_JOBS, REGISTERS, Refusal
from gradnic.interface.formats import HEAD_BYTES
from gradnic.interface.params import check_queues, check_range

from ..axi.axis import Lite
from ..axi.register_bank import RegisterBank
from ..frame.arbiter import FrameArbiter
from ..frame.egress import Event
from ..frame.intake import Intake, Speaker
from ..frame.queue_rules import MOST_BEATS, queue_members, rule_queues
from ..frame.round_robin import RoundRobin
from ..primitive.names import signals
from ..primitive.same import same
from ..stream.beats import FrameBeat
from .answer import AnswerFramer, AnswerPort, Sender
from .gate import Gate
from .parser import ChildWrite, check_shape, index_width
from .slot_records import EVENTS, JobRegisters
from .unit import AggregationUnit


class Aggregator(wiring.Component):
    """Sums the packets of its jobs and sends each child a copy of the result; all else passes.

    Port k is a pair: the worker's side and the network's. What happens to a frame is
    `gradnic.models.aggregation.aggregator`, bit for bit, contributions in the order in which the
    ports take turns (`ingress_port`). Foreign frames cross at full rate, in their order, and
    before answers.
    Nothing waits for a port that does not take its answers: they are lost, counted, and sent again
    when the child asks.

    Parameters
    ----------
    n_ports : int
        Pairs, 1 to 32: one for each worker.
    n_bytes : int
        Bytes of a beat: 16, 32 or 64.
    n_slots, n_jobs, chunk, width, b_max, n_words :
        Of the `AggregationUnit`; n_jobs is 2 to 16.
    queues : int
        8: answers to each worker wait in egress queues, `gradnic.hdl.frame.egress`, that drop what
        may be lost (SwitchML's, which are Not-ECT) and mark the others; 0: in one store.

    Members
    -------
    worker_rx<k>, network_rx<k> : In(stream.Signature(FrameBeat(n_bytes)))
    worker_tx<k>, network_tx<k> : Out(stream.Signature(FrameBeat(n_bytes)))
    bus : In(Lite)
        Registers, `gradnic.interface.aggregator.REGISTERS`.
    now, tick : In(32), In(1)
        Time in any unit, and a pulse that has every slot's deadline checked.
    ingress_valid, ingress_port : Out(1), Out(...)
        A frame of ours has gone to be judged, and 2 * port, plus 1 from the network: the order.
    judged<k>, dequeued<k> : Out(Event)
        With `queues`: what became of an answer for worker k, and when it left its queue.
    """

    def __init__(
        self,
        n_ports: int,
        *,
        n_bytes: int = 64,
        n_slots: int = 64,
        n_jobs: int = 4,
        chunk: int = 1024,
        width: int = 8,
        b_max: int = 4,
        n_words: int = 256,
        queues: int = 0,
    ) -> None:
        check_shape(n_bytes, n_ports=n_ports, n_jobs=n_jobs)
        check_range("n_jobs", n_jobs, 2, MAX_JOBS)
        check_queues(queues)
        self.n_ports, self.n_bytes, self.n_jobs = n_ports, n_bytes, n_jobs
        self.unit = AggregationUnit(
            n_bytes,
            n_slots=n_slots,
            n_jobs=n_jobs,
            chunk=chunk,
            width=width,
            b_max=b_max,
            n_words=n_words,
        )
        most = min(MAX_FRAME, MOST_BEATS * n_bytes) if queues else MAX_FRAME
        for name, value, bits in (("chunk", chunk, width), ("n_words", n_words, 32)):
            fitting = 8 * (most - HEAD_BYTES) // bits
            if value > fitting:
                raise ValueError(
                    f"{name} must be at most {fitting}, of {bits} bits each, where frames "
                    f"{'in queues ' * bool(queues)}have {most} bytes at most, not {value!r}"
                )
        longest = HEAD_BYTES + max(chunk * width // 8, 4 * n_words)
        self.queued = -(-longest // n_bytes) if queues else 0
        frames = stream.Signature(FrameBeat(n_bytes))
        rx, tx, events = (one.array(n_ports) for one in (In(frames), Out(frames), Out(Event)))
        super().__init__(
            {
                "worker_rx": rx,
                "worker_tx": tx,
                "network_rx": rx,
                "network_tx": tx,
                **({"judged": events, "dequeued": events} if queues else {}),
                "bus": In(Lite(REGISTERS.address_width)),
                "now": In(32),
                "tick": In(1),
                "ingress_valid": Out(1),
                "ingress_port": Out(1 + index_width(n_ports)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        n, n_ports, n_jobs = self.n_bytes, self.n_ports, self.n_jobs
        m.submodules.bank = bank = RegisterBank(REGISTERS)
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        jobs, sender, write = self._tables(m, bank)

        # the number of the only port has a bit as well: two sources more, which are never there
        m.submodules.merge = merge = RoundRobin(n, 2 * max(2, n_ports))
        m.submodules.gate = gate = Gate(n, n_ports, n_jobs)
        m.submodules.unit = unit = self.unit
        m.submodules.framer = framer = AnswerFramer(n, n_jobs)
        intakes, ports = [], []
        for k in range(n_ports):
            sides, senders = {}, self._senders(m, write, k)
            for place, (side, rx) in enumerate(
                (("worker", self.worker_rx[k]), ("network", self.network_rx[k]))
            ):
                m.submodules[f"{side}{k}_intake"] = intake = sides[side] = Intake(n, n_jobs)
                wiring.connect(m, wiring.flipped(rx), intake.i)
                wiring.connect(m, intake.ours, merge.i[2 * k + place])
                m.d.comb += [intake.names.eq(sender.names), intake.senders.eq(senders)]
            intakes += sides.values()
            m.submodules[f"answer{k}"] = port = AnswerPort(
                n, n_ports, n_jobs, k, queued=self.queued
            )
            ports.append(port)
            m.d.comb += [
                port.write.eq(write),
                *same(port, framer, "notice_valid notice valid beat"),
            ]
            m.submodules[f"worker{k}_out"] = arbiter = FrameArbiter(n)
            wiring.connect(m, sides["network"].foreign, arbiter.foreign)
            wiring.connect(m, arbiter.o, wiring.flipped(self.worker_tx[k]))
            wiring.connect(m, port.o, arbiter.own)
            m.submodules[f"network{k}_out"] = arbiter = FrameArbiter(n)
            wiring.connect(m, sides["worker"].foreign, arbiter.foreign)
            wiring.connect(m, arbiter.o, wiring.flipped(self.network_tx[k]))
            self._send_on(m, gate.collided, arbiter.own, k)

        wiring.connect(m, merge.o, gate.i)
        wiring.connect(m, gate.heads, unit.heads)
        wiring.connect(m, gate.values, unit.values)
        wiring.connect(m, unit.answers, framer.answers)
        wiring.connect(m, unit.sums, framer.sums)
        m.d.comb += [
            gate.names.eq(sender.names),
            gate.jobs.eq(jobs),
            gate.write.eq(write),
            unit.jobs.eq(jobs),
            unit.now.eq(self.now),
            unit.tick.eq(self.tick),
            unit.write_en.eq(bank.level.write),
            unit.write_addr.eq(bank.level.address),
            unit.write_data.eq(bank.level.data),
            bank.build.n_ports.eq(n_ports),
            bank.build.n_jobs.eq(n_jobs),
            bank.build.b_max.eq(unit.sizes.b_max),
            bank.build.slot_bits.eq(ceil_log2(unit.sizes.n_slots)),
            bank.build.width.eq(unit.sizes.width),
            bank.packets.chunk.eq(unit.sizes.chunk),
            bank.packets.n_words.eq(unit.sizes.n_words),
            framer.sender.eq(sender),
        ]
        m.d.sync += [
            self.ingress_valid.eq(merge.o.valid & merge.o.ready & merge.o.p.last),
            self.ingress_port.eq(merge.o.p.meta),
        ]
        if self.queued:
            self._rule_queues(m, bank, ports)
        self._clear(m, bank, unit)
        self._count(m, bank, intakes, ports, gate, unit)
        return m

    @staticmethod
    def _send_on(m, collided, own, k):
        """What found its slot taken goes on to the network at the port where it came in."""
        here = collided.p.meta == k
        m.d.comb += [
            own.valid.eq(collided.valid & here),
            *(own.p[name].eq(collided.p[name]) for name in ("data", "keep", "last", "bad")),
        ]
        with m.If(here):
            m.d.comb += collided.ready.eq(own.ready)

    def _clear(self, m, bank, unit):
        """Jobs to be forgotten wait for each other; ``busy`` until the last one is."""
        waiting, taken, chosen = signals("waiting taken chosen", self.n_jobs)
        asked = self._rises(m, bank.clear.write, "clear")
        m.d.comb += [
            chosen.eq(waiting & -waiting),
            unit.clear.eq(waiting.any() & ~unit.busy),
            unit.clear_job.eq(sum(Mux(chosen[k], k, 0) for k in range(self.n_jobs))),
            taken.eq(Mux(unit.clear, chosen, 0)),
            bank.status.busy.eq(unit.busy | waiting.any()),
        ]
        for k in range(self.n_jobs):
            asks = asked & (bank.clear.job == k)
            m.d.sync += waiting[k].eq(asks | (waiting[k] & ~taken[k]))

    def _rule_queues(self, m, bank, ports):
        rules = wiring.Signature(queue_members(self.n_ports)).create(path=("egress",))
        m.d.comb += [
            rules.queue_write.enable.eq(self._rises(m, bank.queue.write, "queue")),
            rules.queue_write.address.eq(bank.queue.address),
            rules.queue_write.beats.eq(bank.queue.beats),
            rules.queue_shown.count.eq(bank.queue_shown.count),
            rules.queue_shown.port.eq(bank.queue_shown.port),
            bank.queue_count.value.eq(rules.queue_count),
            bank.status.queues.eq(1),
        ]
        rule_queues(m, rules, ports)
        for k, port in enumerate(ports):
            m.d.comb += [self.judged[k].eq(port.judged), self.dequeued[k].eq(port.dequeued)]

    def _senders(self, m, write, port):
        """Who may speak for each job at a port: its child there, as it was written last."""
        one = data.ArrayLayout(Speaker, 1)
        senders = Signal(data.ArrayLayout(one, self.n_jobs), name=f"senders{port}")
        for k in range(self.n_jobs):
            with m.If(write.enable & (write.port == port) & (write.job == k)):
                m.d.sync += [
                    senders[k][0].ip.eq(write.child.ip),
                    senders[k][0].enabled.eq(write.child.enabled),
                ]
        return senders

    @staticmethod
    def _rises(m, level, name):
        before = Signal(name=f"{name}_before")
        m.d.sync += before.eq(level)
        return level & ~before

    def _tables(self, m, bank):
        """Jobs, addresses and the port into the tables of children, from the registers."""
        jobs = Signal(data.ArrayLayout(JobRegisters, self.n_jobs))
        sender = Signal(Sender(self.n_jobs))
        write = Signal(ChildWrite(self.n_ports, self.n_jobs))
        words = (bank.job_slots, bank.job_rule, bank.job_codec)
        values = {name: word[name] for word in words for name in word.shape().members}
        values["need_bytes"] = Cat(bank.job_need_low.value, bank.job_need_high.value)
        values["deadline"] = bank.job_deadline.value
        stores = self._rises(m, bank.job.write, "job")
        for k in range(self.n_jobs):
            with m.If(stores & (bank.job.index == k)):
                m.d.sync += [jobs[k][name].eq(values[name]) for name in JobRegisters.members]
                m.d.sync += [
                    sender.names.jobs[k].number.eq(bank.job.number),
                    sender.names.jobs[k].enabled.eq(bank.job.enabled),
                    sender.names.jobs[k].switchml.eq(values["switchml"]),
                ]
        m.d.sync += [
            sender.mac.eq(Cat(bank.mac_low.value, bank.mac_high.value)),
            sender.ip.eq(bank.ip.value),
            sender.names.port.eq(bank.native.port),
        ]
        m.d.comb += [
            write.enable.eq(
                self._rises(m, bank.child.write, "child")
                & (bank.child.port < self.n_ports)
                & (bank.child.job < self.n_jobs)
            ),
            write.port.eq(bank.child.port),
            write.job.eq(bank.child.job),
            write.child.mac.eq(Cat(bank.child_mac_low.value, bank.child_mac_high.value)),
            write.child.ip.eq(bank.child_ip.value),
            write.child.udp_port.eq(bank.child_mac_high.udp_port),
            write.child.src.eq(bank.child.src),
            write.child.enabled.eq(bank.child.enabled),
        ]
        return jobs, sender, write

    @staticmethod
    def _count(m, bank, intakes, ports, gate, unit):
        """Counters: what ports, gate and unit report."""
        m.d.sync += [
            bank.foreign.eq(sum(intake.crossed for intake in intakes)),
            bank.oversize.eq(sum(intake.oversize for intake in intakes)),
            bank.overrun.eq(sum(intake.overrun for intake in intakes)),
            bank.answers.eq(sum(port.copied for port in ports)),
            bank.lost.eq(sum(port.lost for port in ports)),
            bank.unsent.eq(gate.unsent),
        ]
        events = {name: unit.events[name] for name in EVENTS} | {"overflow": unit.overflow}
        refused = {r.name.lower(): gate.refused[r] for r in Refusal if r is not Refusal.NONE}
        for name in {**events, **refused}:
            pulses = [found[name] for found in (events, refused) if name in found]
            m.d.comb += bank.by_name[name].eq(sum(pulses))
