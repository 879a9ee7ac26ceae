"""Attributes of registers and memories in the words of each vendor's tool, on the way to Verilog.

Circuits use the words of `gradnic.hdl.primitive.target`. `rewrite` takes the RTLIL that Amaranth
writes and changes what Yosys would lose or say badly:

- attributes of a register go to its flip-flop, so that they reach the register that stays of all
  signals that mean the same;
- a synchronous reset is the flip-flop's own and no choice in front of it, which gives ``if (rst)``;
- contents of a memory that is not told any (all zero) go: they are undefined after power-up.

Plumbing: no golden model of its own.
"""

import re
from typing import NamedTuple

KEPT = "keep_register"
REGISTER_WORDS = (KEPT, "async_reg", "fsm_encoding", "fsm_exit", "use_dsp")
_YOSYS, _XILINX, _INTEL, _LATTICE = (
    {"keep": '"true"'},
    {"dont_touch": '"true"'},
    {"preserve": "1", "dont_merge": "1"},
    {"syn_preserve": "1"},
)
_BLOCK, _SMALL = {"ram_style": '"block"'}, {"ram_style": '"distributed"'}
_CODED = {"fsm_encoding": '"none"'}
_EXIT = {"fsm_safe_state": '"reset_state"'}  # Vivado's; "safe" of others goes there, too
WORDS = {  # family: {word of ours: {value, or None for any: {attribute: value in Verilog}}}
    "generic": {
        KEPT: {None: _YOSYS | _XILINX | _INTEL | _LATTICE},
        "async_reg": {None: {"async_reg": '"true"'} | _YOSYS | _INTEL},
        "fsm_encoding": {
            "one-hot": {"fsm_encoding": '"one-hot"', "syn_encoding": '"safe, one-hot"'} | _EXIT,
            "none": _CODED | _INTEL | _LATTICE | {"syn_state_machine": "0"},
        },
        "fsm_exit": {None: _EXIT | {"syn_encoding": '"safe"'}},
        "ram_style": {"block": _BLOCK, "distributed": _SMALL},
        "no_rw_check": {None: {"no_rw_check": "1"}},
    },
    "ecp5": {
        KEPT: {None: _YOSYS | _LATTICE},
        "async_reg": {None: _YOSYS | _LATTICE},
        "fsm_encoding": {
            "one-hot": {"fsm_encoding": '"one-hot"', "syn_encoding": '"safe,onehot"'},
            "none": _CODED | _LATTICE | {"syn_state_machine": "0"},
        },
        "fsm_exit": {None: {"syn_encoding": '"safe"'}},
        "ram_style": {"block": _BLOCK, "distributed": _SMALL},
        "no_rw_check": {None: {"no_rw_check": "1"}},
    },
    "xilinx": {
        KEPT: {None: _YOSYS | _XILINX},
        "async_reg": {None: {"async_reg": '"true"'} | _XILINX},
        "fsm_encoding": {"one-hot": {"fsm_encoding": '"one_hot"'} | _EXIT, "none": _CODED},
        "fsm_exit": {None: _EXIT},
        "use_dsp": {None: {"use_dsp": '"yes"'}},
        "ram_style": {
            "block": _BLOCK,
            "distributed": _SMALL,
            "ultra": {"ram_style": '"ultra"'},
        },
        "no_rw_check": {None: {"no_rw_check": "1"}},
    },
    "intel": {
        KEPT: {None: _YOSYS | _INTEL},
        "async_reg": {None: _INTEL},
        # Quartus makes no FSM of a register that is preserved
        "fsm_encoding": {"one-hot": {"syn_encoding": '"safe, one-hot"'}, "none": _INTEL},
        "fsm_exit": {None: {"syn_encoding": '"safe"'}},
        "use_dsp": {None: {"multstyle": '"dsp"'}},
        "ram_style": {
            "block": {"ramstyle": '"M20K, no_rw_check"'},
            "distributed": {"ramstyle": '"MLAB, no_rw_check"'},
        },
    },
}
_RESET = re.compile(
    r"    switch \\(\w*rst) \[0\]\n      case 1'1\n"
    r"        assign (\$\d+) (\[[\d:]+\]) ([^\n]*)\n    end\n  end\n\n"
    r"((?:  attribute [^\n]*\n)*)  cell \$dff (\S+)\n    parameter \\WIDTH (\d+)\n"
    r"    parameter \\CLK_POLARITY (\d)\n    connect \\D \2 \3\n"
)
_WIRE = re.compile(r"((?:  attribute [^\n]*\n)*)  (?:wire [^\n]*|memory [^\n]*) (\\\S+)\n")
_FLIP_FLOP = re.compile(r"  cell (\$s?dff|\$adff) (\S+)\n(?:    [^\n]*\n)*?    connect \\Q (\\\S+)")
_ZEROS = re.compile(
    r"  cell \$meminit_v2 [^\n]*\n(?:    [^\n]*\n)*?    connect \\DATA (\d+)'0+\n"
    r"(?:    [^\n]*\n)*?  end\n"
)
_COLLECTED_ZEROS = re.compile(r"^    parameter \\INIT \d+'0+$", re.MULTILINE)


