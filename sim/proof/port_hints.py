"""What `gradnic.sim.proof.port_proofs` must know of some classes, by their names.

Most need nothing. Queues carry what they are given; what else is here makes a proof inductive.
"""

from dataclasses import dataclass, field

from amaranth.hdl import Assert, Assume, Cat, Signal
from gradnic.hdl.aggregation.slot_answers import N_BEATS
from gradnic.hdl.aggregation.slot_records import Answer
from gradnic.hdl.inceptionn.merger import Merger

from . import formal, lemmas


@dataclass(frozen=True)
class Hint:
    """What the proof of a class needs.

    k : cycles of the induction. deep : cycles within which covers are reached.
    pulses : pairs of ports, valid and payload, that are a channel which is always ready.
    opened : names of classes inside that are not cut.
    queue : a beat that leaves at ``o`` came in at ``i``, unless the queue is `never_full`.
    claims : {names of fields: predicate} of the payloads of queues inside.
    requires : function of (m, part, asks, gives): `asks` (assume, or assert) what the part's user
        must do, `gives` what the part does; returns what `lemmas` may want to see of it, or none.
    delay : names of two ports: the second is the first, a constant number of cycles ago.
    lemmas : function of (m, harness) that adds assertions, before the circuit is elaborated, and
        may return another one, of (m), to add more afterwards.
    """

    k: int = 2
    deep: int = 8
    pulses: tuple = ()
    opened: tuple = ()
    queue: bool = False
    claims: dict = field(default_factory=dict)
    requires: object = None
    delay: tuple = ()
    lemmas: object = None


def hint(part):
    """The `Hint` for a part's class, or an empty one."""
    return HINTS.get(type(part).__name__, Hint())


def delayed_flags(m, flag, n):
    """[flag one cycle ago, ..., n cycles ago], 0 after reset."""
    found = []
    for k in range(n):
        late = Signal(name=f"ago{k + 1}")
        m.d.sync += late.eq(found[-1] if found else flag)
        found.append(late)
    return found


def _copies(*names):
    """Copies of a register are equal."""

    def lemmas(m, h):
        for name in names:
            first, *others = getattr(h.component, name)
            m.d.comb += [Assert(copy == first) for copy in others]

    return lemmas


def _places(m, queue, asks, gives):
    """A queue that is never full has room for what is pushed; returns the beats inside."""
    depth = len(queue.occupied)
    count = Signal(range(depth + 1))
    m.d.sync += count.eq(count + queue.i.valid - (queue.o.valid & queue.o.ready))
    m.d.comb += [
        asks(~queue.i.valid | (count < depth), "more beats come than fit"),
        gives(count <= depth, "more beats are inside than fit"),
        gives(~queue.o.valid | (count != 0), "a beat is offered that never came"),
    ]
    return count


def _pair_state(m, h):
    lemmas.pair_state(m, h.component, h.ghost)


def _outlet_user(m, outlet, asks, gives):
    comes = Signal()
    m.d.sync += comes.eq(outlet.come)
    m.d.comb += [
        asks(~outlet.start | outlet.free[0], "a beat starts without room"),
        gives(outlet.free.all() | ~outlet.free.any(), "registers of free differ"),
    ]
    if formal.has_keep(outlet.beat):
        m.d.comb += asks(~comes | formal.keep_rule(outlet.beat), f"beat: {formal.KEEP_BROKEN}")


def _credits(m, h, name):
    """Lemmas of a `gradnic.hdl.stream.admission.credit`; returns the credits that are left."""
    left, taken, given = (h.made[name + end] for end in ("", "_taken", "_given"))
    credits = Signal(range(len(left) + 2))
    m.d.comb += [
        credits.eq(sum(left) - taken + given),
        *(Assert(left[k] | ~left[k + 1]) for k in range(len(left) - 1)),
        Assert(~taken | left[0]),
    ]
    if f"{name}_free" in h.made:
        m.d.comb += Assert(~h.made[f"{name}_free"] | (credits != given))
    else:
        first, *others = (h.made[n] for n in sorted(h.made) if n.startswith(f"{name}_free_copy"))
        m.d.comb += [Assert(~first | left[1]), *(Assert(copy == first) for copy in others)]
    return credits, len(left)


