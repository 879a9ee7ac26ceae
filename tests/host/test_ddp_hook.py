"""The DDP hooks on four processes of Gloo, against golden clusters of cards and by definition."""

import copy
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from gradnic.models.inceptionn import image
from gradnic.models.inline.card import InlineCard
from gradnic.models.inline.ring import Cards, Framing, add, ring_allreduce
from gradnic.models.offload.cluster import Cluster, LinkFaults
from gradnic.models.offload.codec import Inceptionn
from gradnic.models.offload.codec import Thc as ThcCodec
from gradnic.models.schedule import topology as topologies
from gradnic.models.schedule.builders import build
from gradnic.models.schedule.builders.rows import compile_table
from gradnic.models.thc import Worker
from gradnic.sim.training.codecs import Thc

from gradnic.host import ddp_hook
from gradnic.interface.inline import InlineSettings

N_WORKERS = 4
ROUNDS = 3
SIZE = 3000
SIZES = {"a": 2048, "b": 2048, "c": 2048}  # parameters whose buckets change places
SCALES = {"a": 1e-3, "b": 1.0, "c": 1e3}


def gradients():
    """What each worker's loss pulls at the weights, per round: float32 (rounds, workers, 3000).

    Of all sizes, so that sums of what INCEPTIONN leaves of them depend on the order of addition.
    """
    rng, shape = np.random.default_rng(3), (ROUNDS, N_WORKERS, SIZE)
    return (rng.standard_normal(shape) * 0.1 * np.exp(2 * rng.standard_normal(shape))).astype("f4")


def overflowed():
    """The same with one Inf and one NaN, each at one worker in round 1 alone."""
    x = gradients()
    x[1, 1, 7], x[1, 2, 1500] = np.inf, np.nan
    return x


def table(algorithm, spelling):
    return compile_table(build(topologies.parse(spelling), algorithm))


def hooks(rank):
    """{case: (hook, gradients)} of the cases that run one layer round by round."""
    thc, inceptionn = ddp_hook.thc_hook, ddp_hook.inceptionn_hook
    own = {
        name: (inceptionn(exchange=name, exponent=119), gradients()[:1])
        for name in ("ring", "tree", "star")
    }
    tables = table("multitree", "torus:2x2"), table("dbtree", "full:3")
    return own | {
        "thc": (thc(seed=5), gradients()),
        "thc tree": (thc(seed=5, exchange="tree", feedback=False), gradients()),
        "overflow": (thc(seed=5, norm="block"), overflowed()),
        "overflow of all": (thc(seed=5, norm="tensor"), overflowed()),
        "multitree": (inceptionn(exchange=tables[0]), gradients()[:1]),
        "too few nodes": (inceptionn(exchange=tables[1]), gradients()[:1]),
        "seeds": (thc(seed=(5, 5, 6, 5)[rank]), gradients()[:1]),
        "bits": (thc(b=(4, 3)[rank % 2], feedback=rank > 0), gradients()[:1]),
        "kinds": (thc() if rank else inceptionn(), gradients()[:1]),
        "bounds": (inceptionn(exponent=117 + (rank == 3)), gradients()[:1]),
        "orders": (inceptionn(exchange=("ring", "tree", "star", "ring")[rank]), gradients()[:1]),
    }


def play(model, layer, x):
    """Weights' gradients of every round, or what was raised, alike in each of two rounds."""
    seen = []
    for row in x:
        layer.weight.grad = None
        said = raised(model, row[None])
        if said:
            assert raised(model, row[None]) == said
            return said
        seen.append(layer.weight.grad.float().numpy().reshape(-1).copy())
    return np.stack(seen)


def raised(model, x):
    """What a training step raises, as text; None is nothing."""
    try:
        model(x).sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def complex_weights(hook, parallel, x):
    """Gradients of complex weights round by round, real and imaginary parts in turn."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(SIZE // 2, dtype=torch.complex64))

        def forward(self, row):
            return (self.weight.conj() * row).real

    net = Net()
    model = parallel(net)
    model.register_comm_hook(None, hook)
    seen = []
    for row in torch.from_numpy(x).view(torch.complex64):
        net.weight.grad = None
        model(row).sum().backward()
        seen.append(net.weight.grad.resolve_conj().numpy().copy().view(np.float32))
    return np.stack(seen)


def sparse(hook, parallel):
    """What an embedding's sparse gradient brings."""
    import torch

    layer = torch.nn.Embedding(50, 16, sparse=True)
    model = parallel(layer)
    model.register_comm_hook(None, hook)
    return raised(model, torch.tensor([1, 2, 3]))


