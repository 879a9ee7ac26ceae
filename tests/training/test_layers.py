"""Tables of layers: the published sizes, JSON files, and PyTorch modules."""

import json
import math

import pytest
from gradnic.models.training import layers
from gradnic.models.training.devices import Device, Systolic, compute_seconds, device, passes

PUBLISHED = {  # parameters: the architectures' own papers, or PyTorch's and Hugging Face's models
    "alexnet": 60_965_224,
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "bert-base": 109_482_240,
    "gpt2": 124_439_808,
    "hdc": 648_010,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name):
    assert layers.load(name).parameters == PUBLISHED[name]


def test_megabytes_of_the_inceptionn_paper():
    """232 MB and 98 MB, where a megabyte is 2^20 bytes."""
    assert layers.load("alexnet").n_bytes >> 20 == 232
    assert round(layers.load("resnet50").n_bytes / 2**20) in (97, 98)


def test_operations_of_known_networks():
    """Multiplications and additions of a pass: 4.1 and 15.5 billion of each (their authors)."""
    assert layers.load("resnet50").forward == pytest.approx(2 * 4.1e9, rel=0.01)
    assert layers.load("vgg16").forward == pytest.approx(2 * 15.47e9, rel=0.01)


def test_every_table_names_its_source_and_unrolls():
    for name in layers.names():
        model = layers.load(name)
        assert model.source
        assert len({layer.name for layer in model.layers}) > 2
        assert sum(floats for _, floats in model.tensors) == model.parameters


def test_json_file(tmp_path):
    path = tmp_path / "own.json"
    block = {"repeat": 2, "name": "b", "layers": [["fc", 12, 4, 1, 4, 3]]}
    path.write_text(json.dumps({"layers": [["in", 6, 0, 2, 3, 2], block]}))
    model = layers.load(str(path))
    assert [layer.name for layer in model.layers] == ["in", "b0.fc", "b1.fc"]
    assert model.parameters == 6 + 2 * 16
    assert model.forward == 2 * (12 + 2 * 12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "object"),
        ("{}", "bad: a table of layers is an object with the key layers$"),
        ('{"layers": null}', "layers must be a list, not null"),
        ('{"layers": []}', "no parameters"),
        ('{"layers": [["a", 1, 2]]}', r'not \["a", 1, 2\]'),
        ('{"layers": [["a", 1, -2, 0, 0, 0]]}', r'not \["a", 1, -2'),
        ('{"layers": [["a", 1, 0, 0, 0, 0], []]}', r"bad: .* n, k\] or an object .*, not \[\]"),
        ('{"layers": ["abcdef"]}', 'not "abcdef"'),
        ('{"layers": [[5, 1, 0, 0, 0, 0]]}', r"not \[5, 1"),
        ('{"layers": 5}', "layers must be a list, not 5"),
        ('{"layers": [{"name": "b", "layers": [["a", 1, 0, 0, 0, 0]]}]}', "an object"),
        ('{"layers": [["a", 1, 0, 0, 0, 0], {"name": "b", "repeat": -1, "layers": []}]}', "-1"),
        ('{"layers": [{"name": "b", "repeat": 2, "layers": 5}]}', "must be a list, not 5"),
        ('{"smaple": "one", "layers": [["a", 1, 0, 0, 0, 0]]}', "name, .* and layers, not smaple"),
        ('{"layers": [{"name": "b", "repeat": 2, "layers": [], "x": 1}]}', '"x": 1}'),
        ('{"sample": 5, "layers": [["a", 1, 0, 0, 0, 0]]}', "sample must be a text, not 5"),
        ('{"layers": [["a", 9999999999999999, 0, 0, 0, 0]]}', "from 0 to 2\\^48, not"),
        (
            '{"layers": [{"name": "b", "repeat": 1000000000, "layers": [["a", 1, 0, 0, 0, 0]]}]}',
            "bad: there must be at most 100000 layers, not 1000000000",
        ),
        (
            '{"layers": '
            + '[{"name": "b", "repeat": 1000000000, "layers": ' * 30
            + '[{"name": "b", "repeat": 0, "layers": []}, {"name": "b", "repeat": 9, "layers": []}]'
            + "}]" * 30
            + "}",
            "no parameters",
        ),
        (
            '{"layers": ['
            + '{"name": "b", "repeat": 50000, "layers": [["a", 1, 0, 0, 0, 0]]},' * 2
            + '["c", 1, 0, 0, 0, 0]]}',
            "at most 100000 layers, not 100001",
        ),
        ('{"layers": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_bad_files(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        layers.load(str(path))


def test_unknown_model():
    with pytest.raises(ValueError, match="lenet"):
        layers.load("lenet")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="PyTorch is an extra of its own, 190 MB")


