"""A round of 256 offload cards: broken frames, right ones between them, and a host's script.

A copy of the card (`gradnic.sim.offload.stand`) is armed and waits for its neighbors' packets.
Broken frames come, and right ones between them; then the packets that are still missing, and the
round must end. What each frame leads to, `gradnic.sim.offload.judge` knows. Copy 0 gets no broken
frames: what it sends of its own accord, all others must send.
"""

import numpy as np

from gradnic.host.offload_driver import OffloadDriver
from gradnic.interface.formats import HEAD_BYTES
from gradnic.interface.offload import COUNTERS, MAX_FRAME, REGISTERS, Drop
from gradnic.interface.schedule_table import GATHER, REDUCE, ROW, Layout

from ..engine import encoding
from ..engine.bulk import COPIES
from . import breaker as offload_breaker
from . import judge as offload_judge
from .breaker import CHUNK, GROUPS, LEAVES, N_ELEMS, N_HERE, N_SENT, PACKET, RUNS, WIDTH, Kind
from .fuzz_check import (
    AREA,
    GRADIENT,
    LANDING,
    RESULT,
    beats_of,
    check_results,
    check_sent,
    gathered,
    note,
    padded,
    spread,
    unlike,
    written,
)
from .stand import CARD, N_BYTES, N_RANKS, Act, Step

N_BROKEN = COPIES - 1  # frames a copy
N_UP, N_DOWN, N_ASKS = 37, 7, 20  # right frames between them: packets up and down, CONTROL
N_RIGHT = sum(N_HERE[chunk] for _, _, chunk in GROUPS) + N_ASKS + len(RUNS)
PACE = 28  # cycles a frame, so that the receiver keeps up
PAUSE = 400  # cycles between two reads while nothing else happens
QUIET = (Act.READ, REGISTERS["ip"].offset, 0)
PAUSES = (3, 5, 4, 1)  # after: broken frames; the packets still missing, up and down; STOPs
SLOW = 3  # times so long, where memory pauses
LONG_PAUSES = (3, 4)  # before and after a frame that fills the port's store
FATES = [d.name.lower() for d in Drop] + ["foreign", "responses", "answered"]
FATES[Drop.NONE], FATES[Drop.CODEC] = "accepted", "unsound"


STATUS = REGISTERS["status"]
BITS = {field.name: field.mask for field in STATUS.fields}


class _Recorder:
    """A bus that remembers: reads give what was written, or the reset value."""

    def __init__(self):
        self.steps = []
        self.words = {
            r.offset: sum(f.reset << f.lsb for f in r.fields) for r in REGISTERS if r.access == "rw"
        }
        self.words[STATUS.offset] = BITS["inc"]

    def read(self, address):
        if address == STATUS.offset:  # clearing: it changes in time
            self.steps.append((Act.WAIT, 0, CARD.n_packets + 16))
        return self.words.get(address, 0)

    def write(self, address, word):
        self.words[address] = word
        self.steps.append((Act.WRITE, address, word))


def _script(setting, parts, pauses):
    """Steps of a whole round: pauses of memory, settings, parts (frames, pauses), all counters.

    Returns beats of `Step`, and how many words it reads before the counters.
    """
    bus, own = _Recorder(), setting.own
    bus.steps.append((Act.PAUSE, 0, pauses))
    driver = OffloadDriver(bus.read, bus.write, n_ports=1, n_ranks=N_RANKS, n_bytes=N_BYTES)
    driver.identify(mac=own.mac, ip=own.ip, node=own.node, job=setting.job, udp_port=own.udp_port)
    for k, other in enumerate(setting.others):
        driver.add_neighbor(k, node=other.node, port=0, mac=other.mac, ip=other.ip)
    rows = np.zeros(4, ROW)
    rows["op"], rows["wait"] = (REDUCE, GATHER, REDUCE, GATHER), (3, 0, 2, 0)
    rows["first"] = rows["flow"] = 0, 0, 1, 1
    rows["step"] = range(4)
    rows["sends"] = (-1, -1, -1, -1), (0, 1, 2, -1), (0, -1, -1, -1), (1, 2, -1, -1)
    layout = Layout.for_nodes(CARD.n_nodes, ports=4)
    driver.load_rows(layout.pack(rows), layout.row_bytes)
    for chunk in range(len(N_HERE)):
        up = [n for n, ph, c in GROUPS if c == chunk and not ph]
        down = [n for n, ph, c in GROUPS if c == chunk and ph]
        driver.set_places(chunk, {r: (n, LEAVES[n], chunk) for r, n in enumerate(up)}, *down)
    driver.set_peers(range(len(setting.others)))
    for region, address in (("gradient", GRADIENT), ("result", RESULT), ("landing", LANDING)):
        driver.register(region, address, N_ELEMS)
    driver.cut(N_ELEMS, n_chunks=len(N_HERE), chunk=CHUNK, packet=PACKET)
    driver.set("schedule", rows=len(rows), peers=len(setting.others), lockstep=0)
    if codec := setting.codec:
        parameters = {name: codec[name] for name in ("exponent", "prescale")}
        parameters["prescale"] &= 0xFF
        driver.set(
            "codec", coded=1, norm=0, thc=0, paper=int(codec["mode"] == "paper"), **parameters
        )
    driver.write("t_probe", 2**24 - 1)
    driver.set("round", tensor=setting.last_tensor, gen=setting.last_gen)
    driver.set("control", armed=1, clear=0, start=0, abort=0)
    driver.start(setting.tensor, setting.gen)
    for n, waits in parts:  # reading keeps the bench awake
        bus.steps += [(Act.PLAY, PACE, n), *[(Act.WAIT, 0, PAUSE), QUIET] * waits]
    for name in ("status", *COUNTERS):
        bus.steps.append((Act.READ, REGISTERS[name].offset, 0))
    act, address, word = np.array(bus.steps).T
    n_quiet = sum(waits for _, waits in parts)
    return encoding.pack(Step, act=act, address=address, data=word), n_quiet


