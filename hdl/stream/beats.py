"""Payload shapes of the streams that join all circuits: beats of packets, of frames and of units.

Byte 0 of a beat is ``data[7:0]``, as on AXI4-Stream.

Plumbing: no golden model of its own.
"""

from amaranth.lib import data

from gradnic.interface.params import check_least, check_power


def UnitBeat(width):
    """Shape of a beat of a unit that may still be dropped: ``data``, ``last``, ``drop``.

    ``drop`` counts at ``last``: the whole unit vanishes.
    """
    check_least("width", width, 1)
    return data.StructLayout({"data": width, "last": 1, "drop": 1})


def Beat(width: int):
    """Shape of a beat without byte lengths: ``data`` and ``last`` (ends a unit).

    width : int, bits of data, at least 1.
    """
    check_least("width", width, 1)
    return data.StructLayout({"data": width, "last": 1})


def FrameBeat(n_bytes: int, *, meta_width: int = 0):
    """Shape of a beat of an Ethernet frame, without preamble and FCS.

    n_bytes : int, bytes per beat, a power of two from 1 to 128.
    meta_width : int, bits of side band, constant over a frame and kept with it.

    ``keep`` is contiguous from byte 0 and all ones unless ``last``; ``bad`` counts at ``last``.
    """
    check_power("n_bytes", n_bytes, 1, 128)
    check_least("meta_width", meta_width, 0)
    fields = {"data": 8 * n_bytes, "keep": n_bytes, "last": 1, "bad": 1}
    if meta_width:
        fields["meta"] = meta_width
    return data.StructLayout(fields)