def empty(hook, parallel):
    """What a bucket without elements brings, beside another one."""
    import torch

    net = torch.nn.Linear(3, 1)
    net.extra = torch.nn.Parameter(torch.zeros(2, 0, dtype=torch.bfloat16))  # a bucket of its own
    net.register_forward_hook(lambda net, x, y: y + net.extra.sum())
    model = parallel(net)
    model.register_comm_hook(None, hook)
    return raised(model, torch.ones(2, 3)), net.extra.grad.shape


def resumed(parallel, x):
    """Gradients round by round, each with a model and a hook that go on from a checkpoint."""
    import io

    import torch

    seen, saved = [], None
    for row in x:
        layer = torch.nn.Linear(SIZE, 1, bias=False)
        hook = ddp_hook.thc_hook(seed=5)
        if saved is not None:
            saved.seek(0)
            hook.load_state_dict(layer, torch.load(saved))
        model = parallel(layer)
        model.register_comm_hook(None, hook)
        played = play(model, layer, row[None])
        if isinstance(played, str):
            return played
        seen.append(played[0])
        assert pickle.loads(pickle.dumps(hook)).state_dict(layer) == {}
        with pytest.raises(ValueError, match="a hook takes a state before its first step"):
            hook.load_state_dict(layer, {})
        saved = io.BytesIO()
        torch.save(hook.state_dict(layer), saved)
    return np.stack(seen)


def two_models(parallel, x):
    """Gradients of a second step of two models on one hook, gone on with and from checkpoints."""
    import torch

    def pair(hook, states):
        layers = [torch.nn.Linear(SIZE, 1, bias=False) for _ in range(2)]
        for layer, state in zip(layers, states, strict=True):
            hook.load_state_dict(layer, state)
        models = [parallel(layer) for layer in layers]
        for model in models:
            model.register_comm_hook(None, hook)
        return list(zip(models, layers, strict=True))

    first = ddp_hook.thc_hook(seed=5)
    pairs = pair(first, [{}, {}])
    for k, (model, layer) in enumerate(pairs):
        play(model, layer, (k + 1) * x[:1])
    states = [first.state_dict(layer) for _, layer in pairs]
    with pytest.raises(ValueError, match="errors of other parameters than the model's"):
        first.state_dict(copy.deepcopy(pairs[0][1]))
    again = pair(ddp_hook.thc_hook(seed=5), states)
    return [[play(model, layer, x[1:2]) for model, layer in both] for both in (pairs, again)]