def _under_way(m, flag, past):
    """Number of cycles among the last ones in which `flag` was 1; past : it, from 1 cycle ago."""
    n = 0
    for ago in past:
        more = Signal(range(len(past) + 1))
        m.d.sync += more.eq(n + flag)
        m.d.comb += Assert(more == n + ago)
        n = more
    return n


def _outlet_lemmas(m, h):
    """Credits and beats under way add up."""

    def after(m):
        outlet, count = h.component, h.ghosts[id(h.component.queue)]
        came, popped = Signal(), Signal()
        m.d.sync += [came.eq(outlet.come), popped.eq(outlet.o.valid & outlet.o.ready)]
        credits, n = _credits(m, h, "credits")
        under_way = _under_way(m, outlet.start, h.delayed)
        m.d.comb += Assert(credits + under_way + came + count + popped == n)

    return after


def _compressor_lemmas(m, h):
    """Units admitted, ended, on their way to `sizes` and waiting there add up."""
    if "sizes" not in h.outputs:
        return None

    def after(m):
        dut, goes = h.component, h.made["goes"]
        (queue,) = (part for part in h.parts if type(part).__name__ == "PairQueue")
        ends = dut.floats.valid & dut.floats.ready & dut.floats.p.last
        takes = dut.sizes.valid & dut.sizes.ready
        inside, ended, most = Signal(8), Signal(), len(queue.occupied)
        m.d.sync += inside.eq(inside + goes - takes)
        m.d.comb += ended.eq(ends)
        past = delayed_flags(m, ended, dut.latency - Merger.latency)
        gone, taken = delayed_flags(m, goes, 3), delayed_flags(m, takes, 2)
        waiting, n = _credits(m, h, "admitted")
        places, _ = _credits(m, h, "ahead")
        on_way = _under_way(m, ended, past)
        m.d.comb += [
            Assert(waiting + places == n),
            Assert(waiting + on_way + h.ghosts[id(queue)] == inside),
            Assert(h.made["used"] + sum(gone) == inside + sum(taken)),  # of the sizes' `Room`
            Assert(inside <= most),
        ]

    return after


def _one_read(m, h):
    bank, bus = h.component, h.component.bus
    m.d.comb += [
        Assert(sum(bank.steps) + bus.rvalid == ~bus.arready),
        Assert(sum(bank.fresh) <= 1),  # or a read would enter at two places
    ]


def _one_word(m, h):
    """Of `HostWords`: a read that was taken is on its way, or answered."""

    def after(m):
        host = h.component
        on_way = sum(signal for name, signal in h.made.items() if name.startswith("came"))
        m.d.comb += Assert(host.waits + host.reads + on_way + host.bus.rvalid == ~host.bus.arready)

    return after


def _all_is_asked(m, h):
    """Of `LiteFan`: what is answered was sent, unless it went nowhere."""

    def after(m):
        for request, answer, channels in (("ar", "r", ("ar",)), ("aw", "b", ("aw", "w"))):
            sent = [h.made[f"sent_{channel}"] for channel in channels]
            has = [h.made[f"has_{channel}"] for channel in channels]
            nowhere = h.made[f"{request}_window"] == h.component.n
            done = h.made[f"{answer}_done"]
            m.d.comb += [
                Assert(~done | nowhere | Cat(sent).all()),
                Assert(~done | Cat(has).all()),
                Assert(Cat(has).all() | ~Cat(sent).any()),
            ]

    return after