def trainable(net):
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def test_pytorch_module(torch):
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)
    )
    model = layers.from_module(net, torch.zeros(1, 3, 8, 8))
    assert model.parameters == trainable(net)
    conv, norm, linear = model.layers
    assert (conv.m, conv.n, conv.k) == (36, 8, 27)
    assert (norm.parameters, norm.forward) == (16, 0)
    assert linear.forward == 2 * 288 * 10


@pytest.mark.parametrize("training", [True, False])
def test_pytorch_attention(torch, training):
    """Its projections are one parameter of three products, and a module that is never called."""
    net = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).train(training)
    model = layers.from_module(net, torch.zeros(1, 8, 64))
    assert model.parameters == trainable(net) == 33_472
    assert sorted(size for _, size in model.tensors) == sorted(p.numel() for p in net.parameters())
    assert model.forward == 2 * 8 * (4 * 64 * 64 + 2 * 64 * 128 + 2 * 64 * 8)
    net = torch.nn.MultiheadAttention(64, 4, kdim=16, vdim=32, batch_first=True)

    class Cross(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = net

        def forward(self, x):
            key, value = torch.zeros(1, 5, 16), torch.zeros(1, 5, 32)
            return self.attention(x, key=key, value=value)

    model = layers.from_module(Cross(), torch.zeros(1, 8, 64))
    assert model.parameters == trainable(net)
    of_weights = 8 * 64 * 64 + 5 * 64 * 16 + 5 * 64 * 32 + 8 * 64 * 64
    assert model.forward == 2 * (of_weights + 2 * 8 * 5 * 64)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_pytorch_recurrent(torch):
    """Every matrix is multiplied once a time step, and every tensor stands alone."""
    nn = torch.nn
    for bias in (True, False):
        net = nn.LSTM(16, 32, bias=bias)
        model = layers.from_module(net, torch.zeros(5, 1, 16))
        assert [size for _, size in model.tensors] == [p.numel() for p in net.parameters()]
        assert model.forward == 2 * 5 * 128 * (16 + 32)
    net = nn.GRU(16, 32, num_layers=2, bidirectional=True)
    model = layers.from_module(net, torch.zeros(5, 1, 16))
    assert model.parameters == trainable(net)
    assert model.forward == 2 * 5 * 2 * 96 * (16 + 32 + 64 + 32)
    net = nn.LSTM(16, 32, proj_size=8)
    model = layers.from_module(net, torch.zeros(5, 1, 16))
    assert model.parameters == trainable(net)
    assert model.forward == 2 * 5 * (128 * (16 + 8) + 8 * 32)


def test_pytorch_transposed_convolution(torch):
    net = torch.nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2)
    model = layers.from_module(net, torch.zeros(1, 4, 5, 5))
    assert model.parameters == trainable(net)
    assert model.forward == 2 * 25 * 4 * (6 // 2) * 9
    net = torch.nn.Conv2d(3, 8, 3)  # a sample without its dimension of the batch
    assert layers.from_module(net, torch.zeros(3, 8, 8)).forward == 2 * 36 * 8 * 27


def test_pytorch_parameters_that_are_no_modules_own(torch):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(100, 16)
            self.position = nn.Parameter(torch.zeros(8, 16))
            self.matrices = nn.ParameterList([nn.Parameter(torch.ones(16, 16)) for _ in range(3)])
            self.shared = nn.Linear(16, 16)
            self.frozen = nn.Linear(16, 16)
            self.frozen.weight.requires_grad_(False)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16, bias=False))
            self.head = nn.Linear(16, 100, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            x = self.embedding(x) + self.position
            for matrix in self.matrices:
                x = x @ matrix
            for _ in range(5):
                x = self.shared(x)
            return self.head(self.normed(self.frozen(x)))

    net = Net()
    model = layers.from_module(net, torch.zeros(1, 8, dtype=torch.long))
    sizes = {layer.name: layer.parameters for layer in model.layers}
    assert model.parameters == trainable(net)
    assert sizes["embedding"] == 1600
    assert sizes["head"] == 0  # the same tensor, whose gradient is whole at its first use
    assert (sizes["shared"], sizes["frozen"]) == (272, 16)
    assert sorted(size for _, size in model.tensors) == sorted(
        p.numel() for p in net.parameters() if p.requires_grad
    )
    assert model.forward == 2 * 8 * (3 * 256 + 5 * 256 + 256 + 256 + 1600)


class Written:
    """Modules whose products are their own, not torch.nn's; torch is an extra."""

    @staticmethod
    def gpt2(torch, *, width=64, words=500, blocks=2, heads=4, inference=False):
        nn, functional = torch.nn, torch.nn.functional

        class Conv1D(nn.Module):  # as Hugging Face's transformers have it
            def __init__(self, n, k):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(k, n))
                self.bias = nn.Parameter(torch.zeros(n))

            def forward(self, x):
                size = (*x.shape[:-1], self.weight.shape[1])
                return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(size)

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.attn = nn.LayerNorm(width), Conv1D(3 * width, width)
                self.proj = Conv1D(width, width)
                self.mlp = nn.Sequential(
                    Conv1D(4 * width, width), nn.GELU(), Conv1D(width, 4 * width)
                )

            def forward(self, x):
                q, k, v = (part.unflatten(-1, (heads, -1)).transpose(-3, -2)
                           for part in self.attn(self.norm(x)).split(width, -1))  # fmt: skip
                made = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.proj(made.transpose(-3, -2).flatten(-2))
                return x + self.mlp(x)

        class Gpt2(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte = nn.Embedding(words, width)
                self.h = nn.ModuleList([Block() for _ in range(blocks)])

            def forward(self, x):
                with torch.inference_mode(inference):
                    x = self.wte(x)
                    for block in self.h:
                        x = block(x)
                    return functional.linear(x, self.wte.weight)

        return Gpt2()

    @staticmethod
    def own(torch):
        class Own(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = torch.nn.Linear(6, 5)
                self.matrix = torch.nn.Parameter(torch.ones(5, 7))
                self.vector = torch.nn.Parameter(torch.ones(7))
                self.kernel = torch.nn.Parameter(torch.ones(4, 1, 3))
                self.pair = torch.nn.Bilinear(7, 7, 2)

            def forward(self, x):
                x = torch.nn.functional.linear(x, self.proj.weight) @ self.matrix
                y = torch.einsum("bij,bkj->bik", x, x)
                z = torch.nn.functional.conv1d(y[:, :1], self.kernel, padding=1)
                return self.pair(x, x), x @ self.vector, z

        return Own()


def test_products_of_modules_that_are_not_torchs_own(torch):
    """GPT-2's, by hand: projections, attention's two products, and the tied head behind them."""
    t, d, blocks, words = 16, 64, 2, 500
    for inference in False, True:
        net = Written.gpt2(torch, inference=inference)
        model = layers.from_module(net, torch.zeros(1, t, dtype=torch.long))
        assert model.parameters == trainable(net)
        assert model.forward == 2 * t * (blocks * (12 * d * d + 2 * t * d) + words * d)
        assert model.layers[-1] == layers.Layer("wte.weight", 0, 0, t, words, d)
        by_name = {layer.name: layer for layer in model.layers}
        attn = layers.Layer("h.1.attn", 3 * d * d, 3 * d, t, 3 * d, d)
        assert by_name["h.1.attn"] == attn
        names = [layer.name for layer in model.layers]
        assert names.index("h.0.attn") < names.index("h.0.bmm") < names.index("h.0.proj")


def test_products_of_parameters_without_modules(torch):
    net = Written.own(torch)
    model = layers.from_module(net, torch.zeros(1, 3, 6))
    assert model.parameters == trainable(net)
    found = {layer.name: layer.forward for layer in model.layers if layer.forward}
    assert found == {
        "proj": 2 * 3 * 5 * 6, "matrix": 2 * 3 * 7 * 5, "bmm": 2 * 3 * 3 * 7,
        "kernel": 2 * 3 * 4 * 3, "pair": 2 * 3 * 2 * 7 * 7, "vector": 2 * 3 * 7,
    }  # fmt: skip


def test_an_own_forward_pass_of_a_torch_module(torch):
    """As adapters of low rank are written; what is added counts as no operand."""

    class Adapted(torch.nn.Linear):
        def __init__(self):
            super().__init__(16, 5)
            self.a = torch.nn.Parameter(torch.ones(2, 16))
            self.b = torch.nn.Parameter(torch.ones(5, 2))

        def forward(self, x):
            return super().forward(x) + x @ self.a.T @ self.b.T

    net = Adapted()
    model = layers.from_module(net, torch.zeros(8, 16))
    found = {layer.name: (layer.parameters, layer.m, layer.n, layer.k) for layer in model.layers}
    assert found == {"weight": (80, 8, 5, 16), "bias": (5, 0, 0, 0), "a": (32, 8, 2, 16),
                     "b": (10, 8, 5, 2)}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("deep", [False, True])
def test_traced_modules(torch, deep):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    sample = torch.zeros(1, 1, 4, 4)
    wanted, traced = layers.from_module(net, sample), torch.jit.trace(net, sample)
    model = layers.from_module(nn.Sequential(traced) if deep else traced, sample)
    rows = [(layer.parameters, layer.forward) for layer in model.layers]
    assert rows == [(layer.parameters, layer.forward) for layer in wanted.layers]
    scripted = torch.jit.script(net)
    for part in nn.Sequential(net, scripted) if deep else scripted, torch.jit.script(net[2]):
        with pytest.raises(ValueError, match=r"is of torch.jit.script, which cannot be watched"):
            layers.from_module(part, sample)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())


def test_operations_are_those_of_torchs_own_counter(torch):
    from torch.utils.flop_counter import FlopCounterMode

    nn, sample = torch.nn, torch.rand(1, 6, 16)
    heads = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    for net, x in (
        (nn.Sequential(heads, nn.Linear(16, 4)), sample),
        (nn.Sequential(nn.Conv1d(6, 4, 3), nn.ConvTranspose1d(4, 6, 5, groups=2)), sample),
        (Written.gpt2(torch), torch.zeros(1, 8, dtype=torch.long)),
    ):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            with FlopCounterMode(display=False) as counter:
                net(x)
        assert layers.from_module(net, x).forward == counter.get_total_flops()


def test_products_that_are_not_counted_are_named(torch):
    class Sparse(torch.nn.Linear):
        def forward(self, x):
            return torch.sparse.mm(self.weight.to_sparse(), x.T)

    with pytest.warns(UserWarning, match=r"Sparse: products that aten._sparse_.* may make are not"):
        model = layers.from_module(Sparse(3, 4), torch.zeros(1, 3))
    assert model.parameters == 16


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_modules(torch):
    """Plain ones run as they are written; those that must be whole cannot be watched."""
    net = torch.nn.Linear(3, 4)
    assert layers.from_module(torch.compile(net), torch.zeros(1, 3)).forward == 2 * 3 * 4
    whole = torch.compile(net, fullgraph=True)
    with pytest.raises(ValueError, match=r"OptimizedModule: what torch.compile makes whole"):
        layers.from_module(whole, torch.zeros(1, 3))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layers.from_module(net, torch.zeros(1, 2))


def test_inputs_of_a_module_are_a_tuple_or_a_dict(torch):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(5, 4)

        def forward(self, x, y=None, *, scale=1):
            return self.a(x) * scale + self.b(y)

    x, y = torch.zeros(1, 3), torch.zeros(1, 5)
    by_place = layers.from_module(Two(), (x, y))
    assert layers.from_module(Two(), {"y": y, "x": x, "scale": 2}) == by_place
    assert by_place.forward == 2 * 4 * 8
    rows = torch.nn.utils.rnn.pack_sequence([torch.zeros(2, 3)])  # a tuple with a name: one input
    assert layers.from_module(torch.nn.LSTM(3, 4), rows).forward == 2 * 2 * 16 * 7


def test_pytorch_module_is_as_it_was(torch):
    """Statistics of normalization and the random numbers of dropout."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout())
    before = {name: values.clone() for name, values in net.state_dict().items()}
    state = torch.get_rng_state()
    layers.from_module(net, torch.arange(6.0).reshape(2, 3))
    assert all(torch.equal(before[name], values) for name, values in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
def test_complex_parameters_are_two_floats_each(torch):
    net = torch.nn.Linear(3, 5).to(torch.complex64)
    sample = torch.zeros(4, 3, dtype=torch.complex64)
    (layer,) = layers.from_module(net, sample).layers
    assert (layer.weights, layer.biases) == (30, 10)
    assert layer.forward == 4 * 2 * (4 * 3 * 5)  # a product of two is four of reals


def test_parameters_of_other_sizes_are_named(torch):
    """DDP's gradients of BF16 have half the bytes; what is frozen has none."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    net[0].bfloat16().requires_grad_(False)
    net.forward = lambda x: net[1](x)
    assert layers.from_module(net, torch.zeros(1, 4)).parameters == 10
    with pytest.warns(UserWarning, match=r"Linear: parameters of torch\.bfloat16 count as F"):
        layers.from_module(net[0].requires_grad_(True), torch.zeros(1, 3, dtype=torch.bfloat16))


def test_what_is_no_module_is_named(torch):
    net = torch.nn.Linear(3, 4)
    with pytest.raises(ValueError, match=r"module must be a torch\.nn\.Module, not O"):
        layers.from_module(net.state_dict(), torch.zeros(1, 3))


@pytest.mark.parametrize("dims", [1, 2])
def test_mapped_calls_count_as_often_as_they_are_made(torch, dims):
    """torch.vmap shows modules one of the calls that it makes."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 4)
            self.attention = torch.nn.MultiheadAttention(4, 2)

        def forward(self, x):
            inner = torch.vmap(self.layer)
            y = (inner if dims == 1 else torch.vmap(inner))(x)
            return self.attention(y, y, y) if dims == 1 else y

    x = torch.randn(3, 7, 5)
    model = layers.from_module(Net(), x)
    assert next(layer.m for layer in model.layers if layer.name == "layer") == 21


def test_pytorch_module_of_frozen_parameters(torch):
    net = torch.nn.Linear(3, 3).requires_grad_(False)
    with pytest.raises(ValueError, match="Linear: the layers have no parameters that are trained"):
        layers.from_module(net, torch.zeros(1, 3))


def test_pytorch_tensors_of_no_module(torch):
    class Net(torch.nn.Linear):
        hidden = (torch.nn.Parameter(torch.ones(7)),)

        def parameters(self, recurse=True):
            yield from super().parameters(recurse)
            yield from self.hidden

    with pytest.raises(ValueError, match=r"12 parameters .* 19"):
        layers.from_module(Net(3, 3), torch.zeros(1, 3))


def test_devices_reproduce_what_they_are_made_from():
    model = layers.load("resnet50")
    assert compute_seconds(model, device("v100-fp32"), 367) == pytest.approx(1)
    assert compute_seconds(model, device("a100-tf32"), 938) == pytest.approx(1)
    with pytest.raises(ValueError, match="h100"):
        device("h100")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Device("d", 0.0), "d: operations must be above 0, not 0.0"),
        (lambda: Device("d", 1e9, -1.0), "d: overhead must be 0 s or more, not -1.0"),
        (lambda: Device("d", 1e9, math.nan), "d: overhead must be 0 s or more, not nan"),
        (lambda: Systolic(rows=0), "systolic: rows must be at least 1, not 0"),
        (lambda: Systolic(arrays=1.5), "systolic: arrays must be at least 1, not 1.5"),
        (lambda: Systolic(clock=-1e9), "systolic: clock must be above 0, not -1000000000.0"),
        (lambda: passes(layers.load("ncf"), Systolic(), 0), "batch must be at least 1, not 0"),
        (lambda: passes(layers.load("ncf"), Systolic(), 1.5), "batch must be at least 1, not 1.5"),
    ],
)
def test_devices_and_batches_that_cannot_be_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_systolic_array_counts_folds():
    layer = layers.Layer("x", 1, 0, 33, 32, 10)
    forward, backward = Systolic().seconds(layer, 16)
    assert forward == pytest.approx(2 * (10 + 62) / 1e9)  # two folds of 32 rows
    assert backward == pytest.approx(((33 + 62) + 2 * (32 + 62)) / 1e9)
    assert Systolic().seconds(layer, 17)[0] == pytest.approx(2 * forward)  # a second round


def test_only_the_first_product_has_no_gradient_of_its_input():
    times = passes(layers.load("bert-base"), device("v100-fp32"), 1)
    worked = [(f, b) for f, b in times if f]
    assert worked[0][1] == pytest.approx(worked[0][0])
    assert all(b == pytest.approx(2 * f) for f, b in worked[1:])