def rebuilt(feedback, parallel):
    """NMSE of three parameters in four steps, whose buckets DDP orders anew after the first."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, size in SIZES.items():
                setattr(self, name, torch.nn.Parameter(torch.zeros(size)))

        def forward(self, x):  # in the reverse of the order of registration
            return sum((getattr(self, name) * x * k).sum() for name, k in SCALES.items())

    net = Net()
    model = parallel(net, bucket_cap_mb=25)
    orders, inner = [], ddp_hook.thc_hook(seed=5, feedback=feedback)

    def hook(state, bucket):
        named = {id(p): name for name, p in net.named_parameters()}
        orders.append("".join(named[id(p)] for p in bucket.parameters()))
        return inner(state, bucket)

    model.register_comm_hook(None, hook)
    noise, found = torch.Generator().manual_seed(9), []
    for _ in range(4):
        net.zero_grad(set_to_none=True)
        x = torch.randn(2048, generator=noise)  # alike at all ranks, so the mean is known
        model(x).backward()
        found.append([
            float(((getattr(net, n).grad - x * k) ** 2).sum() / ((x * k) ** 2).sum())
            for n, k in SCALES.items()
        ])  # fmt: skip
    return orders, found


def worker(rank, folder):
    """One process: layers whose gradients are the inputs, so that every bit is known."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=N_WORKERS
    )

    def run(hook, x, state=None, group=None, dtype=torch.float32):
        layer = torch.nn.Linear(SIZE, 1, bias=False, dtype=dtype)
        model = DistributedDataParallel(layer, process_group=group)
        model.register_comm_hook(state, hook)
        return play(model, layer, torch.from_numpy(x).to(dtype))

    seen = {name: run(hook, x[:, rank]) for name, (hook, x) in hooks(rank).items()}
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = pairs[rank % 2]
    for name, hook in ("thc", ddp_hook.thc_hook(seed=5)), ("ring", ddp_hook.inceptionn_hook()):
        seen[f"pair {name}"] = run(hook, gradients()[:1, rank], mine, mine)
    seen["state"] = run(ddp_hook.thc_hook(), gradients()[:1, rank], "no group")
    both = ddp_hook.thc_hook(group=dist.group.WORLD)
    seen["two groups"] = run(both, gradients()[:1, rank], mine)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        hook = ddp_hook.thc_hook(seed=5)
        seen[str(dtype)] = run(hook, gradients()[:1, rank], dtype=dtype)
    seen["resumed"] = resumed(DistributedDataParallel, torch.from_numpy(gradients()[:, rank]))
    seen["two models"] = two_models(DistributedDataParallel, torch.from_numpy(gradients()[:, rank]))
    own = np.ascontiguousarray(gradients()[:, rank])
    seen["complex"] = complex_weights(ddp_hook.thc_hook(seed=5), DistributedDataParallel, own)
    for name, hook in ("thc", ddp_hook.thc_hook()), ("ring", ddp_hook.inceptionn_hook()):
        seen[f"sparse {name}"] = sparse(hook, DistributedDataParallel)
    for name, hook in ("thc", ddp_hook.thc_hook()), ("ring", ddp_hook.inceptionn_hook()):
        seen[f"empty {name}"] = empty(hook, DistributedDataParallel)
    for feedback in (True, False):
        seen["rebuilt", feedback] = rebuilt(feedback, DistributedDataParallel)
    kept = {"thc": ddp_hook.thc_hook(seed=5), "ring": ddp_hook.inceptionn_hook()}
    for hook in kept.values():
        run(hook, gradients()[:1, rank])
    dist.destroy_process_group()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/pair{rank % 2}", rank=rank // 2, world_size=2
    )
    for name, hook in kept.items():
        hook.load_state_dict(torch.nn.Linear(SIZE, 1), {})  # as new
        seen[f"again {name}"] = run(hook, gradients()[:1, rank])
    with Path(folder, str(rank)).open("wb") as file:
        pickle.dump(seen, file)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank saw, {case: result}, in one run of four processes."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[train]'")
    import torch.multiprocessing as processes

    folder = tmp_path_factory.mktemp("ranks")
    sys.modules.setdefault(worker.__module__, sys.modules[__name__])
    processes.start_processes(worker, (str(folder),), nprocs=N_WORKERS, start_method="fork")
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(N_WORKERS)]


def alike(ranks, case):
    """A case's gradients, the same bits at all ranks: float32 (rounds, 3000)."""
    for one in ranks:
        assert not isinstance(one[case], str), one[case]
        np.testing.assert_array_equal(one[case].view("u4"), ranks[0][case].view("u4"))
    return ranks[0][case]


def assert_same_bits(got, wanted):
    np.testing.assert_array_equal(got.view("u4"), np.ascontiguousarray(wanted).view("u4"))


def mean(total):
    return total / np.float32(N_WORKERS)


@pytest.mark.parametrize("case", ["thc", "thc tree", "complex", "resumed"])
def test_thc_is_the_golden_exchange(ranks, case):
    golden = Thc(N_WORKERS, seed=5, feedback=case != "thc tree", tensor=1)
    for got, x in zip(alike(ranks, case), gradients(), strict=True):
        assert_same_bits(got, mean(golden(x)))


@pytest.mark.parametrize(
    ("algorithm", "spelling"), [("ring", "ring:4"), ("dbtree", "full:4"), ("multitree", "full:4")]
)
def test_thc_is_a_cluster_of_offload_cards(ranks, algorithm, spelling):
    topology = topologies.parse(spelling)
    cluster = Cluster(
        table(algorithm, spelling), topology, SIZE, ThcCodec(Worker(N_WORKERS, 5), C=1024)
    )
    for turn, x in enumerate(gradients()[:2]):
        cluster.arm(turn, x)
        cluster.run(LinkFaults())
        for floats in cluster.floats(turn):
            assert_same_bits(alike(ranks, "thc tree")[turn], floats)