class Stage(NamedTuple):
    """First stage of a synchronizer: ``module``, register's ``name``; ``is_reset``: set at once."""

    module: str
    name: str
    is_reset: bool


def without_zeros(text):
    """RTLIL in which memories whose contents are all 0 have none: nobody may rely on them.

    text : as Amaranth writes it, or after Yosys' ``memory_collect``.
    """
    return _COLLECTED_ZEROS.sub(r"    parameter \\INIT 1'x", _ZEROS.sub("", text))


def rewrite(text, family):
    """(RTLIL, list of `Stage`) from the RTLIL of Amaranth; attributes as `family` has them."""
    text = re.sub(r"^ *attribute \\(?:generator|top) [^\n]*\n", "", text, flags=re.M)
    text = _RESET.sub(_flip_flop_with_reset, text)
    text = without_zeros(text)
    stages = []
    return re.sub(
        r"^module \\(\S+)\n.*?^end\n",
        lambda m: _module(m[0], m[1], WORDS[family], stages),
        text,
        flags=re.M | re.S,
    ), stages


def _flip_flop_with_reset(m):
    reset, _, span, value, attributes, cell, width, polarity = m.groups()
    return (
        f"  end\n\n{attributes}  cell $sdff {cell}\n    parameter \\WIDTH {width}\n"
        f"    parameter \\CLK_POLARITY {polarity}\n    parameter \\SRST_POLARITY 1\n"
        f"    parameter \\SRST_VALUE {value}\n    connect \\SRST \\{reset} [0]\n"
        f"    connect \\D {m[2]} {span}\n"
    )


def _module(text, module, words, stages):
    registers = {}

    def wire(m):
        lines = []
        for line in m[1].splitlines():
            _, word, value = line.split(maxsplit=2)
            word = word[1:]
            if word in REGISTER_WORDS:
                registers.setdefault(m[2], {})[word] = value.strip('"')
            elif word in ("ram_style", "no_rw_check"):
                lines += _lines(words, word, value.strip('"'))
            else:
                lines.append(line)
        rest = m[0][len(m[1]) :]
        return "".join(f"{line}\n" for line in lines) + rest

    def flip_flop(m):
        attributes = registers.get(m[3], {})
        if "async_reg" in attributes and m[3] == "\\stage0":
            stages.append(Stage(module, m[3][1:], m[1] == "$adff"))
        lines = [line for word, value in attributes.items() for line in _lines(words, word, value)]
        return "".join(f"{line}\n" for line in dict.fromkeys(lines)) + m[0]

    return _FLIP_FLOP.sub(flip_flop, _WIRE.sub(wire, text))


def _lines(words, word, value):
    known = words.get(word, {})
    texts = known.get(value, known.get(None, {}))
    return [f"  attribute \\{name} {text}" for name, text in texts.items()]