def _tail_is_loaded(m, h):
    """Of `Framer`: from the first cycle after reset on."""

    def after(m):
        keep = h.made["keep"]
        m.d.comb += Assert(h.was_reset | (keep[0] & ~(keep[1:] & ~keep[:-1]).any()))

    return after


def _held_beat(m, h):
    """Of `AnswerFramer`: the beat that waits for the next one. That a SwitchML frame's last beat
    has more bytes than are cut from its head is taken from the sizes of SwitchML's packets.
    """
    m.d.comb += Assume(~h.component.valid | h.component.beat.keep[0])

    def after(m):
        m.d.comb += Assert(~h.made["waits"] | formal.keep_rule(h.made["held"]))

    return after


def _sums_in_step(m, h):
    """Of `SlotAnswers`: the queues that hold the parts of a beat are in the same state."""

    def after(m):
        for queue in h.opened:
            m.d.comb += [Assert(valid == queue.o.valid) for valid in queue.valids]
        first, *others = (q for q in h.opened if q.depth == N_BEATS and q.shape is not Answer)
        for queue in others:
            m.d.comb += Assert(queue.o.valid == first.o.valid)
            for name in ("waiting", "occupied", "pushed", "popped"):
                m.d.comb += Assert(getattr(queue, name) == getattr(first, name))

    return after


def _results_in_step(m, h):
    """Of `ThcDecoder`: its queues are alike and get the same, so what they offer comes together."""
    first, *others = h.component.results
    for queue in others:
        m.d.comb += [
            Assert(queue.i.valid == first.i.valid),
            Assert(queue.o.ready == first.o.ready),
            Assume(queue.o.valid == first.o.valid),
        ]


def _not_renewed(m, h):
    """Of `JobCore`: its ports are proven for as long as the parts that its contexts share are not
    reset; what keepers do then is in tests/axi/test_keeper.py and tests/frame/test_keeper.py.
    """

    def after(m):
        for keeper in h.opened:
            if hasattr(keeper, "owes"):
                m.d.comb += Assert(~keeper.owes)
            flags = [keeper.anew, *([keeper.closed] if hasattr(keeper, "closed") else [])]
            m.d.comb += [Assume(~flag) for flag in flags]
        m.d.comb += [Assume(~reset) for reset in h.component.keepers.resets]

    return after


HINTS = {
    "JobCore": Hint(
        opened=("ReadKeeper", "WriteKeeper", "EntryKeeper", "ExitKeeper"), lemmas=_not_renewed
    ),
    "ThcDecoder": Hint(lemmas=_results_in_step),
    "SlotAnswers": Hint(opened=("FIFO",), lemmas=_sums_in_step),
    "Compressor": Hint(k=9, deep=28, opened=("Room",), lemmas=_compressor_lemmas),
    "AnswerFramer": Hint(k=8, pulses=(("valid", "beat"),), lemmas=_held_beat),
    "AnswerPort": Hint(pulses=(("valid", "beat"),)),
    "Framer": Hint(lemmas=_tail_is_loaded),
    "Merger": Hint(k=14),
    "Slice": Hint(queue=True, lemmas=_copies("valids", "spares")),
    "FIFO": Hint(queue=True, lemmas=_copies("valids")),
    "BlockFIFO": Hint(queue=True),
    "PacketFIFO": Hint(queue=True),
    "EgressQueues": Hint(queue=True),  # what comes out has another mark and checksum at most
    "PairQueue": Hint(
        queue=True,
        k=1,
        opened=("Memory",),
        requires=_places,
        lemmas=_pair_state,
    ),
    "Outlet": Hint(k=1, requires=_outlet_user, delay=("start", "come"), lemmas=_outlet_lemmas),
    "RegisterBank": Hint(lemmas=_one_read),
    "HostWords": Hint(lemmas=_one_word),
    "LiteFan": Hint(lemmas=_all_is_asked),
    "Splicer": Hint(claims={("kept", "last"): lambda p: p.last | p.kept.all()}),
}
