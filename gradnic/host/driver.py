"""Registers of a card by name, from the host: over PCIe, a debug port, or in a simulation.

A `Driver` knows a register map (`gradnic.interface.register_map`) and two functions that reach the
hardware, ``read(address) -> int`` and ``write(address, value)`` of 32-bit words at byte addresses.
It has no other dependency, so it runs wherever Python does. In C the same map is a header, see
`gradnic.interface.register_map.c_header`.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from gradnic.interface import card_memory, inline, offload
from gradnic.interface.params import check_range
from gradnic.interface.register_map import WORD_BYTES, RegisterMap

WORD = (1 << 32) - 1


class CardGone(ConnectionError):
    """Reads give all ones: the link is down, the card lost its power or is being reprogrammed.

    What a bus answers where nothing does. Reserved bits of a register read 0, so all ones is no
    register's word; where a word has none (counters), a register that has some is asked, too.
    """


class Driver:
    """Reads and writes the registers of one map.

    Every call that reads raises `CardGone` where no card answers.

    Parameters
    ----------
    register_map : gradnic.interface.register_map.RegisterMap
    read : function (byte address) -> int
    write : function (byte address, int)
    base : int
        Byte address of the map.
    clock, sleep : functions
        Seconds now, and a pause of seconds: `wait` uses them.
    """

    def __init__(
        self,
        register_map: RegisterMap,
        read: Callable,
        write: Callable,
        *,
        base: int = 0,
        clock: Callable = time.monotonic,
        sleep: Callable = time.sleep,
    ) -> None:
        self.map = register_map
        self._read, self._write = read, write
        self.base = base
        self._clock, self._sleep = clock, sleep

    def _register(self, name):
        try:
            return self.map[name]
        except KeyError as error:
            raise ValueError(error.args[0]) from None

    def read(self, name: str) -> int:
        """Word of a register; of a 64-bit counter both words, of one moment."""
        register = self._register(name)
        at = self.base + register.offset
        word = self._read(at) & WORD
        if word == WORD:
            self._doubt(register)
        if register.n_words == 2:  # reading the low word held the high one
            word |= (self._read(at + WORD_BYTES) & WORD) << 32
        return word

    @cached_property
    def _witness(self):
        """Offset and name of a word that cannot be all ones: reserved bits and words read 0."""
        for register in self.map:
            if register.n_reserved:
                return register.offset, register.name
        return self.map.n_bytes, "the word behind the last one"

    def check(self) -> None:
        """Raise `CardGone` unless a card answers."""
        offset, name = self._witness
        if self._read(self.base + offset) & WORD == WORD:
            raise CardGone(
                f"the card is gone: {name} of {self.map.name} at {self.base:#x} reads {WORD:#010x}"
            )

    def _doubt(self, register):
        """A word that reads all ones: is it one?"""
        if register.n_reserved:
            raise CardGone(
                f"the card is gone: {register.name} of {self.map.name} at {self.base:#x} reads "
                f"{WORD:#010x}"
            )
        self.check()

    def write(self, name: str, word: int) -> None:
        """Write a whole word. ValueError if the register takes none, or the word does not fit."""
        register = self._register(name)
        if register.access not in ("rw", "w1c"):
            raise ValueError(f"{name} must be writable, not {register.access}")
        if not 0 <= word <= WORD:
            raise ValueError(f"{name} must be 0 to {WORD:#x}, not {word!r}")
        self._write(self.base + register.offset, word)

    def get(self, name: str) -> dict[str, int]:
        """Fields of a register as {name: int}, signed ones with their sign."""
        return self._split(name, self.read(name))

    def _split(self, name, word):
        fields = {}
        for field in self._register(name).fields:
            value = word >> field.lsb & (1 << field.width) - 1
            negative = field.signed and value >> field.width - 1
            fields[field.name] = value - (1 << field.width) if negative else value
        return fields

    def set(self, name: str, **values) -> None:
        """Write some fields, the others kept. ValueError for an unknown field or a misfit."""
        register = self._register(name)
        fields = {field.name: field for field in register.fields}
        unknown = sorted(set(values) - set(fields))
        if unknown:
            raise ValueError(f"{name} has no field {unknown[0]!r}, but {', '.join(fields)}")
        word = 0
        if set(values) != set(fields) and register.access == "rw":
            word = self.read(name)
        for key, value in values.items():
            field = fields[key]
            lowest = -(1 << field.width - 1) if field.signed else 0
            if not lowest <= value < lowest + (1 << field.width):
                highest = lowest + (1 << field.width) - 1
                raise ValueError(f"{name}.{key} must be {lowest} to {highest}, not {value!r}")
            word = word & ~field.mask | int(value) << field.lsb & field.mask
        self.write(name, word)

    def clear(self, name: str) -> dict[str, int]:
        """Fields of a sticky register, cleared where they were 1."""
        word = self.read(name)
        self.write(name, word)
        return self._split(name, word)

    def counters(self) -> dict[str, int]:
        """{name: value} of all counters, in the order of the map."""
        return {r.name: self.read(r.name) for r in self.map if r.access == "counter"}

    def wait(
        self, name: str, timeout: float = 1.0, *, pause: float = 0.0, **values
    ) -> dict[str, int]:
        """Read a register until its fields have these values; returns all of its fields.

        timeout, pause : seconds, in all and between two reads. TimeoutError names what it saw last.
        """
        deadline = self._clock() + timeout
        while True:
            late = self._clock() >= deadline
            seen = self.get(name)
            unknown = sorted(set(values) - set(seen))
            if unknown:
                raise ValueError(f"{name} has no field {unknown[0]!r}, but {', '.join(seen)}")
            if all(seen[key] == value for key, value in values.items()):
                return seen
            if late:
                raise TimeoutError(f"{name} must become {values} in {timeout} s, and is {seen}")
            self._sleep(pause)


class InlineDriver(Driver):
    """The in-line card: its settings and its counters.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `Driver`.
    """

    def __init__(self, read: Callable, write: Callable, **options) -> None:
        super().__init__(inline.REGISTERS, read, write, **options)

    def configure(self, settings: inline.InlineSettings) -> None:
        """Write all of an `InlineSettings`; the mode goes on last and off first.

        `CardGone` if no card has taken them.
        """
        words = settings.words()
        self.write("control", 0)
        for name, word in words.items():
            if name != "control":
                self.write(name, word)
        self.write("control", words["control"])
        self.check()

    def settings(self) -> inline.InlineSettings:
        """The `InlineSettings` that the card works by."""
        mark, ports, native = self.get("mark"), self.get("ports"), self.get("native")
        codec = self.get("codec")
        jobs = [self.read(f"jobs_{k}") for k in range(inline.N_JOBS // 32)]
        return inline.InlineSettings(
            paper=bool(self.get("control")["paper"]),
            tos=mark["tos"],
            tos_coded=mark["coded"],
            tos_mask=mark["mask"],
            port_low=ports["low"],
            port_high=ports["high"],
            native_port=native["port"],
            floats_limit=native["limit"],
            exponent=codec["exponent"],
            prescale=codec["prescale"],
            paper_codec=bool(codec["paper"]),
            jobs=frozenset(j for j in range(inline.N_JOBS) if jobs[j // 32] >> j % 32 & 1),
        )


class MemoryDriver(Driver):
    """Memory of an offload card, where that is on chip: bytes in and out, a word at a time.

    Addresses are the card's. The host's own accesses must not meet: one program at a time.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `Driver`; the map is `gradnic.interface.card_memory.REGISTERS`.
    """

    def __init__(self, read: Callable, write: Callable, **options) -> None:
        super().__init__(card_memory.REGISTERS, read, write, **options)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of each memory; ValueError if the card has none that the host reaches."""
        kib = self.read("size")
        if not kib:
            raise ValueError("size must be 1 KiB or more, not 0: the card has no memory on chip")
        return 1024 * kib

    def store(self, memory: str, address: int, octets: bytes) -> None:
        """Write bytes, whole words, to "gradient" or "landing" memory.

        ValueError if they are not words within it.
        """
        places = self._places(memory, address, len(octets))
        for k, at in enumerate(self._shown(places)):
            word = int.from_bytes(octets[WORD_BYTES * k : WORD_BYTES * (k + 1)], "little")
            self._write(at, word)
        self.check()

    def load(self, memory: str, address: int, n_bytes: int) -> bytes:
        """Read bytes, whole words; errors as of `store`."""
        places = self._places(memory, address, n_bytes)
        words = [self._read(at) & WORD for at in self._shown(places)]
        if WORD in words:
            self.check()
        return b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)

    def _places(self, memory, address, n_bytes):
        """Where words stand, counted over all pages."""
        if memory not in card_memory.MEMORIES:
            names = " or ".join(card_memory.MEMORIES)
            raise ValueError(f"memory must be {names}, not {memory!r}")
        if address % WORD_BYTES or n_bytes % WORD_BYTES:
            raise ValueError(
                f"address and size must be multiples of {WORD_BYTES}, "
                f"not {address:#x} and {n_bytes}"
            )
        if not 0 <= address <= address + n_bytes <= self.n_bytes:
            raise ValueError(
                f"{memory} memory must hold {n_bytes} bytes from {address:#x} on, "
                f"not end at {self.n_bytes:#x}"
            )
        first = card_memory.MEMORIES.index(memory) * self.n_bytes + address
        return range(first, first + n_bytes, WORD_BYTES)

    def _shown(self, places):
        """Address of each word, once the window shows its page."""
        window, shown = self.map.window("words"), None
        for place in places:
            page, within = divmod(place, window.n_bytes)
            if page != shown:
                self.set("page", number=page)
                self.wait("page", number=page)  # as long as the write is under way
                shown = page
            yield self.base + window.offset + within


