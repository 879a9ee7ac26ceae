"""Beats as numpy arrays: the one stimulus encoding of cocotb benches and batch libraries.

The beats of a stream are a uint8 array of shape (n_beats, ceil(payload_bits / 8)). A row holds the
payload's bits little-endian, as Amaranth packs a `StructLayout`: first field lowest, bit 0 of the
payload in bit 0 of byte 0, unused bits of the last byte zero.
"""

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data, stream

UINT64_BITS = 64  # wider fields do not fit numpy's integers and travel as bytes


def payload_shape(shape):
    """Payload shape of `shape`: itself, or that of a stream signature or interface."""
    signature = getattr(shape, "signature", shape)
    is_stream = isinstance(signature, stream.Signature)
    return signature.members["payload"].shape if is_stream else shape


def fields_of(shape):
    """Fields of a payload as {name: (offset, width, signed)}, in bits; "" names a plain payload."""
    shape = payload_shape(shape)
    if isinstance(shape, data.StructLayout):
        fields = {}
        for name, field in shape:
            cast = Shape.cast(field.shape)
            fields[name] = (field.offset, cast.width, cast.signed)
        return fields
    cast = Shape.cast(shape)
    return {"": (0, cast.width, cast.signed)}


def n_bytes(shape):
    """Bytes per beat in the encoding: payload bits / 8, rounded up."""
    return (Shape.cast(payload_shape(shape)).width + 7) // 8


def _field_bytes(name, values, width, signed):
    """Values of one field as (n or 1, ceil(width / 8)) uint8; ValueError outside the field."""
    values = np.asarray(values)
    size = (width + 7) // 8
    if values.ndim == 2:  # bytes, or lanes of any item size
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        if raw.shape[1] != size:
            raise ValueError(f"field {name!r} takes {size} bytes a beat, not {raw.shape[1]}")
        if width % 8 and raw.size and raw[:, -1].max() >> width % 8:
            raise ValueError(f"field {name!r} has {width} bits, not more")
        return raw
    if values.ndim > 2:
        raise ValueError(f"field {name!r} must have 1 or 2 dimensions, not {values.ndim}")
    if width > UINT64_BITS:
        raise ValueError(f"field {name!r} of {width} bits takes rows of {size} bytes")
    if values.dtype.kind not in "iub":
        raise ValueError(f"field {name!r} takes integers, not {values.dtype}")
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if values.size and (int(values.min()) < low or int(values.max()) > high):
        wrong = int(values.min()) if int(values.min()) < low else int(values.max())
        raise ValueError(f"field {name!r} must be within {low}..{high}, not {wrong}")
    words = np.atleast_1d(values).astype(np.int64 if signed else np.uint64).view(np.uint64)
    if width < UINT64_BITS:
        words = words & np.uint64((1 << width) - 1)
    return words.astype("<u8")[:, None].view(np.uint8)[:, :size]


def pack(shape, plain=None, /, **fields):
    """Encode fields as beats.

    shape : payload shape, stream signature or stream interface.
    plain : (n,) integers or (n, bytes) array, for a payload that is no struct.
    fields : one array per field. Up to 64 bits: integers of shape (n,), or one for all beats.
        Any width: (n, k) arrays of k little-endian items that fill the field exactly, for example
        float32 lanes. A field that is not given is 0.

    Returns uint8, shape (n, n_bytes(shape)). ValueError for unknown fields, values that do not
    fit, and lengths that differ.
    """
    layout = fields_of(shape)
    values = fields if plain is None else {"": plain}
    if unknown := sorted(set(values) - set(layout)):
        raise ValueError(f"fields must be among {sorted(layout)}, not {unknown}")
    columns = {name: _field_bytes(name, v, *layout[name][1:]) for name, v in values.items()}
    lengths = {len(c) for name, c in columns.items() if np.ndim(values[name])}
    if len(lengths) > 1:
        raise ValueError(f"fields differ in length: {sorted(lengths)}")
    beats = np.zeros((lengths.pop() if lengths else 1, n_bytes(shape)), np.uint8)
    for name, column in columns.items():
        first, shift = divmod(layout[name][0], 8)
        size = column.shape[1]
        if shift == 0:
            beats[:, first : first + size] |= column
        else:
            beats[:, first : first + size] |= column << np.uint8(shift)
            carry = column >> np.uint8(8 - shift)
            rest = beats.shape[1] - first - 1  # the last byte carries nothing past the payload
            beats[:, first + 1 : first + 1 + size] |= carry[:, :rest]
    return beats


