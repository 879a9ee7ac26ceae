"""Tables of layers: the published sizes, JSON files, and PyTorch modules."""

import json

import pytest
from gradnic.models.training import layers
from gradnic.models.training.devices import Systolic, compute_seconds, device, passes, scaled

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
        ("{}", "layers"),
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
    assert model.forward == 2 * 8 * (4 * 64 * 64 + 2 * 64 * 128)
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
    assert model.forward == 2 * (8 * 64 * 64 + 5 * 64 * 16 + 5 * 64 * 32 + 8 * 64 * 64)


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
    assert model.forward == 2 * 8 * (5 * 256 + 256 + 256 + 1600)


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
    fixed = scaled(model, device("titanxp"), 16, 0.25)
    assert compute_seconds(model, fixed, 16) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="h100"):
        device("h100")


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
