"""One round of one tensor on one card: what has come, what is summed, what is to be sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..transport.reception import Reception
from ..transport.run_splitter import runs
from ..transport.sender import Sending
from .plan import CHECK, SEQ_UNIT, Row

if TYPE_CHECKING:
    from .card import Tensor


@dataclass
class Packet:
    """A packet ready to be sent; values for the tagger, the rest for the frame."""

    seq: int
    elems: int
    op: int
    p0: int
    p1: int
    payload: bytes
    leaves: int
    check: int
    values: np.ndarray
    important: int = 1
    queue: int = 0
    tos: int = 0


class Run:
    """Consecutive packets of one chunk to one peer, which one PROBE covers."""

    sending: Sending

    def __init__(
        self, to: int, port: int, ph: int, flow: int, first: int, packets: list[Packet]
    ) -> None:
        self.to, self.port, self.ph, self.flow = to, port, ph, flow
        self.first, self.packets = first, packets

    def start(self, t_probe: int) -> None:
        """Queue the packets, once they are tagged."""
        order = [(packet.important, packet.queue) for packet in self.packets]
        self.sending = Sending(order, first=self.first, t_probe=t_probe)


class Round:
    """State of one armed round.

    Parameters
    ----------
    tensor : offload.Tensor
    node, gen : int
    values : array (n_elems,), as `offload.Card.arm` takes them
    norms : the Round of the tensor's norms, for THC
    at_share : bool, as of `offload.Settings`

    Attributes
    ----------
    result : array (n_elems,) of the codec's type, valid where `final`
    leaves : int64 (n_packets,), contributions in each final packet
    final : bool (n_packets,)
    runs, active : lists of `Run`, in order of issue: all, and those without STOP
    landed : {(chunk, rank): {packet number: (values, leaves)}}, contributions not yet summed
    landed_most : most packets that have waited in `landed`
    """

    def __init__(
        self,
        tensor: "Tensor",
        node: int,
        gen: int,
        values: np.ndarray,
        norms: "Round | None" = None,
        *,
        at_share: bool = False,
    ) -> None:
        self.tensor, self.node, self.gen = tensor, node, gen
        self.norms: Any = norms
        plan, codec = tensor.plan, tensor.codec
        values = np.asarray(values)
        if values.shape != (plan.n_elems,):
            raise ValueError(f"values must have shape ({plan.n_elems},), not {values.shape}")
        self.source = values
        self.codes: Any = None  # indices, of THC
        if norms is None:
            self.own = codec.own(values)
        else:  # made row by row, as norms become known
            self.own = np.zeros(plan.n_elems, codec.dtype)
            self.codes = np.zeros(plan.n_elems, np.uint8)
        self.result = np.zeros(plan.n_elems, codec.dtype)
        self.leaves = np.zeros(plan.n_packets, np.int64)
        self.final = np.zeros(plan.n_packets, bool)
        self.rows = list(plan.rows[node])
        self.left = ~plan.parts[node]  # own partial was issued, or there is none
        self.runs, self.active = [], []
        self.landed, self.n_landed, self.landed_most = {}, 0, 0
        sizes = plan.elems * codec.elem_bits // 8
        self.up, self.down = {}, {}
        for source, contributions in plan.up[node].items():
            weights = np.zeros(plan.n_packets, np.int64)
            for chunk, contribution in contributions.items():
                part = plan.packets(chunk, chunk + 1)
                weights[part.start : part.stop] = contribution.leaves
            self.up[source] = Reception(
                np.where(weights, sizes, 0), p_q16=tensor.p_q16, round=gen, weights=weights,
                eager=False, at_share=at_share,
            )  # fmt: skip
        for source, chunks in plan.down[node].items():
            here = np.zeros(plan.n_packets, bool)
            for chunk in chunks:
                part = plan.packets(chunk, chunk + 1)
                here[part.start : part.stop] = True
            self.down[source] = Reception(np.where(here, sizes, 0), round=gen, eager=False)

    @property
    def complete(self) -> bool:
        """Whether all of the result that is to be here is here."""
        return bool(self.final[self.tensor.plan.wanted[self.node]].all())

    @property
    def done(self) -> bool:
        """Whether the result is here and everybody has what we sent."""
        return self.complete and not self.rows and all(run.sending.done for run in self.runs)

    @property
    def oldest(self) -> int:
        """Number of the oldest row that is not out; of rows, if all are, and those that do nothing
        always are.
        """
        plan = self.tensor.plan
        rows, oldest = plan.rows[self.node], self.rows[0] if self.rows else None
        at = next((k for k, row in enumerate(rows) if row is oldest), len(rows))
        return plan.row_numbers[self.node][at]

    def reception(self, source: int, ph: int) -> Reception | None:
        """What tracks the packets of `source`, or None if it sends none."""
        return (self.down if ph else self.up).get(source)

    def take(self, header: Mapping[str, int], body: bytes, source: int) -> str | None:
        """Take a packet's values; None, or why it was dropped."""
        plan, codec = self.tensor.plan, self.tensor.codec
        reception = self.reception(source, header["ph"])
        number = plan.number(header["seq"] * SEQ_UNIT)
        if reception is None or number is None or not reception.sizes[number]:
            return "config"
        if header["op"] not in codec.ops[bool(header["ph"])] or header["tree"]:
            return "config"
        chunk = number // plan.per_chunk
        contribution = plan.up[self.node][source].get(chunk) if not header["ph"] else None
        if contribution is not None and header["slot"] != contribution.flow:
            return "config"
        if header["elems"] != plan.elems[number]:
            return "length"
        if not self.knows_norms(range(number, number + 1)):
            return "not_ready"
        if header["arg"] & CHECK != self._check(number):
            return "config"  # sent under other norms
        if header["ph"] and not self.left[chunk]:
            return "early"
        leaves = header["arg"] >> 20
        if not 1 <= leaves <= (contribution.leaves if contribution else plan.n_nodes):
            return "config"
        try:
            values = codec.decode(header, body)
        except ValueError:
            return "codec"
        reason = reception.data(
            number, int(reception.sizes[number]), round=header["gen"],
            important=header["imp"],
        )  # fmt: skip
        if reason:
            return reason
        if contribution is None:
            self._finish(number, values, leaves)
        else:
            self.landed.setdefault((chunk, contribution.rank), {})[number] = values, leaves
            self.n_landed += 1
            self.landed_most = max(self.landed_most, self.n_landed)
        return None

    def _finish(self, number: int, values: np.ndarray, leaves: int) -> None:
        start, stop = self.tensor.plan.span(number)
        self.result[start:stop] = values
        self.leaves[number], self.final[number] = leaves, True

    def issue(self, segment: int) -> list[Run]:
        """Runs of the rows that are ready now, in table order; they are kept in `runs` too.

        segment : int, packets of a run at most. A row with BAR waits for all rows before it.
        """
        new, waiting = [], []
        for at, row in enumerate(self.rows):
            if row.bar and waiting:
                waiting += self.rows[at:]
                break
            if self._ready(row):
                new += self._runs(row, segment)
            else:
                waiting.append(row)
        self.rows = waiting
        self.runs += new
        self.active += new
        return new

    def _ready(self, row: Row) -> bool:
        plan = self.tensor.plan
        part = plan.packets(row.first, row.stop)
        if not row.is_reduce:
            return bool(self.final[part.start : part.stop].all())
        if not self.knows_norms(part):
            return False
        for source, contributions in plan.up[self.node].items():
            closed = self.up[source].closed
            for chunk in range(row.first, row.stop):
                mine = plan.packets(chunk, chunk + 1)
                if chunk in contributions and not closed[mine.start : mine.stop].all():
                    return False
        return True

    def knows_norms(self, part: Sequence[int]) -> bool:
        """Whether the norms of these packets' blocks are final here; True without norms."""
        if self.norms is None or not len(part):
            return True
        blocks, plan = self._blocks(part[0], part[-1]), self.norms.tensor.plan
        packets = {plan.packet_of(block) for block in range(blocks.start, blocks.stop)}
        return bool(self.norms.final[list(packets)].all())

    def _blocks(self, first: int, last: int) -> slice:
        return self.tensor.plan.blocks(first, last, self.tensor.codec.worker.B)

    def _check(self, number: int) -> int:
        if self.norms is None:
            return 0
        tensor = self.tensor
        return tensor.plan.check(number, self.norms.result, tensor.codec.worker.B)

    def _runs(self, row: Row, segment: int) -> list[Run]:
        """Sum or fetch a row's packets: runs for each of its peers."""
        numbers = self.tensor.plan.packets(row.first, row.stop)
        if row.is_reduce:
            self.left[row.first : row.stop] = True
            if self.norms is not None and len(numbers):
                self._encode(numbers)
            packets = [self._summed(row, number) for number in numbers]
        else:
            packets = [self._final(number) for number in numbers]
        made, cut = [], self.tensor.plan.cut
        for (to, port), mine in runs(cut, row.first, row.stop, row.to, longest=segment):
            at = slice(mine.start - numbers.start, mine.stop - numbers.start)
            copies = [replace(packet) for packet in packets[at]]
            made.append(Run(to, port, int(not row.is_reduce), row.flow, mine.start, copies))
        return made

    def _encode(self, numbers: range) -> None:
        """The node's own THC indices and table values, for the packets of a row."""
        plan, worker = self.tensor.plan, self.tensor.codec.worker
        start, stop = plan.span(numbers[0])[0], plan.span(numbers[-1])[1]
        blocks = self._blocks(numbers[0], numbers[-1])
        codes = worker.encode(
            self.source[start:stop], self.norms.result[blocks], round=self.gen, worker=self.node,
            tensor=self.tensor.tensor, first_block=blocks.start, clips=self.tensor.codec.clips,
        )  # fmt: skip
        self.codes[start:stop] = codes
        self.own[start:stop] = worker.table[codes]

    def _summed(self, row: Row, number: int) -> Packet:
        """The packet's sum in order of ranks, without what is missing; at the root it is final."""
        plan, codec = self.tensor.plan, self.tensor.codec
        start, stop = plan.span(number)
        values, leaves = self.own[start:stop].copy(), 1
        for rank in range(row.wait):
            landed = self.landed.get((number // plan.per_chunk, rank), {}).pop(number, None)
            if landed is not None:
                values, leaves = codec.add(values, landed[0]), leaves + landed[1]
                self.n_landed -= 1
        if not row.to:
            self._finish(number, codec.finish(values, leaves), leaves)
            return self._final(number)
        sent = self.codes[start:stop] if row.wait == 0 and self.codes is not None else values
        return self._packet(number, sent, values, leaves, is_leaf=row.wait == 0)

    def _final(self, number: int) -> Packet:
        start, stop = self.tensor.plan.span(number)
        values = self.result[start:stop]
        return self._packet(number, values, values, int(self.leaves[number]), is_leaf=False)

    def _packet(
        self, number: int, sent: np.ndarray, values: np.ndarray, leaves: int, *, is_leaf: bool
    ) -> Packet:
        plan = self.tensor.plan
        op, p0, p1, payload = self.tensor.codec.encode(sent, leaves, is_leaf=is_leaf)
        seq = plan.span(number)[0] // SEQ_UNIT
        return Packet(
            seq, int(plan.elems[number]), op, p0, p1, payload, leaves, self._check(number), values
        )
