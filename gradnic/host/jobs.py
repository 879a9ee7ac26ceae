"""Driver of an offload card that takes jobs: settings and tables once, then descriptors."""

import operator
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from gradnic.interface import job_card, offload
from gradnic.interface.job import (
    ALIGN,
    COMPLETION,
    MAX_ELEMS,
    THC_PACKET,
    Collective,
    Completion,
    Job,
    JobCodec,
    words,
)
from gradnic.interface.params import check_range

from .driver import octets_of
from .offload_driver import OffloadDriver, _entry, built

_TABLES = {*offload.Table, job_card.JOBS} - {offload.Table.ALLOWANCES, offload.Table.CHECKS}
_WIDTHS = 8, 12, 16  # bits of a sum of THC
_LOG4 = {64: 0, 256: 1, 1024: 2}  # of the block's size, less 3


class JobDriver(OffloadDriver):
    """The card with jobs.

    Tables are loaded once, each under a number; then `post` writes a descriptor, and `completion`
    reads what has ended. Nothing here waits for a job, so many can be on their way. What
    `OffloadDriver` does to a single round ends in a ValueError: there are no such registers.
    One driver at a time: where another one, or a reset, has changed bits that go by changes, this
    one's next call is a ConnectionAbortedError, until it begins anew with `identify`.

    Parameters
    ----------
    read, write, base, clock, sleep :
        See `gradnic.host.Driver`.
    n_ports, n_ranks, n_bytes, n_rows, n_chunks, n_peers, n_active, n_engines, n_tables : int or
        None
        That the card was built with; None, the default: the card is asked when they are needed.
        n_peers: peer indices of a row, a power of two. n_active: contexts. n_engines: those of
        which each has landing areas. n_tables: that can be loaded.
    """

    _units: ClassVar[dict[int, str]] = dict.fromkeys(_TABLES, "") | {
        offload.Table.QUEUES: "queues", job_card.CELLS: "thc", job_card.LEVELS: "any_bits",
    }  # fmt: skip

    def __init__(
        self,
        read: Callable,
        write: Callable,
        *,
        n_rows: int | None = None,
        n_chunks: int | None = None,
        n_peers: int | None = None,
        n_active: int | None = None,
        n_engines: int | None = None,
        n_tables: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(read, write, **options)
        self.map = job_card.REGISTERS
        more = {
            "rows": n_rows, "chunks": n_chunks, "peers": n_peers, "n_active": n_active,
            "n_engines": n_engines, "n_tables": n_tables,
        }  # fmt: skip
        self._told |= {name: value for name, value in more.items() if value is not None}
        self._bits: dict[str, int] | None = None  # as the card has them, once it was asked
        self._thc: tuple[int, int, int, int] | None = None
        self._nodes: dict[int, int] = {}  # by number of an all-reduce's table that was loaded here

    n_rows: int = built("rows")
    """Rows of a table, at most; table k has those from k * n_rows on."""

    n_chunks: int = built("chunks")
    """Chunks of a table, at most; table k has those from k * n_chunks on."""

    n_peers: int = built("peers")
    """Peer indices of a table; table k has those from k * n_peers on."""

    n_active: int = built("n_active")
    """Contexts: jobs side by side."""

    n_engines: int = built("n_engines")
    """Rounds side by side, each with landing areas; a job is in one for a part of its time."""

    n_tables: int = built("n_tables")
    """Tables that can be loaded, under the numbers from 0 on."""

    def _ask(self) -> dict[str, int]:
        sizes, status = super()._ask(), self.get("status")
        more = {name: status[name] for name in ("n_active", "n_engines", "n_tables")}
        return sizes | self.get("capacity") | {"peers": 1 << sizes["peer_bits"]} | more

    def identify(self, *, mac: int, ip: int, node: int, tenant: int, **network: Any) -> None:  # type: ignore[override]
        """The card's own addresses, its node number, the JOB of its packets; first of all.

        Completions are read where this is called: here by registers, though a host told the card
        before to tell them by frames.
        """
        self._bits = self._read_bits()
        self._name(mac, ip, network, node=node, tenant=tenant)
        self._take_completions()

    def _take_completions(self) -> None:
        self._write(self.base + job_card.HOSTED["host"].offset, 0)  # nothing, without host frames

    def load_table(
        self,
        number: int,
        image: Any,
        row_bytes: int,
        places: Sequence[tuple],
        peers: Sequence[int],
        *,
        n_chunks: int,
        leaves: int,
        repeats: int = 1,
        stages: int = 1,
        stride: int = 0,
        lockstep: int = 0,
        collective: int = Collective.ALL_REDUCE,
    ) -> None:
        """Load a schedule table under a number.

        image, row_bytes : this node's rows, from `gradnic.interface.schedule_table.Layout.pack`.
        places : one (up, down) a chunk, as of `set_places`. peers : neighbor of each peer index.
        n_chunks : of all repeats. leaves : nodes that contribute to a sum, 1 where nothing is
        added. collective : that the table is for; jobs of another are refused. stages, stride : of
        a periodic table, as of its `Setup`. Sums of THC have 8, 12 or 16 bits, as few as leaves * g
        needs; jobs with THC are refused under a table of more leaves than 65535 / g, and before
        `set_thc`.
        """
        check_range("number", number, 0, self.n_tables - 1)
        self._nodes.pop(number, None)
        self._look_at_toggle()
        image, leaves = octets_of(image), operator.index(leaves)
        n_rows = len(image) // row_bytes
        check_range("rows", n_rows, 1, self.n_rows)
        check_range("n_chunks", n_chunks, 1, self.n_chunks)
        check_range("places", len(places), 0, n_chunks)
        check_range("peers", len(peers), 0, self.n_peers)
        for at in range(n_rows):
            word = int.from_bytes(image[at * row_bytes : (at + 1) * row_bytes], "little")
            self._write_entry(offload.Table.ROWS, number * self.n_rows + at, word)
        for chunk, (up, down) in enumerate(places):
            place = number * self.n_chunks + chunk
            self._write_entry(offload.Table.PLACES, place, self._places(up, down))
        for index, neighbor in enumerate(peers):
            self._write_entry(offload.Table.PEERS, number * self.n_peers + index, neighbor)
        entry = _entry(
            valid=(1, 1), rows=(n_rows, 16), peers=(len(peers), 8), lockstep=(lockstep, 1),
            chunks=(n_chunks, 14), stride=(stride, 14), repeats=(repeats, 14),
            iterations=(repeats + stages - 1, 15), leaves=(leaves, 12),
            collective=(int(collective), 3), **self._of_sums(leaves),
        )  # fmt: skip
        self._write_entry(job_card.JOBS, number, entry)
        if collective == Collective.ALL_REDUCE:
            self._nodes[number] = leaves

    def nodes_of(self, number: int) -> int | None:
        """Nodes of an all-reduce's table that this driver has loaded; of others None."""
        return self._nodes.get(number)

    def set_thc(self, levels: Sequence[int], *, block: int, clip: int, index_p: tuple) -> None:
        """Settings of jobs with THC, while no job runs; tables are loaded after it.

        What decodes sums lies with each table: all that are loaded are unloaded.

        levels : from 0 to g; 16 for indices of 4 bits, or on a card for any 4 to 256. block : 64,
        256 or 1024 elements. clip : the clip point in 1/256 sigma, above g. index_p : P0 and P1 of
        packets of indices.
        """
        if not self.get("status")["thc"]:
            raise ValueError("thc must be built into a card whose THC is set")
        any_bits = self.get("status")["any_bits"]
        levels, clip = [operator.index(level) for level in levels], operator.index(clip)
        sizes = [1 << b for b in (range(2, 9) if any_bits else (4,))]
        if len(levels) not in sizes or levels[0] or list(levels) != sorted(levels):
            known = "4 to 256, a power of two," if any_bits else "16"
            raise ValueError(f"levels must be {known} that rise from 0, not {list(levels)}")
        if block not in _LOG4:
            raise ValueError(f"block must be 64, 256 or 1024, not {block!r}")
        g, last = levels[-1], len(levels) - 1
        bits = last.bit_length()
        check_range("g", g, last - 1, 255)
        check_range("clip", clip, g + 1, 1023)  # g / clip below 1, as the register holds it
        for k, p in enumerate(index_p):
            check_range(f"index_p[{k}]", p, 0, 255)
        self.unload_tables()
        self._thc = block, clip, g, bits
        self.set("thc", log4=_LOG4[block], clip=clip, g=g, index_p0=index_p[0],
                 bits=bits)  # fmt: skip
        self.set("thc_unit", unit=round(g * 2**24 / (2 * clip)), index_p1=index_p[1])
        self.write("thc_own", self._scale(1))
        self.write("thc_middle", levels[len(levels) // 2])
        if any_bits:
            for index, level in enumerate(levels):
                self._write_entry(job_card.LEVELS, index, level)
        else:
            words = (bytes(levels[4 * k : 4 * k + 4]) for k in range(4))
            for k, word in enumerate(words):
                self.write(f"levels_{k}", int.from_bytes(word, "little"))
        for unit in range(g + 1):
            lower = max(k for k, level in enumerate(levels) if level <= unit)
            gap = levels[lower + 1] - levels[lower] if lower < last else 0
            cell = _entry(lower=(lower, 8), above=(unit - levels[lower], 8), gap=(gap, 8))
            self._write_entry(job_card.CELLS, unit, cell)

    def set_scratch(self, addresses: Sequence[int], n_elems: int, leaves: int = 1) -> None:
        """Where each context's norms, indices and sums of THC may lie, and elements of the largest
        tensor, leaves of the largest table; jobs on larger ones are refused. Each takes
        `scratch_bytes`.

        ValueError unless each context has an address, and no two areas meet.
        """
        n_bytes = self.scratch_bytes(n_elems, leaves)
        self._set_areas("scratch", addresses, n_bytes, self.n_active, "contexts")

    def scratch_bytes(self, n_elems: int, leaves: int = 1) -> int:
        """Bytes of scratch for a tensor of `n_elems` elements, with sums of `leaves`
        leaves; ValueError before `set_thc`, and for leaves whose sums do not fit 16 bits.
        """
        if self._thc is None:
            raise ValueError("block must be set, by set_thc, before scratch is sized")
        n_elems, leaves = operator.index(n_elems), operator.index(leaves)
        n_packets = -(-n_elems // THC_PACKET)
        norms = -(-n_packets * (THC_PACKET // self._thc[0]) // 16) * 64
        check_range("leaves", leaves, 1, 65535 // self._thc[2])
        return 2 * norms + n_packets * THC_PACKET // 8 * (self._thc[3] + self._width(leaves))

    def _of_sums(self, leaves: int) -> dict:
        """What decodes sums of so many leaves, of an entry of the list of tables."""
        if self._thc is None or leaves * self._thc[2] >> _WIDTHS[-1]:
            return {"offset": (0, 16), "scale": (0, 32), "code": (0, 2)}
        return {
            "offset": (leaves * self._thc[2], 16), "scale": (self._scale(leaves), 32),
            "code": (_WIDTHS.index(self._width(leaves)), 2),
        }  # fmt: skip

    def _width(self, leaves: int) -> int:
        """Bits of sums of so many leaves."""
        assert self._thc is not None
        return next(w for w in _WIDTHS if not leaves * self._thc[2] >> w)

    def _scale(self, leaves: int) -> int:
        """What decodes sums of so many leaves, FP32 bits."""
        assert self._thc is not None
        block, clip, g, _ = self._thc
        return int.from_bytes(struct.pack("<f", clip / 256 / (leaves * g * block)), "little")

    def unload_table(self, number: int) -> None:
        """Jobs that name this table are refused from now on."""
        check_range("number", number, 0, self.n_tables - 1)
        self.write_table(job_card.JOBS, number, 0)
        self._nodes.pop(number, None)

    def unload_tables(self) -> None:
        """As of `unload_table`, for all tables."""
        for number in range(self.n_tables):
            self.unload_table(number)

    def tag(  # type: ignore[override]
        self,
        *,
        queues: Sequence[int] = range(8),
        dscps: Sequence[tuple[int, int]] | None = None,
        threshold: int | None = None,
        **rules: int,
    ) -> None:
        """How packets become important, as of `OffloadDriver.tag`; queues : of each class.

        ValueError where ``source`` is 2: jobs come and go, and none has a round before.
        """
        if rules.get("source", 0) > 1:
            raise ValueError(f"source must be 0 or 1, not {rules['source']}: jobs have none before")
        self._tag(queues, dscps, threshold, rules)

    def allow_memory(self, region: int, address: int, n_bytes: int) -> None:
        """Where gradients and results may lie: region 0 or 1, whole beats."""
        check_range("region", region, 0, job_card.N_SOURCES - 1)
        for name, value in (("address", address), ("n_bytes", n_bytes)):
            if value % self.n_bytes:
                raise ValueError(f"{name} must be a multiple of {self.n_bytes}, not {value:#x}")
        self._write_address(f"source{region}", address)
        self.write(f"source{region}_beats", n_bytes // self.n_bytes)

    def set_landing(self, addresses: Sequence[int], n_elems: int) -> None:
        """Landing areas: where each engine's begin, and elements of the largest tensor.

        Each engine takes `landing_bytes`; jobs on larger tensors are refused. ValueError unless
        each has an address, and no two areas meet.
        """
        self._set_areas(
            "landing", addresses, self.landing_bytes(n_elems), self.n_engines, "engines"
        )

    def landing_bytes(self, n_elems: int) -> int:
        """Bytes of an engine's landing areas for a tensor of `n_elems` elements: n_ranks times
        its floats, or its sums of THC, which are whole packets of up to 16 bits an element.
        """
        check_range("n_elems", n_elems, 1, MAX_ELEMS)
        n_elems = int(n_elems)
        sums = -(-n_elems // THC_PACKET) * THC_PACKET * _WIDTHS[-1] // 8
        return self.n_ranks * max(-(-n_elems // 16) * 64, sums)

    def _set_areas(
        self, name: str, addresses: Sequence[int], n_bytes: int, n: int, users: str
    ) -> None:
        """Write where the `n_bytes` of each of `n` users begin, and how many beats they are."""
        if len(addresses) != n:
            raise ValueError(
                f"{name} must have an address for each of {n} {users}, not {len(addresses)}"
            )
        for address in addresses:
            if address % ALIGN:
                raise ValueError(f"address must be a multiple of {ALIGN}, not {address:#x}")
        for one, other in pairwise(sorted(addresses)):
            if other - one < n_bytes:
                raise ValueError(
                    f"{name} must have {n_bytes} bytes from each address on, "
                    f"not {one:#x} and {other:#x}"
                )
        self.set(name, beats=n_bytes // self.n_bytes)
        for k, address in enumerate(addresses):
            self._write_address(f"{name}{k}", address)

    def post(self, job: Job) -> bool:
        """Post a `gradnic.interface.job.Job`; False if the queue is full: post it again later.

        ValueError for a share that may miss of a job with THC whose g, as `set_thc` had it, is odd.
        """
        if job.codec == JobCodec.THC and job.p_q16 and self._thc and self._thc[2] % 2:
            raise ValueError(f"g must be even where packets may miss, not {self._thc[2]}")
        self._look_at_bits()
        self.clear_overrun()
        for k, word in enumerate(words(job.pack())):
            self.write(f"post_{k}", word)
        self._change("post")
        return not self.get("events")["overrun"]

    def clear_overrun(self) -> None:
        """Forget that a post found the queue full."""
        self.write("events", self.map["events"].fields[1].mask)

    def abort(self, id: int) -> None:
        """End the oldest job with this id on this node, active or waiting."""
        check_range("id", id, 0, 0xFFFF)
        self._look_at_bits()
        self._change("abort", id=id)
        self.wait("status", 1.0, aborting=0)

    def end_jobs(self, timeout: float = 5.0) -> None:
        """End all jobs on this node, active and waiting, whoever posted them; completions are taken
        and forgotten. TimeoutError, with the card's status, where none ends for `timeout` s.
        """
        self._bits = self._read_bits()
        self._take_completions()
        deadline = self._clock() + timeout
        while not (state := self.get("status"))["idle"]:
            if self._clock() >= deadline:
                raise TimeoutError(f"jobs must end within {timeout} s of an abort: {state}")
            self._look_at_bits()
            self._change("abort", any=1)
            self.wait("status", 1.0, aborting=0)
            if self.completion() is not None:
                deadline = self._clock() + timeout
        while self.completion() is not None:
            pass

    def completion(self) -> Completion | None:
        """The oldest `Completion`, which leaves the card; None if there is none."""
        if not self.get("status")["completion"]:
            return None
        self._look_at_bits()
        n_words = COMPLETION.n_bytes // 4
        octets = b"".join(self.read(f"completion_{k}").to_bytes(4, "big") for k in range(n_words))
        self._change("take")
        return Completion.parse(octets)

    def _look_at_bits(self) -> None:
        """ConnectionAbortedError where the bits that post, take and abort are not as this driver
        left them: a change of its own would be none.
        """
        bits = self._read_bits()
        self._unchanged("job", self._bits, bits)
        self._bits = bits

    def _change(self, name: str, **fields: int) -> None:
        assert self._bits is not None
        self._bits[name] ^= 1
        self.set("job", **(self._bits | {"id": 0, "any": 0} | fields))

    def _read_bits(self) -> dict[str, int]:
        state = self.get("job")
        return {name: state[name] for name in ("post", "take", "abort")}
