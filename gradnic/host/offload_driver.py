"""Registers of offload cards by name, and their memory where that is on chip: see `driver`."""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

from gradnic.interface import card_memory, offload
from gradnic.interface.params import check_range
from gradnic.interface.register_map import WORD_BYTES

from .driver import WORD, Driver, octets_of

N_NEIGHBORS = 16  # numbers of neighbors


class MemoryDriver(Driver):
    """Memory of an offload card, where that is on chip: bytes in and out, a word at a time.

    Addresses are the card's. The host's own accesses must not meet: one program at a time.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `Driver`; the map is `gradnic.interface.card_memory.REGISTERS`.
    """

    def __init__(self, read: Callable, write: Callable, **options: Any) -> None:
        super().__init__(card_memory.REGISTERS, read, write, **options)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of each memory; ValueError if the card has none that the host reaches."""
        kib = self.read("size")
        if not kib:
            raise ValueError("size must be 1 KiB or more, not 0: the card has no memory on chip")
        return 1024 * kib

    def store(self, memory: str, address: int, octets: Any) -> None:
        """Write bytes, or any C-contiguous buffer, to "gradient" or "landing" memory.

        ValueError if they are not whole words within it, or not C-contiguous.
        """
        octets = octets_of(octets)
        places = self._places(memory, address, len(octets))
        for k, at in enumerate(self._shown(places)):
            word = int.from_bytes(octets[WORD_BYTES * k : WORD_BYTES * (k + 1)], "little")
            self._write(at, word)
        self.check()

    def load(self, memory: str, address: int, n_bytes: int) -> bytes:
        """Read bytes, whole words; errors as of `store`."""
        places = self._places(memory, address, n_bytes)
        words = [self._word(at) for at in self._shown(places)]
        if WORD in words:
            self.check()
        return b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)

    def _places(self, memory: str, address: int, n_bytes: int) -> range:
        """Where words stand, counted over all pages."""
        if memory not in card_memory.MEMORIES:
            names = " or ".join(card_memory.MEMORIES)
            raise ValueError(f"memory must be {names}, not {memory!r}")
        address, n_bytes = operator.index(address), operator.index(n_bytes)
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

    def _shown(self, places: range) -> Iterator[int]:
        """Address of each word, once the window shows its page."""
        window, shown = self.map.window("words"), None
        for place in places:
            page, within = divmod(place, window.n_bytes)
            if page != shown:
                self.set("page", number=page)
                self.wait("page", number=page)  # as long as the write is under way
                shown = page
            yield self.base + window.offset + within


def _entry(**fields: tuple[int, int]) -> int:
    """Pack {name: (value, bits)}, lowest first; ValueError for a value that does not fit."""
    entry, low = 0, 0
    for name, (value, width) in fields.items():
        check_range(name, value, 0, 2**width - 1)
        entry, low = entry | int(value) << low, low + width
    return entry


def built(name: str) -> Any:
    """An attribute that the card was built with: what the driver was told, or else asks."""
    return property(lambda driver: driver._of_build(name))


class OffloadDriver(Driver):
    """The offload card: tables, a tensor, rounds.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `Driver`.
    n_ports, n_ranks, n_bytes : int or None
        That the card was built with; None, the default: the card is asked when they are needed.
    """

    #: what of ``status`` each table needs
    _units: ClassVar[dict[int, str]] = dict.fromkeys(map(int, offload.Table), "") | {
        offload.Table.CHECKS: "thc", offload.Table.QUEUES: "queues",
    }  # fmt: skip

    def __init__(
        self,
        read: Callable,
        write: Callable,
        *,
        n_ports: int | None = None,
        n_ranks: int | None = None,
        n_bytes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(offload.REGISTERS, read, write, **options)
        given = {"ports": n_ports, "ranks": n_ranks, "bytes": n_bytes}
        self._told = {name: value for name, value in given.items() if value is not None}
        self._toggle: int | None = None  # as the card has it, once it was asked
        self._allowed: dict[int, int] = {}  # by neighbor

    @cached_property
    def _build(self) -> dict[str, int]:
        return self._ask()

    def _ask(self) -> dict[str, int]:
        """Fields of ``build``; ValueError if the card does not tell."""
        build = self.get("build")
        if not all(build.values()):
            raise ValueError(f"build must tell what the card was built with, not {build}")
        return build

    def _of_build(self, name: str) -> int:
        return self._told[name] if name in self._told else self._build[name]

    n_bytes: int = built("bytes")
    """Bytes of a beat: regions begin at multiples of it."""

    n_ports: int = built("ports")
    """Ethernet ports of the card."""

    n_ranks: int = built("ranks")
    """Contributions of a chunk, at most."""

    @cached_property
    def layout(self) -> Any:
        """The `gradnic.interface.schedule_table.Layout` that packs rows for this card."""
        from gradnic.interface.schedule_table import Layout  # numpy, which the rest does without

        return Layout.for_card(self._build["nodes"], self.get("capacity")["chunks"])

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

    def identify(self, *, mac: int, ip: int, node: int, job: int, **network: Any) -> None:
        """The card's own addresses, its node number, the job; network : fields of that register.

        First of all after a reset of the card: tables are written by a bit that changes.
        """
        self._name(mac, ip, network, node=node, job=job)

    def _name(self, mac: int, ip: int, network: dict[str, int], **who: int) -> None:
        """Write addresses, and `who` beside the upper half of the MAC address."""
        self._toggle = self.get("table_write")["toggle"]
        mac = operator.index(mac)
        self.write("mac_low", mac & WORD)
        self.set("mac_high", value=mac >> 32, **who)
        self.write("ip", ip)
        if network:
            self.set("network", **network)

    def write_table(self, table: int, address: int, entry: int) -> None:
        """One entry, an int, of an `offload.Table`; ValueError if the card was built without it."""
        self._look_at_table(table)
        self._write_entry(table, address, entry)

    def _write_entry(self, table: int, address: int, entry: int) -> None:
        """As of `write_table`, behind a look at the toggle: one is enough for many entries."""
        check_range("entry", entry, 0, (1 << 32 * offload.TABLE_WORDS) - 1)
        entry = int(entry)
        for k in range(offload.TABLE_WORDS):
            self.write(f"table_data_{k}", entry >> 32 * k & WORD)
        assert self._toggle is not None
        self._toggle ^= 1
        self.set("table_write", address=address, table=table, toggle=self._toggle)

    def _look_at_table(self, table: int) -> None:
        unit = self._units.get(table)
        if unit is None or (unit and not self.get("status")[unit]):
            raise ValueError(f"table must be one that the card was built with, not {table!r}")
        self._look_at_toggle()

    def _look_at_toggle(self) -> None:
        """ConnectionAbortedError where the bit that writes tables is not as this driver left it."""
        toggle = self.get("table_write")["toggle"]
        self._unchanged("table_write.toggle", self._toggle, toggle)
        self._toggle = toggle

    def _unchanged(self, what: str, left: Any, found: Any) -> None:
        if left not in (None, found):
            raise ConnectionAbortedError(
                f"{what} must be {left}, as this driver left it, not {found}: another driver uses "
                "the card, or it was reset; begin again with identify"
            )

    def load_rows(self, image: Any, row_bytes: int) -> None:
        """The schedule table of this node: `image` is what ``layout.pack(rows)`` gives."""
        self._look_at_toggle()
        image = octets_of(image)
        for at in range(0, len(image), row_bytes):
            word = int.from_bytes(image[at : at + row_bytes], "little")
            self._write_entry(offload.Table.ROWS, at // row_bytes, word)

    def add_neighbor(self, index: int, *, node: int, port: int, mac: int, ip: int) -> None:
        """A node that packets are exchanged with, under a number below 16; no node has two."""
        check_range("index", index, 0, N_NEIGHBORS - 1)
        port_bits = max(1, (self.n_ports - 1).bit_length())
        entry = _entry(valid=(1, 1), node=(node, 8), port=(port, port_bits), mac=(mac, 48),
                       ip=(ip, 32))  # fmt: skip
        self.write_table(offload.Table.NEIGHBORS, index, entry)

    def remove_neighbor(self, index: int) -> None:
        """Packets of the node under this number are dropped from now on."""
        check_range("index", index, 0, N_NEIGHBORS - 1)
        self.write_table(offload.Table.NEIGHBORS, index, 0)

    def set_places(
        self, chunk: int, up: dict[int, tuple[int, int, int]], down: int | None = None
    ) -> None:
        """Who sends a chunk: up is {rank: (neighbor, leaves, flow)}, down a neighbor or None."""
        self.write_table(offload.Table.PLACES, chunk, self._places(up, down))

    def _places(self, up: dict[int, tuple[int, int, int]], down: int | None) -> int:
        entry = 0
        for rank, (neighbor, leaves, flow) in up.items():
            check_range("rank", rank, 0, self.n_ranks - 1)
            one = _entry(valid=(1, 1), neighbor=(neighbor, 4), leaves=(leaves, 8), flow=(flow, 13))
            entry |= one << 26 * rank
        if down is not None:
            entry |= _entry(valid=(1, 1), down=(down, 4)) << 26 * self.n_ranks
        return entry

    def set_checks(self, checks: Sequence[int]) -> None:
        """Of each packet of a round of THC: low 20 bits of the XOR of its agreed norms."""
        checks = list(checks)
        for check in checks:
            check_range("check", check, 0, 2**20 - 1)
        self._look_at_table(offload.Table.CHECKS)
        for number, check in enumerate(checks):
            self._write_entry(offload.Table.CHECKS, number, check)

    def set_peers(self, neighbors: Sequence[int]) -> None:
        """Neighbor of each peer index of the table."""
        self._look_at_toggle()
        for index, neighbor in enumerate(neighbors):
            self._write_entry(offload.Table.PEERS, index, neighbor)

    def allow(self, neighbor: int, n_bytes: int) -> None:
        """What a neighbor may lose in the next round, in bytes times leaves."""
        self.write_table(offload.Table.ALLOWANCES, neighbor, n_bytes)
        self._allowed[neighbor] = n_bytes

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

        queues : of each layer. dscps : ``[queue][important]``, default class selectors 7 - queue.
        threshold : score from which on packets are important. rules : fields of those registers;
        without any, all packets are important.
        """
        self._tag(queues, dscps, threshold, rules, layer=layer)

    def _tag(
        self,
        queues: Sequence[int],
        dscps: Sequence[tuple[int, int]] | None,
        threshold: int | None,
        rules: dict[str, int],
        **more: int,
    ) -> None:
        self._look_at_toggle()
        for index, queue in enumerate(queues):
            self._write_entry(offload.Table.LAYERS, index, queue)
        for queue, pair in enumerate(dscps or [(8 * (7 - q), 8 * (7 - q)) for q in range(8)]):
            for important, dscp in enumerate(pair):
                self._write_entry(offload.Table.DSCPS, 2 * queue + important, dscp)
        if threshold is not None:
            self._write_entry(offload.Table.THRESHOLD, 0, threshold)
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
        self._write_address(region, address)
        self.write(f"{region}_beats", beats)

    def _write_address(self, name: str, address: int) -> None:
        address = operator.index(address)
        self.write(f"{name}_low", address & WORD)
        self.write(f"{name}_high", address >> 32)

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

    def check_packet(self, packet: int, elem_bytes: int = 4) -> None:
        """ValueError for packets of more elements than the card was built for, if it tells."""
        most = 64 * self.get("longest")["units"] // elem_bytes
        if most:
            check_range("packet", packet, 1, most)

    def start(self, tensor: int, gen: int, *, timeout: float = 1.0) -> None:
        """Arm a round and begin; the gradient must be in place.

        gen : number of the round, the same at all nodes, one more each time (modulo 2**16),
        whatever the tensor: packets of other rounds are told by it.
        ValueError if the card was built without the round's codec, or for smaller packets, or if g
        of THC is odd where a neighbor may lose something: what is filled in would be half a level.
        RuntimeError if a round is under way, such as that of a host that was killed: this one would
        never end, and packets of the one before would be taken for its own.
        """
        if self.get("status")["running"]:
            raise RuntimeError(
                "a round is under way, which a host before may have left: reset the card"
            )
        codec = self.get("codec")
        for name, bit, needed in (
            ("THC", "thc", codec["thc"] or codec["norm"]),
            ("INCEPTIONN", "inc", codec["coded"]),
        ):
            if needed and not self.get("status")[bit]:
                raise ValueError(f"codec must not be {name}: the card was built without it")
        if codec["thc"] and any(self._allowed.values()) and (g := self.get("thc")["g"]) % 2:
            raise ValueError(f"g must be even where packets may miss, not {g}")
        self.check_packet(16 * self.get("chunk")["packet"], 1 if codec["thc"] else 4)
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
