"""What a job with THC draws its dice and signs from: a worker's keys, and the hash of its tensor.

Golden twin of `gradnic.hdl.offload.thc_keys`. The round of a worker is the job's GEN, and its
number that of the node. Source: `gradnic.models.thc.shared_random`, which every worker follows.
"""

from dataclasses import dataclass

import numpy as np

from ..thc import shared_random

OF_TENSOR = 0x7F4A7C15
ORDER = ("random_key", "sign_key", "tensor_hash")
"""Keys in the order in which the circuit has them."""


@dataclass(frozen=True)
class ThcKeys:
    """Words of 32 bits. random_key : of a node's dice. sign_key : of the signs, which all nodes
    share. tensor_hash : what block numbers are mixed with.
    """

    random_key: int
    sign_key: int
    tensor_hash: int


def keys(seed: int, gen: int, node: int, tensor: int) -> ThcKeys:
    """Keys of one job on one node.

    seed, gen, node, tensor : int, of 32, 16, 8 and 16 bits.
    """
    dice = shared_random.key(seed, gen, node)
    signs = shared_random.key(seed, gen, shared_random.SIGN_WORKER)
    tensor_hash = shared_random.fmix32(np.array([tensor + OF_TENSOR & 0xFFFFFFFF], np.uint32))
    return ThcKeys(int(dice[0]), int(signs[0]), int(tensor_hash[0]))