@pytest.mark.parametrize("case", ["overflow", "overflow of all"])
def test_an_overflow_stays_in_its_step(ranks, case):
    x, got = overflowed(), alike(ranks, case)
    lost = np.zeros(SIZE, bool)
    lost[: 2048 if case == "overflow" else None] = True  # the blocks of the Inf and of the NaN
    np.testing.assert_array_equal(np.isnan(got[1]), lost)
    assert np.isfinite(got[[0, 2]]).all()
    error = got[2] - x[2].mean(axis=0)
    assert np.square(error).sum() < 0.1 * np.square(x[2]).sum() / N_WORKERS
    golden = Thc(N_WORKERS, seed=5, tensor=1, norm="block" if case == "overflow" else "tensor")
    for seen, row in zip(got, x, strict=True):
        assert_same_bits(seen, mean(golden(row)))


def test_ring_is_the_ring_of_inline_cards(ranks):
    settings = InlineSettings(paper=True, exponent=119)
    cards = Cards(N_WORKERS, settings, Framing())
    for x in gradients()[:1]:
        wanted = ring_allreduce(x, cards, lambda block: image(block, exponent=119))
        assert_same_bits(alike(ranks, "ring")[0], mean(wanted[0]))


def test_star_is_inline_cards_round_a_server(ranks):
    card, framing = InlineCard(InlineSettings(paper=True, exponent=119)), Framing()

    def through_cards(x):
        frames = [card.transmit(f)[0] for f in framing.frames(x, 0, 1)]
        return framing.floats([card.receive(f)[0] for f in frames])

    total = None
    for x in gradients()[0]:
        total = through_cards(x) if total is None else add(total, through_cards(x))
    assert_same_bits(alike(ranks, "star")[0], mean(through_cards(total)))


@pytest.mark.parametrize(
    ("case", "algorithm", "spelling", "exponent"),
    [("tree", "dbtree", "full:4", 119), ("multitree", "multitree", "torus:2x2", 117)],
)
def test_tree_is_a_cluster_of_offload_cards(ranks, case, algorithm, spelling, exponent):
    cluster = Cluster(
        table(algorithm, spelling), topologies.parse(spelling), SIZE,
        Inceptionn(N_WORKERS, exponent=exponent),
    )  # fmt: skip
    cluster.arm(0, gradients()[0])
    cluster.run(LinkFaults())
    for floats in cluster.results(0):
        assert_same_bits(alike(ranks, case)[0], mean(floats))


def test_exchanges_differ(ranks):
    """None of them stands for another."""
    ring, tree, star = (alike(ranks, case)[0] for case in ("ring", "tree", "star"))
    exact = gradients()[0].mean(axis=0)
    errors = {float(np.square(got - exact).sum()) for got in (ring, tree, star)}
    assert len(errors) == 3
    assert max(errors) < 3 * min(errors)


@pytest.mark.parametrize("case", ["pair", "again"])
def test_a_subgroup_is_honored_and_so_is_a_world_that_begins_anew(ranks, case):
    x = gradients()[0]
    for rank, one in enumerate(ranks):
        pair = x[[rank % 2, rank % 2 + 2]]
        wanted = Thc(2, seed=5, tensor=1)(pair) / np.float32(2)
        assert_same_bits(one[f"{case} thc"][0], wanted)
        total = image(add(image(pair[0]), pair[1]))  # block 0 starts at the pair's first
        assert_same_bits(one[f"{case} ring"][0, :1504], total[:1504] / np.float32(2))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("seeds", "ranks differ in the hook's seed: 5 (ranks 0, 1, 3), 6 (rank 2); "),
        ("bits", "the hook's b: 4 (ranks 0, 2), 3 (ranks 1, 3); feedback: False (rank 0), True ("),
        ("kinds", "hook: 'inceptionn' (rank 0), 'thc' (ranks 1, 2, 3)"),
        ("bounds", "exponent: 117 (ranks 0, 1, 2), 118 (rank 3)"),
        ("orders", "exchange: 'ring' (ranks 0, 3), 'tree' (rank 1), 'star' (rank 2)"),
        ("too few nodes", "the schedule table is for 3 nodes, the process group has 4"),
        ("state", "state must be None or the process group of the hook, not str"),
        ("two groups", "the hook's group and register_comm_hook's state are different groups"),
        ("sparse thc", "parameter of shape (50, 16): build its layer with sparse=False"),
        ("sparse ring", "parameter of shape (50, 16): build its layer with sparse=False"),
        ("torch.float64", "TypeError: the hooks take gradients that FP32 holds, of float32, bf"),
    ],
)
def test_every_rank_hears_of_a_difference(ranks, case, words):
    for one in ranks:
        assert isinstance(one[case], str)
        assert words in one[case]


