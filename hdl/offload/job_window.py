"""Host side of a card with jobs: words that stay, and bits that change, instead of streams.

Plumbing: no golden model of its own.
"""

from typing import Any

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .job_core import JobCore
from .job_records import Descriptor, Record

_STREAMS = ("post", "abort", "completions")


class JobWindow(wiring.Component):
    """Turns changes of a bit into beats; a post goes at once, or is refused because all is full.

    Members
    -------
    job, posts : In(Descriptor), In(1)
        When ``posts`` changes, ``job`` is posted.
    overrun : Out(1)
        A pulse: the queue was full, and nothing was posted.
    id, aborts, aborting : In(16), In(1), Out(1)
        When ``aborts`` changes, the job ``id`` is to end; ``aborting`` until it was looked for.
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
                "id": In(16),
                "aborts": In(1),
                "aborting": Out(1),
                "record": Out(Record),
                "record_valid": Out(1),
                "takes": In(1),
                "post": Out(stream.Signature(Descriptor)),
                "abort": Out(stream.Signature(16)),
                "completions": In(stream.Signature(Record)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        before = {name: Signal(name=f"{name}_before") for name in ("posts", "aborts", "takes")}
        changes = {}
        for name, was in before.items():
            now = getattr(self, name)
            m.d.sync += was.eq(now)
            changes[name] = now ^ was
        m.d.comb += [
            self.post.p.eq(self.job),
            self.post.valid.eq(changes["posts"]),  # never waits: it is taken or refused
            self.abort.payload.eq(self.id),
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
    """`JobCore` behind a `JobWindow`: members of both, but for the streams between them."""

    def __init__(self, *arguments, **sizes: Any) -> None:
        self.core, self.window = JobCore(*arguments, **sizes), JobWindow()
        for name in ("n_bytes", "n_ports", "port_bytes", "n_active", "n_engines"):
            setattr(self, name, getattr(self.core, name))
        members = dict(self.core.signature.members.items())
        members |= dict(self.window.signature.members.items())
        super().__init__({k: v for k, v in members.items() if k not in _STREAMS})

    def elaborate(self, platform):
        m = Module()
        m.submodules.core, m.submodules.window = self.core, self.window
        for name in _STREAMS:
            first, second = self.window, self.core
            wiring.connect(m, getattr(first, name), getattr(second, name))
        for part in (self.core, self.window):
            for name, member in part.signature.members.items():
                if name not in _STREAMS:
                    self._join(m, member, getattr(self, name), getattr(part, name))
        return m

    def _join(self, m, member, outer, inner):
        if member.dimensions:
            one = member.signature if member.is_signature else member.shape
            for k in range(member.dimensions[0]):
                self._join(m, wiring.Member(member.flow, one), outer[k], inner[k])
        elif member.is_signature:
            wiring.connect(m, wiring.flipped(outer), inner)
        elif member.flow == In:
            m.d.comb += Value.cast(inner).eq(Value.cast(outer))
        else:
            m.d.comb += Value.cast(outer).eq(Value.cast(inner))
