"""The lanes of a reduce unit, for several that take turns beat by beat.

Plumbing: no golden model of its own.
"""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from gradnic.interface.params import check_range

from ..stream.credit_queue import CreditQueue
from ..stream.delays import copied, delayed
from ..stream.steering import chunks
from .reduce import FAR, MAX_LANES, Adding, Combine, near_combines, operands

MAX_USERS = 4


class SharedCombine(wiring.Component):
    """One `Combine` for several users: a beat of one of them goes in each cycle.

    It keeps nothing of a user: one that is reset forgets that sums come, and nobody waits for them.
    A sum is there `latency` cycles after its beat went.

    Parameters
    ----------
    n_lanes, n : int
        32-bit lanes, 1 to 64; users, 1 to 4.
    integers, maxima : bool
        As of `Combine`.

    Members
    -------
    users : In(Adding(n_lanes)).array(n)
    yields : In(ArrayLayout(n, n))
        Bit j of yields[k]: user j goes before user k, from the next cycle on.
    """

    latency = Combine.latency + FAR

    def __init__(
        self, n_lanes: int, n: int, *, integers: bool = True, maxima: bool = False
    ) -> None:
        check_range("n_lanes", n_lanes, 1, MAX_LANES)
        check_range("n", n, 1, MAX_USERS)
        self.n = n
        self.width = 32 * n_lanes
        self.combines = near_combines(n_lanes, integers=integers, maxima=maxima)
        super().__init__(
            {"users": In(Adding(n_lanes)).array(n), "yields": In(data.ArrayLayout(n, n))}
        )

    def elaborate(self, platform):
        m = Module()
        n, users, width = self.n, self.users, self.width
        a, b, o = operands(self.combines)
        goes = Signal(n)
        for k, user in enumerate(users):
            others = [users[j].asks & self._goes_before(m, j, k) for j in range(n) if j != k]
            m.d.comb += [goes[k].eq(user.asks & ~Cat(others).any()), user.goes.eq(goes[k])]
        whose = delayed(m, self._number(goes), CreditQueue.latency - 1, name="whose")
        pieces = chunks(width)
        for (start, stop), mine in zip(
            pieces, copied(m, whose, len(pieces), name="whose"), strict=True
        ):
            for name, goal, given in (
                ("a", a, [user.a for user in users]),
                ("b", b, [user.b for user in users]),
            ):
                held = Signal(stop - start, name=f"{name}{start}", reset_less=True)
                m.d.sync += held.eq(Array(value[start:stop] for value in given)[mine])
                m.d.comb += goal[start:stop].eq(held)
        total = Signal(width, reset_less=True)
        (mine,) = copied(m, whose, 1, name="whose_op")
        chosen = Array(user.op for user in users)[mine]
        ops = copied(m, chosen, len(self.combines), name="op")
        for k, (combine, op) in enumerate(zip(self.combines, ops, strict=True)):
            m.submodules[f"combine{k}"] = combine
            m.d.comb += combine.op.eq(op)
        m.d.sync += total.eq(o)
        m.d.comb += [user.o.eq(total) for user in users]
        return m

    def _goes_before(self, m, j, k):
        """Register: of the users `j` and `k` it is `j` that goes; of two it is always one."""
        lower_first = self.yields[max(j, k)][min(j, k)]  # the one of the lower number goes before
        before = Signal(name=f"before{j}_{k}", init=j < k)
        m.d.sync += before.eq(lower_first if j < k else ~lower_first)
        return before

    def _number(self, goes):
        """Number of the bit of `goes` that is 1."""
        return Cat(
            Cat(goes[k] for k in range(self.n) if k >> bit & 1).any()
            for bit in range((self.n - 1).bit_length())
        )
