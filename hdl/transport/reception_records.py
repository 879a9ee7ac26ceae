"""Ports of the receiver under one loss bound: what is asked of a reception, and what it answers.

Plumbing: no golden model of its own.
"""

from amaranth.lib import data
from amaranth.utils import ceil_log2

WORD = 32  # packets of a word of the bitmaps
NUMBER = 24  # bits of a packet number
BYTES = 36  # bits of a count of weighed bytes
WEIGHT = 12
TAKEN, STALE, RANGE, LENGTH, DUPLICATE, LATE = range(6)  # reasons of a `Verdict`
OPEN, DONE, SHORT = range(3)  # status of a context


def context_width(n_contexts):
    """Bits of a context's number."""
    return max(1, ceil_log2(n_contexts))


def Opening(n_contexts):
    """A context starts anew.

    round : GEN that packets must carry. n_packets : numbers run from 0 to n_packets - 1.
    n_expected : of them, those that the source sends. packet_bytes, tail_bytes, final_bytes :
    bytes of a packet, of the last of a chunk, and of packet n_packets - 1. total : weighed bytes
    of all expected packets. p_q16, eager, strict, deadline : see the golden model.
    """
    return data.StructLayout(
        {
            "context": context_width(n_contexts),
            "round": 16,
            "n_packets": NUMBER,
            "n_expected": NUMBER,
            "packet_bytes": 16,
            "tail_bytes": 16,
            "final_bytes": 16,
            "total": BYTES,
            "p_q16": 16,
            "eager": 1,
            "strict": 1,
            "deadline": 32,
        }
    )


def Arrival(n_contexts):
    """A packet came: its number, bytes and GEN; weight of its bytes; tail: last of its chunk."""
    return data.StructLayout(
        {
            "context": context_width(n_contexts),
            "number": NUMBER,
            "n_bytes": 16,
            "round": 16,
            "important": 1,
            "weight": WEIGHT,
            "tail": 1,
        }
    )


Verdict = data.StructLayout({"reason": 3, "complete": 1})
"""reason : `TAKEN`, or why the packet is dropped. complete : it completed the tensor."""


def Probing(n_contexts):
    """A PROBE of packets first .. first + count - 1, at least 1, of one weight and one chunk.

    tail : the last of them is the last of its chunk. n_important : important packets sent.
    """
    return data.StructLayout(
        {
            "context": context_width(n_contexts),
            "first": NUMBER,
            "count": NUMBER,
            "weight": WEIGHT,
            "tail": 1,
            "n_important": NUMBER,
        }
    )


Answer = data.StructLayout({"stop": 1, "first": NUMBER, "n": NUMBER})
"""STOP for the range asked, or the BITMAP of form 0 that follows: its first packet and bits."""


def Closing(n_contexts):
    """A context has closed; short: by its deadline."""
    return data.StructLayout({"context": context_width(n_contexts), "short": 1})


def Lookup(n_contexts):
    """Asks whether a packet came."""
    return data.StructLayout({"context": context_width(n_contexts), "number": NUMBER})


State = data.StructLayout(
    {
        "status": 2,
        "n_open": NUMBER,
        "n_bytes": BYTES,
        "lost": BYTES,
        "n_important": NUMBER,
        "n_sent": NUMBER,
        "told": 1,
        "started": 1,
        "since": 32,
    }
)
"""What changes in a context. n_sent : important packets that the PROBE told; told : one came."""

Config = data.StructLayout(
    {
        "round": 16,
        "n_packets": NUMBER,
        "packet_bytes": 16,
        "tail_bytes": 16,
        "final_bytes": 16,
        "total": BYTES,
        "need": BYTES,
        "eager": 1,
        "strict": 1,
        "deadline": 32,
    }
)
"""What an opening sets."""
