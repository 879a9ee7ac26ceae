"""The host's driver on words that behave like registers; RTL is driven in the shells' tests."""

from array import array
from functools import partial
from itertools import product

import numpy as np
import pytest

from gradnic.host.driver import CardGone, Driver, InlineDriver
from gradnic.host.jobs import JobDriver
from gradnic.host.offload_driver import MemoryDriver, OffloadDriver
from gradnic.interface import aggregator, card_memory, inline, job_card, offload, tap
from gradnic.interface.job import Job
from gradnic.interface.register_map import BitField, Register, RegisterMap
from gradnic.interface.schedule_table import Layout

MAP = RegisterMap(
    "demo",
    "a map with one register of each kind",
    (
        Register(
            "mode",
            0x00,
            "rw",
            "settings",
            (
                BitField("level", 0, 4, "unsigned", 3),
                BitField("bias", 8, 8, "two's complement", -1, signed=True),
            ),
        ),
        Register("state", 0x04, "ro", "what it does", (BitField("busy", 0, 1, "works"),)),
        Register("faults", 0x08, "w1c", "what went wrong", (BitField("late", 3, 1, "too late"),)),
        Register("frames", 0x10, "counter", "frames", width=64),
        Register("drops", 0x18, "counter", "drops"),
    ),
)


class Words:
    """32-bit words by address; every access is written down."""

    def __init__(self, base=0):
        self.words, self.log, self.base = {}, [], base

    def read(self, address):
        self.log.append(("read", address - self.base))
        return self.words.get(address - self.base, 0)

    def write(self, address, value):
        self.log.append(("write", address - self.base, value))
        self.words[address - self.base] = value


THC = next(bit.mask for bit in offload.REGISTERS["status"].fields if bit.name == "thc")


@pytest.fixture
def words():
    return Words(base=0x2000)


@pytest.fixture
def driver(words):
    return Driver(MAP, words.read, words.write, base=0x2000)


def test_fields_by_name(driver, words):
    words.words[0] = 0xFE0A
    assert driver.get("mode") == {"level": 10, "bias": -2}
    driver.set("mode", bias=-128)
    assert words.words[0] == 0x800A
    words.log.clear()
    driver.set("mode", level=1, bias=5)  # all fields: nothing to keep, so nothing is read
    assert words.log == [("write", 0, 0x0501)]


def test_counters_and_sticky_bits(driver, words):
    words.words |= {0x10: 7, 0x14: 2, 0x18: 9, 0x08: 8}
    assert driver.counters() == {"frames": 7 + (2 << 32), "drops": 9}
    assert [entry for entry in words.log if entry[1] in (0x10, 0x14)] == [
        ("read", 0x10),
        ("read", 0x14),
    ]
    assert driver.clear("faults") == {"late": 1}
    assert words.log[-1] == ("write", 0x08, 8)
    words.log.clear()
    driver.set("faults", late=1)
    assert words.log == [("write", 0x08, 8)]  # a sticky register is not read to be written


def test_an_exponent_that_no_codec_takes_is_refused(words):
    cards = InlineDriver, OffloadDriver, partial(Driver, job_card.REGISTERS)
    for card, exponent in product(
        [driver(words.read, words.write) for driver in cards], (5, 100, 112, 127, 117.5)
    ):
        with pytest.raises(ValueError, match=f"codec.exponent must be 113 to 126, not {exponent}"):
            card.set("codec", exponent=exponent)
    assert not [entry for entry in words.log if entry[0] == "write"]


def test_wait(words):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds
        words.words[4] = int(now[0] < 0.5)

    words.words[4] = 1
    driver = Driver(MAP, words.read, words.write, base=0x2000, clock=lambda: now[0], sleep=sleep)
    assert driver.wait("state", 1.0, pause=0.1, busy=0) == {"busy": 0}
    assert 0.5 <= now[0] < 0.7
    with pytest.raises(TimeoutError, match=r"state must become \{'busy': 1\} in 1.0 s, and is"):
        driver.wait("state", 1.0, pause=0.1, busy=1)
    with pytest.raises(ValueError, match="state has no field 'idle', but busy"):
        driver.wait("state", idle=1)


