"""``gradnic`` as a backend of torch.distributed: on cards played here, and on golden ones."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from datetime import timedelta
from pathlib import Path

import pytest
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.collectives import collective
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.schedule.topology import parse
from gradnic.sim.offload.twin import Twin, TwinServer

from gradnic.host.framed_card import FramedCard
from gradnic.host.frames import FrameHost, udp
from gradnic.interface.host_frame import OPTIONS
from gradnic.interface.job import Completion, JobCodec, JobStatus, Kind, Operation

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[train]'")
dist = torch.distributed
ALL = "inc bf16 scale thc maxima"
TABLES = ("all_reduce", "reduce_scatter", "all_gather")


class Card:
    """Memory, and jobs that end at once with a status, their result three times the source."""

    def __init__(self, built=ALL, status=JobStatus.DONE, *, node=0):
        self.own, self.nodes_of = (node, 0x020000000000 + node), lambda table: None
        self.link, self.memory, self.jobs, self.ended = self, bytearray(1 << 16), [], deque()
        self.status, self.aborted = status, []
        self.hello = {"options": sum(1 << OPTIONS.index(name) for name in built.split())}

    def store(self, address, octets):
        octets = bytes(memoryview(octets).cast("B"))
        self.memory[address : address + len(octets)] = octets

    def load(self, address, n_bytes):
        return self.memory[address : address + n_bytes]

    def post(self, job, timeout):
        self.jobs.append(job)
        size = 4 if job.kind == Kind.FP32 else 2
        view = memoryview(self.memory)[job.source : job.source + size * job.elems]
        told = torch.frombuffer(view, dtype=torch.float32 if size == 4 else torch.bfloat16)
        told *= 3
        self.ended.append(Completion(id=job.id, status=int(self.status)))

    def abort(self, id):
        self.aborted.append(id)

    def completion(self, timeout):
        return self.ended.popleft() if self.ended else None


@contextlib.contextmanager
def alone(tmp_path, card, *, group=None, **options):
    """A process group of one rank over this card; group : seconds that it waits."""
    from gradnic.host.card_backend import register

    register(card, **{"memory": (64, 4096)} | options)
    meet = f"file://{tmp_path}/{len(list(tmp_path.iterdir()))}"
    wait = group and timedelta(seconds=group)
    dist.init_process_group("gradnic", init_method=meet, rank=0, world_size=1, timeout=wait)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


def test_what_is_a_job_and_what_goes_over_gloo(tmp_path):
    card = Card()
    with alone(tmp_path, card) as group:
        assert dist.get_backend() == "gradnic"
        for values, op, wanted in (
            (torch.arange(5.0), dist.ReduceOp.SUM, Operation.SUM),
            (torch.ones(3, 7), dist.ReduceOp.AVG, Operation.MEAN),
            (torch.ones(3, dtype=torch.bfloat16), dist.ReduceOp.MAX, Operation.MAX),
            (torch.arange(12.0).view(3, 4).t(), dist.ReduceOp.SUM, Operation.SUM),
            (torch.tensor(2.0), dist.ReduceOp.SUM, Operation.SUM),
            (torch.ones(4, requires_grad=True), dist.ReduceOp.SUM, Operation.SUM),
            (torch.ones(3, 4).t().requires_grad_(), dist.ReduceOp.SUM, Operation.SUM),
            (torch._neg_view(torch.ones(4)), dist.ReduceOp.SUM, Operation.SUM),
        ):
            before = values.detach().clone()
            with torch.no_grad():
                dist.all_reduce(values, op=op)
            assert torch.equal(values, 3 * before)
            job = card.jobs.pop()
            assert (job.op, job.elems, job.codec) == (wanted, values.numel(), JobCodec.RAW32)
            assert job.kind == (Kind.BF16 if values.dtype == torch.bfloat16 else Kind.FP32)
        for values, op in (
            (torch.ones(3, dtype=torch.int64), dist.ReduceOp.SUM),
            (torch.ones(3, dtype=torch.float64), dist.ReduceOp.SUM),
            (torch.ones(3), dist.ReduceOp.MIN),
            (torch.ones(3), dist.ReduceOp.PRODUCT),
            (torch.ones(0), dist.ReduceOp.SUM),
        ):
            before = values.clone()
            dist.all_reduce(values, op=op)
            assert torch.equal(values, before)
        values = torch.ones(3)
        dist.all_reduce(values, group=dist.new_group([0]))
        dist.broadcast(values, 0)
        dist.barrier()
        assert values.sum() == 3
        assert not card.jobs
        assert group.n_jobs == 8


def test_jobs_have_places_and_rounds_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.randbelow", lambda n: 5)
    card = Card()
    values = torch.arange(5 * 128 + 3.0)  # five places of 512 bytes, and 3 values
    with alone(tmp_path, card):
        dist.all_reduce(values)
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(20)]
        for work in works:
            assert work.wait()
            assert work.is_completed()
            assert work.get_future().value()[0].item() == 3
    assert torch.equal(values, 3 * torch.arange(5 * 128 + 3.0))
    assert [job.elems for job in card.jobs] == [128] * 5 + [3] + [1] * 20
    told = [(job.tensor, job.gen, job.source, job.result) for job in card.jobs]
    assert told == [
        (5 * 64 + k % 8, 1 + k // 8, 64 + 512 * (k % 8), 64 + 512 * (k % 8)) for k in range(26)
    ]


def test_threads_do_not_share_a_place(tmp_path, monkeypatch):
    """Whoever asks first: no two jobs have a tensor and a round in common."""
    from gradnic.host.card_jobs import CardJobs

    card, ask = Card(), CardJobs.ask

    def late(*arguments, **spans):
        time.sleep(0.001)  # others go on meanwhile
        ask(*arguments, **spans)

    def many():
        for work in [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(10)]:
            work.wait()

    monkeypatch.setattr(CardJobs, "ask", late)
    with alone(tmp_path, card) as group:
        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert group.n_jobs == 40
    first = min(job.tensor for job in card.jobs)
    told = [(job.gen, job.tensor - first) for job in card.jobs]
    assert told == [(1 + k // 8, k % 8) for k in range(40)]


@pytest.mark.parametrize(
    ("built", "options", "op", "wanted", "factor"),
    [
        ("", {}, "AVG", (Operation.SUM, JobCodec.RAW32), 3),  # the host divides by one rank
        ("", {}, "MAX", None, 1),
        ("inc", {"codec": JobCodec.INCEPTIONN}, "SUM", (Operation.SUM, JobCodec.INCEPTIONN), 3),
        ("inc maxima", {"codec": 2, "p_q16": 9}, "MAX", (Operation.MAX, JobCodec.RAW32), 3),
        ("thc", {"codec": JobCodec.THC}, "AVG", (Operation.SUM, JobCodec.THC), 3),
        ("thc", {"codec": JobCodec.THC}, "SUM", (Operation.SUM, JobCodec.THC), 3),
    ],
)
def test_as_cards_are_built(tmp_path, built, options, op, wanted, factor):
    card = Card(built)
    with alone(tmp_path, card, **options):
        values = torch.ones(4)
        dist.all_reduce(values, op=getattr(dist.ReduceOp, op))
        half = torch.ones(4, dtype=torch.bfloat16)
        dist.all_reduce(half)  # no card here has BF16
    assert torch.equal(values, torch.full((4,), float(factor)))
    assert torch.equal(half, torch.ones(4, dtype=torch.bfloat16))
    assert [(job.op, job.codec) for job in card.jobs] == ([wanted] if wanted else [])
    if options.get("codec") == JobCodec.THC:
        assert card.jobs[0].gen == 2  # its norms have 1


def test_a_job_that_fails_is_told_where_it_is_waited_for_and_behind_it(tmp_path):
    card = Card(status=JobStatus.STUCK)
    with alone(tmp_path, card):
        failed = dist.all_reduce(torch.ones(4), async_op=True)
        for work in failed, dist.all_reduce(torch.ones(4), async_op=True):
            with pytest.raises(RuntimeError, match=r"^job \d+, codec RAW32 of 4 .*stuck at row 0$"):
                work.wait()
            assert not work.is_success()
    assert len(card.jobs) == 1
    good = Card()
    with alone(tmp_path, good):  # a new group begins anew
        dist.all_reduce(torch.ones(4))
    assert len(good.jobs) == 1


def test_waiting_ends_where_it_is_told_to(tmp_path):
    card = Card()
    card.completion = lambda timeout: None
    with alone(tmp_path, card, timeout=2.0):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        with pytest.raises(RuntimeError, match=r"the all-reduce has not ended in 0.05 s"):
            work.wait(timedelta(seconds=0.05))
        assert not work.is_completed()
        with pytest.raises(
            RuntimeError,
            match=r"^job \d+ has not ended in 2.0 s: every rank .* nodes of its table must be 1,",
        ):
            work.wait(timedelta(seconds=60))


def test_a_job_may_take_as_long_as_the_process_group_waits(tmp_path):
    card = Card()
    card.completion = lambda timeout: None
    with (
        alone(tmp_path, card, timeout=None, group=0.5),
        pytest.raises(RuntimeError, match=r"^job \d+ has not ended in 0.5 s"),
    ):
        dist.all_reduce(torch.ones(4))


def nested(rank, folder):
    card, go, done = Card(), threading.Event(), threading.Event()
    completion = card.completion
    card.completion = lambda timeout: completion(timeout) if go.is_set() else None
    with alone(Path(folder), card):
        first, second = torch.ones(3), torch.ones(4)
        future = dist.all_reduce(first, async_op=True).get_future()
        future.then(lambda _: dist.all_reduce(second)).add_done_callback(lambda _: done.set())
        go.set()
        if not done.wait(20):
            os._exit(1)
        assert torch.equal(second, torch.full((4,), 3.0))


def test_what_is_put_behind_a_job_may_wait_for_another(tmp_path):
    run_ranks("nested", tmp_path, 1)


def test_compiled_models_train(tmp_path):
    """torch.compile meets methods of the group where it calls broadcasts of DDP."""
    card = Card()
    with alone(tmp_path, card):
        network = torch.nn.Linear(4, 2)
        model = torch.nn.parallel.DistributedDataParallel(network)
        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            network.zero_grad()
            compiled(torch.ones(3, 4)).sum().backward()
        assert torch.equal(network.weight.grad, torch.full((2, 4), 9.0))  # Card sums of three
    assert len(card.jobs) == 2


def test_arguments_are_checked(tmp_path):
    from gradnic.host.card_backend import register

    with pytest.raises(ValueError, match="memory must begin at a multiple of 64"):
        register(Card(), memory=(4, 4096))


def run_ranks(part, folder, n, *ends):
    """One process a rank, of this file as a program."""
    runs = [
        subprocess.Popen(
            [sys.executable, __file__, part, str(rank), folder, *ends], stderr=subprocess.PIPE
        )
        for rank in range(n)
    ]
    try:
        told = [run.communicate(timeout=200)[1].decode() for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0] * n, "".join(told)


def sums(rank, folder, *ends):
    from gradnic.host.card_backend import Shards, register

    host, port = ends[rank].split(":")
    link = FrameHost(*udp(host, int(port)), patience=60.0)
    roots = build(parse(f"ring:{len(ends)}"), "ring").roots.tolist()
    register(FramedCard(link), memory=(0, 1 << 15), shards=Shards(roots))
    meet = f"file://{folder}/meet"
    dist.init_process_group("gradnic", init_method=meet, rank=rank, world_size=len(ends))
    n = len(ends)
    mine = torch.arange(3000.0) * (rank + 1)
    sums, means, most = mine.clone(), mine.clone(), (-mine).to(torch.bfloat16)
    works = [dist.all_reduce(sums, async_op=True), dist.all_reduce(most, dist.ReduceOp.MAX)]
    dist.all_reduce(means, dist.ReduceOp.AVG)
    works[0].wait()
    assert torch.equal(sums, torch.arange(3000.0) * n * (n + 1) / 2)
    third = torch.tensor(1 / n)
    assert torch.equal(means, sums * third)  # times the float32 nearest to 1 / n
    assert torch.equal(most, (-torch.arange(3000.0)).to(torch.bfloat16))
    numbers = torch.tensor([rank])
    dist.all_reduce(numbers)
    assert numbers.item() == n * (n - 1) // 2
    _shards(rank, n)
    torch.manual_seed(rank)
    network = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 1))
    model = torch.nn.parallel.DistributedDataParallel(network)
    before = dist.group.WORLD.n_jobs
    for _ in range(2):
        network.zero_grad()
        model(torch.randn(8, 40)).sum().backward()
    assert dist.group.WORLD.n_jobs > before
    flat = torch.cat([p.grad.view(-1) for p in network.parameters()])
    every = [torch.empty_like(flat) for _ in range(n)]
    dist.all_gather(every, flat)
    assert all(torch.equal(one, flat) for one in every)
    _fully_sharded(rank)
    _over_gloo(rank, n)
    dist.destroy_process_group()
    link.close()


def _shards(rank, n):
    """Reduce-scatter and all-gather of shards that chunks do not fit, and that are several jobs."""
    for length, kind, jobs in (
        (5, torch.float32, 2), (1000, torch.bfloat16, 2 * 2), (2000, torch.float32, 2 * 7),
    ):  # fmt: skip
        before = dist.group.WORLD.n_jobs
        values = torch.arange(n * length).remainder(40).to(kind)
        mine = torch.empty(length, dtype=kind)
        dist.reduce_scatter_single(mine, values * (rank + 1))
        wanted = values.view(n, -1)[rank] * (n * (n + 1) // 2)
        assert torch.equal(mine, wanted), (rank, length, mine, wanted)
        every = torch.empty(n * length, dtype=kind)
        work = dist.all_gather_single(every, mine, async_op=True)
        work.wait()
        assert torch.equal(every, values * (n * (n + 1) // 2))
        for call, into, given in (
            (dist.reduce_scatter_single, mine[1:], values),
            (dist.all_gather_single, every[1:], mine),
        ):  # fmt: skip
            with pytest.raises((RuntimeError, ValueError)):  # of Gloo
                call(into, given)
        # A place of 4,096 bytes: chunks of 320 values of 4 bytes, or of 672 of 2, one a rank.
        assert dist.group.WORLD.n_jobs - before == jobs, (length, dist.group.WORLD.n_jobs - before)


def _over_gloo(rank, n):
    """All else, and often: Gloo's thread wants the interpreter where it lets go of tensors."""
    for _ in range(100):
        told, first = [None] * n, [rank]
        dist.all_gather_object(told, rank)
        dist.broadcast_object_list(first, 1)
        dist.barrier()
        assert (told, first) == ([*range(n)], [1])
    mine, given = torch.full((2,), float(rank)), torch.zeros(2)
    work = dist.isend(mine, (rank + 1) % n)
    dist.recv(given, (rank - 1) % n)
    work.wait()
    assert torch.equal(given, torch.full((2,), float((rank - 1) % n)))
    dist.all_to_all_single(every := torch.zeros(n), torch.arange(float(n)))
    assert torch.equal(every, torch.full((n,), float(rank)))
    dist.reduce_scatter(given, [mine] * n)
    assert torch.equal(given, torch.full((2,), n * (n - 1) / 2))
    with dist._coalescing_manager():
        dist.all_reduce(given)
        dist.all_reduce(mine)
    assert mine[0] == n * (n - 1) / 2