@pytest.mark.parametrize("name", ["thc", "ring"])
def test_a_bucket_without_elements_is_its_own_mean(ranks, name):
    assert [one[f"empty {name}"] for one in ranks] == [(None, (2, 0))] * N_WORKERS


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_other_types(ranks, dtype):
    got = alike(ranks, dtype)[0]
    exact = gradients()[0].mean(axis=0)
    assert np.square(got - exact).sum() < 0.02 * np.square(gradients()[0]).sum() / N_WORKERS


def test_errors_stay_with_their_parameter(ranks):
    orders, with_memory = ranks[0]["rebuilt", True]
    _, without = ranks[0]["rebuilt", False]
    assert orders[0] != orders[1]  # else DDP has not done what this is about
    assert orders[1:] == orders[1:2] * (len(orders) - 1)
    assert (np.array(with_memory) < 2.5 * np.array(without)).all()


def test_a_hook_of_two_models_goes_on_for_both(ranks):
    for one in ranks:
        kept, loaded = one["two models"]
        for got, wanted in zip(loaded, kept, strict=True):
            assert_same_bits(got, wanted)
    assert (kept[0] != kept[1]).any()  # each has an error memory of its own


@pytest.mark.parametrize("make", [ddp_hook.thc_hook, ddp_hook.inceptionn_hook])
def test_fsdp_is_refused(make):
    """It calls hooks with a gradient, and where that is sharded with its shard, too."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for called in (torch.ones(4),), (torch.ones(4), torch.ones(2)):
        with pytest.raises(TypeError, match=r"the hooks take the buckets of Dist.*; FSDP, which"):
            make()(None, *called)


def test_a_state_that_does_not_fit_is_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = torch.nn.Linear(3, 1)
    one = {"rounds": {1: 2}, "errors": {"weight": torch.zeros(3)}}
    hook = ddp_hook.thc_hook()
    assert copy.deepcopy(hook) is hook  # as in a copy of a model
    assert hook.state_dict(layer) == {}
    hook.load_state_dict(layer, {})
    hook.load_state_dict(layer, one)
    for saved, words in (
        ({"errors": {}}, "a state of thc_hook has rounds and errors, not errors"),
        (one | {"errors": {"module.weight": torch.zeros(3)}}, "no parameter 'module.weight', of w"),
        (one | {"errors": {"weight": torch.zeros(4)}}, "weight has 3 floats, and 4 are saved"),
        (one | {"errors": {"weight": [0.0] * 3}}, "errors of weight must be a tensor, not a list"),
        (one | {"rounds": {"1": 2}}, "rounds are whole numbers by tensor, from 1 on, not '1': 2"),
        (one | {"rounds": {1: -2}}, "rounds are whole numbers by tensor, from 1 on, not 1: -2"),
    ):
        with pytest.raises(ValueError, match=words):
            hook.load_state_dict(layer, saved)
        assert hook.state_dict(layer) == one  # a step has yet to come
    assert pickle.loads(pickle.dumps(hook)).state_dict(layer) == {}
    other = torch.nn.Linear(3, 1)
    assert hook.state_dict(other) == {}
    hook.load_state_dict(other, {"rounds": {1: 1}, "errors": {}})
    assert hook.state_dict(layer) == one
    assert hook.state_dict(other) == {"rounds": {1: 1}, "errors": {}}
    pickle.dumps(ddp_hook.thc_hook(group=threading.Lock()))  # no process group can be, either
    with pytest.raises(ValueError, match="inceptionn_hook has no state, and rounds, errors are g"):
        ddp_hook.inceptionn_hook().load_state_dict(layer, one)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ddp_hook.thc_hook(B=100), "B must be 64, 256, 1024 or 4096, not 100"),
        (lambda: ddp_hook.thc_hook(seed=1 << 32), "seed must be an integer of 0 to 4294967295, n"),
        (lambda: ddp_hook.thc_hook(seed=-1), "seed must be an integer of 0 to 4294967295, not -1"),
        (lambda: ddp_hook.thc_hook(seed=0.5), "not 0.5"),
        (lambda: ddp_hook.thc_hook(sign_round=-1), "sign_round must be an integer of 0 to 42949"),
        (lambda: ddp_hook.thc_hook(exchange="mesh"), "exchange must be ring, tree, star or a sch"),
        (lambda: ddp_hook.inceptionn_hook(exponent=127), "127"),
        (lambda: ddp_hook.inceptionn_hook(exchange=None), "exchange must be ring, tree, star or"),
    ],
)
def test_mistakes_are_found_at_once(make, words):
    with pytest.raises(ValueError, match=words):
        make()
