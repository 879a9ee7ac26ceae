"""Mutation campaign of the pass that makes indices of a gradient, and keeps what they lose."""

from . import passes
from .passes import ELSEWHERE

__all__ = ["ELSEWHERE", "component", "test"]


def component():
    """The circuit under mutation, beside the memory that it reads."""
    return passes.component("encode")


def test(model):
    """See `passes.play`."""
    passes.play(model, "encode")


_EVEN = "indices fill a multiple of 8 beats"
_MOST = "no job has more than 1,024 blocks"
ARGUED = passes.ARGUED | {
    r"-mode cnot1 .*\\writer\.\S+ -port A -portbit ([3-9]|1\d) -ctrlbit [0-2] .*whole\.eq": _EVEN,
    r"-mode cnot[01] .*\\writer\.\S+ -port A -portbit ([4-9]|1\d) -ctrlbit ([4-9]|1\d) .*"
    r"first\.eq\(count \+ 1\)": f"the bit turns twice in two beats, and {_EVEN}",
    r"-mode (const1|cnot[01]) .*-wire inner\.n_padded -wirebit [01] ": "less than a beat",
    r"-mode cnot1 .*-ctrlbit 10 -wire inner\.reader\.place ": _MOST,
    r"-mode const0 .*-port [DQ] -portbit [0-4] .*(group = Signal\(|offset = Signal\(beats_width)": (
        "a group has 32 beats or more"
    ),
    r"-mode const1 .*-port A .*with m\.If\(on & o\.valid & o\.ready\)": (
        "nobody looks at the half of a beat while floats come, and a pass is reset before a job"
    ),
    r"-mode cnot1 .*-port D .*-ctrlbit 8 .*\(\"asked\", \"n_norms\"\)": _MOST,
    r"-mode const0 .*-port A -portbit 8 .*all_asked\.eq\(n_norms == 1\)": _MOST,
    r"-mode (const1|cnot[01]) .*-wire inner\.regions\[0\]\.n_beats -wirebit 9 ": (
        f"{_MOST}, and a larger region refuses none of their norms"
    ),
    r"-mode cnot1 .*-ctrlbit ([7-9]|1\d) .*check\.number\.eq\(check\.number \+ 1\)": (
        "no job has more than 64 blocks of 1,024"
    ),
    r"-mode const1 .*-port A .*rekey\.eq\(keys\.known & ~known\[0\]\)": (
        "a key is taken in each cycle until it is known, and no block comes before"
    ),
    r"-mode const1 .*-portbit 1 -wire inner\.known\S* -wirebit 1 ": (
        "the flag behind it rises a cycle later, and none falls"
    ),
    r"-mode inv -cell \S+ -port Y -portbit 0 \S+:\d+: levels\.ready\.eq": (
        "a decoder that has room has it until a beat comes: it is asked one beat before"
    ),
    r"-mode const0 -cell \S+residual_writer\S+ -port A .*self\.i\.ready\.eq\(surplus": (
        "padding, 255 beats at most, has room before the writer"
    ),
    r"-mode const1 .*-port B .*-wire inner\.residual_writer\.whole ": (
        "the flag and the count say the same, but where one changes by itself"
    ),
    r"-mode const1 .*-wire inner\.residual_writer\.keep -wirebit [0-3] ": (
        "a residual ends with a float of 4 bytes"
    ),
}
EXPLAINED = {}
