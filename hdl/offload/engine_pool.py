"""Fewer engines than contexts: who has which, in the order of jobs.

Golden model: `gradnic.models.offload.engine_pool`; its cycles are in the mutation campaign.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..primitive.names import signals
from ..primitive.parity import strayed
from ..transport.records import BYTES_WIDTH, EPOCH_WIDTH, CheckWrite, Context
from .ages import ages
from .job_context import FLUSH_CYCLES
from .job_records import LeavesSeen, Prepared

EngineControl = data.StructLayout(
    {"stage": 2, "armed": 1, "start": 1, "clear": 1, "pause": 1, "closed": 1}
)
"""What a context asks of its engine in each cycle: see `gradnic.hdl.offload.job_context`."""

Report = data.StructLayout(
    {
        "clearing": 1,
        "finished": 1,
        "failed": 1,
        "progress": 1,
        "row": 16,
        "leaves": LeavesSeen,
        "spent_valid": 1,
        "spent": BYTES_WIDTH,
        "sending": 1,
        "quiet": 1,
    }
)
"""What a context hears from its engine, and of its packets and bursts; ``quiet`` without one."""


LENT = {
    "job": ("codec", "kind", "op", "layer", "table", "tensor", "p_q16"),
    "table": (
        "rows", "peers", "lockstep", "chunks", "stride", "repeats", "iterations", "leaves",
        "collective", "code",
    ),
    "geometry": None, "live": None, "last_elems": None, "n_numbers": None, "source": None,
    "result": None, "n_beats": None, "area": None, "norms": None, "norms_live": None,
    "at_norms": None, "at_indices": None, "at_sums": None,
}  # fmt: skip
"""Of `Prepared` what an engine looks at; the rest of its copy is 0, and no circuit."""


def Lease(n_bytes, address_width):
    """What an engine knows of the job that it runs, as long as that has it: the job, as `LENT` has
    it, and first beats of what THC keeps in scratch.
    """
    beat = address_width - ceil_log2(n_bytes)
    return data.StructLayout(
        {
            "job": Prepared(n_bytes, address_width),
            "own_norms": beat,
            "norms": beat,
            "indices": beat,
            "sums": beat,
        }
    )


class EnginePool(wiring.Component):
    """Gives engines to contexts in the order of their jobs, and joins each to the one that has it.

    An engine goes to the oldest context that still needs one, whether that wants it already or
    not: so the oldest job of all, which is the same everywhere, waits for engines of older jobs
    alone, and nothing waits in a circle. For `FLUSH_CYCLES` each it is reset before it is given,
    when it gets the job, between two rounds of a job, and when it comes back: a context has a
    free one 9 cycles after it asks. Controls and reports pass in the same cycle.

    Parameters
    ----------
    n_bytes, address_width : int
    n, n_engines : int
        Contexts, 2 to 4; fewer engines.

    Members
    -------
    started, needs, wants, holds : In(n)
        A strobe: this context is the youngest now. It has not had its engine yet; asks for it; may
        have it: one that holds no longer gives it back.
    granted : Out(n)
        It has an engine, which is out of reset. That takes 8 cycles, each time.
    turns : In(n)
        A strobe: its engine is to be reset, and stays its own.
    leases, gens, controls, checks : In(Lease).array(n), In(ArrayLayout(16, n)),
        In(EngineControl).array(n), In(CheckWrite).array(n)
    reports : Out(Report).array(n)
    strays : Out(n)
        What its engine knows of its job, or whose it is, has changed by itself.
    resets : Out(n_engines)
    engine_leases, contexts : Out(Lease).array(n_engines), Out(Context).array(n_engines)
    engine_controls, check : Out(EngineControl).array(n_engines), Out(CheckWrite).array(n_engines)
        To each engine. One that no context has is paused and closed, with zeros elsewhere.
    taken : Out(n_engines)
        A strobe: it is given to a context.
    engine_reports : In(Report).array(n_engines)
    """

    def __init__(self, n_bytes: int, address_width: int, *, n: int, n_engines: int) -> None:
        self.n, self.n_engines = n, n_engines
        lease = Lease(n_bytes, address_width)
        super().__init__(
            {
                **{name: In(n) for name in ("started", "needs", "wants", "holds", "turns")},
                "granted": Out(n),
                "leases": In(lease).array(n),
                "gens": In(data.ArrayLayout(16, n)),
                "controls": In(EngineControl).array(n),
                "checks": In(CheckWrite).array(n),
                "reports": Out(Report).array(n),
                "strays": Out(n),
                "engine_leases": Out(lease).array(n_engines),
                "contexts": Out(Context).array(n_engines),
                "engine_controls": Out(EngineControl).array(n_engines),
                "check": Out(CheckWrite).array(n_engines),
                "taken": Out(n_engines),
                "resets": Out(n_engines),
                "engine_reports": In(Report).array(n_engines),
            }
        )

    def elaborate(self, platform):
        m = Module()
        contexts = range(self.n)
        older = ages(m, self.started)
        owners = Signal(data.ArrayLayout(self.n, self.n_engines))
        free, ready, goes, strays = signals("free ready goes strays", self.n_engines)
        has, next_ = signals("has next_", self.n)
        m.d.comb += [
            has.eq(Cat(Cat(owner[k] for owner in owners).any() for k in contexts)),
            # a context alone: the oldest of those that need an engine
            next_.eq(
                Cat(
                    self.wants[k]
                    & ~has[k]
                    & ~Cat(self.needs[j] & older[j][k] for j in contexts if j != k).any()
                    for k in contexts
                )
            ),
            goes.eq(Cat(free[e] & ~free[:e].any() for e in range(self.n_engines))
                    & next_.any().replicate(self.n_engines)),
            self.taken.eq(goes),
        ]  # fmt: skip
        for e in range(self.n_engines):
            self._engine(m, e, owners[e], Mux(goes[e], next_, 0), free, ready, strays)
        for k in contexts:
            mine = Cat(owner[k] for owner in owners) & ready
            reports = [report.as_value() & mine[e].replicate(Report.size)
                       for e, report in enumerate(self.engine_reports)]  # fmt: skip
            m.d.comb += [
                self.granted[k].eq(mine.any()),
                self.strays[k].eq((mine & strays).any()),
                self.reports[k].as_value().eq(_either(reports)),
                self.reports[k].quiet.eq(
                    Cat(
                        ~mine[e] | report.quiet for e, report in enumerate(self.engine_reports)
                    ).all()
                ),
            ]
        return m

    def _engine(self, m, e, owner, goes, free, ready, strays):
        """Engine `e`: `goes` to a context; resets, as of its own and of that; its lease."""
        lease = Signal(self.engine_leases[e].shape(), name=f"lease{e}", reset_less=True)
        which = Signal(range(self.n), name=f"which{e}", reset_less=True)  # the bit of `owner`
        gen = Signal(16, name=f"gen{e}", reset_less=True)
        epoch = Signal(EPOCH_WIDTH, name=f"epoch{e}")
        resets = Signal(name=f"resets{e}", init=1)  # a register: all of an engine waits for it
        count = Signal(range(FLUSH_CYCLES), name=f"count{e}", init=FLUSH_CYCLES - 1)
        stood = Signal(name=f"stood{e}")
        had, leaves = owner.any(), owner.any() & ~(owner & self.holds).any()
        begins = goes.any() | leaves | (owner & self.turns).any()

        def of_owner(name, values):
            chosen = Signal(values[0].shape(), name=f"{name}{e}")
            parts = [Value.cast(one) for one in values]
            m.d.comb += Value.cast(chosen).eq(
                _either([part & owner[k].replicate(len(part)) for k, part in enumerate(parts)])
            )
            return chosen

        controls = of_owner("controls", self.controls)
        gens = of_owner("gens", self.gens)
        # by number: a LUT chooses of four
        given = Array(Value.cast(one) for one in self.leases)[which]
        other = had & (owner != 1 << which)
        m.d.comb += [
            ready[e].eq(had & ~resets),
            free[e].eq(~had & ~resets),
            strays[e].eq(strayed(m, Cat(owner, lease), stood, name=f"lease{e}_parity") | other),
            self.engine_leases[e].eq(lease),
            self.check[e].eq(of_owner("check", self.checks)),
            self.engine_controls[e].eq(Mux(ready[e], controls, 0)),
            self.resets[e].eq(resets),
            self.engine_controls[e].pause.eq(~ready[e] | controls.pause),
            self.engine_controls[e].closed.eq(~ready[e] | controls.closed),
            self.contexts[e].armed.eq(ready[e] & controls.armed),
            self.contexts[e].tensor.eq(lease.job.job.tensor),
            self.contexts[e].gen.eq(gen),
            self.contexts[e].epoch.eq(epoch),
        ]
        m.d.sync += [stood.eq(ready[e]), gen.eq(gens)]
        with m.If(resets):
            m.d.sync += [
                Value.cast(lease).eq(Mux(had, given, 0)),
                count.eq(count - 1),
                resets.eq(count != 0),
            ]
        with m.If(begins):
            m.d.sync += [resets.eq(1), count.eq(FLUSH_CYCLES - 1), epoch.eq(epoch + 1)]
        with m.If(goes.any() | leaves):
            m.d.sync += [
                owner.eq(goes),
                which.eq(
                    Cat(
                        Cat(goes[k] for k in range(self.n) if k >> bit & 1).any()
                        for bit in range(len(which))
                    )
                ),
            ]


def _either(values):
    """Of values of which all but one are 0, that one."""
    return reduce(or_, values)