def _fully_sharded(rank):
    """FSDP, whose gathers and scatters are jobs: weights as without cards, on values that are
    exact in any order.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(7)
    network = torch.nn.Linear(24, 12)
    with torch.no_grad():
        for values in network.parameters():
            values.copy_(torch.randint(-4, 5, values.shape))
    whole = torch.nn.Linear(24, 12)
    whole.load_state_dict(network.state_dict())
    fully_shard(network, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    before = dist.group.WORLD.n_jobs
    x = torch.randint(-3, 4, (dist.get_world_size(), 6, 24)).float()
    network(x[rank]).sum().backward()
    for one in x:
        whole(one).sum().backward()
    assert dist.group.WORLD.n_jobs - before >= 2
    for ours, theirs in zip(network.parameters(), whole.parameters(), strict=True):
        full = ours.grad.full_tensor() * dist.get_world_size()
        torch.testing.assert_close(full, theirs.grad)


def test_programs_of_torch_distributed_run_on_golden_cards(tmp_path):
    topology = parse("ring:3")
    ring = build(topology, "ring")
    tables = [compile_table(collective(ring, name)) for name in TABLES]
    twin = Twin(tables, topology, 1 << 15)
    server, stop = TwinServer(twin, port=0), threading.Event()
    served = threading.Thread(target=server.serve, args=(lambda: not stop.is_set(),))
    served.start()
    try:
        ends = [f"{host}:{port}" for host, port in server.ends]
        run_ranks("sums", tmp_path, 3, *ends)
    finally:
        stop.set()
        served.join()
        server.close()


def differs(rank, folder):
    from gradnic.host.card_backend import Shards, register

    for what, said in (
        ({"memory": (0, 4096 + 64 * rank)}, r"\(0, 4160\)"),
        ({"shards": Shards((0, 1), reduce_scatter=1 + 2 * rank)}, r"\(\(0, 1\), 3, 2\)"),
    ):
        register(Card(), **{"memory": (0, 4096)} | what)
        meet = f"file://{folder}/{next(iter(what))}"
        with pytest.raises(ValueError, match=f"ranks 0 and 1 differ in their cards: .*{said}"):
            dist.init_process_group("gradnic", init_method=meet, rank=rank, world_size=2)
    for number, (node, what, said) in enumerate(
        (
            (0, {}, "ranks 0 and 1 have one card, node 0 (02:00:00:00:00:00); no rank has node 1"),
            (2 * rank, {}, "rank 1 has node 2; no rank has node 1"),
            (rank, {"n_nodes": 3}, "the nodes of the cards' table, not 2: no rank has node 2"),
            (rank, {"shards": Shards((0, 1, 2))}, "must be 3, .* not 2: no rank has node 2"),
            (1 - rank, {"shards": Shards((0, 1))}, "of node r to scatter shards, not 1, 0"),
        )
    ):
        register(Card(node=node), memory=(0, 4096), **what)
        meet = f"file://{folder}/{number}"
        with pytest.raises(ValueError, match=re.escape(said).replace(r"\.\*", ".*")):
            dist.init_process_group("gradnic", init_method=meet, rank=rank, world_size=2)


def test_ranks_that_differ_are_told(tmp_path):
    run_ranks("differs", tmp_path, 2)


if __name__ == "__main__":
    part, rank, *others = sys.argv[1:]
    {"sums": sums, "differs": differs, "nested": nested}[part](int(rank), *others)