def test_mistakes_are_named(driver):
    for deed, said in (
        (lambda: driver.read("modes"), "demo has no register 'modes'"),
        (lambda: driver.set("mode", leevel=1), "mode has no field 'leevel', but level, bias"),
        (lambda: driver.set("mode", level=16), "mode.level must be 0 to 15, not 16"),
        (lambda: driver.set("mode", bias=-129), "mode.bias must be -128 to 127, not -129"),
        (lambda: driver.set("mode", level=1.5), r"mode.level must be 0 to 15, not 1\.5"),
        (lambda: driver.set("mode", level="1"), "mode.level must be 0 to 15, not '1'"),
        (lambda: driver.write("mode", 1.5), r"mode must be 0 to 0xffffffff, not 1\.5"),
        (lambda: driver.write("state", 1), "state must be writable, not ro"),
        (lambda: driver.write("mode", 1 << 32), "mode must be 0 to 0xffffffff, not 4294967296"),
    ):
        with pytest.raises(ValueError, match=said):
            deed()


def test_settings_of_the_inline_card(words):
    card = InlineDriver(words.read, words.write, base=0x2000)
    for name, word in inline.InlineSettings().words().items():  # as after reset
        words.words[inline.REGISTERS[name].offset] = word
    assert card.settings() == inline.InlineSettings()
    chosen = inline.InlineSettings(
        paper=True,
        tos=0x30,
        tos_coded=0x34,
        tos_mask=0xFC,
        port_low=9000,
        port_high=9001,
        native_port=5000,
        jobs={0, 31, 32, 255},
        exponent=120,
        prescale=-3,
        paper_codec=True,
        floats_limit=336,
    )
    words.log.clear()
    card.configure(chosen)
    assert card.settings() == chosen
    writes = [entry for entry in words.log if entry[0] == "write"]
    assert writes[0] == ("write", 0, 0)
    assert writes[-1] == ("write", 0, 1)
    assert set(card.counters()) == set(inline.COUNTERS)


@pytest.mark.parametrize(
    ("settings", "name", "bit"),
    [({"thc": 1}, "THC", 8), ({"norm": 1}, "THC", 8), ({"coded": 1}, "INCEPTIONN", 9)],
)
def test_a_card_without_a_codec_refuses_its_rounds(words, settings, name, bit):
    card = OffloadDriver(words.read, words.write, base=0x2000)
    plain = {"coded": 0, "norm": 0, "thc": 0, "exponent": 117, "paper": 0, "prescale": 0}
    status = offload.REGISTERS["status"].offset
    card.set("codec", **plain | settings)
    words.log.clear()
    for word in (0, 3 << 8 ^ 1 << bit):
        words.words[status] = word
        with pytest.raises(ValueError, match=f"codec must not be {name}: the card was built"):
            card.start(3, 9)
    assert not [entry for entry in words.log if entry[0] == "write"]
    words.words[status] = 1 << bit
    card.start(3, 9)
    words.words[status] = 0
    card.set("codec", **plain)
    card.start(3, 9)


def test_no_round_begins_in_the_middle_of_another(words):
    card = OffloadDriver(words.read, words.write, base=0x2000)
    words.words[offload.REGISTERS["status"].offset] = 1  # a host was killed
    with pytest.raises(RuntimeError, match="a round is under way, which a host before may have"):
        card.start(3, 9)
    assert not [entry for entry in words.log if entry[0] == "write"]


