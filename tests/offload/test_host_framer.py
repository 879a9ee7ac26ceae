"""Frames of a card to its own host against the golden ones: whole, in turns, at their rate."""

import numpy as np
import pytest
from gradnic.hdl.offload.host_framer import TEXT_BYTES, HostFramer
from gradnic.hdl.offload.host_parser import Ends
from gradnic.models.frame.address import Address
from gradnic.models.offload.host_framer import framed, in_turns
from gradnic.sim.engine import batch, stimulus

from gradnic.interface.formats import HEAD_BYTES
from gradnic.interface.host_frame import MAX_PAYLOAD, Kind, Status

MAC, PORT = 0x02676E0D0E0F, 29440
GRID = [(1, 1), (0.5, 1), (1, 0.3), (0.6, 0.6)]
READ_LENGTHS = [0, 1, 15, 16, 17, 64, 65, MAX_PAYLOAD]
TEXT_LENGTHS = [0, 1, 4, TEXT_BYTES - 1, TEXT_BYTES]


def drawn(rng, lengths):
    """Answers with payloads of these lengths, and addresses of hosts that overflow checksums."""
    found = []
    for length in map(int, lengths):
        ends = {"mac": int(rng.integers(1 << 48)), "ip": int(rng.choice([0xFFFFFFFF, 0x0A000001])),
                "port": int(rng.integers(1 << 16)), "me": int(rng.integers(1 << 32))}  # fmt: skip
        found.append(
            {"kind": int(rng.choice(list(Kind))), "status": int(rng.choice(list(Status))),
             "seq": int(rng.integers(1 << 24)), "address": int(rng.integers(1 << 48)),
             "elems": length, "arg": int(rng.integers(1 << 32)), "last": int(rng.integers(2)),
             "ends": ends}
        )  # fmt: skip
    return found


def golden(answer, payload):
    ends = answer["ends"]
    me = Address(0, MAC, ends["me"], PORT)
    host = Address(0, ends["mac"], ends["ip"], ends["port"])
    head = {name: answer[name] for name in ("seq", "elems", "arg", "last")}
    head |= {"p0": answer["kind"], "p1": answer["status"]}
    return framed(me, host, head, answer["address"], payload)


def packed(model, port, answers):
    ends = np.array(
        [
            np.frombuffer(Ends.const(one["ends"]).as_value().value.to_bytes(16, "little"), np.uint8)
            for one in answers
        ]
    )
    fields = {name: [one[name] for one in answers] for name in answers[0] if name != "ends"}
    return model.pack(port, ends=ends, **fields)


@pytest.mark.parametrize("n_bytes", [16, 64])
@pytest.mark.parametrize(("i", "o"), GRID)
def test_frames_equal_golden(n_bytes, i, o):
    rng = stimulus.rng("host_framer", n_bytes)
    model = batch.build(HostFramer(n_bytes))
    text = rng.bytes(TEXT_BYTES)  # of all answers of a run
    answers = drawn(rng, [*TEXT_LENGTHS, *rng.integers(0, TEXT_BYTES + 1, 25)])
    reads = drawn(rng, [*READ_LENGTHS, *rng.integers(0, 300, 25)])
    loads = [rng.bytes(one["elems"]) for one in reads]
    run = model.run(
        {
            "answers": packed(model, "answers", answers),
            "heads": packed(model, "heads", reads),
            "values": model.pack_frames("values", [load for load in loads if load]),
        },
        signals={
            "mac": MAC,
            "udp_port": PORT,
            "text": np.frombuffer(text, np.uint8)[None],
        },
        stalls={"values": i, "o": o},
    )
    told = [golden(one, text[: one["elems"]]) for one in answers]
    read = [golden(*one) for one in zip(reads, loads, strict=True)]
    assert run.frames("o") == list(in_turns(told, read))


@pytest.mark.parametrize("n_bytes", [16, 64])
def test_rate(n_bytes):
    """A beat per cycle, frames back to back where they take longer than a head does."""
    model = batch.build(HostFramer(n_bytes))
    rng, n = stimulus.rng("rate"), 12
    for length in (0, 400):
        reads = drawn(rng, [length] * n)
        streams = {"heads": packed(model, "heads", reads)}
        if length:
            loads = [rng.bytes(length) for _ in reads]
            streams["values"] = model.pack_frames("values", loads)
        run = model.run(streams, signals={"mac": MAC, "udp_port": PORT})
        n_beats = -(-(HEAD_BYTES + length) // n_bytes)
        lasts = run.taken["o"][n_beats - 1 :: n_beats]
        assert (np.diff(lasts) == max(n_beats, 5)).all()
        assert run.taken["o"][0] - run.taken["heads"][0] == 1
