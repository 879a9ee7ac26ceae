"""What a parser says of a frame: its class and its fate.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import signed
from amaranth.lib import data

FATE_WIDTH = 4


def Unit():
    """What a frame of ours carries to the codec and to the head that leaves.

    native : gradnic head, else paper framing.
    count, bytes : floats of the packet, bytes of payload as it came.
    exponent, paper, prescale : codec settings.
    limit : bytes that the coded unit may take.
    tos : ToS byte of the frame that leaves.
    base : sum of the IPv4 header words that do not change, 19 bits.
    """
    return data.StructLayout(
        {
            "native": 1,
            "count": 16,
            "bytes": 16,
            "exponent": 7,
            "paper": 1,
            "prescale": signed(8),
            "limit": 16,
            "tos": 8,
            "base": 19,
        }
    )


def FrameClass():
    """What the head says of a frame.

    ours : not foreign.
    coding : the unit goes to the codec, unless the rest of the frame shows a fault.
    unchecked : kept whatever the rest of the frame shows.
    fate : `gradnic.inline.Fate` as far as the head tells.
    end : bytes of the frame up to the end of the UDP payload.
    pseudo : sum of the pseudo header's words, to start the UDP checksum with.
    unsummed : the UDP checksum field is 0.
    """
    return data.StructLayout(
        {
            "ours": 1,
            "coding": 1,
            "unchecked": 1,
            "fate": FATE_WIDTH,
            "end": 17,
            "pseudo": 19,
            "unsummed": 1,
            "unit": Unit(),
        }
    )
