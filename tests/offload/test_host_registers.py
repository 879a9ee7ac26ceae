"""Words of registers that a host frame writes or reads, as the golden ones, at any bus's pace."""

import pytest
from gradnic.hdl.offload.host_registers import HostRegisters
from gradnic.models.offload.host_registers import read_words, write_words
from gradnic.sim.engine import stimulus
from gradnic.sim.engine.amaranth_run import simulate

from gradnic.interface.host_frame import MAX_WORDS

WIDTH = 10
PER_WORD = 40  # cycles of a word, at most


@pytest.mark.parametrize("duty", [1, 0.3])
def test_words_equal_golden(duty):
    part, rng = HostRegisters(WIDTH), stimulus.rng("host_registers", duty)
    bus, held = part.bus, rng.integers(1 << 32, size=1 << WIDTH - 2).tolist()

    def ready():
        return int(rng.random() < duty)

    async def access(ctx, writes, address, n_words, payload):
        """Payload that is read, (address, word) of all that are written, and cycles."""
        ctx.set(part.text, int.from_bytes(payload, "little"))
        for name, value in {"writes": writes, "address": address, "n_words": n_words}.items():
            ctx.set(getattr(part, name), value)
        ctx.set(part.start, 1)
        await ctx.tick()
        ctx.set(part.start, 0)
        ctx.set(part.address, int(rng.integers(1 << WIDTH)))  # of nobody
        read, written, at, word = {}, [], None, None
        for cycle in range(PER_WORD * n_words):
            if ctx.get(part.done):
                assert list(read) == list(range(len(read)))
                return b"".join(read.values()), written, cycle
            both = at is not None and word is not None
            ctx.set(bus.awready, ready())
            ctx.set(bus.wready, ready())
            ctx.set(bus.arready, ready())
            ctx.set(bus.bvalid, int(writes and both and ready()))
            ctx.set(bus.rvalid, int(not writes and at is not None and ready()))
            ctx.set(bus.rdata, held[at >> 2] if at is not None else 0)
            asked = "aw" if writes else "ar"
            takes_at = ctx.get(getattr(bus, f"{asked}valid") & getattr(bus, f"{asked}ready"))
            takes_word = ctx.get(bus.wvalid & bus.wready)
            assert at is None or not takes_at
            if ctx.get(part.enable):
                read[ctx.get(part.place)] = ctx.get(part.word).to_bytes(4, "little")
                at = None
            if ctx.get(bus.bvalid & bus.bready):
                written.append((at, word))
                at = word = None
            if takes_at:
                at = ctx.get(getattr(bus, f"{asked}addr"))
            if takes_word:
                assert ctx.get(bus.wstrb) == 0b1111
                word = ctx.get(bus.wdata)
            await ctx.tick()
        raise AssertionError(f"not done after {cycle} cycles")

    async def bench(ctx):
        for n_words in [1, MAX_WORDS, *rng.integers(1, MAX_WORDS + 1, 20).tolist()]:
            writes, wanted = int(rng.integers(2)), []
            address = 4 * int(rng.integers(len(held) - n_words + 1))
            payload = rng.bytes(4 * n_words)
            read, written, cycles = await access(ctx, writes, address, n_words, payload)
            if writes:
                write_words(address, payload, lambda *one, to=wanted: to.append(one))
            else:
                payload = read_words(address, n_words, lambda at: held[at >> 2])
                assert read == payload
            assert written == wanted
            assert duty < 1 or cycles <= 10 * n_words

    simulate(part, bench)