def unpack(shape, beats):
    """Decode beats: {field: values}; for a plain payload the values alone.

    Fields of up to 64 bits come as int64 (signed) or uint64 of shape (n,), wider ones as uint8 of
    shape (n, ceil(width / 8)). ValueError if the beats have another size.
    """
    beats = np.asarray(beats)
    if beats.dtype != np.uint8 or beats.ndim != 2 or beats.shape[1] != n_bytes(shape):
        raise ValueError(
            f"beats must be uint8 (n, {n_bytes(shape)}), not {beats.dtype} {beats.shape}"
        )
    padded = np.zeros((len(beats), beats.shape[1] + 1), np.uint8)
    padded[:, :-1] = beats
    fields = {}
    for name, (offset, width, signed) in fields_of(shape).items():
        first, shift = divmod(offset, 8)
        size = (width + 7) // 8
        raw = padded[:, first : first + size]
        if shift:
            high = padded[:, first + 1 : first + 1 + size]
            raw = (raw >> np.uint8(shift)) | (high << np.uint8(8 - shift))
        else:
            raw = raw.copy()
        if width % 8:
            raw[:, -1] &= (1 << width % 8) - 1
        if width > UINT64_BITS:
            fields[name] = raw
            continue
        octets = np.zeros((len(beats), 8), np.uint8)
        octets[:, :size] = raw
        words = octets.view("<u8")[:, 0]
        if signed and width:
            unused = np.int64(UINT64_BITS - width)
            words = words.view(np.int64) << unused >> unused
        fields[name] = words
    return fields[""] if list(fields) == [""] else fields


def pack_frames(shape, frames, *, at_last=None, **each):
    """Encode byte strings as beats with ``data``, ``last`` and, where the shape has it, ``keep``.

    frames : sequence of bytes-like, at least 1 byte each; unused bytes of a last beat are 0.
    at_last : {field: one value a frame}, set on the last beat of each frame only.
    each : field=one value a frame, or one for all, held over the frame.

    Returns uint8, shape (n_beats, n_bytes(shape)).
    """
    layout = fields_of(shape)
    lane = layout["data"][1] // 8
    sizes = np.array([len(frame) for frame in frames], np.int64)
    if len(sizes) and sizes.min() < 1:
        raise ValueError("a frame must have at least 1 byte, not 0")
    counts = -(-sizes // lane)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    rows = np.zeros(total * lane, np.uint8)
    for frame, end, count in zip(frames, ends, counts, strict=True):
        start = int(end - count) * lane
        rows[start : start + len(frame)] = np.frombuffer(bytes(frame), np.uint8)
    last = np.zeros(total, np.uint64)
    last[ends - 1] = 1
    fields = {"data": rows.reshape(total, lane), "last": last}
    if "keep" in layout:
        used = np.full(total, lane)
        used[ends - 1] = sizes - (counts - 1) * lane
        ones = np.arange(lane)[None, :] < used[:, None]
        bits = np.packbits(ones, axis=1, bitorder="little")
        fields["keep"] = bits[:, : (lane + 7) // 8]
    for name, values in each.items():
        values = np.broadcast_to(np.asarray(values), (len(sizes),))
        fields[name] = np.repeat(values, counts)
    for name, values in (at_last or {}).items():
        fields[name] = np.zeros(total, np.int64)
        fields[name][ends - 1] = values
    return pack(shape, **fields)


def unpack_frames(shape, beats):
    """Cut beats into frames: list of bytes, by ``last`` and, where the shape has it, ``keep``.

    Without ``keep`` every frame has a whole number of beats. ValueError if the beats end inside a
    frame, or if ``keep`` is not contiguous from byte 0, or not full before ``last``.
    """
    layout = fields_of(shape)
    lane = layout["data"][1] // 8
    fields = unpack(shape, beats)
    rows = fields["data"]
    if rows.ndim == 1:
        rows = rows.astype("<u8")[:, None].view(np.uint8)[:, :lane]
    last = fields["last"].astype(bool)
    if len(last) and not last[-1]:
        raise ValueError(f"the beats end inside a frame: beat {len(last) - 1} is not the last")
    used = np.full(len(rows), lane)
    if "keep" in layout:
        keep = fields["keep"]
        if keep.ndim == 1:
            keep = keep.astype("<u8")[:, None].view(np.uint8)
        ones = np.unpackbits(keep, axis=1, bitorder="little")[:, :lane]
        used = ones.sum(axis=1, dtype=np.int64)
        holes = (ones != (np.arange(lane)[None, :] < used[:, None])).any(axis=1)
        wrong = np.flatnonzero(holes | (~last & (used != lane)) | (used == 0))
        if len(wrong):
            raise ValueError(f"keep of beat {wrong[0]} must be contiguous, and full before last")
    ends = np.flatnonzero(last) + 1
    starts = np.concatenate([[0], ends]).astype(np.int64)[: len(ends)]
    flat = np.ascontiguousarray(rows).reshape(-1)
    return [
        flat[s * lane : (e - 1) * lane + used[e - 1]].tobytes()
        for s, e in zip(starts, ends, strict=True)
    ]
