"""Mutation campaign of the in-line card at 4 lanes: what its test must notice, and what it cannot.

The engines inside have campaigns of their own; here they are small, and so is every frame. The
longest waits (a full store of coded frames, a frame of 16 KiB) come last.
"""

from dataclasses import replace

import numpy as np
from gradnic.hdl.inline.card import InlineCard
from gradnic.models.inline import card as golden

from gradnic.interface.formats import GRADNIC, IPV4, UDP, Op
from gradnic.interface.inline import N_JOBS, REGISTERS

from ..engine import stimulus
from ..frame import frames as makers
from ..inline import frames as inline_frames
from ..inline.card import BUS_INPUTS, SIDES, CardBench
from ..inline.frames import MAX_FLOATS

N_LANES = 4
STALLS = {"host_tx": 0.6, "mac_tx": 0.6, "mac_rx": 0.2, "host_rx": 0.6}
SLOW = {"host_tx": 1, "mac_tx": 0.15, "mac_rx": 0.1, "host_rx": 0.9}
STORMS = {"mac_tx": stimulus.storm(900), "host_rx": stimulus.storm(900)}


def beats_of(frame):
    """Beats that a frame takes."""
    return -(-len(frame) // (4 * N_LANES))


def component():
    """The circuit under mutation."""
    return InlineCard(N_LANES, meta_width=16, max_floats=MAX_FLOATS)


class Remembered(golden.InlineCard):
    """A golden card that works out each frame once, whatever the number of mutants."""

    seen = {}

    def _once(self, side, frame, bad):
        key = (side, self.settings, bytes(frame), bool(bad))
        if key not in self.seen:
            before = dict(self.counters)
            result = getattr(super(), side)(frame, bad)
            steps = {k: n - before[k] for k, n in self.counters.items() if n != before[k]}
            self.seen[key] = result, steps
        else:
            for name, step in self.seen[key][1].items():
                self.counters[name] += step
        return self.seen[key][0]

    def transmit(self, frame, bad=False):
        return self._once("transmit", frame, bad)

    def receive(self, frame, bad=False):
        return self._once("receive", frame, bad)


def test(model):
    """Frames, order, side band, counters; stalls; settings; overrun; too long frames."""
    rng = np.random.default_rng(5)
    for settings in inline_frames.settings_to_try():
        bench = CardBench(model, settings)
        bench.golden = Remembered(settings, max_floats=MAX_FLOATS)
        bench.check_registers()
        out, into = inline_frames.traffic(rng, settings, 30)
        bench.play(tx=out, rx=into, stalls={"mac_rx": 0.3})
        out, into = inline_frames.traffic(rng, settings, 11)
        bench.play(tx=out, rx=into, stalls=STALLS)
        out, into = inline_frames.any_heads(rng, settings)
        bench.play(tx=out, rx=into)
        bench.play(tx=out[::-1], rx=into[::-1], stalls=SLOW)
        out, into = inline_frames.short(settings)
        run = bench.play(tx=out, rx=into, stalls=STORMS)
        for port in STORMS:
            assert run.taken[port][0] == 900, f"{port}: valid waits for ready"
        out, into = inline_frames.noisy(settings)
        bench.play(tx=out, rx=into, stalls={"mac_tx": 0.3, "host_rx": 0.3})
        bench.play(tx=out, rx=into, stalls={"host_tx": 0.1, "mac_rx": 0.1})
        if settings is makers.SETTINGS:
            out, into = inline_frames.each_bit(settings)
            bench.play(tx=out, rx=into)
    for exponent in (112, 127, 15):
        unsupported = replace(settings)  # which no host may ask for, but a register can hold
        object.__setattr__(unsupported, "exponent", exponent)
        bench.configure(unsupported)
        bench.play(**dict(zip(SIDES, inline_frames.noisy(settings), strict=True)))
    bench.configure(settings)
    few = [
        makers.udp_frame(rng.bytes(8), tos=tos, port=port) for tos, port in inline_frames.edges()
    ]
    bench.play(tx=[(f, False) for f in few], rx=[(f, False) for f in few])
    each = [(makers.native_frame([], port=9000, job=job), False) for job in range(N_JOBS)]
    for jobs in (range(0, N_JOBS, 2), rng.choice(N_JOBS, 128, replace=False)):
        for k, enabled in enumerate(
            (set(map(int, jobs)), set(range(N_JOBS)) - set(map(int, jobs)))
        ):
            # under settings of which each bit is once 0 and once 1
            low, high = sorted(0xFFFF * k ^ end for end in (0x2A5C, 0x7E3D))
            bench.configure(replace(settings, jobs=enabled, port_low=low, port_high=high))
            marked = [(makers.paper_frame([1], tos=settings.tos, port=low), False)]
            bench.play(tx=each + marked, rx=each + marked)
    _ranges(model, rng)
    _bus(model, rng)
    _overrun(model, rng)
    bench = CardBench(model, max_floats=MAX_FLOATS)
    bench.configure(replace(makers.SETTINGS, jobs=makers.SETTINGS.jobs | {0}))
    out, into = inline_frames.short_ends(rng)  # job 0 is what stands behind the end of a frame
    bench.play(tx=out, rx=into)
    bench.configure(makers.SETTINGS)
    for out, into in (
        inline_frames.long(rng),
        inline_frames.odd_ends(rng),
        inline_frames.wrong_lengths(),
    ):
        bench.play(tx=out, rx=into)
    _full(model, rng)
    _brim(model, rng)
    _rates(model)
    _refused(model)
    _foreign_first(model)
    _exponents(model)
    _resets(model, rng)
    long = makers.with_bytes(rng.bytes(16500), 12, b"\x12\x34")
    good = makers.native_frame(makers.gradient(rng, 8))
    lengths = (16384, 16385, 16368, 16401)
    frames = [(f, False) for n in lengths for f in (long[:n], good)]
    bench.play(tx=frames, rx=frames)


def _exponents(model):
    """Every exponent, of which the card codes with 14, and restores as many."""
    bench = CardBench(model, max_floats=MAX_FLOATS)
    frame = makers.native_frame(np.ones(6))
    for exponent in range(128):
        settings = replace(makers.SETTINGS)
        object.__setattr__(settings, "exponent", exponent)
        bench.configure(settings)
        coded = makers.native_frame(np.zeros(1), op=Op.INC, p0=exponent, p1=0)
        bench.play(tx=[(frame, False)], rx=[(coded, False)], check_counters=False)


def _ranges(model, rng):
    """Ports at both ends of ranges of any size, and beside them."""
    bench = CardBench(model, max_floats=MAX_FLOATS)
    body = np.zeros(2)
    for k in range(17):
        low, high = (
            np.sort(rng.integers(0, 1 << 16, 2)) if k < 15 else ((0, 3), (65530, 65535))[k - 15]
        )
        native = int(rng.integers(1 << 16))
        free = 1 << k % 8  # a bit of the ToS that is no mark
        settings = replace(
            makers.SETTINGS,
            port_low=int(low),
            port_high=int(high),
            native_port=native,
            tos_mask=0xFF ^ free,
            tos_coded=0xD3,
        )
        object.__setattr__(settings, "floats_limit", 1 << k % 16)  # no host may ask for so many
        bench.configure(settings)
        ends = {int(end) + step for end in (low, high) for step in (-1, 0, 1)}
        ends |= {int(end) ^ 1 << bit for end in (low, high) for bit in range(16)}
        frames = [makers.paper_frame(body, port=port & 0xFFFF) for port in sorted(ends)]
        marks = [mark ^ bit for mark in (0x28, 0xD3) for bit in (0, free)]
        if k == 16:
            marks += [mark ^ 1 << bit for mark in (0x28, 0xD3) for bit in range(8)]
        both = [makers.paper_frame(body, port=int(high), tos=tos) for tos in marks]
        frames += both
        frames += makers.coded(dict(enumerate(both)), settings).values()
        frames += [
            makers.native_frame(body, port=native ^ beside, job=31)
            for beside in (0, *(1 << bit for bit in range(16)))
        ]
        frames = [(frame, False) for frame in frames]
        bench.play(tx=frames, rx=frames)


def _bus(model, rng):
    """Bytes written one by one, address and data apart, and a host that is slow to take answers."""
    bench = CardBench(model, max_floats=MAX_FLOATS)
    for settings in inline_frames.settings_to_try():
        words = {REGISTERS[name].offset: word for name, word in settings.words().items()}
        parts = [(at, word, 1 << byte) for at, word in words.items() for byte in range(4)]
        writes = [(at, int(rng.integers(1 << 32)), 15) for at in words]
        for k in rng.permutation(len(parts)):
            at, word, strobe = parts[k]
            mask = strobe * 0xFF if strobe == 1 else 0xFF << 8 * (strobe.bit_length() - 1)
            writes.append((at, int(rng.integers(1 << 32)) & ~mask | word & mask, strobe))
            writes.append((at, int(rng.integers(1 << 32)), 0))
        _slow_writes(bench, rng, writes)
        bench.golden.settings = settings
        bench.check_registers()
        _slow_reads(bench, rng, words)


WRITE_TURN, READ_TURN = 12, 16  # cycles from one to the next


def _slow_writes(bench, rng, writes):
    n = WRITE_TURN * (len(writes) + 2)
    widths = {"awaddr": REGISTERS.address_width, "wdata": 32, "wstrb": 4}
    levels = {name: rng.integers(0, 1 << width, n) for name, width in widths.items()}
    levels |= {name: np.zeros(n, np.int64) for name in BUS_INPUTS if name not in levels}
    levels["bready"][-WRITE_TURN:] = 1
    for k, (at, word, strobe) in enumerate(writes):
        address, data = WRITE_TURN * k + rng.integers(0, 5, 2)
        levels["awvalid"][address], levels["awaddr"][address] = 1, at
        levels["wvalid"][data], levels["wdata"][data], levels["wstrb"][data] = 1, word, strobe
        levels["bready"][WRITE_TURN * k + rng.integers(7, 15)] = 1
    valid, taken = _offered(bench, levels, "bvalid", "bready")
    assert taken == len(writes), f"{taken} writes answered, not {len(writes)}"
    assert not valid[-1], "an answer too many"


def _slow_reads(bench, rng, words):
    n = READ_TURN * (len(words) + 1)
    levels = {name: np.zeros(n, np.int64) for name in BUS_INPUTS}
    levels["araddr"] = rng.integers(0, 1 << REGISTERS.address_width, n)
    for k, at in enumerate(words):
        levels["arvalid"][READ_TURN * k], levels["araddr"][READ_TURN * k] = 1, at
        levels["rready"][READ_TURN * k + rng.integers(6, READ_TURN)] = 1
    levels["rready"][-READ_TURN:] = 1
    valid, taken = _offered(bench, levels, "rvalid", "rready")
    assert taken == len(words), f"{taken} reads answered, not {len(words)}"
    assert (valid[1:] != valid[:-1]).sum() == 2 * taken, "an answer too many"
    got = bench.run.traces["bus__rdata"][valid]
    assert set(map(int, got)) == set(words.values())


def _offered(bench, levels, valid, ready):
    """When an answer of the bus is offered, and how many are taken; none may be withdrawn."""
    signals = {f"bus__{name}": values for name, values in levels.items()}
    names = f"bus__{valid}", "bus__rdata"
    bench.run = bench.instance.run(
        signals=signals, reset=False, drain=False, max_cycles=len(levels[ready]), trace=names
    )
    offered = bench.run.traces[names[0]].astype(bool)
    takes = offered & levels[ready].astype(bool)
    assert (offered[1:] >= (offered & ~takes)[:-1]).all(), "withdrawn"
    return offered, int(takes.sum())


def _full(model, rng):
    """Long frames, ours and foreign, until nothing more goes in; what is taken is not lost."""
    bench = CardBench(model, max_floats=MAX_FLOATS)
    sizes = (4080, 1017, 4080, 3000, 2222, 4080)
    words = [rng.integers(0, 2**32, n, np.uint32).view(np.float32) for n in sizes]
    long = [makers.native_frame(each, op=Op.CONTROL) for each in words]
    other = [makers.with_bytes(frame, 12, b"\x12\x34") for frame in long]
    for side, frames, holds in (("tx", long, 2132), ("tx", other, 1069), ("rx", other, 1069)):
        sent = [(frame, False) for frame in frames]
        i, o = SIDES[side]
        run = bench.play(**{side: sent}, stalls={o: ([0] * 7000, 0.5)})
        inside = int((run.taken[i] < 7000).sum())
        assert inside == holds, f"{side}: {inside} beats inside, not {holds}"
    foreign = makers.with_bytes(rng.bytes(64), 12, b"\x12\x34")
    counters = _lose(bench, [*long, foreign, *long], foreign, ([0] * 16000, 1))
    assert counters["rx_kept"] == 4, "stores hold four of these frames"


def _brim(model, rng):
    """Frames of ours of a few beats, behind long ones: how many the stores take, to the beat."""
    foreign = makers.with_bytes(rng.bytes(64), 12, b"\x12\x34")
    small = makers.native_frame([], op=Op.CONTROL)
    bench = CardBench(model, max_floats=MAX_FLOATS)
    for k, speed in enumerate([1] * 4 + [0.4] * 4):  # each from another place of the stores on
        bench.golden.counters = dict(bench.counters())
        bench.play(rx=[(small, False)] * (77 * k))
        sizes = 4080, 4 * (896 + k % 4)
        long = [makers.native_frame(np.ones(n), op=Op.CONTROL) for n in sizes]
        frames, stalls = [*long, *[small] * 320, foreign], ([0] * int(4000 / speed), 1)
        counters = _lose(bench, frames, foreign, stalls, mac_rx=speed)
        taken = 2 + 292 + (k % 4 == 0)
        assert counters["rx_kept"] == taken, f"{counters['rx_kept']} stored, not {taken}"
    bench = CardBench(model, max_floats=MAX_FLOATS)
    few = [
        makers.native_frame(np.ones(n % 7), op=Op.CONTROL if n % 3 else Op.RAW, seq=n)
        for n in range(90)
    ]
    lists = few, makers.coded(dict(enumerate(few))).values()
    out, into = [[(frame, False) for frame in list_] for list_ in lists]
    bench.play(tx=out, rx=into, stalls=dict.fromkeys(STORMS, ([0] * 900, 0.3)))
    run = bench.play(tx=[(small, False)] * 180, stalls=STORMS)
    inside = int((run.taken["host_tx"] < 900).sum())
    assert inside == 439, f"{inside} beats of small frames inside, not 439"
    counters = _lose(bench, [*[small] * 700, foreign], foreign, ([0] * 4000, 1))
    assert counters["rx_kept"] == 350, f"{counters['rx_kept']} small frames stored, not 350"
    least = [(makers.paper_frame(np.zeros(1), pad=False), False)] * 90
    bench = CardBench(model, max_floats=MAX_FLOATS)
    bench.play(tx=least, stalls={"mac_tx": ([0] * 900, 0.3)})


def _rates(model):
    """Frames of a class follow each other at full rate, and the first leaves in its time.

    LATENCIES holds that time for each side, beside the beats of the longer of both frames.
    """
    paper, native, ones = makers.paper_frame, makers.native_frame, np.ones(40)
    foreign = makers.with_bytes(paper(ones), 12, b"\x12\x34")
    kept = native(ones[:9], op=Op.CONTROL)
    made = [make(x) for x in (ones[:1], ones, 0 * ones) for make in (paper, native)]
    for frame, latencies in zip([*made, kept, foreign], LATENCIES, strict=True):
        card = golden.InlineCard(makers.SETTINGS)
        coded = card.transmit(frame)[0]
        ways = (frame, coded), (coded, card.receive(coded)[0])
        for side, (sent, leaves), wanted in zip(SIDES, ways, latencies, strict=True):
            i, o = SIDES[side]
            bench = CardBench(model)
            bench.golden = Remembered(makers.SETTINGS)
            run = bench.play(**{side: [(sent, False)] * 9})
            beats = max(beats_of(sent), beats_of(leaves))
            latency = run.taken[o][0] - run.taken[i][0] - beats
            assert latency == wanted, f"{side}: {latency} cycles beside {beats} beats, not {wanted}"
            lasts = run.taken[o][np.flatnonzero(run.unpack(o)["last"])]
            assert (np.diff(lasts[1:]) == beats).all(), f"{side}: not at full rate"


#: cycles on each side, for the frames of `_rates`
LATENCIES = ((58, 45), (58, 75), (58, 45), (57, 65), (58, 75), (58, 75), (40, 45), (9, 9))


def _refused(model):
    """Frames that the head refuses do not wait for the engine, and nor does the one behind, but
    for the beats that are dropped.
    """
    native, ones = makers.native_frame, np.ones(9)
    kept = native(ones, op=Op.CONTROL)
    for op in (Op.RAW, Op.INC):
        frame = native(ones, op=op, p0=117, p1=0)
        faults = {
            "no floats": native([], op=op, p0=117, p1=0),
            "too many": native(np.ones(41), op=op, p0=117, p1=0),
            "reserved": native(ones, op=op | 8),
            "set": native(ones, op=op, set=1),
            "none of its floats": makers.with_bytes(frame, GRADNIC.elems.byte, b"\0\0"),
            "checksum": makers.flipped(frame, IPV4.checksum.byte),
            "length": makers.with_bytes(frame, UDP.length.byte, b"\x00\x43"),
        }
        if op == Op.INC:
            empty = native([], op=op, p0=117, p1=0)
            faults["no tags"] = makers.with_bytes(empty, GRADNIC.elems.byte, b"\x00\x09")
        side = "tx" if op == Op.RAW else "rx"
        for name, fault in faults.items():
            i, o = SIDES[side]
            bench = CardBench(model, max_floats=MAX_FLOATS)
            run = bench.play(**{side: [(fault, False), (kept, False)]})
            long, next_ = beats_of(fault), beats_of(kept)
            wanted = 40 + long if side == "tx" else 45 + next_ + long + max(0, long - next_)
            latency = run.taken[o][0] - run.taken[i][0]
            assert latency == wanted, f"{side}, {name}: {latency} cycles, not {wanted}"


def _foreign_first(model):
    """A foreign frame waits for the rest of one frame of ours, however many there are."""
    ours = makers.native_frame(np.ones(9))
    coded = makers.coded({0: ours})[0]
    foreign = makers.with_bytes(ours, 12, b"\x12\x34")
    for side, frame in (("tx", ours), ("rx", coded)):
        bench = CardBench(model, max_floats=MAX_FLOATS)
        frames = [(frame, False)] * 12 + [(foreign, False)]
        port = SIDES[side][1]
        run = bench.play(**{side: frames}, stalls={port: stimulus.storm(900)})
        place = run.frames(port).index(foreign)
        assert place <= 1, f"{side}: foreign frame is number {place}"


def _resets(model, rng):
    """A reset anywhere in the traffic leaves nothing behind."""
    out, into = inline_frames.traffic(rng, makers.SETTINGS, 30)
    bench = CardBench(model, max_floats=MAX_FLOATS)
    for cycles in (*range(2, 60, 7), *rng.integers(60, 900, 8)):
        inputs = {
            port: model.pack_frames(port, [frame for frame, _ in frames[:90]])
            for port, frames in (("host_tx", out), ("mac_rx", into))
        }
        stalls = {"mac_tx": 0.4, "host_rx": 0.4}
        bench.instance.run(inputs, reset=False, stalls=stalls, drain=False, max_cycles=int(cycles))
        bench.configure(makers.SETTINGS, reset=True)
        bench.check_registers()
        bench.play(tx=out[-12:], rx=into[-12:])


def _overrun(model, rng):
    """With the host stopped or slow, coded frames are lost whole and counted; the rest arrives."""
    bench = CardBench(model, max_floats=MAX_FLOATS)
    bench.golden = Remembered(bench.golden.settings, max_floats=MAX_FLOATS)
    floats = (np.full(n, 3.0) for n in (40, 39, 37, 40, 36, 1, 4, 9))
    ours = list(makers.coded(dict(enumerate(map(makers.native_frame, floats)))).values())
    foreign = makers.with_bytes(rng.bytes(64), 12, b"\x12\x34")
    many = [ours[k % 5] for k in range(300)] + [foreign, ours[0]] * 20
    counters = _lose(bench, many, foreign, ([0] * 4500, 1))
    assert counters["rx_overrun"] in LOST
    mixed = [ours[k] for k in rng.integers(0, 8, 500)] + [foreign]
    _lose(bench, mixed, foreign, ([0] * 2000, 0.2))
    bench.golden.counters = dict(bench.counters())
    bench.play(rx=[(frame, False) for frame in ours])


def _lose(bench, frames, foreign, stall, mac_rx=1):
    """Play frames of which some are lost; those that arrive are right and in order."""
    beats = bench.model.pack_frames("mac_rx", frames, meta=np.arange(len(frames)))
    before = bench.counters()
    run = bench.instance.run(
        {"mac_rx": beats}, reset=False, stalls={"host_rx": stall, "mac_rx": mac_rx}
    )
    restored = {frame: bench.golden.receive(frame)[0] for frame in set(frames)}
    got, fields = run.frames("host_rx"), run.unpack("host_rx")
    numbers = fields["meta"][fields["last"] == 1].astype(int)
    counters = {name: n - before[name] for name, n in bench.counters().items()}
    assert max(numbers, default=0) < len(frames)
    assert got == [restored[frames[n]] for n in numbers]
    for kind in (True, False):
        assert (np.diff([n for n in numbers if (frames[n] == foreign) == kind]) > 0).all()
    n_foreign = frames.count(foreign)
    assert got.count(foreign) == counters["rx_foreign"] == n_foreign
    arrived = counters["rx_coded"] + counters["rx_kept"]
    assert len(got) - n_foreign == arrived
    assert arrived + counters["rx_overrun"] == len(frames) - n_foreign
    return counters


LOST = range(200, 251)  # of 320; what is stored depends on the engines too
#: the engines, the register bank and the queues have campaigns of their own
ELSEWHERE = (
    r"-cell \S*\bcodec\.|-cell \S*\bbank\."
    r"|-src \S*hdl/(stream/(fifo|block_fifo|steering)|axi/register_bank)\.py:\d+$"
    r"|-wire [rt]x\.path\.codec\."
    r"|-cell \S*\b(ring|foreign_queue|verdicts|frames(_ahead)?|reads|patches|splices|beats|infos)\b"
    r"[^\s.]*\.\$procmux"
    r"|-cell \S*tx\S*\bqueue\b[^\s.]*\.\$procmux"
)
ARGUED = {
    r"-mode const1 .* -wire [rt]x\.parser\.hops_1 -wirebit 0 ": (
        "it is a bit of the protocol, 1 in all frames whose checksum is made anew"
    ),
    r"-mode const0 .* -portbit 1[01] .*: m\.d\.sync \+= n_before\.eq": (
        "the guard cuts frames at 1024 beats, of which 1023 come before the last"
    ),
    r"-mode const0 -cell \S*tx\S*realigner\S* -port [DQ] -portbit ([4-9]|1[01]) .*: left = ": (
        "40 floats are 10 beats; what is left behind the last one is not looked at"
    ),
    r" -port A -portbit 1[01] .*: (ends|final)\.eq\(job\.n_(read|stored) == 1\)": (
        "frames have 3 to 1024 beats; only of 1025 and more would 1 be left without these bits"
    ),
    r"-mode const1 -cell \S*tx\S*store\S* .*: reads\.eq\(job\.n_read != 0\)": (
        "all frames leave on this side, so something is read of each"
    ),
    r"-mode const0 -cell \S*realigner\.\$100 -port Y .*: self\.o\.p\.drop\.eq": (
        "a frame that ends before its payload does is too short, and drops for that"
    ),
    r"-mode const0 -cell \S*tx\S*realigner\S* -port A -portbit ([4-9]|1[01]) .*left [!=]= 0": (
        "40 floats are 10 beats"
    ),
    r"-mode cnot1 -cell \S*rx\S*realigner\S* -port [DQ] .* -ctrlbit ([4-9]|1[01]) .*: left = ": (
        "units of 40 floats have 11 beats; more are left behind the last one, or the engine refuses"
    ),
    r"-mode cnot1 -cell \S*realigner\S* -port Y -portbit 4 -ctrlbit 11 .*: left\.eq\(left - 1\)": (
        "2048 beats and more are left behind the last one, or in frames that are too short and drop"
    ),
    r"-mode cnot1 .* -ctrlbit ([6-9]|1[0-5]) -wire rx\.parser\.framed_2 ": (
        "a count with this bit is more than 40 floats, whatever its others are"
    ),
    r"-mode cnot1 .* -ctrlbit 11 .*: m\.d\.sync \+= n_before\.eq": (
        "the guard cuts frames at 1024 beats"
    ),
    r"-mode const0 .* -port A -portbit ([89]|1[0-5]) .*: unit_limit=Mux\(three\.native": (
        "a frame in the paper's form that is coded has 171 bytes of UDP at most"
    ),
    r"-mode cnot1 .* -ctrlbit [01] -wire tx\.parser\.bytes_\d ": (
        "a frame that is coded has a multiple of four bytes of floats"
    ),
    r"-mode cnot1 .* -port A .*-ctrlbit (9|1[1235]) .*: sized=head\.word\(IPV4\.start\)": (
        "version and size of the head are 0x45 in all frames of ours"
    ),
    r"-mode cnot1 .* -ctrlbit ([89]|1[0-5]) .*: short_limit=": (
        "a frame in the paper's form that is coded has 171 bytes of UDP at most"
    ),
    r"-mode cnot0 -cell \S*rx\S*check\S* -port [DQ] .* -ctrlbit 0 -wire rx\.check\.\w+\.tail ": (
        "KEPT, whose bit 0 is 1, is all that leaves as it came, and the end of others is not asked"
    ),
    r"-mode const1 -cell \S*splicer\S* -port A .*: is_(end|last)\.eq\((new\.n_less_1|padded)\[": (
        "frames of ours have 42 bytes at least, and no beat of theirs is the first and last"
    ),
    r"-mode const0 -cell \S*splicer\S* -port Y .*: is_end\.eq\(new\.n_less_1": (
        "frames of ours have 42 bytes at least"
    ),
    r"-mode cnot1 -cell \S*splicer\S* -port D -portbit [01] -ctrlbit 2 .*: index = Signal": (
        "the beats of a head are counted up to 4, and behind that nobody looks"
    ),
}
EXPLAINED = {
    "self.infos.ready.eq(frames_ahead.i.ready & (~asks | codec.units.ready)),": (
        "not reached: the facts of a kept frame behind 16 units that the engine has only planned"
    ),
    "codec.units.valid.eq(self.infos.valid & asks & frames_ahead.i.ready),": (
        "not reached: 16 units that the engine has planned and not begun"
    ),
}
