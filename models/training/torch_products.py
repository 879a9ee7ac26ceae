"""Matrix products in a pass of a PyTorch module: which there are, and of whose parameters."""

import inspect
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

_CONVOLUTIONS = nn.Conv1d | nn.Conv2d | nn.Conv3d
_TRANSPOSES = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
_RECURRENT = nn.RNNBase | nn.RNNCellBase
_BUILT_IN = "torch.nn.modules."  # where the forward passes are whose products are known
_PRODUCT = re.compile(  # in the name of an operator that multiplies matrices
    r"(?<![a-z])(add|b|badd|addb)?(mm|mv)(?![a-z])|matmul|linear|conv(?!ert)|attention|lstm|gru|rnn"
)


def _matrices(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int]:
    """(m, n, k) of a product of matrices, of a batch of them, or of a matrix and a vector."""
    batch = len(a) if a.dim() == 3 else 1
    return a.shape[-2], (b.shape[-1] if b.dim() > 1 else 1), a.shape[-1] * batch


def _convolution(
    x: torch.Tensor, weight: torch.Tensor, transposed: bool, result: torch.Tensor
) -> tuple[int, int, int]:
    if transposed:
        return x.numel() // len(weight), weight[0].numel(), len(weight)
    return result.numel() // len(weight), len(weight), weight[0].numel()


def _trilinear(weight: torch.Tensor, result: torch.Tensor) -> tuple[int, int, int]:
    n = result.shape[-1]
    return result.numel() // n, n, weight.numel() // n


_aten = torch.ops.aten
_OPERATORS = {  # (m, n, k) of its arguments and its result
    **dict.fromkeys((_aten.mm, _aten.bmm, _aten.mv), lambda args, _: _matrices(*args[:2])),
    **dict.fromkeys(
        (_aten.addmm, _aten.baddbmm, _aten.addbmm, _aten.addmv),
        lambda args, _: _matrices(*args[1:3]),
    ),
    **dict.fromkeys(
        (_aten.convolution, _aten._convolution),
        lambda args, result: _convolution(args[0], args[1], args[6], result),
    ),
    _aten._trilinear: lambda args, result: _trilinear(args[1], result),
}


class Products(TorchDispatchMode):
    """Notes products that are made within it. See `watched`.

    Members
    -------
    called : dict without values, in the order of first use
        Names of modules; and (label, n, k) of products that no parameter of a module under way, or
        not yet called, is in, such as those of attention.
    products : {parameter's name: {(n, k): m}}
        Operations are 2 m n k of each; an operand may be any view of the parameter. Modules of
        torch.nn tell theirs themselves, as kernels for whole RNNs do not tell their matrices.
    loose : {(label, n, k): m}, with the keys in `called`
    unknown : names of operators that multiply, and whose products are not counted
    """

    supports_higher_order_operators = True

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.called, self.products, self.loose, self.unknown = {}, {}, {}, {}
        self._module, self._modules = module, dict(module.named_modules())
        self._within = []  # names of the modules under way

    def hooks(self, name: str, part: nn.Module) -> Iterator[Any]:
        """Handles of the two hooks of a module under this name."""

        def begin(*_: Any) -> None:
            self.called.setdefault(name)
            self._within.append(name)

        def end(part: nn.Module, args: tuple, keywords: dict, output: Any) -> None:
            parts = 2 if any(values.is_complex() for values in part.parameters()) else 1
            for tensor, (m, n, k) in _of_module(part, args, keywords, output).items():
                rows = m * _times_mapped(output)
                self._add(f"{name}.{tensor}".lstrip("."), rows, parts * n, parts * k)
            self._within.pop()

        yield part.register_forward_pre_hook(begin)
        yield part.register_forward_hook(end, with_kwargs=True)

    def _add(self, tensor: str, m: int, n: int, k: int) -> None:
        self.called.setdefault(tensor.rpartition(".")[0])
        of_tensor = self.products.setdefault(tensor, {})
        of_tensor[n, k] = of_tensor.get((n, k), 0) + m

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = getattr(func, "overloadpacket", None)  # of no operator of higher order
        if packet not in _OPERATORS and getattr(func, "namespace", None) == "aten":
            with self:
                result = func.decompose(*args, **kwargs)  # where inference mode hides the parts
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        around = [part for part in map(self._modules.get, self._within) if _tells(part)]
        if not all(isinstance(part, nn.MultiheadAttention) for part in around):
            return result
        if packet in _OPERATORS:
            self._note(packet, around, args, result)
        elif packet is None or _multiplies(func):
            self.unknown.setdefault(str(packet or func))
        return result

    def _note(self, packet: Any, around: list, args: tuple, result: torch.Tensor) -> None:
        m, n, k = _OPERATORS[packet](args, result)
        if result.is_complex():
            n, k = 2 * n, 2 * k
        owners: dict[str, int] = dict(filter(None, map(self._owner, args)))
        tensor = max(owners, key=owners.__getitem__, default=None)  # the matrix, not what is added
        if tensor and around:
            return  # attention's own parameters
        owner = tensor and tensor.rpartition(".")[0]
        if tensor and (owner in self._within or owner not in self.called):
            self._add(tensor, m, n, k)
            return
        operator = str(packet).rpartition(".")[2]
        label = tensor or f"{self._within[-1] if self._within else ''}.{operator}".lstrip(".")
        self.called.setdefault((label, n, k))
        self.loose[label, n, k] = self.loose.get((label, n, k), 0) + m

    def _owner(self, values: Any) -> tuple[str, int] | None:
        """(name, size) of the parameter that an operand is a view of, None for others."""
        if not isinstance(values, torch.Tensor) or values.layout is not torch.strided:
            return None
        storage, at = values.untyped_storage()._cdata, values.storage_offset()
        for name, owner in self._module.named_parameters():
            if nn.parameter.is_lazy(owner) or owner.layout is not torch.strided:
                continue
            first = owner.storage_offset()
            if owner.untyped_storage()._cdata == storage and 0 <= at - first < owner.numel():
                return name, owner.numel()
        return None


