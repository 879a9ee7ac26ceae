"""Tagger: which queue a gradient packet belongs to, and whether it may be lost.

A packet's layer picks the queue, front layers first; its size picks the importance. Unimportant
packets leave as Not-ECT, so that a congested queue drops them, important ones as ECT(0), so that
it marks them. Twin of `gradnic.hdl.transport.tagger`.

Sources: DLCP (arXiv 2008.08445) and MLT (NSDI 2024) for layers, magnitudes and the use of the ECN
bits; which magnitude (`tag_score`) and what reaches the threshold (`tag_threshold`) are ours, as
the papers' rule is unknown.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from gradnic.interface.params import check_range

from ..frame.egress import N_QUEUES
from .tag_score import max_score, sum_score
from .tag_threshold import Threshold

ECT0 = 2
SCORES = ("max", "sum")
THRESHOLDS = ("off", "host", "histogram")
PUSH, PULL, CONTROL = range(3)  # what a packet carries


def layer_queue(layer: int, n_layers: int, n_queues: int = N_QUEUES) -> int:
    """Default queue of layer `layer` of `n_layers`: floor(layer * n_queues / n_layers)."""
    check_range("layer", layer, 0, n_layers - 1)
    return layer * n_queues // n_layers


def default_dscp(n_queues: int = N_QUEUES) -> tuple[tuple[int, int], ...]:
    """``DSCP[queue][important]``: 8 * (7 - queue), the class selectors, alike for both."""
    return tuple((8 * (7 - q),) * 2 for q in range(n_queues))


@dataclass(frozen=True)
class Packet:
    """What the tagger is told of a packet.

    tensor : int, 0 to n_tensors - 1, the host's place for the tensor's threshold and histogram.
    layer : int. kind : `PUSH`, `PULL` or `CONTROL`. scored : False where the values have no
    magnitude, as THC's rotated ones. elems : int, the packet's weight in the histogram.
    """

    tensor: int
    layer: int
    kind: int = PUSH
    scored: bool = True
    elems: int = 0


@dataclass(frozen=True)
class Tag:
    """queue, important (0 or 1), score, and the ToS byte that says it on the wire."""

    queue: int
    important: int
    score: int
    tos: int


@dataclass(frozen=True)
class Rules:
    """The tagger's registers.

    Attributes
    ----------
    n_layers : int
        1 to 4096; `queues` : the queue of each, default `layer_queue`.
    n_tensors : int
        Thresholds and histograms.
    score : str
        ``max`` exponent, or ``sum`` of |g| in units of 2**(`unit` - 127).
    source : str
        Where thresholds come from: ``off`` (no packet is important by size), ``host``, or
        ``histogram`` of the previous round, until which the host's holds.
    share : int
        Target share of important elements, in 1/256; 128 by default.
    back_layer_start : int
        Layers from here on are important throughout.
    pull_all_important : bool
    dscp : tuple
        ``[queue][important]``, 0 to 63. Networks that reserve CS6 and CS7 write others.
    """

    n_layers: int = 1
    queues: tuple = ()
    n_tensors: int = 1
    score: str = "max"
    unit: int = 100
    source: str = "host"
    share: int = 128
    back_layer_start: int = 1 << 12
    pull_all_important: bool = True
    dscp: tuple = field(default_factory=default_dscp)

    def __post_init__(self) -> None:
        check_range("n_layers", self.n_layers, 1, 4096)
        if not self.queues:
            default = tuple(layer_queue(k, self.n_layers) for k in range(self.n_layers))
            object.__setattr__(self, "queues", default)
        if len(self.queues) != self.n_layers:
            raise ValueError(f"queues must be {self.n_layers}, not {len(self.queues)}")
        if not all(0 <= q < N_QUEUES for q in self.queues):
            raise ValueError(f"a queue must be 0 to {N_QUEUES - 1}, not {self.queues}")
        if self.score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(SCORES)}, not {self.score!r}")
        if self.source not in THRESHOLDS:
            raise ValueError(f"source must be one of {', '.join(THRESHOLDS)}, not {self.source!r}")
        check_range("share", self.share, 0, 255)


class Tagger:
    """Golden tagger.

    Parameters
    ----------
    rules : Rules

    Attributes
    ----------
    thresholds : list of `tag_threshold.Threshold`, one a tensor.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.thresholds = [Threshold() for _ in range(rules.n_tensors)]

    def tag(self, packet: Packet, floats: ArrayLike = ()) -> Tag:
        """Tag of `packet` with the float32 values `floats`; counts them in the histogram."""
        rules = self.rules
        floats = np.asarray(floats, np.float32)
        queue, score, by_size = rules.queues[packet.layer], 0, False
        if packet.scored and packet.kind != CONTROL:
            score = max_score(floats) if rules.score == "max" else sum_score(floats, rules.unit)
            reached = self.thresholds[packet.tensor].reached(score, packet.elems)
            by_size = rules.source != "off" and reached
        important = int(
            by_size
            or packet.layer >= rules.back_layer_start
            or packet.kind == CONTROL
            or (packet.kind == PULL and rules.pull_all_important)
        )
        tos = rules.dscp[queue][important] << 2 | (ECT0 if important else 0)
        return Tag(queue, important, score, tos)

    def end_round(self, tensor: int) -> None:
        """The tensor's round is out: the histogram sets the next threshold, and starts anew."""
        share = self.rules.share if self.rules.source == "histogram" else None
        self.thresholds[tensor].end_round(share)
