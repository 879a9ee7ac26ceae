"""THC over flit links: a round of norms, then one of sums, by the cards' integer units."""

from dataclasses import replace

import numpy as np
from gradnic.hdl.reduction.reduce import Op
from gradnic.models.thc.worker import Worker, pack, unpack

from .cluster import Cluster, cosim

SEED = 1  # of THC's random streams
G = 30  # granularity of a leaf's levels, where the sums of all leaves fit 16 bits
WIDTHS = {8: Op.INT8, 16: Op.INT16}  # of sums; 12 bits straddle lanes, and take 16


def granularity(n_nodes):
    """g of THC: 30, or the largest even one whose sums of all nodes fit 16 bits."""
    g = min(G, 65535 // n_nodes & ~1)
    if g < 14:
        raise ValueError(f"nodes must be at most 4681 for THC sums of 16 bits, not {n_nodes}")
    return g


def _words(data):
    """Bytes as what the cards hold: float32 by their bits, the last one filled with zeros."""
    return np.frombuffer(data + bytes(-len(data) % 4), "<f4")


def run(table, topology, gradients, *, block=1024, cluster=Cluster, **options):
    """One all-reduce of the mean of `gradients`, float32 (n_nodes, n_elems), by THC.

    Norms and indices are the host's (`gradnic.models.thc.Worker`); cards take the maximum of
    norms, then add the levels of all leaves as integers of 8 or 16 bits: those of one element are
    as wide at a leaf as at the root. block : elements of a norm. cluster, options : what makes
    the cards.

    Returns (`Cosim` of both rounds, float32 (n_nodes, n_elems)).
    """
    n_nodes, n_elems = gradients.shape
    worker = Worker(n_nodes, SEED, g=granularity(n_nodes), B=block)
    width = next(w for w in WIDTHS if n_nodes * worker.g < 1 << w)

    def one_round(values, op):
        cards = cluster(table, topology, values.shape[1], op=op, **options)
        return cosim(table, topology, values, cluster=cards)

    norms = np.stack([worker.norms(x) for x in gradients])
    first = one_round(norms.view(np.float32), Op.MAX)
    known = first.result.replicas.view(np.uint32)
    indices = (
        worker.encode(x, known[v], round=1, worker=v, tensor=1) for v, x in enumerate(gradients)
    )
    levels = np.stack([_words(pack(worker.table[i], width)) for i in indices])
    second = one_round(levels, WIDTHS[width])
    n_padded = norms.shape[1] * block
    replicas = np.stack(
        [
            worker.decode(unpack(words.tobytes(), width, n_padded), known[v], round=1, tensor=1)
            for v, words in enumerate(second.result.replicas)
        ]
    )[:, :n_elems]
    both = replace(
        second,
        ok=first.ok and second.ok,
        cycles=first.cycles + second.cycles if first.ok and second.ok else None,
        bit_exact=first.bit_exact and second.bit_exact,
        mismatches=first.mismatches + second.mismatches,
        first=first.first or second.first,
        flits=first.flits + second.flits,
    )
    return both, replicas
