"""A THC worker whose arithmetic is RTL: norms, indices and floats from the three engines."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from gradnic.models.aggregation.jobs import W_CODES
from gradnic.models.thc import shared_random as thc_random
from gradnic.models.thc.worker import BLOCKS, Worker, pack

from ..engine import batch

SETTLE = [0] * 8  # cycles in which an engine takes over its registers
TENSOR = 0x7F4A7C15
QUIET = 2048  # cycles: a block of 4096 takes 1024 beats to be stored, and as many to be worked on


@dataclass(frozen=True)
class Engines:
    """Libraries of a worker's circuits, each a `batch.Model`, and their floats per cycle."""

    norm: batch.Model
    encoder: batch.Model
    decoder: batch.Model
    lanes: int


@cache
def build_engines(lanes, block):
    """The `Engines` for blocks of up to `block` elements, made once a process."""
    from gradnic.hdl.thc.decoder import ThcDecoder
    from gradnic.hdl.thc.encoder import ThcEncoder
    from gradnic.hdl.thc.norm import ThcNorm

    models = [batch.build(kind(lanes, block=block)) for kind in (ThcNorm, ThcEncoder, ThcDecoder)]
    return Engines(*models, lanes)


class RtlWorker(Worker):
    """`gradnic.models.thc.Worker` in block mode, by RTL engines; the same calls, the same bits.

    engines : Engines. Others as of `Worker`.

    Attributes: `cycles`, of all engines together.
    """

    def __init__(self, engines, *args, **options):
        super().__init__(*args, **options)
        self.cycles = 0
        self.engines = engines
        self._norm = engines.norm.instance()
        self._encoder = engines.encoder.instance()
        self._decoder = engines.decoder.instance()
        self._encoder.run(
            signals=self._shape() | self._table(), drain=False, max_cycles=len(self._cells) + 40
        )

    def norms(self, x):
        rows = self.blocks(x)
        run = self._norm.run(
            {"floats": self._floats(self.engines.norm, rows)},
            ["norms"],
            stalls={"floats": (SETTLE, 1)},
            signals={"log4": BLOCKS.index(self.B)},
            idle_cycles=QUIET,
        )
        self.cycles += run.cycles
        return run.unpack("norms").astype(np.uint32)

    def encode(self, x, norms, *, round, worker, tensor=0, first_block=0):
        rows = self.blocks(x)
        keys = self._keys(tensor) | {"random_key": int(thc_random.key(self.seed, round, worker)[0])}
        self._encoder.run(
            signals=keys | {"rekey": [0, 1, 0]}, drain=False, max_cycles=100, reset=False
        )
        model = self.engines.encoder
        run = self._encoder.run(
            {
                "blocks": model.pack(
                    "blocks",
                    word=norms,
                    number=first_block + np.arange(len(rows)),
                    silent=(self.norms(rows) > norms).astype(int),
                ),
                "floats": self._floats(model, rows),
            },
            ["indices"],
            reset=False,
        )
        self.cycles += run.cycles
        packed = run.outputs["indices"].tobytes()
        bits = np.unpackbits(np.frombuffer(packed, np.uint8)).reshape(-1, self.b)
        return np.packbits(bits, axis=1).reshape(-1) >> np.uint8(8 - self.b)

    def decode(self, sums, norms, *, round, tensor=0):
        del round
        n_levels = self.n * self.g
        width = next(w for w in W_CODES if n_levels < 1 << w)
        unit = np.float32(self.t_fixed / 256 / (n_levels * self.B))
        packed = np.frombuffer(pack(sums, width), np.uint8)
        beat = 2 * self.engines.lanes
        packed = np.pad(packed, (0, -packed.size % beat)).reshape(-1, beat)
        model = self.engines.decoder
        run = self._decoder.run(
            {
                "blocks": model.pack("blocks", word=norms, number=np.arange(len(norms))),
                "sums": model.pack("sums", packed),
            },
            ["floats"],
            stalls={"blocks": (SETTLE, 1), "sums": (SETTLE, 1)},
            signals={
                "log4": BLOCKS.index(self.B),
                "code": W_CODES.index(width),
                "offset": n_levels,
                "unit": int(unit.view(np.uint32)),
                **self._keys(tensor),
            },
        )
        self.cycles += run.cycles
        return run.outputs["floats"].reshape(-1).view("<f4")[: len(norms) * self.B].copy()

    def _floats(self, model, rows):
        return model.pack("floats", rows.reshape(-1, self.engines.lanes))

    def _keys(self, tensor):
        hashed = thc_random.fmix32(np.array([tensor & 0xFFFFFFFF], np.uint32) + np.uint32(TENSOR))
        sign_key = thc_random.key(self.seed, self.sign_round, thc_random.SIGN_WORKER)
        return {"sign_key": int(sign_key[0]), "tensor_hash": int(hashed[0])}

    def _shape(self):
        return {
            "log4": BLOCKS.index(self.B),
            "tensor": 0,
            "bits": self.b,
            "t_fixed": self.t_fixed,
            "unit": self.unit,
        }

    def _table(self):
        """The table's cells on the encoder's write port, one a cycle."""
        words = [
            lower | a - level // 256 << 8 | gap << 16
            for a, (lower, level, gap) in enumerate(self._cells.tolist())
        ]
        return {
            "write_en": [1] * len(words) + [0],
            "write_addr": [*range(len(words)), 0],
            "write_data": [*words, 0],
            "rekey": 0,
        }