def test_levels_that_have_no_half_begin_no_round_where_packets_may_miss(words):
    card = OffloadDriver(words.read, words.write, base=0x2000)
    words.words[offload.REGISTERS["status"].offset] = 0x100
    card.set("codec", coded=0, norm=0, thc=1, exponent=117, paper=0, prescale=0)
    card.set("chunk", units=64, packet=1)
    card.set("thc", n=4, g=31, index_p0=0, index_p1=0)
    card.start(3, 9)
    card.allow(2, 512)
    words.log.clear()
    with pytest.raises(ValueError, match="g must be even where packets may miss, not 31"):
        card.start(3, 9)
    assert not [entry for entry in words.log if entry[0] == "write"]
    card.set("thc", n=4, g=30, index_p0=0, index_p1=0)
    card.start(3, 9)
    card.set("thc", n=4, g=31, index_p0=0, index_p1=0)
    card.allow(2, 0)
    card.start(3, 9)


def test_packets_longer_than_the_card_can_make_begin_no_round(words):
    """1,024 indices and sums of THC have no more bytes than 352 floats."""
    card = OffloadDriver(words.read, words.write, base=0x2000)
    words.words |= {
        offload.REGISTERS["longest"].offset: 22,
        offload.REGISTERS["status"].offset: 0x300,
    }
    plain = {"coded": 0, "norm": 0, "thc": 0, "exponent": 117, "paper": 0, "prescale": 0}
    for thc, packet, most in ((0, 368, 352), (0, 4080, 352), (1, 1424, 1408), (0, 0, 352)):
        card.set("codec", **plain | {"thc": thc})
        card.set("chunk", units=64, packet=packet // 16)
        words.log.clear()
        with pytest.raises(ValueError, match=f"packet must be 1 to {most}, not {packet}"):
            card.start(3, 9)
        assert not [entry for entry in words.log if entry[0] == "write"]
    for thc, packet in ((0, 352), (1, 1024)):
        card.set("codec", **plain | {"thc": thc})
        card.set("chunk", units=64, packet=packet // 16)
        card.start(3, 9)


def test_tables_are_written_after_a_reset_of_the_card(words):
    card = OffloadDriver(words.read, words.write, base=0x2000)
    at = offload.REGISTERS["table_write"].offset
    for _ in range(2):
        card.identify(mac=1, ip=2, node=3, job=4)
        card.allow(0, 100)
        assert words.words[at] >> 20 == 1
        words.words.clear()


@pytest.mark.parametrize(
    "act",
    [
        lambda card: card.post(Job(id=1, tensor=1, gen=1, elems=16, source=0, result=0)),
        lambda card: card.abort(3),
        JobDriver.completion,
        lambda card: card.load_table(0, bytes(16), 16, [({}, None)], [], n_chunks=1, leaves=1),
        lambda card: card.unload_table(1),
        lambda card: card.set_thc([*range(15), 16], block=256, clip=600, index_p=(0, 0)),
        lambda card: card.tag(queues=[0], dscps=[(0, 0)]),
        lambda card: card.add_neighbor(2, node=1, port=0, mac=3, ip=4),
        lambda card: card.remove_neighbor(2),
        lambda card: card.write_table(job_card.CELLS, 0, 1),
    ],
    ids=["post", "abort", "completion", "load_table", "unload_table", "set_thc", "tag",
         "add_neighbor", "remove_neighbor", "write_table"],
)  # fmt: skip
def test_a_driver_beside_another_is_told_so(words, act):
    """Its bit would be the other's, so that nothing happened."""
    sizes = {"n_ports": 1, "n_ranks": 1, "n_bytes": 16, "n_rows": 4, "n_chunks": 4, "n_peers": 4}
    sizes |= {"n_active": 1, "n_engines": 1, "n_tables": 2}
    fields = job_card.REGISTERS["status"].fields
    status = sum(field.mask for field in fields if field.name in ("completion", "thc"))
    words.words[job_card.REGISTERS["status"].offset] = status
    words.base = 0
    one, other = (JobDriver(words.read, words.write, **sizes) for _ in range(2))
    network = {"mac": 2, "ip": 1, "node": 0, "tenant": 7}
    one.identify(**network)
    other.identify(**network)
    act(one)
    words.log.clear()
    with pytest.raises(ConnectionAbortedError, match="another driver uses the card, or it was re"):
        act(other)
    assert {what for what, *_ in words.log} == {"read"}
    act(one)
    other.identify(**network)
    act(other)


def test_a_round_cards_driver_beside_another_is_told_so(words):
    words.base = 0
    sizes = {"n_bytes": 16, "n_ports": 1, "n_ranks": 1}
    one, other = (OffloadDriver(words.read, words.write, **sizes) for _ in range(2))
    for card in (one, other):
        card.identify(mac=2, ip=1, node=0, job=7)
    one.write_table(offload.Table.ROWS, 0, 0)
    words.words[offload.REGISTERS["status"].offset] = THC
    words.log.clear()
    for act in (
        lambda: other.load_rows(bytes(16), 16),
        lambda: other.set_places(0, {0: (1, 1, 0)}),
        lambda: other.set_peers([0]),
        lambda: other.set_checks([5]),
        lambda: other.allow(0, 100),
        lambda: other.tag(3),
    ):
        with pytest.raises(ConnectionAbortedError, match="toggle must be 0, as this driver left"):
            act()
        assert {what for what, *_ in words.log} == {"read"}


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (OffloadDriver, lambda card: card.set_checks([5])),
        (OffloadDriver, lambda card: card.write_table(offload.Table.QUEUES, 0, 1)),
        (OffloadDriver, lambda card: card.write_table(job_card.JOBS, 0, 1)),
        (JobDriver, lambda card: card.set_checks([5])),
        (JobDriver, lambda card: card.allow(0, 100)),
        (JobDriver, lambda card: card.write_table(offload.Table.QUEUES, 0, 1)),
        (JobDriver, lambda card: card.write_table(job_card.CELLS, 0, 1)),
        (JobDriver, lambda card: card.write_table(job_card.LEVELS, 0, 1)),
    ],
)
def test_entries_of_what_a_card_lacks_are_refused(words, kind, act):
    """The card would take them for nothing, without a word."""
    words.base = 0
    with pytest.raises(ValueError, match="table must be one that the card was built with, not"):
        act(kind(words.read, words.write))
    assert {what for what, *_ in words.log} <= {"read"}


