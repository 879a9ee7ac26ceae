"""Puts AXI4-Stream and AXI4-Lite ports, with the names that shells expect, around a component.

Plumbing: no golden model of its own.
"""

from collections.abc import Mapping

from amaranth.hdl import Module, Shape, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..primitive.same import by_name
from .axi4 import ReadPort, WritePort
from .axis import Axis, AxisReceiver, AxisSender, Lite

ROLES = {
    "tdata": "data, first byte in bits 7:0",
    "tkeep": "bytes that count, contiguous from bit 0",
    "tlast": "last beat",
    "tuser": "side band",
    "tvalid": "offer",
    "tready": "taken when offered",
}

LITE_ROLES = {
    "awaddr": "write address in bytes",
    "awprot": "ignored",
    "awvalid": "write address offered",
    "awready": "write address taken",
    "wdata": "write data",
    "wstrb": "bytes to write",
    "wvalid": "write data offered",
    "wready": "write data taken",
    "bresp": "always 0, OKAY",
    "bvalid": "write answer offered",
    "bready": "write answer taken",
    "araddr": "read address in bytes",
    "arprot": "ignored",
    "arvalid": "read address offered",
    "arready": "read address taken",
    "rdata": "read data",
    "rresp": "always 0, OKAY",
    "rvalid": "read answer offered",
    "rready": "read answer taken",
}

MEMORY_ROLES = {
    "id": "0 always",
    "addr": "byte address of a burst",
    "len": "beats of the burst, less one",
    "size": "log2 of the bytes of a beat",
    "burst": "1, addresses go up",
    "cache": "3, bufferable",
    "prot": "0",
    "data": "a beat",
    "strb": "bytes to write",
    "resp": "0 is OKAY",
    "last": "last beat of the burst",
    "valid": "offer",
    "ready": "taken when offered",
}  # of AXI4, without the letters of the channel


def _memory_role(wire):
    return MEMORY_ROLES[wire[2:] if wire[:2] in ("ar", "aw") else wire[1:]]


def _fields(payload):
    """{field: (lowest bit, width)} of a payload; one field ``data`` if it has no others."""
    if not isinstance(payload, data.View):
        return {"data": (0, len(Value.cast(payload)))}
    return {name: (f.offset, Shape.cast(f.shape).width) for name, f in payload.shape()}


def _fields_of_fields(payload):
    """Records in a payload, each kind once, for people: "; in 0 to 3: count 10:0, paper 11"."""
    kinds = {}
    for name, field in payload.shape() if isinstance(payload, data.View) else ():
        if isinstance(field.shape, data.StructLayout):
            inner = {key: (f.offset, Shape.cast(f.shape).width) for key, f in field.shape}
            kinds.setdefault(places(inner), []).append(str(name))
    named = {
        text: names if len(names) < 3 else [f"{names[0]} to {names[-1]}"]
        for text, names in kinds.items()
    }
    return "".join(f"; in {' and '.join(names)}: {text}" for text, names in named.items())


def _side_fields(fields):
    """{field: (lowest bit, width)} in tuser of a unit: all fields but ``data`` and ``last``."""
    side, low = {}, 0
    for name, (_, width) in fields.items():
        if name not in ("data", "last"):
            side[name] = (low, width)
            low += width
    return side


def places(fields):
    """Fields for people: "count 15:0, paper 23"."""
    return ", ".join(
        f"{name} {low + width - 1}:{low}" if width > 1 else f"{name} {low}"
        for name, (low, width) in fields.items()
    )


def members_of(core):
    """(name, (member, its value in the core)) of each member, those of an array one by one."""
    for name, value in by_name(core).items():
        member = core.signature.members[name]
        if not member.dimensions:
            yield name, (member, value)
            continue
        if len(member.dimensions) > 1:
            raise ValueError(f"{name} must be an array of one dimension to become ports")
        one = member.signature if member.is_signature else member.shape
        for k, part in enumerate(value):
            yield f"{name}{k}", ((In if member.flow == In else Out)(one), part)


