"""Units out of stores with noise wherever nothing was written: whole, in order, no bubble."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from gradnic.hdl.inceptionn.merger import CodedUnit, Merger
from gradnic.hdl.primitive.block_ram import Bank
from gradnic.hdl.stream.beats import FrameBeat
from gradnic.models.inceptionn.merger import beats, merged
from gradnic.sim.engine import batch, stimulus

N_LANES, N_UNITS = 4, 16
N_BYTES, PLACES = 4 * N_LANES, 1 << 9
ADDRESS = 9
UNIT = CodedUnit(N_BYTES, row_addr=ADDRESS, tag_addr=ADDRESS, n_beats=64)
STORES = ("tag", "row", "tail")
GRID = [{}, {"units": 0.2}, {"coded": 0.4}, {"units": 0.7, "coded": 0.8}]


class Stand(wiring.Component):
    """The merger and its stores, which the bench writes."""

    def __init__(self):
        self.merger = Merger(N_LANES, UNIT, N_UNITS)
        widths = {"en": 1, "at": ADDRESS, "word": 8 * N_BYTES}
        writes = {f"{name}_{port}": In(w) for name in STORES for port, w in widths.items()}
        super().__init__(
            {
                "units": In(stream.Signature(UNIT)),
                "coded": Out(stream.Signature(FrameBeat(N_BYTES))),
                "done": Out(1),
                "places": Out(2 * ADDRESS),
                "strays": Out(1),
                **writes,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.merger = merger = self.merger
        wiring.connect(m, merger.coded, wiring.flipped(self.coded))
        m.d.comb += [
            self.units.ready.eq(1),
            merger.units.valid.eq(self.units.valid),
            merger.units.p.eq(self.units.p),
            self.done.eq(merger.done),
            self.places[:ADDRESS].eq(merger.rows),
            self.places[ADDRESS:].eq(merger.tag_rows),
            self.strays.eq(merger.strays),
        ]
        for name in STORES:
            m.submodules[name] = store = Bank(8 * N_BYTES, PLACES)
            m.d.comb += [
                store.write_en.eq(getattr(self, f"{name}_en")),
                store.write_addr.eq(getattr(self, f"{name}_at")),
                store.write_data.eq(getattr(self, f"{name}_word")),
                store.read_addr.eq(getattr(merger, f"{name}_addr")),
                getattr(merger, f"{name}_data").eq(store.read_data),
            ]
        return m


def sizes(rng, round):
    """(Bytes of tags, bytes of all) of a run's units: ends at and around a beat's; then any."""
    if round:
        tags = 2 * rng.integers(1, 31, N_UNITS)
        return list(zip(tags, tags + rng.integers(0, 400, N_UNITS), strict=True))
    around = [(t, t + p) for t in (2, 16, 18, 32) for p in (0, 1, 13, 14)]
    assert len(around) == N_UNITS
    return around


def stored(rng, cases):
    """Contents of all stores, and the units: {field: values}, bytes that each becomes."""
    stores = {name: rng.integers(0, 256, (PLACES, N_BYTES), np.uint8) for name in STORES}
    fields, units = {name: [] for name, _ in UNIT}, []
    row = tag_row = int(rng.integers(PLACES))  # they go round
    for k, (tag_bytes, size) in enumerate(cases):
        full, n_tag_rows = tag_bytes // N_BYTES, -(-tag_bytes // N_BYTES)
        n_rows = max(0, size // N_BYTES - full)
        units.append(
            merged(
                stores["tag"][(tag_row + np.arange(n_tag_rows)) % PLACES],
                stores["row"][(row + np.arange(n_rows)) % PLACES],
                stores["tail"][k],
                tag_bytes=tag_bytes,
                size=size,
            )
        )
        last = (size - 1) // N_BYTES
        values = {
            "row": (row - full) % PLACES, "tag_row": tag_row, "full_tags": full,
            "has_full": int(full > 0), "tag_end": tag_bytes % N_BYTES, "final": last,
            "single": int(last == 0), "end": size % N_BYTES, "rows": n_rows,
            "tag_rows": n_tag_rows, "dropped": int(rng.random() < 0.2),
        }  # fmt: skip
        for name, value in values.items():
            fields[name].append(int(value))
        row, tag_row = (row + n_rows) % PLACES, (tag_row + n_tag_rows) % PLACES
    return stores, fields, units


@pytest.mark.parametrize("stalls", GRID, ids=str)
def test_units_leave_whole(stalls):
    model, rng = batch.build(Stand()), stimulus.rng("merger", *stalls)
    stand = model.instance()
    for round in range(4):
        stores, fields, units = stored(rng, sizes(rng, round))
        write = {f"{name}_word": store for name, store in stores.items()}
        write |= {f"{name}_at": np.arange(PLACES) for name in STORES}
        write |= {f"{name}_en": 1 for name in STORES}
        stand.run(signals=write, drain=False, max_cycles=PLACES, reset=round == 0)
        run = stand.run(
            {"units": model.pack("units", **fields)},
            signals={f"{name}_en": 0 for name in STORES},
            trace=["done", "places"],
            stalls=stalls,
            reset=False,
        )
        stays = [unit for unit, gone in zip(units, fields["dropped"], strict=True) if not gone]
        cut = [beats(unit, N_BYTES) for unit in stays]
        run.check(
            coded=model.pack(
                "coded",
                data=np.concatenate([data for data, _ in cut]),
                keep=np.concatenate([np.packbits(k, axis=1, bitorder="little") for _, k in cut]),
                last=np.concatenate([np.arange(len(k)) == len(k) - 1 for _, k in cut]).astype(int),
                bad=0,
            )
        )
        gives_back = run.traces["places"][run.traces["done"].astype(bool)]
        places = np.array(fields["rows"]) | np.array(fields["tag_rows"]) << ADDRESS
        assert gives_back.tolist() == places.tolist()
        assert run.signals["strays"] == 0
        if not stalls:
            ends = np.flatnonzero(np.array(fields["dropped"]) == 0)
            skipped = sum(fields["dropped"][ends[0] : ends[-1]])
            assert np.ptp(run.taken["coded"]) == sum(len(k) for _, k in cut) - 1 + skipped
            if ends[0] == 0:
                assert run.taken["coded"][0] - run.taken["units"][0] == Merger.latency


def test_the_model_takes_each_byte_from_its_place():
    tags, rows = np.array([[1, 2, 99, 99]], np.uint8), np.array([[99, 99, 3, 4]], np.uint8)
    tail = np.array([5, 98, 98, 98], np.uint8)
    assert merged(tags, rows, tail, tag_bytes=2, size=5).tolist() == [1, 2, 3, 4, 5]
    assert merged(tags, rows[:0], tail, tag_bytes=2, size=2).tolist() == [1, 2]
    data, keep = beats(np.array([1, 2, 3, 4, 5], np.uint8), 4)
    assert data.tolist() == [[1, 2, 3, 4], [5, 0, 0, 0]]
    assert keep.sum(axis=1).tolist() == [4, 1]
