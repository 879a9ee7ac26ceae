"""The hook that posts buckets as jobs, on cards that this test plays; DDP itself in examples."""

import copy
import pickle
from collections import deque

import pytest

from gradnic.host.card_hook import CardHook
from gradnic.interface.job import Completion, JobCodec, JobStatus, Kind, Operation, Refusal

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[train]'")


class Card:
    """Memory, and jobs that end at once with a status, their result three times the source."""

    own = 0, 0x020000000000  # node, MAC address
    n_nodes = None

    def nodes_of(self, table):
        return self.n_nodes

    def __init__(self, status=JobStatus.DONE, *, detail=0, full=False, gone=False):
        self.link, self.memory, self.jobs, self.ended = self, bytearray(1 << 16), [], deque()
        self.status, self.full, self.gone, self.aborted = status, full, gone, []
        self.detail = detail

    def store(self, address, octets):
        octets = bytes(memoryview(octets).cast("B"))
        assert address % 64 == 0 == len(octets) % 4
        self.memory[address : address + len(octets)] = octets

    def load(self, address, n_bytes):
        assert address % 64 == 0 == n_bytes % 4
        return self.memory[address : address + n_bytes]

    def post(self, job, timeout):
        if self.full:
            raise TimeoutError(f"the card's queue is full for {timeout} s")
        self.jobs.append(job)
        size = 4 if job.kind == Kind.FP32 else 2
        view = memoryview(self.memory)[job.source : job.source + size * job.elems]
        told = torch.frombuffer(view, dtype=torch.float32 if size == 4 else torch.bfloat16)
        told *= 3
        self.ended.append(Completion(id=job.id, status=int(self.status), detail=self.detail))

    def abort(self, id):
        self.aborted.append(id)

    def completion(self, timeout):
        if self.gone:
            raise ConnectionError("the card is gone")
        return self.ended.popleft() if self.ended else None


class Late(Card):
    """A card that reads the values of two jobs when it has both."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def post(self, job, timeout):
        self.asked.append((job, timeout))
        if len(self.asked) == 2:
            for each in self.asked:
                super().post(*each)


class Bucket:
    def __init__(self, index, values, parameter=None, *, last=False):
        self._index, self._values, self._last = index, values, last
        self._parameter = index if parameter is None else parameter

    def index(self):
        return self._index

    def buffer(self):
        return self._values

    def parameters(self):
        return [self._parameter]

    def is_last(self):
        return self._last


@pytest.fixture
def alone(tmp_path):
    """A process group of one rank."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_buckets_are_jobs_of_their_own_tensors_and_rounds():
    card = Card()
    hook = CardHook(card, memory=(64, 4096))
    values = {0: torch.arange(33.0), 1: torch.arange(5, dtype=torch.bfloat16), 9: torch.ones(1)}
    wanted = {k: 9 * v for k, v in values.items()}
    for _ in range(2):
        futures = [hook.average(None, Bucket(k, v)) for k, v in values.items()]
        for future, mine in zip(futures, values.values(), strict=True):
            assert future.wait() is mine
    hook.close()
    assert all(torch.equal(values[k], wanted[k]) for k in values)
    told = [(j.tensor, j.gen, j.elems, j.source, j.result, j.kind, j.layer) for j in card.jobs]
    places = [(0, 33, 64, 0, 7), (1, 5, 256, 1, 6), (2, 1, 320, 0, 0)]
    assert told == [
        (tensor, gen, elems, at, at, kind, layer)
        for gen in (1, 2)
        for tensor, elems, at, kind, layer in places
    ]
    assert len({job.id for job in card.jobs}) == 6
    assert {job.op for job in card.jobs} == {Operation.MEAN}


def test_two_models_whose_buckets_are_alike_do_not_share_a_place():
    card = Late()
    hook = CardHook(card, memory=(0, 4096))
    given = {"first": torch.ones(5), "second": torch.full((5,), 2.0)}
    futures = [hook.average(None, Bucket(0, values, of)) for of, values in given.items()]
    for future, wanted in zip(futures, (3.0, 6.0), strict=True):
        assert torch.equal(future.wait(), torch.full((5,), wanted))
    hook.close()
    assert [(job.tensor, job.source) for job in card.jobs] == [(0, 0), (1, 64)]


def test_the_host_may_divide():
    hook = CardHook(Card(), memory=(0, 4096), mean="host", n_ranks=3)
    values = torch.arange(7.0)
    assert torch.equal(hook.average(None, Bucket(0, values)).wait(), torch.arange(7.0))
    hook.close()