def _entry(**fields):
    """Pack {name: (value, bits)}, lowest first; ValueError for a value that does not fit."""
    entry, low = 0, 0
    for name, (value, width) in fields.items():
        check_range(name, value, 0, 2**width - 1)
        entry, low = entry | value << low, low + width
    return entry


class OffloadDriver(Driver):
    """The offload card: tables, a tensor, rounds.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `Driver`.
    n_ports, n_ranks, n_bytes : int or None
        That the card was built with; None, the default: the card is asked when they are needed.
    """

    def __init__(
        self,
        read: Callable,
        write: Callable,
        *,
        n_ports: int | None = None,
        n_ranks: int | None = None,
        n_bytes: int | None = None,
        **options,
    ) -> None:
        super().__init__(offload.REGISTERS, read, write, **options)
        told = {"ports": n_ports, "ranks": n_ranks, "bytes": n_bytes}
        self._told = {name: value for name, value in told.items() if value is not None}
        self._toggle = 0

    @cached_property
    def _build(self):
        """Fields of ``build``; ValueError if the card does not tell."""
        build = self.get("build")
        if not all(build.values()):
            raise ValueError(f"build must tell what the card was built with, not {build}")
        return build

    def _of_build(self, name):
        return self._told[name] if name in self._told else self._build[name]

    @property
    def n_bytes(self) -> int:
        """Bytes of a beat: regions begin at multiples of it."""
        return self._of_build("bytes")

    @property
    def n_ports(self) -> int:
        """Ethernet ports of the card."""
        return self._of_build("ports")

    @property
    def n_ranks(self) -> int:
        """Contributions of a chunk, at most."""
        return self._of_build("ranks")

    @cached_property
    def layout(self) -> Any:
        """The `gradnic.interface.schedule_table.Layout` that packs rows for this card."""
        from gradnic.interface.schedule_table import Layout  # numpy, which the rest does without

        n_nodes, chunks = self._build["nodes"], self.get("capacity")["chunks"]
        return Layout.for_nodes(n_nodes, ports=4, chunks=-(-chunks // n_nodes))

    @cached_property
    def memory(self) -> MemoryDriver:
        """The `MemoryDriver` of a card whose memory is on chip."""
        return MemoryDriver(
            self._read,
            self._write,
            base=self.base + card_memory.OFFSET,
            clock=self._clock,
            sleep=self._sleep,
        )

    def identify(self, *, mac: int, ip: int, node: int, job: int, **network) -> None:
        """The card's own addresses, its node number, the job; network : fields of that register.

        First of all after a reset of the card: tables are written by a bit that changes.
        """
        self._toggle = self.get("table_write")["toggle"]
        self.write("mac_low", mac & WORD)
        self.set("mac_high", value=mac >> 32, node=node, job=job)
        self.write("ip", ip)
        if network:
            self.set("network", **network)

    def write_table(self, table: int, address: int, entry: int) -> None:
        """One entry, an int, of an `offload.Table`."""
        for k in range(offload.TABLE_WORDS):
            self.write(f"table_data_{k}", entry >> 32 * k & WORD)
        self._toggle ^= 1
        self.set("table_write", address=address, table=table, toggle=self._toggle)

    def load_rows(self, image: bytes, row_bytes: int) -> None:
        """The schedule table of this node: `image` is what ``layout.pack(rows)`` gives."""
        for at in range(0, len(image), row_bytes):
            word = int.from_bytes(image[at : at + row_bytes], "little")
            self.write_table(offload.Table.ROWS, at // row_bytes, word)

    def add_neighbor(self, index: int, *, node: int, port: int, mac: int, ip: int) -> None:
        """A node that packets are exchanged with, under a number below 16."""
        check_range("index", index, 0, 15)
        port_bits = max(1, (self.n_ports - 1).bit_length())
        entry = _entry(valid=(1, 1), node=(node, 8), port=(port, port_bits), mac=(mac, 48),
                       ip=(ip, 32))  # fmt: skip
        self.write_table(offload.Table.NEIGHBORS, index, entry)

    def set_places(
        self, chunk: int, up: dict[int, tuple[int, int, int]], down: int | None = None
    ) -> None:
        """Who sends a chunk: up is {rank: (neighbor, leaves, flow)}, down a neighbor or None."""
        entry = 0
        for rank, (neighbor, leaves, flow) in up.items():
            check_range("rank", rank, 0, self.n_ranks - 1)
            one = _entry(valid=(1, 1), neighbor=(neighbor, 4), leaves=(leaves, 8), flow=(flow, 13))
            entry |= one << 26 * rank
        if down is not None:
            entry |= _entry(valid=(1, 1), down=(down, 4)) << 26 * self.n_ranks
        self.write_table(offload.Table.PLACES, chunk, entry)

    def set_checks(self, checks: Sequence[int]) -> None:
        """Of each packet of a round of THC: low 20 bits of the XOR of its agreed norms."""
        checks = list(checks)
        for check in checks:
            check_range("check", check, 0, 2**20 - 1)
        for number, check in enumerate(checks):
            self.write_table(offload.Table.CHECKS, number, check)

    def set_peers(self, neighbors: Sequence[int]) -> None:
        """Neighbor of each peer index of the table."""
        for index, neighbor in enumerate(neighbors):
            self.write_table(offload.Table.PEERS, index, neighbor)

    def allow(self, neighbor: int, n_bytes: int) -> None:
        """What a neighbor may lose in the next round, in bytes times leaves."""
        self.write_table(offload.Table.ALLOWANCES, neighbor, n_bytes)

    def tag(
        self,
        layer: int,
        *,
        queues: Sequence[int] = range(1),
        dscps: Sequence[tuple[int, int]] | None = None,
        threshold: int | None = None,
        **rules: int,
    ) -> None:
        """The tensor's layer, and how its packets become important; see ``tags`` and ``scores``.

        queues : of each layer. dscps : of [queue][important], default class selectors 7 - queue.
        threshold : score from which on packets are important. rules : fields of those registers;
        without any, all packets are important.
        """
        self._tag(queues, dscps, threshold, rules, layer=layer)

    def _tag(self, queues, dscps, threshold, rules, **more):
        for index, queue in enumerate(queues):
            self.write_table(offload.Table.LAYERS, index, queue)
        for queue, pair in enumerate(dscps or [(8 * (7 - q), 8 * (7 - q)) for q in range(8)]):
            for important, dscp in enumerate(pair):
                self.write_table(offload.Table.DSCPS, 2 * queue + important, dscp)
        if threshold is not None:
            self.write_table(offload.Table.THRESHOLD, 0, threshold)
        scores = {name: rules.pop(name) for name in ("unit", "share") if name in rules}
        if scores:
            self.set("scores", **scores)
        self.set("tags", **more, **rules)

    def register(self, region: str, address: int, n_elems: int, *, elem_bytes: int = 4) -> None:
        """Memory that the card may touch: ``gradient``, ``result`` or ``landing``, whole beats.

        For ``landing`` n_elems is that of the tensor; the card takes so much for each rank.
        """
        if address % self.n_bytes:
            raise ValueError(f"address must be a multiple of {self.n_bytes}, not {address:#x}")
        beats = -(-n_elems * elem_bytes // self.n_bytes)
        if region == "landing":
            self.write("area", beats)
            beats *= self.n_ranks
        self.write(f"{region}_low", address & WORD)
        self.write(f"{region}_high", address >> 32)
        self.write(f"{region}_beats", beats)

    def cut(self, n_elems: int, *, n_chunks: int, chunk: int, packet: int) -> None:
        """How the tensor is cut: chunks of `chunk` elements and packets of `packet`.

        Both are multiples of 16, or of 32 on cards of 128 bytes a beat.
        """
        unit = max(16, self.n_bytes // 4)
        for name, value in (("chunk", chunk), ("packet", packet)):
            if value < unit or value % unit:
                raise ValueError(f"{name} must be a multiple of {unit} elements, not {value!r}")
        live = -(-n_elems // chunk)
        rest = n_elems - (live - 1) * chunk
        whole, last = -(-chunk // packet), -(-rest // packet)
        self.set("chunk", units=chunk // 16, packet=packet // 16)
        self.set("packets", whole=whole, last=last)
        self.set("tails", whole=chunk - (whole - 1) * packet, last=rest - (last - 1) * packet)
        self.set("chunks", all=n_chunks, live=live)

    def start(self, tensor: int, gen: int, *, timeout: float = 1.0) -> None:
        """Arm a round and begin; the gradient must be in place.

        gen : number of the round, the same at all nodes, one more each time (modulo 2**16),
        whatever the tensor: packets of other rounds are told by it.
        ValueError if the card was built without the round's codec.
        """
        codec = self.get("codec")
        for name, bit, needed in (
            ("THC", "thc", codec["thc"] or codec["norm"]),
            ("INCEPTIONN", "inc", codec["coded"]),
        ):
            if needed and not self.get("status")[bit]:
                raise ValueError(f"codec must not be {name}: the card was built without it")
        self.write("control", 0)
        self.set("round", tensor=tensor, gen=gen)
        self.set("control", armed=0, clear=1, start=0, abort=0)
        self.wait("status", timeout, clearing=0)
        self.set("control", armed=1, clear=0, start=0, abort=0)
        self.set("control", armed=1, clear=0, start=1, abort=0)

    def finish(self, timeout: float = 1.0) -> None:
        """Wait until the result is complete and everybody has it; end the round."""
        self.wait("status", timeout, finished=1)
        self.write("control", 0)