class PagedMemory:
    """The window of `card_memory` over two memories of `kib` KiB; a read may overtake a write."""

    BASE = 0x100000 + card_memory.OFFSET

    def __init__(self, kib):
        self.kib, self.page, self.late = kib, 0xFFFF, []
        self.octets = bytearray(2 * 1024 * kib)

    def _place(self, offset):
        return self.page * 0x80000 + offset - 0x7F000

    def read(self, address):
        offset = address - self.BASE
        found = {0x00: self.kib, 0x04: self.page}
        if offset in found:
            if self.late:  # the page shows one read late
                self.page = self.late.pop()
            return found[offset]
        place = self._place(offset)
        return int.from_bytes(self.octets[place : place + 4], "little")

    def write(self, address, word):
        offset = address - self.BASE
        if offset == 0x04:
            self.late.append(word)
            return
        assert not self.late, "a word went to the page before"
        place = self._place(offset)
        self.octets[place : place + 4] = word.to_bytes(4, "little")


def test_memory_page_by_page():
    words = PagedMemory(1024)
    card = OffloadDriver(words.read, words.write, base=0x100000)
    n = 1024 * 1024
    assert card.memory.n_bytes == n
    for memory, first in (("gradient", 0), ("landing", n)):
        for address in (0, 0x7FFF8, n - 16):
            octets = bytes(range(address % 7, address % 7 + 16))
            card.memory.store(memory, address, octets)
            assert words.octets[first + address : first + address + 16] == octets
            words.page = 9  # as after a reset, of which the driver knows nothing
            assert card.memory.load(memory, address, 16) == octets
    assert card.memory.load("gradient", n, 0) == b""