def test_jobs_of_thc_are_means_and_have_two_rounds():
    card = Card()
    hook = CardHook(card, memory=(0, 4096), codec=JobCodec.THC, mean="host", n_ranks=3, run=2)
    for _ in range(3):
        values = torch.arange(7.0)
        assert torch.equal(hook.average(None, Bucket(0, values)).wait(), 3 * torch.arange(7.0))
    hook.close()
    assert [(job.tensor, job.gen) for job in card.jobs] == [(128, 2), (128, 4), (128, 6)]


def test_buckets_are_as_many_as_a_card_remembers_rounds_of():
    card = Card()
    hook = CardHook(card, memory=(0, 1 << 16), run=1023)
    for k in range(64):
        hook.average(None, Bucket(k, torch.ones(1))).wait()
    assert [job.tensor for job in card.jobs] == [*range(65536 - 64, 65536)]
    with pytest.raises(ValueError, match="kinds of bucket must be at most 64"):
        hook.average(None, Bucket(64, torch.ones(1), last=True))
    hook.close()


def test_a_new_hook_on_cards_that_remember_the_one_before(tmp_path, monkeypatch):
    """Rank 0 of a process group draws the run that it is."""
    dist, draws = torch.distributed, iter((5, 1023))
    monkeypatch.setattr("secrets.randbelow", lambda n: next(draws) if n == 1024 else None)
    meet = f"file://{tmp_path}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    try:
        card = Card()
        for _ in range(2):
            hook = CardHook(card, memory=(0, 4096))
            hook.average(None, Bucket(0, torch.ones(1))).wait()
            hook.close()
    finally:
        dist.destroy_process_group()
    assert [job.tensor for job in card.jobs] == [5 * 64, 1023 * 64]


def test_a_hook_over_a_new_process_group_begins_anew(tmp_path, monkeypatch):
    """Ranks that were started since then have no rounds, and draw a run with the others."""
    dist, draws = torch.distributed, iter((5, 9))
    monkeypatch.setattr("secrets.randbelow", lambda n: next(draws) if n == 1024 else None)
    card = Card()
    hook = CardHook(card, memory=(0, 64))
    for k in range(2):
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/{k}", rank=0, world_size=1)
        for _ in range(2):
            hook.average(None, Bucket(k, torch.ones(1))).wait()
        dist.destroy_process_group()
    hook.close()
    told = [(job.tensor, job.gen, job.source) for job in card.jobs]
    assert told == [(run * 64, gen, 0) for run in (5, 9) for gen in (1, 2)]


@pytest.mark.parametrize(
    ("card", "values", "error", "said"),
    [
        (
            Card(JobStatus.STUCK),
            torch.ones(4),
            RuntimeError,
            "codec RAW32 of 4 .*ended as stuck at row 0",
        ),
        (
            Card(JobStatus.REFUSED, detail=Refusal.CODEC),
            torch.ones(4, dtype=torch.bfloat16),
            RuntimeError,
            r"of 4 values of torch\.bfloat16, ended as refused: codec$",
        ),
        (Card(JobStatus.REFUSED, detail=99), torch.ones(4), RuntimeError, "refused: reason 99$"),
        (Card(gone=True), torch.ones(4), ConnectionError, "the card is gone"),
        (
            Card(),
            torch.ones(2000),
            ValueError,
            "memory must have 3904 bytes more for a bucket",
        ),
        (Card(full=True), torch.ones(4), TimeoutError, "the card's queue is full for 0.1 s"),
    ],
)
def test_what_goes_wrong_is_told_where_the_bucket_is_waited_for(card, values, error, said):
    hook = CardHook(card, memory=(0, 4096), timeout=0.1)
    for bucket in Bucket(0, values, last=True), Bucket(1, torch.ones(1), last=True):
        with pytest.raises(error, match=said):  # and nothing is posted after it
            hook.average(None, bucket)
    hook.close()
    assert len(card.jobs) <= 1


def test_the_last_bucket_of_a_step_tells_what_went_wrong_with_any():
    """Of an error in a future DDP makes one of its own, on a cast."""
    hook = CardHook(Card(JobStatus.STUCK), memory=(0, 4096))
    hook.average(None, Bucket(0, torch.ones(4)))
    with pytest.raises(RuntimeError, match=r"job \d+, .* ended as stuck at row 0"):
        hook.average(None, Bucket(1, torch.ones(4), last=True))
    hook.close()
    card = Card()
    hook = CardHook(card, memory=(0, 4096))
    for _ in range(2):
        hook.average(None, Bucket(0, torch.ones(4)))
        last = hook.average(None, Bucket(1, torch.ones(4), last=True))
        assert last.done()
    hook.close()
    assert len(card.jobs) == 4


