"""What both engines do with the descriptors of their units, ahead of the beats.

Plumbing: queues and credits; what a descriptor means stands in `compressor` and `decompressor`.
"""

from amaranth.hdl import Signal
from amaranth.lib import data

from ..stream.admission import LAG, credit
from ..stream.delays import copied, delayed, delayed_flag
from ..stream.fifo import FIFO

N_PLANS = 16  # units whose plan is made, or made and in use


def take_units(m, units, plans, sizes, name):
    """Take a descriptor a cycle, as long as `plans`, a `CreditQueue`, has room for what follows.

    Returns (queue of the room that each unit needs, a flag that one comes, and that descriptor in
    the cycle after). sizes : layout with what it needs, ``rows`` and ``tag_rows``.
    """
    room = {size: sizes[size].shape for size in ("rows", "tag_rows")}
    room = data.StructLayout(room | {"more": LAG - 1})
    m.submodules.needs = needs = FIFO(room, N_PLANS, never_full=True)
    go = Signal()
    # taken by the end of a unit, the latest flag of its cycle: counted in the next one
    given = delayed_flag(m, plans.take, 1, name="given")
    free = credit(m, N_PLANS, take=go, give=given, name=f"{name}_credits")
    m.d.comb += [units.ready.eq(free), go.eq(units.valid & free)]
    return needs, go, delayed(m, units.p, 1, name="unit")


def queue_plan(m, made, plans, plan, needs, unit, more, name):
    """Queue `plan`, and the room that `unit` needs, in a cycle of flag `made`."""
    made, made_too = copied(m, made, 2, name=name)
    m.d.comb += [
        plans.i.valid.eq(made),
        plans.i.p.eq(plan),
        needs.i.valid.eq(made_too),
        needs.i.p.rows.eq(unit.rows),
        needs.i.p.tag_rows.eq(unit.tag_rows),
        needs.i.p.more.eq(more),
    ]