def test_memory_takes_any_buffer_as_its_bytes():
    words = PagedMemory(64)
    memory = OffloadDriver(words.read, words.write, base=0x100000).memory
    floats = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    for data in (
        floats, memoryview(floats), floats.view("u1"), floats.astype(">f4"), floats.astype("f2"),
        np.arange(4), bytearray(range(64)), array("d", (1.5, -2)), np.float32(2),
    ):  # fmt: skip
        memory.store("gradient", 0, bytes(128))
        memory.store("gradient", 4, data)
        wanted = bytes(memoryview(data))
        assert words.octets[:132] == bytes(4) + wanted + bytes(128 - len(wanted))
    memory.store("gradient", 0, np.zeros((0, 4), np.float32))
    assert memory.load("gradient", np.int32(4), np.uint8(4)) == np.float32(2).tobytes()
    words.octets[:] = bytes(len(words.octets))
    for data in (floats[::2, ::2], floats.T, floats[:, ::-1], memoryview(floats)[::2], [1, 2], "a"):
        with pytest.raises(ValueError, match="data must be bytes or a C-contiguous buffer, not"):
            memory.store("gradient", 0, data)
    with pytest.raises(ValueError, match="must be multiples of 4, not 0x0 and 6"):
        memory.store("gradient", 0, floats.astype("f2").reshape(-1)[:3])
    assert not any(words.octets)


@pytest.mark.parametrize("whole", [np.uint8, np.int8, np.int32, np.uint32, np.int64, np.uint64])
def test_numbers_may_be_numpys(words, whole):
    """All of their bits arrive, as those of ints."""
    written, status, built = [], job_card.REGISTERS["status"], ("thc", "any_bits")
    for kind in (int, whole):
        words.log.clear()
        told = sum(bit.mask for bit in status.fields if bit.name in built)
        words.words = {status.offset: told | THC}
        sizes = {"n_ports": 4, "n_ranks": 4, "n_bytes": 64, "n_rows": 64, "n_chunks": 8,
                 "n_peers": 4, "n_active": 1, "n_engines": 1, "n_tables": 1}  # fmt: skip
        driver = Driver(MAP, words.read, words.write, base=0x2000)
        driver.write("mode", kind(100))
        rounds = OffloadDriver(words.read, words.write, base=0x2000)
        rounds.set_checks([kind(110)])
        card = JobDriver(words.read, words.write, base=0x2000, **sizes)
        card.identify(mac=kind(101), ip=kind(102), node=kind(103), tenant=kind(104))
        card.add_neighbor(kind(1), node=kind(105), port=kind(3), mac=kind(106), ip=kind(107))
        card.set_places(kind(2), {0: (kind(3), kind(108), kind(109))}, kind(4))
        card.allow_memory(kind(1), kind(64), kind(64))
        card.set_landing([kind(64)], kind(100))
        card.set_thc([kind(level) for level in range(0, 46, 3)], block=64, clip=kind(111),
                     index_p=(kind(1), kind(2)))  # fmt: skip
        card.set_scratch([kind(64)], kind(100), kind(5))
        image = np.arange(64, dtype=np.uint16)
        card.load_table(0, bytes(image) if kind is int else image, 8, [], [kind(3)],
                        n_chunks=kind(3), leaves=kind(100))  # fmt: skip
        card.post(Job(id=kind(1), tensor=kind(2), gen=kind(3), elems=kind(4), source=kind(64),
                      result=kind(64), seed=kind(5)))  # fmt: skip
        written.append([entry for entry in words.log if entry[0] == "write"])
    assert all(type(word) is int for _, _, word in written[1])
    assert written[1] == written[0]


