"""Which job an abort ends.

Part of `gradnic.hdl.offload.job_core`, whose golden model it follows.
"""

from amaranth.hdl import Cat, Signal

from ..primitive.names import signals
from .ages import ages


def find_aborted(m, core, queue, runners):
    """Stop the active job that ``core.abort`` names, the oldest one, or mark one in the queue.

    core : JobCore. queue : its JobQueue. runners : its JobContexts, by number.
    """
    found, called, named = signals("found called named", core.n_active)
    asked = Signal()
    older, contexts = ages(m, Cat(r.take for r in runners)), range(core.n_active)
    m.d.sync += named.eq(
        Cat(r.takes_abort & (core.abort.p.any | (r.record.id == core.abort.p.id)) for r in runners)
    )  # nobody begins a job in the cycle after the end of another one
    m.d.comb += [
        called.eq(Cat(r.takes_abort & named[k] for k, r in enumerate(runners))),
        found.eq(
            Cat(
                asked & called[k] & ~Cat(called[j] & older[j][k] for j in contexts if j != k).any()
                for k in contexts
            )
        ),
        queue.abort.p.eq(core.abort.p),
        queue.abort.valid.eq(asked & ~found.any()),
        core.abort.ready.eq(asked & (found.any() | queue.abort.ready)),
        *(runner.stop.eq(found[k]) for k, runner in enumerate(runners)),
    ]
    m.d.sync += asked.eq(core.abort.valid & ~core.abort.ready)
