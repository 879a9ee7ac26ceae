"""States of the host port, by what it does with a frame.

Part of `gradnic.hdl.offload.host_port`: `p` is the port, `w` what it works on.
"""

from amaranth.hdl import Cat, Const, Mux

from gradnic.interface.host_frame import (
    ALIGN,
    EVENT_BYTES,
    HELLO,
    MAX_PAYLOAD,
    Drop,
    Kind,
    Status,
)

from .host_intake import STORE_BYTES


def ends(m, w, how):
    """The frame is done with: an ACK, or None; in a cycle in which it is taken."""
    m.d.sync += w.pending.eq(0)
    if how is None:
        m.next = "wait"
    else:
        m.d.sync += w.status.eq(how)
        m.next = "ack"


def counts(m, p, name):
    """One more frame of this kind."""
    m.d.sync += p.counts[name].eq(1)


def advances(m, p):
    """The request is carried out; the next one is expected."""
    m.d.comb += p.writes.advances.eq(1)
    m.d.sync += p.expected.eq(p.expected + 1)


def credit(p):
    """ARG of an ACK: room for writes, in `ALIGN` bytes, and how many requests are done."""
    return Cat(Const(STORE_BYTES // ALIGN, 16), p.writes.done[:16])


def listen(m, p, w):
    """What is due by time, else the next frame, which is then compared with the session."""
    writes, frames = p.writes, p.intake.frames
    with m.State("wait"):
        with m.If(writes.failed & ~writes.under_way):
            m.next = "fail"
        with m.Elif(writes.ack_due):
            m.d.sync += w.status.eq(Status.DONE)
            m.next = "ack"
        with m.Elif(p.timer.due):
            m.next = "event"
        with m.Else():
            m.d.comb += frames.ready.eq(1)
            m.d.sync += p.frame.eq(frames.p)
            with m.If(frames.valid):
                counts(m, p, "frames")
                m.d.sync += w.pending.eq(1)
                m.next = "look"
    with m.State("look"):
        m.next = "compare"
    with m.State("compare"):
        m.next = "judge"
    with m.State("judge"):
        m.next = "act"


def act(m, p, w):
    """Drops the frame, has a WRITE written, or settles it once no WRITE is under way."""
    frame, take, writes, ranges = p.frame, p.intake.takes, p.writes, p.writer.ranges
    with m.State("act"):
        with m.If(frame.drop != Drop.NONE):
            m.d.comb += take.valid.eq(1)
            with m.If(take.ready):
                for why in (Drop.FOREIGN, Drop.LENGTH, Drop.CHECKSUM, Drop.FORMAT):
                    with m.If(frame.drop == why):
                        counts(m, p, why.name.lower())
                ends(m, w, None)
        with m.Elif(w.accepts):
            m.d.comb += [
                take.p.n_read.eq(frame.n_read),
                take.valid.eq(ranges.ready & writes.has_room),
                ranges.valid.eq(take.valid & take.ready),
                writes.goes.eq(ranges.valid),
            ]
            with m.If(writes.goes):
                m.d.sync += p.expected.eq(p.expected + 1)
                ends(m, w, None)
        with m.Elif(w.waits):
            m.next = "look"
            with m.If(writes.failed & ~writes.under_way):
                m.next = "fail"
        with m.Else():
            _settle(m, p, w)


def _settle(m, p, w):
    """What is done with a frame while no WRITE is under way."""
    frame, take, reader = p.frame, p.intake.takes, p.reader
    judge, brings = p.judge, w.is_kind[Kind.POST] | w.is_kind[Kind.WRITE_REG]
    takes, reads = judge.right & brings, judge.right & w.is_kind[Kind.READ]
    m.d.comb += [
        take.p.n_read.eq(Mux(takes, frame.n_read, 0)),
        take.valid.eq(~reads | reader.reads.ready),
        reader.reads.valid.eq(reads & take.ready),
    ]
    with m.If(take.valid & take.ready):
        with m.If(w.is_kind[Kind.HELLO]):
            _open(m, p)
            ends(m, w, None)
            m.next = "hello"
        with m.Elif(judge.stranger):
            counts(m, p, "strangers")
            ends(m, w, Status.STRANGER)
            with m.If(w.is_kind[Kind.ACK]):
                m.next = "wait"
        with m.Elif(w.is_kind[Kind.ACK]):
            with m.If(p.record_valid & p.events & w.heard):
                m.d.comb += p.takes.eq(1)
            with m.Else():
                counts(m, p, "late")
            ends(m, w, None)
        with m.Elif(judge.apart):
            with m.If(judge.late):
                counts(m, p, "late")
            with m.Else():
                counts(m, p, "gaps")
            ends(m, w, Status.DONE)
        with m.Elif(judge.status != 0):
            ends(m, w, judge.status)
        with m.Elif(reads):
            advances(m, p)
            ends(m, w, None)
        with m.Elif(brings):
            m.next = "body"
        with m.Else():
            m.next = "words"


def _open(m, p):
    """A HELLO: who the host is now, and a new session unless it is a copy."""
    asked = p.frame.asked
    wanted = Cat(Const(0, 6), asked.elems[6:])
    m.d.sync += [
        p.ends.eq(asked.ends),
        p.unit.eq(Mux((wanted == 0) | (wanted > MAX_PAYLOAD), MAX_PAYLOAD, wanted)),
    ]
    with m.If(p.judge.stranger):  # else a copy
        m.d.sync += [
            p.is_open.eq(1),
            p.session.eq(asked.session),
            p.expected.eq(asked.seq + 1),
        ]
        m.d.comb += [
            *(part.opens.eq(1) for part in (p.writes, p.timer, p.reader)),
            p.writes.acks.eq(1),  # nothing of the last session is acknowledged any more
        ]


def carry_out(m, p, w):
    """What a POST or an access to registers asks for, once its payload is there."""
    with m.State("body"):
        with m.If(p.text.here):
            m.next = "words"
            with m.If(w.is_kind[Kind.POST]):
                m.next = "post"
    with m.State("post"):
        m.d.comb += p.posts.eq(1)
        with m.If(p.posted):
            advances(m, p)
            ends(m, w, Status.DONE)
        with m.Elif(p.full):
            ends(m, w, Status.FULL)
    with m.State("words"):
        m.d.comb += p.registers.start.eq(1)
        m.next = "registers"
    with m.State("registers"):
        with m.If(p.registers.done):
            advances(m, p)
            ends(m, w, Status.DONE)
            with m.If(w.is_kind[Kind.READ_REG]):
                m.next = "data"


def answer(m, p, w):
    """What the next answer says."""
    asked, writes, text = p.frame.asked, p.writes, p.text
    with m.State("data"):
        m.d.sync += [
            *_told(p, w, Kind.DATA, asked.seq, elems=asked.elems, last=1),
            w.answer.address.eq(asked.address),
            w.answer.status.eq(Mux(p.reader.spoiled, Status.MEMORY, Status.DONE)),
        ]
        m.next = "tell"
    with m.State("hello"):
        m.d.comb += text.hellos.eq(1)
        m.d.sync += _told(p, w, Kind.HELLO, asked.seq, elems=HELLO.n_bytes)
        m.next = "tell"
    with m.State("event"):
        m.d.comb += [p.timer.sends.eq(1), text.events.eq(1)]
        m.d.sync += _told(p, w, Kind.EVENT, p.timer.seq, elems=EVENT_BYTES)
        m.next = "tell"
    with m.State("fail"):
        m.d.comb += writes.forgives.eq(1)
        m.d.sync += [p.expected.eq(writes.done), w.status.eq(Status.MEMORY)]
        m.next = "ack"
    with m.State("ack"):
        m.d.comb += writes.acks.eq(w.status != Status.STRANGER)
        good, strange = w.status == Status.DONE, w.status == Status.STRANGER
        seq = Mux(strange, asked.seq, Mux(good, writes.done - 1, writes.done))
        m.d.sync += [
            *_told(p, w, Kind.ACK, seq),
            w.answer.status.eq(w.status),
            w.answer.arg.eq(Mux(strange, 0, credit(p))),
        ]
        with m.If(strange):
            m.d.sync += w.answer.ends.eq(asked.ends)
        m.next = "tell"


def _told(p, w, kind, seq, *, elems=0, last=0):
    """Statements: an answer to the session's host."""
    return [
        w.answer.kind.eq(kind),
        w.answer.status.eq(0),
        w.answer.seq.eq(seq),
        w.answer.address.eq(0),
        w.answer.elems.eq(elems),
        w.answer.arg.eq(p.session),
        w.answer.last.eq(last),
        w.answer.ends.eq(p.ends),
    ]


def tell(m, p, w):
    """The answer leaves; a frame that was not taken yet is looked at again."""
    with m.State("tell"):
        m.d.comb += p.framer.answers.valid.eq(1)
        with m.If(p.framer.answers.ready):
            m.next = "wait"
            with m.If(w.pending):
                m.next = "look"
