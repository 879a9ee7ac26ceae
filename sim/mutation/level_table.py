"""Mutation campaign of what makes indices and packed sums of THC wide: each beat out."""

import numpy as np
from gradnic.hdl.thc.level_table import LevelTable
from gradnic.models.thc.worker import pack

N_BYTES = 16
HELD = 12  # cycles in which nothing may leave
WIDTHS = 8, 12, 16  # of a sum, by code


def component():
    """The circuit under mutation, for indices of any bits and sums of any width."""
    return LevelTable(N_BYTES, wide=True, bits=8)


def _packets(rng, code, bits, levels):
    """(Beats, {field: bits} of each, beats that must leave, their ``last``), of a few packets."""
    width, inside = WIDTHS[code], (16 if code else 8)
    beats, fields, want, ends = [], {"last": [], "expand": [], "plain": []}, b"", []
    for kind in rng.permutation([0, 0, 1, 1, 2, 2, 0, 1]):
        n = 128 * int(rng.integers(1, 4))  # elements: whole beats, whatever they are
        indices = rng.integers(0, 1 << bits, n)
        sums = rng.integers(0, 1 << width, n)
        sums[: n // 8] = rng.choice([0, (1 << width) - 1, 1 << width - 1, 1], n // 8)
        octets, wide = (
            (pack(indices, bits), pack(levels[indices], inside)),
            (pack(sums, width), pack(sums, inside)),
            (pack(indices, bits),) * 2,
        )[kind]
        count = len(octets) // N_BYTES
        beats.append(np.frombuffer(octets, np.uint8).reshape(count, N_BYTES))
        fields["last"] += [0] * (count - 1) + [1]
        fields["expand"] += [int(kind == 0)] * count
        fields["plain"] += [int(kind == 2)] * count
        want += wide
        ends += [0] * (len(wide) // N_BYTES - 1) + [1]
    out = np.frombuffer(want, np.uint8).reshape(-1, N_BYTES)
    return np.concatenate(beats), fields, out, np.array(ends)


def test(model):
    """Every width of indices under every width of sums, back to back and stalled; the rate.

    The first beat comes a cycle after widths are told, as it must.
    """
    rng = np.random.default_rng(1)
    instance = model.instance()
    for turn in range(2):  # levels of a table are written over those of another
        levels = rng.integers(0, 256, 256)
        writes = np.concatenate(
            [1 | np.arange(256) << 1 | levels << 9, rng.integers(0, 1 << 16, 9) << 1]
        )
        instance.run(
            signals={"write": writes}, drain=False, max_cycles=len(writes), reset=turn == 0,
            probe_cycles=0,
        )  # fmt: skip
        one = model.pack(
            "i", data=np.full((1, N_BYTES), 7, np.uint8), last=[1], expand=[0], plain=[1]
        )
        run = instance.run(
            {"i": one}, signals={"write": 0}, stalls={"o": ([0] * HELD, 1)}, reset=False,
            probe_cycles=0,
        )  # fmt: skip
        assert run.taken["i"][0] < HELD, "a beat waits for the one who takes it"
        for code in range(3):
            for bits in range(2, 9):
                beats, fields, want, ends = _packets(rng, code, bits, levels)
                duty = 1 if turn else 0.6
                run = instance.run(
                    {"i": model.pack("i", data=beats, **fields)},
                    signals={"code": code, "bits": bits, "write": 0},
                    stalls={"i": ([0], duty), "o": duty}, reset=False, probe_cycles=0,
                )  # fmt: skip
                run.check(o=model.pack("o", data=want, last=ends))
                if duty == 1:
                    assert np.ptp(run.taken["o"]) == len(want) - 1, "a bubble"


ARGUED = {
    r"const0 .*-port Y -portbit 3 .*choice = Array": "2 to 8 bits less 2 are below 8",
}
EXPLAINED = {}
