"""Host side of a card with jobs: words that stay, and bits that change, instead of streams.

Plumbing: no golden model of its own.
"""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.same import join, meet
from .job_core import JobCore
from .job_records import Abort, Descriptor, Record

STREAMS = ("post", "abort", "completions")  # between the two


class JobWindow(wiring.Component):
    """Turns changes of a bit into beats; a post goes at once, or is refused because all is full.

    Members
    -------
    job, posts : In(Descriptor), In(1)
        When ``posts`` changes, ``job`` is posted.
    overrun : Out(1)
        A pulse: the queue was full, and nothing was posted.
    named, aborts, aborting : In(Abort), In(1), Out(1)
        When ``aborts`` changes, a job is to end; ``aborting`` until it was looked for.
    record, record_valid, takes : Out(Record), Out(1), In(1)
        The oldest completion, and whether there is one; it leaves when ``takes`` changes.
    post, abort, completions : Out, Out, In
        Of `JobCore`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "job": In(Descriptor),
                "posts": In(1),
                "overrun": Out(1),
                "named": In(Abort),
                "aborts": In(1),
                "aborting": Out(1),
                "record": Out(Record),
                "record_valid": Out(1),
                "takes": In(1),
                "post": Out(stream.Signature(Descriptor)),
                "abort": Out(stream.Signature(Abort)),
                "completions": In(stream.Signature(Record)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = {"posts": self.posts, "aborts": self.aborts, "takes": self.takes}
        changes = {}
        for name, now in bits.items():
            was = Signal(name=f"{name}_before")
            m.d.sync += was.eq(now)
            changes[name] = now ^ was
        m.d.comb += [
            self.post.p.eq(self.job),
            self.post.valid.eq(changes["posts"]),  # never waits: it is taken or refused
            self.abort.p.eq(self.named),
            self.abort.valid.eq(self.aborting),
            self.record.eq(self.completions.p),
            self.record_valid.eq(self.completions.valid),
            self.completions.ready.eq(changes["takes"]),
        ]
        m.d.sync += [
            self.overrun.eq(changes["posts"] & ~self.post.ready),
            self.aborting.eq(changes["aborts"] | (self.aborting & ~self.abort.ready)),
        ]
        return m


class WindowCore(wiring.Component):
    """`JobCore` behind a `JobWindow`: members of both, but for the streams between them. Where both
    have one of a name, such as ``overrun``, it is the window's.
    """

    def __init__(self, *arguments, **sizes: Any) -> None:
        self.core, self.window = core, window = JobCore(*arguments, **sizes), JobWindow()
        self.n_bytes, self.n_ports, self.port_bytes = core.n_bytes, core.n_ports, core.port_bytes
        self.n_active, self.n_engines = core.n_active, core.n_engines
        own = _others(window)
        beside = {name: member for name, member in _others(core).items() if name not in own}
        self._parts = {core: beside, window: own}
        super().__init__({k: v for own in self._parts.values() for k, v in own.items()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.core, m.submodules.window = self.core, self.window
        meet(m, self.window, self.core, STREAMS)
        for part, members in self._parts.items():
            join(m, part, self, members)
        return m


def _others(part):
    """Members of `part` but `STREAMS`."""
    return {name: member for name, member in part.signature.members.items() if name not in STREAMS}
