"""Ports of a component: which streams and plain ports it has, and C++ that names them.

The C++ is ``ports.h``, which ``batch_circuit.cpp`` and the clusters' benches are compiled with.
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


def _encoded(name):
    return name.replace("__", "___05F")  # Verilator's way with two underscores


def member(name):
    """C++ of a port of the circuit ``d``, a `Design` of ``verilated.h``."""
    return f"d.root.{_encoded(name)}"


def _place(wire):
    return f"offsetof(Circuit___024root, {_encoded(wire)})"


def _stream_row(port):
    places = [_place(f"{port.name}__{wire}") for wire in ("payload", "valid", "ready")]
    return ", ".join([*places, str(Shape.cast(port.shape).width)])


def _plain_row(port):
    return f"{_place(port.name)}, {Shape.cast(port.shape).width}"


def header(streams, plain):
    """C++ that tells ``batch.cpp`` where the ports of a design are: tables of ``batch.h``."""
    groups = {
        "StreamPort INPUTS": [_stream_row(p) for p in streams if p.is_input],
        "StreamPort OUTPUTS": [_stream_row(p) for p in streams if not p.is_input],
        "PlainPort LEVELS": [_plain_row(p) for p in plain if p.is_input],
        "PlainPort PROBES": [_plain_row(p) for p in plain if not p.is_input],
    }
    lines = []
    for name, rows in groups.items():
        lines += [f"const {name}[] = {{", *(f"\t{{{row}}}," for row in rows), "\t{}", "};"]
    counts = ", ".join(str(len(rows)) for rows in groups.values())
    lines.append(f"const Ports PORTS = {{INPUTS, OUTPUTS, LEVELS, PROBES, {counts}}};")
    return "\n".join([*lines, ""])