def test_every_step_behind_one_that_failed_says_why(alone):
    """PyTorch's DDP ends with an assertion of its own in a step after one that a hook broke."""
    card = Card()
    hook = CardHook(card, memory=(0, 4096))
    network = torch.nn.Linear(4, 4)
    model = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=1e-5)
    model.register_comm_hook(None, hook.average)
    model(torch.ones(2, 4)).sum().backward()
    assert torch.equal(network.bias.grad, torch.full((4,), 6.0))  # Card sums of three
    card.status = JobStatus.STUCK
    for _ in range(2):
        network.zero_grad()
        with pytest.raises(RuntimeError, match=r"job \d+, .* ended as stuck at row 0"):
            model(torch.ones(2, 4)).sum().backward()
    hook.close()


def test_a_bucket_that_is_refused_is_refused_in_every_step(alone):
    hook = CardHook(Card(), memory=(0, 4096))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).double())
    model.register_comm_hook(None, hook.average)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"float32 or bfloat16 on cpu, not torch\.float64"):
            model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    hook.close()


def test_ranks_that_are_not_as_many_as_nodes_are_told_in_the_first_step(alone):
    loaded = Card()
    loaded.n_nodes = 3
    for card, options, said in (
        (Card(), {"n_nodes": 2}, "world size must be 2, the nodes .*, not 1: no rank has node 1"),
        (loaded, {}, "world size must be 3, the nodes .*, not 1: no rank has node 1 or 2"),
        (Card(), {"mean": "host", "n_ranks": 3}, "n_ranks must be 1, the group's, not 3 of rank 0"),
    ):
        hook = CardHook(card, memory=(0, 4096), **options)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        model.register_comm_hook(None, hook.average)
        for _ in range(2):
            with pytest.raises(ValueError, match=said):
                model(torch.ones(2, 4)).sum().backward()
        hook.close()
        assert not card.jobs


def test_a_bucket_without_elements_is_no_job():
    card = Card()
    hook = CardHook(card, memory=(0, 64))
    values = torch.ones(4)
    nothing = hook.average(None, Bucket(0, torch.zeros(0)))
    hook.average(None, Bucket(1, values, last=True))
    hook.close()
    assert nothing.wait().shape == (0,)
    assert [job.elems for job in card.jobs] == [4]
    assert torch.equal(values, torch.full((4,), 3.0))


def test_a_job_that_never_ends_is_given_up():
    card = Card()
    card.post = lambda job, timeout: card.jobs.append(job)
    hook = CardHook(card, memory=(0, 4096), timeout=0.05)
    with pytest.raises(TimeoutError, match=r"job \d+ has not ended in 0.05 s"):
        hook.average(None, Bucket(0, torch.ones(4), last=True))
    hook.close()
    assert card.aborted == [card.jobs[0].id]
    with pytest.raises(RuntimeError, match="this hook is closed"):
        hook.average(None, Bucket(0, torch.ones(4), last=True))


def test_other_buckets_and_arguments_are_refused():
    hook = CardHook(Card(), memory=(0, 4096))
    with pytest.raises(ValueError, match="float32 or bfloat16 on cpu, not torch"):
        hook.average(None, Bucket(0, torch.ones(4, dtype=torch.float64), last=True))
    with pytest.raises(TypeError, match=r"dense gradients, not layout .* of shape \(50, 16\)"):
        hook.average(None, Bucket(0, torch.ones(50, 16).to_sparse(), last=True))
    for called in (torch.ones(4),), (torch.ones(4), torch.ones(2)):
        with pytest.raises(TypeError, match=r"the hooks take the buckets of Dist.*; FSDP, which"):
            hook.average(None, *called)
    assert copy.deepcopy(hook.average) == hook.average  # as in a copy of a model
    with pytest.raises(TypeError, match="a CardHook speaks to its card and is not saved"):
        pickle.dumps(hook.average)
    hook.close()
    with pytest.raises(ValueError, match="memory must begin at a multiple of 64"):
        CardHook(Card(), memory=(4, 4096))
    with pytest.raises(ValueError, match="mean must be card or host, not 'mine'"):
        CardHook(Card(), memory=(0, 4096), mean="mine")
    with pytest.raises(ValueError, match="run must be 0 to 1023, not 1024"):
        CardHook(Card(), memory=(0, 4096), run=1024)
    with pytest.raises(ValueError, match="n_ranks must be given"):
        CardHook(Card(), memory=(0, 4096), mean="host")