class Round:
    """One round: a setting, and what each copy gets.

    Parameters
    ----------
    seed : of all of it
    copies : int, at least 2
    long : bool
        Whether the last broken frame of each copy has kilobytes.
    coded : bool
        Whether packets are coded with INCEPTIONN.

    Members
    -------
    frames, lengths, kinds : broken ones, uint8 (copies, N_BROKEN, WIDTH) and int64
        Kinds are without copy 0.
    """

    def __init__(self, seed, *, copies=COPIES, long=False, coded=False):
        rng = np.random.default_rng(seed)
        self.seed = int(rng.integers(2**31))
        self.setting = setting = offload_breaker.Setting(rng, coded=coded)
        frames, lengths, kinds = offload_breaker.breaks(
            rng, setting, copies * N_BROKEN, long=copies * long
        )
        self.frames = frames.reshape(N_BROKEN, copies, WIDTH).swapaxes(0, 1)
        self.lengths = lengths.reshape(N_BROKEN, copies).T
        kinds = kinds.reshape(N_BROKEN, copies).T
        self.kinds, self.marked = kinds[1:], kinds == Kind.MARKED
        self.copies, self.long = copies, long
        self._choose(rng)
        n = N_BROKEN + N_UP + N_DOWN + N_ASKS
        self.broken = np.ones(n, bool)  # of the frames of the first part
        self.broken[np.arange(1, n - N_BROKEN + 1) * n // (n - N_BROKEN) - 1] = False
        self.frames[0], self.lengths[0], self.marked[0] = _quiet(setting), HEAD_BYTES, False

    def _choose(self, rng):
        """Numbers of the right frames: between the broken ones, and after them."""
        group = self.setting.data[2]
        numbers = np.arange(len(group))
        held = offload_breaker.held_back(group)
        is_down = np.array([ph for _, ph, _ in GROUPS])[group] == 1
        early, self.late = [], []
        for down, n in ((False, N_UP), (True, N_DOWN)):
            free = np.setdiff1d(numbers[is_down == down], held)
            free = rng.permuted(np.tile(free, (self.copies, 1)), axis=1)
            kept = np.tile(held[is_down[held] == down], (self.copies, 1))
            early.append(free[:, :n])
            late = np.concatenate([free[:, n:], kept], axis=1)
            self.late.append(rng.permuted(late, axis=1))
        asks = len(group) + rng.integers(len(self.setting.asks[1]), size=(self.copies, N_ASKS))
        self.early = rng.permuted(np.concatenate([*early, asks], axis=1), axis=1)

    def isolate(self, copy):
        """From now on copy k gets, of the broken frames of `copy`, only number k - 1."""
        one = [part[copy].copy() for part in self._broken()]
        self.late = [np.tile(part[copy], (self.copies, 1)) for part in self.late]
        self.early = np.tile(self.early[copy], (self.copies, 1))
        k = np.arange(N_BROKEN)
        blank = _quiet(self.setting), HEAD_BYTES, False
        for mine, value, broken in zip(self._broken(), blank, one, strict=True):
            mine[:] = value
            mine[k + 1, k] = broken

    def _arrange(self):
        """Frames in order of arrival, lengths, which are marked; and parts: (frames, pauses)."""
        setting = self.setting
        data, data_lengths, _ = setting.data
        right = np.concatenate([data, setting.asks[0]])
        right_lengths = np.concatenate([data_lengths, setting.asks[1]])
        shape = self.copies, len(self.broken)
        frames, lengths = np.zeros((*shape, WIDTH), np.uint8), np.zeros(shape, np.int64)
        frames[:, self.broken], lengths[:, self.broken] = self.frames, self.lengths
        frames[:, ~self.broken] = right[self.early]
        lengths[:, ~self.broken] = right_lengths[self.early]
        stops, stop_lengths = setting.stops
        frames = [frames, *(right[part] for part in self.late), np.tile(stops, (self.copies, 1, 1))]
        lengths = [lengths, *(right_lengths[part] for part in self.late)]
        lengths.append(np.tile(stop_lengths, (self.copies, 1)))
        marked = np.zeros((self.copies, sum(part.shape[1] for part in lengths)), bool)
        marked[:, np.flatnonzero(self.broken)] = self.marked
        parts = list(zip((part.shape[1] for part in lengths), PAUSES, strict=True))
        if self.long:  # the last broken frame, and a right one behind it
            (n, pause), *rest = parts
            last = int(np.flatnonzero(self.broken)[-1])
            parts = [(last, LONG_PAUSES[0]), (1, LONG_PAUSES[1]), (n - last - 1, pause), *rest]
        arrivals = np.concatenate(frames, axis=1), np.concatenate(lengths, axis=1), marked
        return arrivals, parts

    def _broken(self):
        return self.frames, self.lengths, self.marked

    def play(self, bulk, *, stalls=0, pauses=0):
        """Play it: (fates of the broken frames, {copy: [what differs]}, cycles).

        bulk : `stand()`, or what has its ``run`` and plays as many copies.
        stalls : as of `Bulk.run`. pauses : of memory, see `gradnic.sim.offload.pausing`.
        """
        setting, copies = self.setting, self.copies
        arrivals, parts = self._arrange()
        if pauses:  # a STOP may not come before what it is of
            parts = [(n, SLOW * waits) for n, waits in parts]
        _frames, lengths, _ = arrivals
        fates = offload_judge.judge(*arrivals, setting)
        script, n_quiet = _script(setting, parts, pauses)
        steps = padded(script, -(-script.shape[1] // 4) * 4)
        given = {
            "script": (np.repeat(steps[:, None], copies, axis=1), np.full(copies, len(steps))),
            "mac_rx": spread(*beats_of(*arrivals, lengths > 0)),
        }
        foreign = fates.fate == offload_judge.FOREIGN
        expected = {
            "words": self._words(fates, lengths, n_quiet),
            "host_rx": beats_of(*arrivals, foreign, most=MAX_FRAME),
            "landings": written(fates, 0),
        }
        most = {name: int(counts.max()) + 8 for name, (_, counts) in expected.items()}
        n_answers = np.bincount(fates.answer_copies).max(initial=0)
        most |= {"mac_tx": int(5 * (n_answers + len(RUNS)) + 14 * N_SENT + 40), "results": AREA + 8}
        idle = PAUSE + 500 << (stalls > 0)
        outputs, cycles = bulk.run(
            given, most, max_cycles=300_000, idle_cycles=idle, stalls=stalls, seed=self.seed
        )
        wrong = {}
        for name, (rows, counts) in expected.items():
            note(wrong, name, unlike(*gathered(outputs[name]), rows, counts))
        check_sent(setting.codec, fates, outputs["mac_tx"], wrong)
        check_results(setting.codec, fates, outputs["results"], wrong)
        return fates.fate[1:, : len(self.broken)][:, self.broken], wrong, cycles

    def _words(self, fates, lengths, n_quiet):
        """What the script reads: own address while it waits, status, counters."""
        counts = {name: np.zeros(self.copies, np.int64) for name in COUNTERS}
        for fate, name in enumerate(FATES):
            counts[name] = (fates.fate == fate).sum(axis=1)
        counts["oversize"] = (lengths > MAX_FRAME).sum(axis=1)
        counts["sent"] += N_SENT
        counts["probes"] += len(RUNS)
        status = sum(BITS[name] for name in ("done", "finished", "inc"))
        words = [np.full(self.copies, self.setting.own.ip)] * n_quiet
        words += [np.full(self.copies, status), *(counts[name] for name in COUNTERS)]
        rows = np.stack(words, axis=1).astype("<u4")
        n = rows.shape[1]
        return rows.reshape(-1, 1).view(np.uint8), np.full(self.copies, n)


def _quiet(setting):
    """A frame that is nobody's."""
    frame = setting.data[0][0].copy()
    frame[HEAD_BYTES:] = 0
    frame[12:14] = 0x88, 0xB5
    return frame
