"""A conv net on MNIST images and a transformer on text, as tasks for `network.train`; by PyTorch.

Both are small: what they are for is how their gradients bear codecs and losses. The text is that of
Python's own help topics (`pydoc_data.topics`), so nothing is downloaded; it grows with Python's
version, and so do the figures change. One thread.
"""

from functools import cache
from pydoc_data import topics

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from .network import N_TRAIN, Task, load_images

CONTEXT = 24  # characters
N_WINDOWS, N_TEST = 4000, 400
WIDTH, HEADS, DEPTH = 32, 2, 2


class TorchNetwork:
    """A PyTorch module whose parameters are one float32 vector, `parameters`, in their own order.

    skipped : as of `network.Network`. shapes : of its tensors, in their order.
    """

    def __init__(self, module):
        torch.set_num_threads(1)
        self.module, self.skipped = module, 0
        self.shapes = [tuple(p.shape) for p in module.parameters()]

    @property
    def parameters(self):
        return np.concatenate([p.detach().numpy().ravel() for p in self.module.parameters()])

    @parameters.setter
    def parameters(self, vector):
        at = 0
        with torch.no_grad():
            for p in self.module.parameters():
                part = vector[at : at + p.numel()].astype(np.float32).reshape(p.shape)
                p.copy_(torch.from_numpy(part))
                at += p.numel()

    def _losses(self, inputs, labels):
        """Logits (n, classes, ...) and the mean loss of each sample."""
        logits = self.module(torch.from_numpy(np.array(inputs)))
        losses = functional.cross_entropy(
            logits, torch.from_numpy(np.array(labels)), reduction="none"
        )
        return logits, losses.reshape(len(labels), -1).mean(dim=1)

    def gradient(self, inputs, labels, *, loss="mean"):
        """As of `network.Network`; a text's loss is the mean over its characters."""
        self.module.zero_grad()
        _, losses = self._losses(inputs, labels)
        (losses.sum() if loss == "sum" else losses.mean()).backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in self.module.parameters()])
        return gradient, float(losses.mean().detach())

    def accuracy(self, inputs, labels):
        """Share of labels, or characters, that are the likeliest one, 0..1."""
        with torch.no_grad():
            logits, _ = self._losses(inputs, labels)
        return float((logits.argmax(dim=1).numpy() == labels).mean())


def conv_net(seed):
    """Two convolutions of 16 and 32 maps, stride 2, and two layers: 46,730 parameters."""
    torch.manual_seed(seed)
    return TorchNetwork(
        nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
        )
    )  # fmt: skip


@cache
def load_text():
    """Windows of `CONTEXT` characters, int64, and the characters that follow each; shuffled."""
    text = "".join(topics.topics[name] for name in sorted(topics.topics))
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64)
    codes = np.unique(codes, return_inverse=True)[1]
    starts = np.linspace(0, len(codes) - CONTEXT - 1, N_WINDOWS + N_TEST).astype(int)
    np.random.default_rng(0).shuffle(starts)
    rows = codes[starts[:, None] + np.arange(CONTEXT + 1)]
    return rows[:, :-1], rows[:, 1:]


class Transformer(nn.Module):
    """Predicts the next character: pre-norm blocks, causal, learned positions.

    n_codes : characters of the alphabet.
    """

    def __init__(self, n_codes):
        super().__init__()
        self.code, self.place = nn.Embedding(n_codes, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True,
                                       norm_first=True)
            for _ in range(DEPTH)
        )  # fmt: skip
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, n_codes)
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, codes):
        x = self.code(codes) + self.place.weight
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.out(self.norm(x)).transpose(1, 2)


def transformer(seed):
    """A transformer for the alphabet of the text."""
    torch.manual_seed(seed)
    return TorchNetwork(Transformer(int(load_text()[0].max()) + 1))


CONV_NET = Task(load_images, conv_net, N_TRAIN)
TRANSFORMER = Task(load_text, transformer, N_WINDOWS)