@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
def test_a_bus_may_be_an_array(words, dtype):
    """A device's memory, mapped: what a read gives has 32 bits."""
    bus = np.array([0xFE0A, 0, 0, 0, 0x87654321, 0x89ABCDEF, 7], np.uint32).view(dtype)
    driver = Driver(MAP, lambda at: bus[at // 4], words.write)
    assert driver.counters() == {"frames": 0x89ABCDEF87654321, "drops": 7}
    assert driver.get("mode") == {"level": 10, "bias": -2}


def test_memory_is_checked():
    words = PagedMemory(64)
    memory = OffloadDriver(words.read, words.write, base=0x100000).memory
    for deed, said in (
        (lambda: memory.load("result", 0, 4), "memory must be gradient or landing, not 'result'"),
        (lambda: memory.load("gradient", 2, 4), "must be multiples of 4, not 0x2 and 4"),
        (lambda: memory.store("landing", 0, b"abc"), "must be multiples of 4, not 0x0 and 3"),
        (lambda: memory.load("landing", 0xFFFC, 8), "hold 8 bytes from 0xfffc on, not end at"),
        (lambda: memory.load("landing", -4, 4), "hold 4 bytes from -0x4 on, not end at 0x10000"),
    ):
        with pytest.raises(ValueError, match=said):
            deed()
    words.kib = 0
    with pytest.raises(ValueError, match="the card has no memory on chip"):
        OffloadDriver(words.read, words.write, base=0x100000).memory.load("gradient", 0, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda card: card.set_places(0, {4: (0, 1, 0)}), "rank must be 0 to 3, not 4"),
        (lambda card: card.set_places(0, {0: (16, 1, 0)}), "neighbor must be 0 to 15, not 16"),
        (lambda card: card.set_places(0, {0: (0, 256, 0)}), "leaves must be 0 to 255, not 256"),
        (lambda card: card.set_places(0, {0: (0, 1, 8192)}), "flow must be 0 to 8191, not 8192"),
        (lambda card: card.set_places(0, {}, 16), "down must be 0 to 15, not 16"),
        (lambda card: card.set_checks([5, 1 << 20]), "check must be 0 to 1048575, not 1048576"),
        (
            lambda card: card.add_neighbor(0, node=256, port=0, mac=1, ip=2),
            "node must be 0 to 255, not 256",
        ),
        (
            lambda card: card.add_neighbor(16, node=1, port=0, mac=1, ip=2),
            "index must be 0 to 15, not 16",
        ),
    ],
)
def test_entries_that_do_not_fit_are_refused(words, call, message):
    sizes = {"n_ports": 1, "n_ranks": 4, "n_bytes": 32}
    card = OffloadDriver(words.read, words.write, base=0x2000, **sizes)
    words.log.clear()
    with pytest.raises(ValueError, match=message):
        call(card)
    assert not words.log


def test_places_and_checks_are_packed(words):
    words.words[offload.REGISTERS["status"].offset] = THC
    card = OffloadDriver(words.read, words.write, base=0x2000, n_ports=1, n_ranks=4, n_bytes=32)
    first = offload.REGISTERS["table_data_0"].offset

    def entry():
        return sum(words.words[first + 4 * k] << 32 * k for k in range(offload.TABLE_WORDS))

    card.set_places(7, {0: (3, 200, 5000), 3: (15, 255, 8191)}, 9)
    up = (1 | 3 << 1 | 200 << 5 | 5000 << 13) | (2**26 - 1) << 78
    assert entry() == up | (1 | 9 << 1) << 104
    card.set_checks([0x12345, 0xFFFFF])
    assert entry() == 0xFFFFF
    write = words.words[offload.REGISTERS["table_write"].offset]
    assert (write & 0xFFFF, write >> 16 & 15) == (1, 8)


def gone(at):
    """What a bus reads where no card answers."""
    return 0xFFFFFFFF


def ignored(at, word):
    """A write to no card."""


MAPS = (inline, aggregator, offload, card_memory, tap)


@pytest.mark.parametrize("module", MAPS, ids=lambda module: module.REGISTERS.name)
def test_a_card_that_is_gone_has_no_register(module):
    driver = Driver(module.REGISTERS, gone, ignored, base=0x4000)
    for register in driver.map:
        said = rf"the card is gone: .* of {driver.map.name} at 0x4000 reads 0xffffffff"
        deeds = [lambda r=register: driver.read(r.name), lambda r=register: driver.get(r.name)]
        if register.access == "w1c":
            deeds.append(lambda r=register: driver.clear(r.name))
        if register.access in ("ro", "w1c"):
            deeds += [
                lambda r=register, f=field: driver.wait(r.name, **{f.name: 2**f.width - 1})
                for field in register.fields
            ]
        for deed in deeds:
            with pytest.raises(CardGone, match=said):
                deed()
    for deed in (driver.counters, driver.check):
        with pytest.raises(CardGone):
            deed()


