"""Messages of a link taken apart: words of chunks, each with its place in memory."""

from dataclasses import dataclass

import numpy as np

from gradnic.interface.flit import FLIT_FLOATS, Share

from .link import fields


@dataclass(frozen=True)
class Word:
    """A word on its way into memory: uint32 (n_lanes,), 0 behind a chunk's end.

    landing : for a contribution of `rank`, in landing memory; else a final chunk's, in gradient
    memory. ends : the chunk's last word.
    """

    data: np.ndarray
    address: int
    landing: bool
    ends: bool
    chunk: int
    rank: int


def land(flits: np.ndarray, share: Share) -> tuple[list[Word], bool]:
    """Words of whole messages, FLIT (n,), in order; whether one is foreign.

    A message that names a chunk or a rank that `share` does not have is foreign, and nothing of
    that chunk is written; one whose length is not that of its chunks is, too: what it is short of
    is not written, and what it has too much is of the chunks that follow. Heads with ``more`` say
    nothing new. Payload without a head is foreign.
    """
    words: list[Word] = []
    foreign = False
    for part in np.split(flits, np.flatnonzero(flits["last"][:-1]) + 1):
        if not part["head"][0]:
            foreign = True
            continue
        its, payload = fields(part["data"][0]), part["data"][~part["head"]]
        chunk, ends = its["first"], its["first"] + its["count"]
        while len(payload):
            size = share.chunk_flits[chunk == share.live - 1]
            known = chunk < share.live and (its["gather"] or its["rank"] < share.ranks[chunk])
            if known:
                words += _words(payload[:size], chunk, its, share)
            foreign |= not known or len(payload) < size or chunk >= ends
            payload, chunk = payload[size:], chunk + 1
        foreign |= chunk < ends
    return words, foreign


def _words(payload: np.ndarray, chunk: int, its: dict[str, int], share: Share) -> list[Word]:
    landing = not its["gather"]
    place = share.base[chunk] + its["rank"] if landing else chunk
    n_words = -(-len(payload) * FLIT_FLOATS // share.n_lanes)
    data = np.zeros((n_words, share.n_lanes), "<u4")
    data.reshape(-1)[: len(payload) * FLIT_FLOATS] = payload.reshape(-1).view("<u4")
    return [
        Word(row, int(place) * share.chunk_words + k, landing, k == n_words - 1, chunk, its["rank"])
        for k, row in enumerate(data)
    ]
