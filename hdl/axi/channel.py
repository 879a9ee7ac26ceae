"""One channel of an AXI port: its two flags and its fields, whatever the port's prefix is.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Cat, Value
from amaranth.lib import data, wiring

from ..primitive.same import by_name


class Channel:
    """Signals of channel `prefix` ("ar", "aw", "w", "r" or "b") of an AXI port, without the prefix.

    valid, ready : Signal
    fields : dict of str to Signal
        All others, in the order of the port's signature; ``channel[name]`` is one of them.
    """

    def __init__(self, port: wiring.PureInterface, prefix: str) -> None:
        own = {
            name[len(prefix) :]: signal
            for name, signal in by_name(port).items()
            if name.startswith(prefix)
        }
        self.valid, self.ready = own.pop("valid"), own.pop("ready")
        self.fields = own

    def __getitem__(self, name: str):
        return self.fields[name]

    def layout(self, *names: str) -> data.StructLayout:
        """Layout of the fields `names`."""
        return data.StructLayout({name: Value.cast(self[name]).shape() for name in names})

    def gathered(self, *names: str):
        """The fields `names` as one value, as `layout` has them."""
        return Cat(self[name] for name in names)

    def put(self, payload, *names: str) -> list:
        """Statements that drive the fields `names` from a view of `layout`."""
        return [self[name].eq(payload[name]) for name in names]

    def take(self, payload, *names: str) -> list:
        """Statements that drive a view of `layout` from the fields `names`."""
        return [payload[name].eq(self[name]) for name in names]
