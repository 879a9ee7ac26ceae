"""Ports of a component: which streams and plain ports it has, and C++ that names them.

The C++ is ``ports.h``, which ``batch.cpp`` and the clusters' benches are compiled with.
"""

from dataclasses import dataclass

from amaranth.hdl import Shape
from amaranth.lib import stream, wiring

from . import encoding


@dataclass(frozen=True)
class StreamPort:
    """A stream of the component: its name in the RTL, payload, and which wires exist."""

    name: str
    shape: object
    is_input: bool
    has_valid: bool
    has_ready: bool

    @property
    def size(self):
        """Bytes a beat."""
        return encoding.n_bytes(self.shape)


@dataclass(frozen=True)
class PlainPort:
    """A port of the component that belongs to no stream."""

    name: str
    shape: object
    is_input: bool

    @property
    def size(self):
        """Bytes a value."""
        return (Shape.cast(self.shape).width + 7) // 8


def _dimensions(member, path):
    """Paths of a member's elements, one for each element of an array of ports."""
    paths = [path]
    for count in member.dimensions:
        paths = [(*p, i) for p in paths for i in range(count)]
    return paths


def ports_of(signature, *, path=()):
    """All streams and plain ports of a signature, in order; names are the RTL's."""
    streams, plain = [], []
    for name, member in signature.members.items():
        is_input = member.flow == wiring.In
        for where in _dimensions(member, (*path, name)):
            joined = "__".join(map(str, where))
            if not member.is_signature:
                plain.append(PlainPort(joined, member.shape, is_input))
            elif isinstance(member.signature, stream.Signature):
                s = member.signature
                streams.append(
                    StreamPort(
                        joined,
                        encoding.payload_shape(s),
                        is_input,
                        not s.always_valid,
                        not s.always_ready,
                    )
                )
            else:  # a member's signature is flipped already where the member is an input
                inner = ports_of(member.signature, path=where)
                streams += inner[0]
                plain += inner[1]
    return streams, plain


def member(name):
    """C++ of a port of the circuit ``d``, a `Design` of ``verilated.h``."""
    return "d.root." + name.replace("__", "___05F")  # Verilator's way with two underscores


def _accessor(name, wire):
    return f"static auto &{name}(Design &d) {{ return {member(wire)}; }}"


def _stream_struct(kind, index, port):
    lines = [
        f"struct {kind}{index} {{",
        f"\tstatic constexpr size_t size = {port.size}, bits = {Shape.cast(port.shape).width};",
        f"\tstatic constexpr bool has_ready = {str(port.has_ready).lower()};",
    ]
    for wire, exists in (("payload", True), ("valid", port.has_valid), ("ready", port.has_ready)):
        if exists:
            lines.append("\t" + _accessor(wire, f"{port.name}__{wire}"))
        else:
            lines.append(f"\tstatic CData {wire}(Design &) {{ return 1; }}")
    return "\n".join([*lines, "};"])


def _plain_struct(kind, index, port):
    bits = Shape.cast(port.shape).width
    size = f"\tstatic constexpr size_t size = {port.size}, bits = {bits};"
    accessor = "\t" + _accessor("level", port.name)
    return "\n".join([f"struct {kind}{index} {{", size, accessor, "};"])


def header(streams, plain):
    """C++ that names the ports of a design for ``batch.cpp``."""
    groups = {
        "Inputs": [_stream_struct("In", i, p) for i, p in _numbered(streams, True)],
        "Outputs": [_stream_struct("Out", i, p) for i, p in _numbered(streams, False)],
        "Levels": [_plain_struct("Level", i, p) for i, p in _numbered(plain, True)],
        "Probes": [_plain_struct("Probe", i, p) for i, p in _numbered(plain, False)],
    }
    prefix = {"Inputs": "In", "Outputs": "Out", "Levels": "Level", "Probes": "Probe"}
    text = ["namespace {"]
    for name, structs in groups.items():
        names = [f"ports::{prefix[name]}{i}" for i in range(len(structs))]
        if structs:
            text += ["namespace ports {", *structs, "}"]
        text.append(f"using {name} = std::tuple<{', '.join(names)}>;")
    return "\n".join([*text, "}", ""])


def _numbered(ports, is_input):
    return list(enumerate(p for p in ports if p.is_input == is_input))
