"""A Wireshark dissector of gradnic frames, from the tables of `gradnic.interface.formats`."""

from collections.abc import Mapping

from gradnic.interface.formats import (
    GRADNIC,
    GRADNIC_START,
    HEAD_BYTES,
    PARAMETERS,
    UDP_PORT,
    VERSION,
    Field,
    Op,
)

SUBTYPES = {1: "PROBE", 2: "BITMAP", 3: "STOP", 4: "STALE", 5: "NOT_READY"}
HEXADECIMAL = ("arg",)

HEAD = """\
-- Wireshark dissector of gradnic frames, UDP port {port}. Written by gradnic {version}.
-- wireshark -X lua_script:gradnic.lua, or put it into the folder of personal Lua plugins.
local gradnic = Proto("gradnic", "gradnic gradient transport")
local f = gradnic.fields
"""

BODY = """\
f.payload = ProtoField.bytes("gradnic.payload", "payload")

function gradnic.dissector(buffer, pinfo, tree)
  -- ours by version, operation and set; whose job and sender it is, cards know
  if buffer:len() < {n_head} or bit.rshift(buffer(0, 1):uint(), 6) ~= {version} then return 0 end
  if not ops[bit.band(buffer(0, 1):uint(), 15)] then return 0 end
  pinfo.cols.protocol = "gradnic"
  local t = tree:add(gradnic, buffer(0, {n_head}))
{adds}
  local op = bit.band(buffer(0, 1):uint(), 15)
{choices}
  if buffer:len() > {n_head} then tree:add(f.payload, buffer({n_head})) end
  local ph = bit.band(buffer(0, 1):uint(), 32) ~= 0 and "gather" or "reduce"
  pinfo.cols.info = string.format("%s %s job %d src %d gen %d tensor %d seq %d, %d elements",
    ops[op] or "op " .. op, ph, buffer({job}, 1):uint(), buffer({src}, 1):uint(),
    buffer({gen}, 2):uint(), buffer({tensor}, 2):uint(), buffer({seq}, 3):uint(),
    buffer({elems}, 2):uint())
  return buffer:len()
end

DissectorTable.get("udp.port"):add({port}, gradnic)
"""


def _stem(op: Op) -> str:
    return op.name.lower().replace("_", "")


def abbreviation(field: Field, op: Op | None = None) -> str:
    """Name of a field in Wireshark; `op` for a field of `gradnic.interface.formats.PARAMETERS`."""
    return f"gradnic.{field.name}" if op is None else f"gradnic.{_stem(op)}.{field.name}"


def names() -> dict[str, str]:
    """{name in Wireshark: what it is} of all fields of the head."""
    own = {abbreviation(field): field.doc for field in GRADNIC}
    return own | {
        abbreviation(field, op): field.doc for op, header in PARAMETERS.items() for field in header
    }


def _variable(field: Field, op: Op | None) -> str:
    return f"f.{field.name}" if op is None else f"f.{_stem(op)}_{field.name}"


def _declare(field: Field, op: Op | None = None) -> str:
    """One ProtoField: type by the bytes it touches, mask by its place in them."""
    bits = 8 * field.n_bytes
    kind = f"int{bits}" if field.signed else f"uint{bits}"
    base = "base.HEX" if field.name in HEXADECIMAL else "base.DEC"
    values = {"op": "ops", "subtype": "subtypes"}.get(field.name, "nil")
    mask = ""
    if field.width != bits:
        mask = f", 0x{((1 << field.width) - 1) << field.lsb:0{bits // 4}x}"
    arguments = f'"{abbreviation(field, op)}", "{field.name}: {field.doc}", {base}, {values}{mask}'
    return f"{_variable(field, op)} = ProtoField.{kind}({arguments})"


def _add(field: Field, indent: int, op: Op | None = None) -> str:
    start = field.byte - GRADNIC_START
    return f"{' ' * indent}t:add({_variable(field, op)}, buffer({start}, {field.n_bytes}))"


def _values(name: str, values: Mapping[int, str]) -> str:
    entries = ", ".join(f'[{value}] = "{text}"' for value, text in values.items())
    return f"local {name} = {{ {entries} }}"


def lua(version: str) -> str:
    """The dissector as Lua text; `version` goes into its head.

    Fields are ``gradnic.<name>``, those of p0 and p1 ``gradnic.<op>.<name>`` where the packet's op
    gives them a meaning of their own.
    """
    lines = [HEAD.format(port=UDP_PORT, version=version)]
    lines += [_values("ops", {int(op): op.name for op in Op}), _values("subtypes", SUBTYPES)]
    lines += [_declare(field) for field in GRADNIC]
    choices = []
    for op, header in PARAMETERS.items():
        lines += [_declare(field, op) for field in header]
        word = "elseif" if choices else "if"
        choices.append(f"  {word} op == {int(op)} then")
        choices += [_add(field, 4, op) for field in header]
    choices.append("  end")
    places = {
        name: GRADNIC[name].byte - GRADNIC_START
        for name in ("job", "src", "gen", "tensor", "seq", "elems")
    }
    body = BODY.format(
        n_head=HEAD_BYTES - GRADNIC_START,
        port=UDP_PORT,
        version=VERSION,
        adds="\n".join(_add(field, 2) for field in GRADNIC),
        choices="\n".join(choices),
        **places,
    )
    return "\n".join([*lines, body])
