"""Head and payload of a frame in beats of their own. Twin of `gradnic.hdl.frame.head_beat`."""


def apart(frame: bytes, n_bytes: int) -> bytes:
    """A frame with zeros behind its head, so that its payload begins with a beat.

    n_bytes : of a beat, twice those of a head. A frame that is shorter than a head is left alone.
    """
    half = n_bytes // 2
    if len(frame) < half:
        return frame
    return frame[:half] + bytes(n_bytes - half) + frame[half:]


def joined(frame: bytes, n_bytes: int) -> bytes:
    """The frame that `apart` makes this one of; it has a whole head."""
    half = n_bytes // 2
    return frame[:half] + frame[n_bytes:]
