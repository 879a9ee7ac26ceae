"""Memories that boards have, and what share of a line offload cards keep with them.

Timing: JESD79-4 (DDR4, 8 Gb parts; tRP + tRCD, tWTR_L with the write's latency, tRFC1) and JESD235
(HBM2, pseudo channels of 64 bits and pages of 1 KiB): typical parts, rounded, and boards as they
are commonly fitted. Neither was checked against each board's manual.
"""

from dataclasses import dataclass

from gradnic.interface.formats import HEAD_BYTES

PAYLOAD = 1408  # bytes of a packet of 352 floats
WIRE_MORE = 24  # bytes of a frame's FCS, preamble and gap
BATCH = 2048  # bytes one way, before the bus of a channel turns round for the other


@dataclass(frozen=True)
class Dram:
    """One channel.

    gbytes : peak rate in 10^9 bytes/s. row_bytes, n_banks : of open rows. row_miss, turn : ns of
    precharge and activate; of the bus, between reads and writes. refresh_every, refresh : tREFI and
    tRFC in ns.
    """

    gbytes: float
    row_bytes: int
    n_banks: int
    row_miss: float
    turn: float
    refresh_every: float
    refresh: float

    def least(self) -> float:
        """10^9 bytes/s of reads and writes in turns, if no miss of a row hides behind other rows.

        The bus turns after each `BATCH`, and every row is used once from end to end.
        """
        turning = BATCH / (BATCH + self.turn * self.gbytes)
        opening = self.row_bytes / (self.row_bytes + self.row_miss * self.gbytes)
        return self.gbytes * turning * opening * (1 - self.refresh / self.refresh_every)


DRAMS = {
    "ddr4-2400": Dram(19.2, 8192, 16, 28.3, 15.0, 7800, 350),
    "ddr4-2666": Dram(21.3, 8192, 16, 28.5, 15.0, 7800, 350),
    "hbm2": Dram(14.4, 1024, 16, 28.0, 10.0, 3900, 260),
    "hbm2-u50": Dram(9.9, 1024, 16, 28.0, 10.0, 3900, 260),  # the board's stacks run slower
}


@dataclass(frozen=True)
class Board:
    """n_channels of `memory`, a key of `DRAMS`; n_lines : ports of 100 Gb/s."""

    memory: str
    n_channels: int
    n_lines: int


BOARDS = {
    "AU200": Board("ddr4-2400", 4, 2),
    "AU250": Board("ddr4-2400", 4, 2),
    "U280, DDR": Board("ddr4-2400", 2, 2),
    "U280, HBM": Board("hbm2", 32, 2),
    "U50": Board("hbm2-u50", 32, 1),
    "U55C": Board("hbm2", 32, 2),
    "VCU118": Board("ddr4-2400", 2, 2),
    "Agilex F kit": Board("ddr4-2666", 2, 2),
}


def needed(gbits: float = 100.0) -> float:
    """10^9 bytes/s of one stream of payload at a line of `gbits` Gb/s."""
    return gbits / 8 * PAYLOAD / (PAYLOAD + HEAD_BYTES + WIRE_MORE)


def share(memory: str, gradient: int, landing: int, gbits: float = 100.0) -> dict[str, float]:
    """What share of the line's payload is kept, at least, with so many channels: by phase.

    Areas with channels of their own: reduce-scatter reads gradients, and writes and reads landings;
    all-gather writes and reads results. landing 0: all areas share the channels of `gradient`.
    """
    rate, stream = DRAMS[memory].least(), needed(gbits)
    if not landing:
        loads = {"reduce": (3, gradient), "gather": (2, gradient)}
        return {phase: min(1.0, n * rate / (k * stream)) for phase, (k, n) in loads.items()}
    reduce = min(gradient, landing / 2)
    return {"reduce": min(1.0, reduce * rate / stream),
            "gather": min(1.0, gradient * rate / (2 * stream))}  # fmt: skip


def budget(board: str, gbits: float = 100.0) -> dict[str, float | int | str]:
    """A row of the table of boards: what one card needs, and what it is given.

    The channels go half to gradients and results, half to landings, up to 4 each, which is what
    a memory port is spread over at most.
    """
    one = BOARDS[board]
    each = min(4, one.n_channels // 2)
    kept = share(one.memory, each, each, gbits)
    return {
        "board": board, "memory": one.memory, "channels": one.n_channels, "used": 2 * each,
        "peak": round(DRAMS[one.memory].gbytes * each, 1),
        "least": round(DRAMS[one.memory].least() * each, 1),
        "needed": round(2 * needed(gbits), 1), **kept,
    }  # fmt: skip
