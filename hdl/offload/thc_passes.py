"""The three passes of THC jobs side by side, each for one context at a time, the oldest first.

Part of `gradnic.hdl.offload.job_core`; golden model: `gradnic.models.offload.thc_job`.
"""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..axi.axi4 import ReadPort, WritePort
from ..axi.wide import WideRead, WideWrite
from ..primitive.parity import strayed
from ..primitive.same import by_name, same
from ..primitive.target import one_hot
from ..transport.records import CheckWrite
from .ages import ages
from .memory_side import RESIDUALS
from .thc_encode_pass import EncodePass
from .thc_keys import KEYS, ThcKeys
from .thc_pass import DecodePass, NormPass, PassJob, ThcCell, ThcRules, in_half_beats

RESET_CYCLES = 16
SETTLE_CYCLES = 8  # until what a pass holds in registers is seen at the memory ports
KINDS = ("norm", "encode", "decode")  # by stage, see `gradnic.hdl.offload.job_context`


class ThcPasses(wiring.Component):
    """Passes for `n` contexts: each of the three kinds has a circuit of its own.

    A pass that is no longer asked for before its end lets what is under way to memory end, and
    begins anew from reset for whoever is next; so does one that went wrong.

    With one context and without feedback the passes that encode and decode have one transform, and
    one circuit for keys: each begins when the other has come to rest.

    Parameters
    ----------
    n_bytes, address_width, block, feedback, bf16, bits : see `gradnic.hdl.offload.thc_pass` and
        `thc_encode_pass`
    n : int
        Contexts, 1 to 4.
    pass_bytes : int
        Of a beat in the passes: `n_bytes`, or half of them, for half the rate and half the lanes;
        `address_width` is at most 23 + log2(pass_bytes) then.

    Members
    -------
    rules, cell, node : In
        See `gradnic.hdl.offload.thc_encode_pass.EncodePass`.
    asks, stages, jobs : In(n), In(2).array(n), In(PassJob).array(n)
        Who asks for a pass, until it is done, and which.
    started : In(n)
        A strobe: this context is the youngest now.
    done, failed : Out(n)
        Strobes; the second comes a cycle late.
    busy : Out(n)
        Something of this context is under way in a pass.
    moves : Out(n)
        The circuit of the kind that this context is at moves data, whoever's.
    checks : Out(CheckWrite).array(n)
    norm_read, encode_read, decode_read : Out(ReadPort)
    norm_write, encode_write, decode_write : Out(WritePort)
    added_read, kept_read, kept_write : Out(ReadPort), Out(ReadPort), Out(WritePort)
        With feedback, of residuals: for norms, for indices and what these lose.
    closed, quiet : Out(3), In(3)
        By kind: memory takes no new burst; none is under way.
    """

    def __init__(
        self,
        n_bytes: int,
        address_width: int,
        *,
        n: int,
        block: int = 1024,
        feedback: bool = False,
        bf16: bool = False,
        bits: int = 4,
        pass_bytes: int | None = None,
    ) -> None:
        self.n, self.feedback = n, feedback
        self.lends = n == 1 and not feedback
        pass_bytes = pass_bytes or n_bytes
        if pass_bytes not in (n_bytes, n_bytes // 2):
            raise ValueError(f"pass_bytes must be {n_bytes // 2} or {n_bytes}, not {pass_bytes!r}")
        self.halved = pass_bytes < n_bytes
        # a number of beats of floats has 24 bits, and BF16 has two of them in a beat of memory
        widest = 23 + ceil_log2(pass_bytes)
        if self.halved and address_width > widest:
            raise ValueError(
                f"address_width must be at most {widest} where pass_bytes is {pass_bytes}, "
                f"not {address_width!r}"
            )
        sizes: dict[str, Any] = {"block": block, "bf16": bf16}
        self.units = [
            NormPass(pass_bytes, address_width, feedback=feedback, **sizes),
            EncodePass(
                pass_bytes, address_width, feedback=feedback, bits=bits, lends=self.lends, **sizes
            ),
            DecodePass(pass_bytes, address_width, lends=self.lends, **sizes),
        ]
        job = PassJob(n_bytes, address_width)
        ports = {}
        for kind in KINDS:
            ports[f"{kind}_read"] = Out(ReadPort(n_bytes, address_width))
            ports[f"{kind}_write"] = Out(WritePort(n_bytes, address_width))
        for name in RESIDUALS if feedback else ():
            port = ReadPort if name.endswith("read") else WritePort
            ports[name] = Out(port(n_bytes, address_width))
        super().__init__(
            {
                "rules": In(ThcRules),
                "cell": In(ThcCell),
                "node": In(8),
                "asks": In(n),
                "stages": In(2).array(n),
                "jobs": In(job).array(n),
                "started": In(n),
                "done": Out(n),
                "failed": Out(n),
                "busy": Out(n),
                "moves": Out(n),
                "checks": Out(CheckWrite).array(n),
                "closed": Out(3),
                "quiet": In(3),
            }
            | ports
        )

    def elaborate(self, platform):
        m = Module()
        n = self.n
        older = ages(m, self.started)
        dones, faileds, busies = [], [], []
        failed = Signal(n)
        self.at_work = Signal(len(KINDS))  # by kind: not at rest
        if self.lends:
            self._lend(m)
        for kind, name in enumerate(KINDS):
            owner = self._unit(m, kind, name, older, dones, faileds, busies)
            if name == "encode":
                for k in range(n):
                    check = self.checks[k]
                    m.d.comb += [
                        check.eq(self.units[kind].check),
                        check.enable.eq(self.units[kind].check.enable & (owner == k)),
                    ]
        moves = Array(self._moves(m, kind) for kind in range(len(KINDS)))
        m.d.comb += self.moves.eq(Cat(moves[self.stages[k]] for k in range(n)))
        for out, flags in ((self.done, dones), (failed, faileds), (self.busy, busies)):
            m.d.comb += out.eq(Cat(Cat(flags[k::n]).any() for k in range(n)))
        m.d.sync += self.failed.eq(failed)
        return m

    def _lend(self, m):
        """The transform, in reset while neither of its users is at work; and the keys."""
        _, encode, decode = self.units
        rotate = decode.decoder.transform  # of larger numbers
        idle, encodes, decodes = Signal(name="idle"), self.at_work[1], self.at_work[2]
        m.submodules.rotate = ResetInserter(idle)(rotate)
        m.d.comb += [
            idle.eq(~self.at_work[1:].any()),
            rotate.log4.eq(self.rules.log4),
            rotate.i.valid.eq(Mux(decodes, decode.rotate.i.valid, encode.rotate.i.valid)),
        ]
        for user, at_work in ((encode, encodes), (decode, decodes)):  # at rest it hears nothing
            m.d.comb += user.rotate.o.valid.eq(rotate.o.valid & at_work)
        for lane, value in enumerate(rotate.i.payload):
            inner, outer = (one.rotate.i.payload[lane] for one in (encode, decode))
            m.d.comb += value.eq(Mux(decodes, outer, inner))
            for user in (encode, decode):
                m.d.comb += user.rotate.o.payload[lane].eq(rotate.o.payload[lane])

        m.submodules.keys = keys = ThcKeys(dice=True)
        m.d.comb += [
            keys.start.eq(encode.start | decode.start),
            keys.node.eq(self.node),
            keys.seed.eq(Mux(decodes, decode.job.seed, encode.job.seed)),
            keys.gen.eq(Mux(decodes, decode.job.gen, encode.job.gen)),
            keys.tensor.eq(Mux(decodes, decode.job.tensor, encode.job.tensor)),
            *same(encode.keys, keys, KEYS),
            *same(decode.keys, keys, KEYS),
        ]

    def _ports(self, kind):
        """{member of these passes: port of the unit}, all of a unit's ways to memory."""
        name, unit = KINDS[kind], self.units[kind]
        ports = {f"{name}_read": unit.read, f"{name}_write": unit.write}
        if self.feedback and name == "norm":
            ports["added_read"] = unit.residual_read
        if self.feedback and name == "encode":
            ports |= {"kept_read": unit.residual_read, "kept_write": unit.residual_write}
        return ports

    def _memory(self, m, kind, reset):
        """Memory ports of one circuit; what makes their beats wider is reset with it."""
        outside = by_name(self)
        for port, inner in self._ports(kind).items():
            outer = outside[port]
            if self.halved:
                wide = WideRead if port.endswith("read") else WideWrite
                part = wide(inner.signature, outer.signature.n_bytes)
                m.submodules[f"{port}_wide"] = ResetInserter(reset)(part)
                wiring.connect(m, inner, part.i)
                inner = part.o
            wiring.connect(m, inner, wiring.flipped(outer))

    def _moves(self, m, kind):
        """A beat came from memory, or went there, a cycle ago."""
        moved = Signal(name=f"{KINDS[kind]}_moved")
        beats = [
            port.rvalid & port.rready if name.endswith("read") else port.wvalid & port.wready
            for name, port in self._ports(kind).items()
        ]
        m.d.sync += moved.eq(Cat(beats).any())
        return moved

    def _unit(self, m, kind, name, older, dones, faileds, busies):
        """One circuit, and whose turn it is; the owner's number."""
        n, unit = self.n, self.units[kind]
        reset = Signal(name=f"{name}_reset", init=1)
        m.submodules[name] = ResetInserter(reset)(unit)
        owner = Signal(range(max(2, n)), name=f"{name}_owner")
        asks = Signal(n, name=f"{name}_asks")
        count = Signal(range(RESET_CYCLES), name=f"{name}_count", init=RESET_CYCLES - 1)
        job = Signal(unit.job.shape(), name=f"{name}_job", reset_less=True)
        ports = Array(one.as_value() for one in self.jobs)
        done, failed, served = (
            Signal(name=f"{name}_{flag}") for flag in ("done", "failed", "served")
        )
        m.d.comb += [
            asks.eq(Cat(self.asks[k] & (self.stages[k] == kind) for k in range(n))),
            unit.rules.eq(self.rules),
            unit.job.eq(job),
        ]
        if name == "encode":
            m.d.comb += [unit.node.eq(self.node), unit.cell.eq(self.cell)]
        self._memory(m, kind, reset)
        waits = self.at_work[3 - kind] if self.lends and kind else Const(0)
        still = asks.bit_select(owner, 1)
        runs = Signal(name=f"{name}_runs")  # a cycle ago, too: its job stands
        wrong = unit.failed | strayed(m, job, runs, name=f"{name}_parity")
        m.d.sync += runs.eq(unit.start)
        with m.FSM(init="RESET", name=name) as fsm:
            m.d.comb += [
                served.eq(fsm.ongoing("RUN") | fsm.ongoing("CLOSE")),
                unit.start.eq(fsm.ongoing("RUN")),
                reset.eq(fsm.ongoing("RESET")),
                self.closed[kind].eq(~fsm.ongoing("RUN")),
                self.at_work[kind].eq(~fsm.ongoing("REST")),
            ]
            with m.State("REST"):
                for k in range(n):
                    with m.If(
                        asks[k]
                        & ~waits
                        & ~Cat(asks[j] & older[j][k] for j in range(n) if j != k).any()
                    ):
                        m.d.sync += owner.eq(k)
                        m.next = "TAKE"
            with m.State("TAKE"):
                m.d.sync += count.eq(SETTLE_CYCLES - 1)
                requested = data.View(self.jobs[0].shape(), ports[owner])
                m.d.sync += in_half_beats(job, requested) if self.halved else job.eq(requested)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [done.eq(unit.done & still), failed.eq(wrong & still)]
                with m.If(wrong | unit.done | ~still):
                    m.next = "CLOSE"
            with m.State("CLOSE"):
                with m.If(~self.quiet[kind]):
                    m.d.sync += count.eq(SETTLE_CYCLES - 1)
                with m.Else():
                    m.d.sync += count.eq(count - 1)
                    with m.If(count == 0):
                        m.d.sync += count.eq(RESET_CYCLES - 1)
                        m.next = "RESET"
            with m.State("RESET"):
                m.d.sync += count.eq(count - 1)
                with m.If(count == 0):
                    m.next = "REST"
        one_hot(fsm)
        for k in range(n):
            mine = owner == k
            dones.append(done & mine)
            faileds.append(failed & mine)
            busies.append(served & mine)
        return owner
