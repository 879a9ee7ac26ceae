"""Block RAM: the portable and the ECP5 body behave alike, and as the docstring says."""

import numpy as np
import pytest
from gradnic.hdl.primitive.block_ram import BlockRAM
from gradnic.hdl.stream.beats import Beat
from gradnic.hdl.stream.block_fifo import BlockFIFO
from gradnic.sim.engine import batch, ecp5, encoding, tools

N_CYCLES = 4000


def _accesses(width, depth, rng):
    """Writes and reads of every kind but a read of the word that is being written."""
    write_en = rng.integers(0, 2, N_CYCLES, np.uint8)
    near = rng.integers(0, 2, N_CYCLES, bool)  # half of them in a few words, to meet often
    limit = np.where(near, min(depth, 4), depth)
    write_addr, read_addr = rng.integers(0, limit), rng.integers(0, limit)
    write_addr[:2] = read_addr[2:4] = 0, depth - 1
    write_en[:2] = 1
    clash = (write_en == 1) & (write_addr == read_addr)
    read_addr[clash] = (read_addr[clash] + 1) % depth
    data = rng.integers(0, 256, (N_CYCLES, -(-width // 8)), np.uint8)
    data[:, -1] &= (1 << (width - 8 * (data.shape[1] - 1))) - 1
    data[::7] = 0
    return write_en, write_addr, data, read_addr


def _expected(depth, write_en, write_addr, data, read_addr):
    """What each cycle shows on read_data; words never written are marked by a mask."""
    words = np.zeros((depth, data.shape[1]), np.uint8)
    known = np.zeros(depth, bool)
    out, sure = np.zeros_like(data), np.zeros(len(data), bool)
    for t in range(len(data)):
        if t + 2 < len(data):
            out[t + 2], sure[t + 2] = words[read_addr[t]], known[read_addr[t]]
        if write_en[t]:
            words[write_addr[t]], known[write_addr[t]] = data[t], True
    return out, sure


@pytest.mark.parametrize("body", ["generic", "ecp5"])
@pytest.mark.parametrize(
    ("width", "depth"), [(593, 512), (36, 300), (19, 1024), (5, 2), (7, 16384)]
)
def test_read_after_two_cycles(width, depth, body):
    model = (ecp5 if body == "ecp5" else batch).build(BlockRAM(width, depth))
    accesses = _accesses(width, depth, np.random.default_rng(width))
    names = ("write_en", "write_addr", "write_data", "read_addr")
    run = model.run(
        signals=dict(zip(names, accesses, strict=True)),
        trace=["read_data"],
        drain=False,
        max_cycles=N_CYCLES,
    )
    out, sure = _expected(depth, *accesses)
    got = encoding.pack(width, run.traces["read_data"])
    assert sure.sum() > N_CYCLES / 16
    np.testing.assert_array_equal(got[sure], out[sure])


@pytest.mark.parametrize("body", ["generic", "ecp5"])
@pytest.mark.parametrize(("width", "depth"), [(75, 500), (19, 700)])
def test_contents(width, depth, body):
    rng = np.random.default_rng(depth)
    words = rng.integers(0, 256, (depth - 3, -(-width // 8)), np.uint8)
    words[:, -1] &= (1 << (width - 8 * (words.shape[1] - 1))) - 1
    init = [int.from_bytes(word.tobytes(), "little") for word in words]
    memory = BlockRAM(width, depth, init=init)
    model = (ecp5 if body == "ecp5" else batch).build(memory)
    n = len(words)
    run = model.run(
        signals={"read_addr": np.arange(n + 2).clip(max=n - 1)},
        trace=["read_data"],
        drain=False,
        max_cycles=n + 2,
    )
    np.testing.assert_array_equal(encoding.pack(width, run.traces["read_data"])[2:], words)


def test_bad_contents():
    with pytest.raises(ValueError, match="init must have at most 4 words, not 5"):
        BlockRAM(8, 4, init=range(5))
    with pytest.raises(ValueError, match="depth must be at most 2048 with init, not 4096"):
        BlockRAM(8, 4096, init=[1])


def test_users_never_read_the_word_being_written():
    """The model returns such a word inverted; the portable body returns the old one."""
    fifo = BlockFIFO(Beat(32), 16)
    rng = np.random.default_rng(3)
    beats = encoding.pack(
        Beat(32), data=rng.integers(0, 2**32, 2000), last=rng.integers(0, 2, 2000)
    )
    model = ecp5.build(fifo)
    for duty in (1, 0.6, 0.2):
        run = model.run({"i": beats}, ["o"], stalls={"i": 0.7, "o": duty}, seed=5)
        run.check(o=beats)


def test_unmodeled_mode_does_not_build(monkeypatch):
    monkeypatch.setattr(ecp5, "DP16KD", ecp5.DP16KD.replace("REGMODE_A != REGMODE_B", "1"))
    with pytest.raises(tools.ToolError, match="mode_not_modeled"):
        ecp5.build(BlockRAM(8, 16))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 16), "width must be at least 1, not 0"),
        ((8, 1), "depth must be 2 to 16384, not 1"),
        ((8, 16385), "depth must be 2 to 16384, not 16385"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        BlockRAM(*arguments)
