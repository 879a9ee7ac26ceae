"""LiteEth's streams, for benches: last_be, error, and a MAC that never waits."""

from cocotb.triggers import FallingEdge, RisingEdge


class Endpoint:
    """The wires of one stream."""

    def __init__(self, dut, name, separator="__"):
        self.clock = dut.clk
        for field in ("valid", "ready", "first", "last", "data", "last_be", "error"):
            setattr(self, field, getattr(dut, f"{name}{separator}{field}"))
        self.n_bytes = len(self.last_be)

    async def send(self, frames, rng, *, duty=1.0, early=False):
        """Offer (bytes, bad); with `early`, some frames have beats behind the one of last_be."""
        for octets, bad in frames:
            n_beats = -(-len(octets) // self.n_bytes)
            n_more = int(rng.integers(0, 3)) if early else 0
            for k in range(n_beats + n_more):
                while rng.random() > duty:
                    self.valid.value = 0
                    await RisingEdge(self.clock)
                part = octets[k * self.n_bytes : (k + 1) * self.n_bytes] or rng.bytes(1)
                self.data.value = int.from_bytes(part, "little")
                self.last.value = int(k == n_beats + n_more - 1)
                self.first.value = int(k == 0)
                ends = k == n_beats - 1
                self.last_be.value = 1 << len(part) - 1 if ends else 0
                self.error.value = (1 << self.n_bytes) - 1 if bad and ends else 0
                self.valid.value = 1
                while True:
                    await FallingEdge(self.clock)
                    taken = self.ready.value == 1
                    await RisingEdge(self.clock)
                    if taken:
                        break
        self.valid.value = 0

    async def receive(self, n_frames, rng, *, duty=1.0, gaps=True):
        """[(bytes, bad)]; without `gaps`, valid must stay high over a frame."""
        frames, octets = [], b""
        while len(frames) < n_frames:
            self.ready.value = int(rng.random() < duty)
            await FallingEdge(self.clock)
            assert gaps or not octets or self.valid.value == 1, "a gap within a frame"
            if self.valid.value == 1 and self.ready.value == 1:
                assert self.first.value == int(not octets)
                data = self.data.value.to_unsigned().to_bytes(self.n_bytes, "little")
                mark = int(self.last_be.value)
                if self.last.value == 1:
                    assert mark & (mark - 1) == 0
                    assert mark
                    octets += data[: mark.bit_length()]
                    errors = int(self.error.value)
                    assert errors in (0, (1 << self.n_bytes) - 1)
                    frames.append((octets, errors != 0))
                    octets = b""
                else:
                    assert mark == 0
                    octets += data
            await RisingEdge(self.clock)
        self.ready.value = 0
        return frames


async def never_stalls(port):
    """Fail once `port`, which a MAC feeds, is not ready."""
    while True:
        await FallingEdge(port.clock)
        assert port.ready.value == 1, "the MAC was stalled"
