"""Frames of a run as a capture file that Wireshark and tcpdump read."""

import struct

import numpy as np

from gradnic.output import write_whole

MAGIC = 0xA1B23C4D  # pcap with nanoseconds
ETHERNET = 1  # link type
LONGEST = 1 << 16


def pcap(frames):
    """A capture of `frames`, an iterable of (time in ns, bytes without FCS), as bytes.

    The file is little-endian pcap 2.4 with time in nanoseconds. ValueError if time runs backward
    or a frame is longer than 65,536 bytes.
    """
    parts = [struct.pack("<IHHiIII", MAGIC, 2, 4, 0, 0, LONGEST, ETHERNET)]
    before = 0
    for time, frame in frames:
        if time < before:
            raise ValueError(f"times must not run backward, from {before} to {time}")
        if len(frame) > LONGEST:
            raise ValueError(f"a frame must be at most {LONGEST} bytes, not {len(frame)}")
        seconds, nanoseconds = divmod(int(time), 10**9)
        parts += [struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)), bytes(frame)]
        before = time
    return b"".join(parts)


def write_pcap(path, frames):
    """`pcap` into a file; returns the number of frames."""
    frames = list(frames)
    write_whole(path, pcap(frames))
    return len(frames)


def wire_frames(result, n_lanes, *, cycle_ns=5.0):
    """(time in ns, frame) of all wires of a ring, in order of time.

    result : `gradnic.sim.inline.ring.Cosim`. A frame's time is when its last beat left the card,
    cycles of `cycle_ns`; a step begins when the one before has ended.
    """
    timed, start = [], 0
    for step, cycles, length in zip(
        result.traffic, result.beat_cycles, result.step_cycles, strict=True
    ):
        for frames, ports in zip(step.wire, cycles, strict=True):
            n_beats = [-(-len(frame) // (4 * n_lanes)) for frame in frames]
            ends = ports["mac_tx"][np.cumsum(n_beats, dtype=np.int64) - 1]
            timed += [
                (round((start + int(end)) * cycle_ns), frame)
                for end, frame in zip(ends, frames, strict=True)
            ]
        start += length
    return sorted(timed, key=lambda entry: entry[0])
