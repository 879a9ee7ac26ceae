"""A component whose registers a bench can change, as radiation does.

Plumbing: no golden model of its own.
"""

import re

from amaranth.hdl import Fragment, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

UPSET = rf"-src [^ ]*{re.escape(__name__.rsplit('.', 1)[-1])}\.py:"
"""Pattern of mutants of what changes registers, for a campaign's ``ELSEWHERE``."""


class Upset(wiring.Component):
    """A component without submodules, and a port that changes its registers.

    Parameters
    ----------
    part : wiring.Component
    names : sequence of str
        Of registers.

    Members
    -------
    Those of `part`, and ``upset`` : In(StructLayout) of bits of those registers. In a cycle with
    bits that are 1, their register stays as it is, but for these bits.
    """

    def __init__(self, part, names):
        self._fragment = fragment = Fragment.get(part, None)
        written = {s.name: s for each in fragment.statements["sync"] for s in each._lhs_signals()}
        registers = {name: written[name] for name in names}
        shape = data.StructLayout({name: len(each) for name, each in registers.items()})
        super().__init__(dict(part.signature.members) | {"upset": In(shape)})
        for name in part.signature.members:
            setattr(self, name, getattr(part, name))
        m = Module()
        for name, register in registers.items():
            with m.If(self.upset[name].any()):
                m.d.sync += register.eq(register ^ self.upset[name])
        fragment.add_statements("sync", Fragment.get(m, None).statements["sync"])

    def elaborate(self, platform):
        return self._fragment