def test_a_card_that_is_gone_has_no_result():
    inline_card, card = InlineDriver(gone, ignored), OffloadDriver(gone, ignored)
    memory = MemoryDriver(gone, ignored)
    for deed in (
        inline_card.settings,
        inline_card.counters,
        lambda: inline_card.configure(inline.InlineSettings()),
        lambda: card.identify(mac=1, ip=2, node=3, job=4),
        lambda: card.start(1, 2),
        card.finish,
        card.counters,
        lambda: memory.n_bytes,
        lambda: memory.store("gradient", 0, bytes(8)),
        lambda: memory.load("gradient", 0, 8),
        lambda: card.memory.load("landing", 0, 4),
    ):
        with pytest.raises(CardGone, match="the card is gone"):
            deed()


def test_a_card_goes_while_it_works():
    """Each read may be the first that nobody answers."""
    status = offload.REGISTERS["status"]
    finished = sum(f.mask for f in status.fields if f.name == "finished")
    for answered in range(6):
        left = [answered]

        def read(at, left=left):
            left[0] -= 1
            word = finished if at == status.offset and left[0] == 2 else 0
            return word if left[0] >= 0 else 0xFFFFFFFF

        card = OffloadDriver(read, ignored)

        def rounds(card=card):
            for _ in range(4):
                card.start(1, 2)
                card.finish()

        with pytest.raises(CardGone):
            rounds()


def test_all_ones_may_be_a_count(words):
    """Of a register without reserved bits, as long as another one has them 0."""
    driver = Driver(MAP, words.read, words.write, base=0x2000)
    words.words |= {0x10: 0xFFFFFFFF, 0x14: 0xFFFFFFFF, 0x18: 0xFFFFFFFF}
    assert driver.counters() == {"frames": 2**64 - 1, "drops": 2**32 - 1}
    memory = MemoryDriver(words.read, words.write, base=0x2000 - 0x1000)
    shown = card_memory.REGISTERS["size"].offset - 0x1000
    words.words[shown] = 1
    at = card_memory.REGISTERS.window("words").offset - 0x1000
    words.words[at] = 0xFFFFFFFF
    assert memory.load("gradient", 0, 4) == b"\xff" * 4


def test_the_offload_card_tells_its_build(words):
    """Region sizes and the packing of rows follow from it; a card that tells nothing is refused."""
    card = OffloadDriver(words.read, words.write, base=0x2000)
    build, capacity = (offload.REGISTERS[name] for name in ("build", "capacity"))
    with pytest.raises(ValueError, match="build must tell what the card was built with, not"):
        card.register("gradient", 0, 1024)
    told = {"bytes": 64, "ports": 2, "ranks": 3, "nodes": 16}
    words.words[build.offset] = sum(told[f.name] << f.lsb for f in build.fields)
    rows, chunks = (f.lsb for f in capacity.fields)
    words.words[capacity.offset] = 512 << rows | 32 << chunks
    assert (card.n_bytes, card.n_ports, card.n_ranks) == (64, 2, 3)
    assert card.layout == Layout.for_nodes(16, ports=4, chunks=2)
    card.register("landing", 0x40, 1024)
    assert words.words[offload.REGISTERS["area"].offset] == 1024 * 4 // 64
    assert words.words[offload.REGISTERS["landing_beats"].offset] == 3 * 1024 * 4 // 64
    with pytest.raises(ValueError, match="address must be a multiple of 64, not 0x20"):
        card.register("gradient", 0x20, 1024)
    wide = OffloadDriver(words.read, words.write, n_ports=1, n_ranks=3, n_bytes=128)
    with pytest.raises(ValueError, match="packet must be a multiple of 32 elements, not 336"):
        wide.cut(1024, n_chunks=1, chunk=1024, packet=336)