class Top(wiring.Component):
    """`core` with AXI ports: what `gradnic verilog` writes.

    Every member of `core` becomes ports by its kind; ``x`` stands for the member's name:

    - a stream of `FrameBeat`: ``s_axis_x_*`` or ``m_axis_x_*`` through `AxisReceiver` or
      `AxisSender`, tuser = {meta, bad};
    - a stream with fields ``data`` and ``last``: tdata and tlast, every other field in tuser;
    - any other stream: all of its payload in tdata, first field lowest, rounded up to bytes;
    - `Lite`: ``s_axil_*`` if it is called ``bus``, else ``s_axil_x_*``;
    - `ReadPort` and `WritePort`: ``m_axi_x_*``;
    - anything else: a port of that name.

    Of an array ``x`` of members each is one, called ``x0``, ``x1`` and so on.

    Parameters
    ----------
    core : wiring.Component
    docs : dict
        One line for each member of `core`, for the port list.

    Members
    -------
    As said; `ports` lists them as they stand in the Verilog.
    """

    def __init__(self, core: wiring.Component, docs: Mapping[str, str]) -> None:
        self._inner = dict(members_of(core))
        missing = set(self._inner) ^ set(docs)
        if missing:
            raise ValueError(f"docs must name the members of the core; differ: {sorted(missing)}")
        self.core = core
        self._docs: dict[tuple[str, ...], str] = {}  # of each port, by (member, sub-member)
        self._joins = []  # how each member of the core is driven
        members = {}
        for name, (member, _) in self._inner.items():
            if member.is_signature and isinstance(member.signature, stream.Signature):
                self._add_stream(members, name, member, docs)
        for name, (member, value) in self._inner.items():
            if member.is_signature and isinstance(member.signature, Lite):
                outside = "s_axil" if name == "bus" else f"s_axil_{name}"
                members[outside] = member
                self._joins.append((None, name, outside))
                for role, text in LITE_ROLES.items():
                    self._docs[outside, role] = f"{docs[name]}: {text}"
            elif member.is_signature and isinstance(member.signature, ReadPort | WritePort):
                outside = f"m_axi_{name}"
                members[outside] = member
                self._joins.append((None, name, outside))
                for wire in member.signature.members:
                    self._docs[outside, wire] = f"{docs[name]}: {_memory_role(wire)}"
            elif not member.is_signature:
                members[name] = member
                self._joins.append((None, name, name))
                fields = f": {places(_fields(value))}" if isinstance(value, data.View) else ""
                self._docs[(name,)] = docs[name] + fields + _fields_of_fields(value)
            elif member.is_signature and not isinstance(member.signature, stream.Signature):
                raise ValueError(f"{name} must be a stream, AXI4 or a signal to become ports")
        super().__init__(members)

    def _add_stream(self, members, name, member, docs):
        payload = self._inner[name][1].p
        fields = _fields(payload)
        inward = member.flow == In
        outside = f"{'s' if inward else 'm'}_axis_{name}"
        roles = dict(ROLES)
        if "keep" in fields:
            kind = "frame"
            n_bytes = fields["keep"][1]
            meta_width = fields.get("meta", (0, 0))[1]
            signature = Axis(n_bytes, user_width=1 + meta_width)
            meta = f", {places({'meta': (1, meta_width)})}" if meta_width else ""
            roles["tuser"] = f"bad 0, counts with tlast{meta}"
        elif "last" in fields and "data" in fields:
            kind = "unit"
            side = _side_fields(fields)
            user_width = sum(width for _, width in side.values())
            signature = Axis(-(-fields["data"][1] // 8), user_width=user_width, keep=False)
            roles["tuser"] = places(side)
        else:
            kind = "record"
            n_bits = len(Value.cast(payload))
            signature = Axis(-(-n_bits // 8), keep=False, last=False)
            roles["tdata"] = places(fields) + _fields_of_fields(payload)
        members[outside] = In(signature) if inward else Out(signature)
        self._joins.append((kind, name, outside))
        for role in signature.members:
            self._docs[outside, role] = f"{docs[name]}: {roles[role]}"

    def ports(self):
        """[{name, direction, width, doc}] of the Verilog module, clk and rst first."""
        rows = [
            {"name": "clk", "direction": "input", "width": 1, "doc": "clock, rising edge"},
            {"name": "rst", "direction": "input", "width": 1, "doc": "reset, synchronous, high"},
        ]
        for path, member, value in self.signature.flatten(self):
            rows.append(
                {
                    "name": "_".join(map(str, path)),
                    "direction": "input" if member.flow == In else "output",
                    "width": len(Value.cast(value)),
                    "doc": self._docs[path],
                }
            )
        return rows

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = self.core
        ports = by_name(self)
        for kind, name, outside in self._joins:
            (member, inner), outer = self._inner[name], ports[outside]
            if kind == "frame":
                self._join_frames(m, name, inner, outer)
            elif kind is not None:
                self._join_stream(m, kind, inner, outer)
            elif member.is_signature:
                wiring.connect(m, inner, wiring.flipped(outer))
            else:
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        return m

    def _join_frames(self, m, name, inner, outer):
        fields = _fields(inner.p)
        n_bytes, meta_width = fields["keep"][1], fields.get("meta", (0, 0))[1]
        if outer.signature.members["tdata"].flow == In:
            m.submodules[f"{name}_edge"] = edge = AxisReceiver(n_bytes, meta_width=meta_width)
            wiring.connect(m, edge.o, inner)
        else:
            m.submodules[f"{name}_edge"] = edge = AxisSender(n_bytes, meta_width=meta_width)
            wiring.connect(m, inner, edge.i)
        wiring.connect(m, edge.axis, wiring.flipped(outer))

    @staticmethod
    def _join_stream(m, kind, inner, outer):
        inward = outer.signature.members["tdata"].flow == In
        payload = Value.cast(inner.p)
        pairs = [(outer.tvalid, inner.valid)]
        if kind == "record":
            pairs.append((outer.tdata[: len(payload)], payload))
        else:
            pairs += [(outer.tdata[: len(inner.p.data)], inner.p.data), (outer.tlast, inner.p.last)]
            pairs += [
                (outer.tuser[low : low + width], Value.cast(inner.p[field]))
                for field, (low, width) in _side_fields(_fields(inner.p)).items()
            ]
        for outside, inside in pairs:
            m.d.comb += inside.eq(outside) if inward else outside.eq(inside)
        m.d.comb += outer.tready.eq(inner.ready) if inward else inner.ready.eq(outer.tready)
