"""Servers with several accelerators each: what lies between a GPU and the network.

Each function returns (n_nodes, n_switches, pairs, bandwidth): nodes are the accelerators, box by
box, and every pair is a link both ways. The boxes hang on one switch, the last vertex. A network
port of a box has bandwidth 1.
"""

NVLINK = 9  # 450 GB/s each way of a GPU's NVLink over the 50 GB/s of a 400 Gb/s port: HGX H100
PCIE = 1.25  # 16 lanes of PCIe 3.0, about 125 Gb/s of payload, over a 100 Gb/s port


def nvlink(boxes: int, gpus: int, nics: int) -> tuple:
    """NVLink islands: a switch joins the GPUs of a box; `nics` ports lead out.

    As many ports as GPUs: each GPU has its own, beside its NVLink. Fewer: they hang on the box's
    switch, as one link of bandwidth `nics`.
    """
    _check("nvlink", gpus, nics)
    n, core = boxes * gpus, boxes * gpus + boxes
    pairs = [((v, n + v // gpus), NVLINK) for v in range(n)]
    if nics == gpus:
        pairs += [((v, core), 1) for v in range(n)]
    else:
        pairs += [((n + b, core), nics) for b in range(boxes)]
    return n, boxes + 1, *zip(*pairs, strict=True)


def pcie(boxes: int, gpus: int, nics: int) -> tuple:
    """PCIe trees: two GPUs on each PCIe switch, the switches on a root complex.

    As many ports as GPUs (EFLOPS, HPCA 2020, section 4.1): each GPU's port is on its own PCIe
    switch, so that what it sends passes no other. Fewer: they hang on the root complex, and all
    that leaves the box goes through it, as does all between the box's switches.
    """
    _check("pcie", gpus, nics)
    n, per = boxes * gpus, -(-gpus // 2)
    root, core = n + boxes * per, n + boxes * per + boxes
    pairs = []
    for v in range(n):
        switch = n + v // gpus * per + v % gpus // 2
        pairs.append(((v, switch), PCIE))
    for b in range(boxes):
        for s in range(per):
            switch = n + b * per + s
            pairs.append(((switch, root + b), PCIE))
            if nics == gpus:
                pairs.append(((switch, core), min(2, gpus - 2 * s)))
        if nics < gpus:
            pairs.append(((root + b, core), nics))
    return n, boxes * per + boxes + 1, *zip(*pairs, strict=True)


def _check(family: str, gpus: int, nics: int) -> None:
    if nics > gpus:
        raise ValueError(f"{family}: a box of {gpus} GPUs has 1 to {gpus} NICs, not {nics}")