@contextmanager
def watched(module: nn.Module) -> Iterator[Products]:
    """The `Products` of what `module`, an nn.Module, does within this context.

    Its submodules have hooks until the end, and attention is made of matrix products, not by
    kernels that hide them. ValueError for what torch.jit.script made, which takes no hooks.
    """
    found, fast = Products(module), torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        for name, part in module.named_modules():
            try:
                for handle in found.hooks(name, part):
                    stack.callback(handle.remove)
            except RuntimeError:
                raise ValueError(
                    f"{name or 'the module'} is of torch.jit.script, which cannot be watched: give "
                    "the module that it was made from"
                ) from None
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(found)
        yield found


def _multiplies(func: Any) -> bool:
    """Whether an operator that is not among the known ones may be of products."""
    name = func.name().partition(".")[0]  # such as aten::mkldnn_rnn_layer
    space, _, name = name.partition("::")
    if space == "aten":
        return bool(_PRODUCT.search(name)) and not name.startswith("upsample")
    return space not in ("prim", "prims", "profiler")


def _tells(part: nn.Module) -> bool:
    """Whether `_of_module` knows all products of a module's parameters."""
    if isinstance(part, _RECURRENT | nn.MultiheadAttention):
        return True
    known = isinstance(part, nn.Linear | _CONVOLUTIONS | _TRANSPOSES)
    return known and type(part).forward.__module__.startswith(_BUILT_IN)


def _times_mapped(output: Any) -> int:
    """Calls that torch.vmap makes of the one with this output: 1 outside of it."""
    while not isinstance(output, torch.Tensor):  # of attention, and of packed sequences
        output = output[0]
    whole = output
    while is_functorch_wrapped_tensor(whole):
        whole = get_unwrapped(whole)
    return whole.numel() // max(output.numel(), 1)


def _of_module(
    part: Any, args: tuple, keywords: dict, output: Any
) -> dict[str, tuple[int, int, int]]:
    """{parameter's name within a PyTorch module: (m, n, k)} of one call."""
    if not _tells(part):
        return {}
    if isinstance(part, nn.Linear):
        n = part.out_features
        return {"weight": (output.numel() // n, n, part.in_features)}
    if isinstance(part, _CONVOLUTIONS):
        n = part.out_channels
        return {"weight": (output.numel() // n, n, part.weight[0].numel())}
    given = inspect.signature(part.forward).bind(*args, **keywords).arguments
    if isinstance(part, nn.MultiheadAttention):
        e = part.embed_dim
        queries = given["query"].numel() // e
        keys, values = given["key"].numel() // part.kdim, given["value"].numel() // part.vdim
        result = {"out_proj.weight": (queries, e, e)}
        if part.in_proj_weight is not None:  # three matrices in one
            return {"in_proj_weight": (queries + keys + values, e, e), **result}
        return {"q_proj_weight": (queries, e, e), "k_proj_weight": (keys, e, part.kdim),
                "v_proj_weight": (values, e, part.vdim), **result}  # fmt: skip
    if isinstance(part, _TRANSPOSES):
        k = part.in_channels
        return {"weight": (given["input"].numel() // k, part.weight[0].numel(), k)}
    rows = given["input"].data.numel() // part.input_size  # of a packed sequence, too
    return {
        name: (rows, *values.shape) for name, values in part.named_parameters() if values.dim() == 2
    }
