"""Which training graphs torch runs and records sooner than compiled code: the cost model for that decision.

A compiled graph whose gradients are recorded is one ``autograd.Function``.  Whatever its kernels take, that costs two
frames of Python and what autograd does around them, some 35 µs.  torch records an operator of its own for 4 µs.  So
graphs of one to four operators, forward and backward, are better left to torch, unless its kernels are much slower for
the sizes at hand.

The model lists what torch would run, forward and backward, on fake tensors, and adds three things up:

* what each operator takes however small its tensors are (:data:`_FORWARD`, :data:`_BACKWARD`, :data:`_VIEW`),
* how much longer torch's kernel takes for each element than ours (:data:`_SLOWER`), or each short row (:data:`_ROWS`),
* the memory that fusion saves: each operator but the first of a pass reads and writes a tensor more (:data:`_TRAFFIC`),
  unless a library computes it in either case.

Numbers are microseconds and nanoseconds, fitted to 56 programs from 16 to 65,536 elements and to each operator alone,
on one core of a Xeon (Sapphire Rapids); those of convolutions and of decompositions of matrices to 64 more.  An
operator that :data:`_SLOWER` does not name takes what torch takes if compiled code calls it as well; others have not
been measured, and their graph is compiled.  So is a graph that writes to a tensor, has tensors of other devices or of
other dtypes, or reads large tensors that do not lie in rows, unless these are transposed matrices that are only
multiplied, or images in channels last and all is done by pixels.  Sizes that are symbolic may be of any value.  If
fusion saves nothing and no kernel of torch's is slower, torch runs all calls, and else those of few elements
(:func:`small_calls`).  Images of such sizes are convolved by torch's library in either case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from torchmux import torch_internals as internals
from torchmux.registry.contract import SmallCalls

_NODES = 8
"""Captured calls of the largest graph that is looked at."""

_BEGIN, _GRADIENT, _VIEW, _FORWARD, _BACKWARD = 16.0, 3.2, 1.0, 4.1, 2.1
"""What torch takes for a graph, for each input with a gradient, and for each operator."""

_COMPILED, _COMPILED_GRADIENT = 32.0, 6.0
"""What compiled code takes for a graph, and for each input with a gradient."""

_TRAFFIC = 0.1
_SMALL, _ROW = 1024, 64
"""So many elements are read at once in any layout, and so many in a row of a larger tensor."""

_VIEWS = frozenset(
    ("t", "view", "expand", "unsqueeze", "squeeze", "slice", "transpose", "permute", "select", "_unsafe_view",
     "diagonal")
)  # fmt: skip
_NOTHING = frozenset(("detach", "alias", "ones_like", "prim::device"))
_FIXED: Mapping[str, float] = MappingProxyType(
    {
        "gelu": 15.0, "gelu_backward": 15.0,  # oneDNN looks a kernel up
        "binary_cross_entropy": 5.0, "constant_pad_nd": 5.0, "repeat": 6.0, "roll": 2.0, "select_backward": 5.0,
        "slice_backward": 5.0, "soft_margin_loss": 12.0, "soft_margin_loss_backward": 8.0,
        "huber_loss": 5.0, "logsumexp": 7.0, "mse_loss": 5.0, "smooth_l1_loss": 5.0,
    }
)  # fmt: skip
"""What operators take beyond that, since they consist of others."""

_SLOWER: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        # pointwise
        "abs": (0, 0), "add": (0.06, 0.16), "addcmul": (0, 0.12), "atan2": (0, 0), "clamp": (0, 0.12),
        "clamp_min": (0, 0.15), "cos": (0, 0.28), "div": (0, 0.06), "elu": (0, 0), "eq": (0.81, 0.99),
        "erf": (0.14, 0.06), "exp": (0, 0.13), "expm1": (0.91, 1.0), "ge": (0.67, 0.89), "gelu": (0, 0),
        "glu": (0.1, 2.6), "hardsigmoid": (0, 0.11), "hardswish": (0, 0), "hardtanh": (0, 0.12), "le": (0.67, 0.89),
        "leaky_relu": (0, 0.14), "lerp": (0.06, 0.17), "log": (0, 0.21), "log1p": (0.4, 0.45),
        "log_sigmoid_forward": (0.77, 0.65), "logical_and": (0, 0), "masked_fill": (1.5, 1.5), "maximum": (0, 0.15),
        "minimum": (0, 0.13), "mish": (2.89, 2.81), "mul": (0, 0.1), "neg": (0, 0), "pow": (0.05, 0.1),
        "reciprocal": (0, 0), "relu": (0, 0.17), "rsqrt": (0, 0), "rsub": (0, 0.16), "sgn": (0, 0.15),
        "sigmoid": (0.15, 0.14), "silu": (0.14, 0.16), "sin": (0, 0.29), "softplus": (0.93, 0.79), "sqrt": (0, 0),
        "sub": (0, 0.15), "tanh": (0, 1.34), "where": (3.84, 3.74), "xlogy": (3.42, 5.82),
        # pointwise, all that torch takes, where ours was not measured
        "_prelu_kernel": (0.12, 0.33), "_to_copy": (0.3, 0.3), "acos": (0.62, 1.7), "addcdiv": (0.25, 0.42),
        "asin": (0.5, 1.5), "asinh": (29, 25), "atan": (0.44, 2.1), "atanh": (2.2, 1.8), "ceil": (0.13, 0.32),
        "cosh": (2, 2.3), "digamma": (14.4, 15.2), "erfc": (0.91, 4.9), "erfinv": (1.1, 54), "floor": (0.14, 0.33),
        "gt": (1.3, 1.3), "hardshrink": (0.11, 0.3), "hypot": (1.4, 1.7), "lift_fresh": (0, 0), "logaddexp": (2, 2.2),
        "logical_not": (0.42, 1.1), "logit": (0.52, 1.3), "lt": (0.8, 1.3), "ne": (1.1, 1.3), "round": (0.14, 0.28),
        "sign": (0.12, 0.35), "sinh": (2.2, 2.4), "softshrink": (0.27, 0.61), "tan": (0.74, 3.5),
        # their gradients
        "_prelu_kernel_backward": (1.2, 1.3), "fill": (0, 0), "hardshrink_backward": (0.16, 0.35),
        "log_sigmoid_backward": (0.28, 0.43), "logit_backward": (1.3, 1.3), "softshrink_backward": (0.15, 0.36),
        "elu_backward": (0.5, 0.5), "gelu_backward": (0.42, 0.13), "hardsigmoid_backward": (0.06, 0.16),
        "hardswish_backward": (0, 0.04), "hardtanh_backward": (0, 0.19), "leaky_relu_backward": (0, 0.16),
        "glu_backward": (0.15, 2.7), "mish_backward": (3.19, 3.28), "sigmoid_backward": (0, 0),
        "silu_backward": (0.14, 0.13), "softplus_backward": (0.36, 0.3), "tanh_backward": (0, 0),
        "threshold_backward": (0, 0.22),
        # rows
        "_log_softmax": (0, 0), "_log_softmax_backward_data": (0.1, 0.28), "_softmax": (0.25, 0.59),
        "_softmax_backward_data": (0.05, 0.13), "amax": (0, 0.64),
        "amin": (0.14, 0.87), "cumprod": (1.1, 1.7), "norm": (0.26, 0.2), "std": (9.6, 9.7), "cumsum": (0.1, 0.74),
        "linalg_vector_norm": (0.09, 0.05), "logsumexp": (0, 1.04), "max": (0.73, 0.68), "mean": (0.4, 0.4),
        "native_group_norm": (0, 0.3), "native_group_norm_backward": (0, 0.3), "native_layer_norm": (0, 0.45),
        "native_layer_norm_backward": (0, 0.45), "sum": (0.04, 0.08), "var": (8.43, 8.51),
        # losses
        "binary_cross_entropy": (20.5, 31.7), "binary_cross_entropy_backward": (1.4, 4.5),
        "huber_loss_backward": (0.41, 2.1), "soft_margin_loss": (1.4, 2.3), "soft_margin_loss_backward": (1.6, 2.6),
        "binary_cross_entropy_with_logits": (1.13, 1.71), "huber_loss": (0.08, 0.87), "mse_loss": (0.1, 0.33),
        "mse_loss_backward": (0.1, 0.76), "nll_loss_backward": (0.05, 0.1), "nll_loss_forward": (0.05, 0.05),
        "smooth_l1_loss": (0.25, 0.4), "smooth_l1_loss_backward": (0.3, 0.4),
        # what moves, with the layout changed at worst
        "constant_pad_nd": (0.4, 0.2), "index_select": (0.15, 0.1), "repeat": (0.23, 0.11), "roll": (0.12, 0.06),
        "select_backward": (0.1, 0.05), "slice_backward": (0.22, 0.12), "cat": (0.05, 0.07),
        "clone": (0.64, 0.4), "embedding": (0, 0.14), "embedding_dense_backward": (0.84, 0.99),
        "arange": (0.3, 0.3), "flip": (0.05, 0.65), "full": (0.05, 0.05), "linspace": (0.1, 0.1),
        "gather": (0.58, 0.21), "index": (0.72, 0.48), "index_put": (0.6, 0.6),
        "new_zeros": (0.1, 0.1), "scalar_tensor": (0, 0), "scatter": (0, 0), "scatter_add": (0.1, 0.1), "stack": (0, 0),
        "empty": (0, 0), "empty_like": (0, 0), "ones": (0.1, 0.1), "zeros": (0.1, 0.1), "zeros_like": (0.1, 0.1),
        # products, by the same library
        "addmm": (0, 0), "bmm": (0, 0), "mm": (0, 0),
        # what both call torch's kernels for
        "_linalg_check_errors": (0, 0), "_linalg_det": (0, 0), "_linalg_eigh": (0, 0), "_linalg_slogdet": (0, 0),
        "_linalg_solve_ex": (0, 0), "_linalg_svd": (0, 0), "linalg_cholesky_ex": (0, 0), "linalg_inv_ex": (0, 0),
        "linalg_lu_solve": (0, 0), "linalg_solve_triangular": (0, 0), "diag_embed": (0.3, 0.3), "tril": (0.3, 0.3),
        "triu": (0.3, 0.3),
        "cummax": (0, 0), "cummin": (0, 0), "kthvalue": (0, 0), "median": (0, 0), "sort": (0, 0), "topk": (0, 0),
        "convolution": (0.05, math.inf), "convolution_backward": (0.05, math.inf),
    }
)  # fmt: skip

_ROWS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "_log_softmax": (0, 20), "_log_softmax_backward_data": (0, 9), "_softmax": (0, 22),
        "_softmax_backward_data": (0, 8), "amax": (4, 0), "amin": (4, 0), "glu": (12, 0), "glu_backward": (13, 0),
        "linalg_vector_norm": (8, 0), "logsumexp": (25, 0), "max": (14, 0), "mean": (6, 0),
        "native_group_norm": (20, 0), "native_group_norm_backward": (20, 0), "native_layer_norm": (50, 0),
        "native_layer_norm_backward": (20, 0), "norm": (8, 0), "std": (170, 0), "sum": (7, 0),
        "var": (170, 0),
    }
)  # fmt: skip
"""How much longer torch's kernel takes for each row of adjacent elements that fills no vector, and for each element of
it: ours takes a vector of rows at once."""
_VECTOR = 16

_CALLED = 5.0
"""What compiled code takes for a call of torch's operator in Python, beyond what torch takes for it."""

_ORDERING = frozenset(("cummax", "cummin", "kthvalue", "median", "sort", "topk"))
_CALL_VARIES = 0.05
"""By how many nanoseconds an element one call of a library seems slower than the other, from whatever surrounds it."""
_LIBRARY = _ORDERING | {name for name in _SLOWER if "linalg" in name or name.startswith("convolution")}
"""What compiled code calls in this way."""

_PRODUCTS = frozenset(("addmm", "bmm", "mm"))
_HALVES = frozenset((torch.bfloat16, torch.float16))
"""Of which compiled code leaves products to torch, too."""

_FEW, _OTHERS = 64, 2
"""Calls of fewer elements are not worth a question in each call; and by how much other tensors may be larger than the
largest input, so that its elements tell about theirs."""

_COLUMN = {torch.float32: 0, torch.float64: 0, torch.bfloat16: 1, torch.float16: 1}


def why_torch(gm: GraphModule) -> str | None:
    """Why torch had better run a captured graph whose gradients are recorded; None if it is to be compiled."""
    found = _estimate_of(gm)
    if found is None or found.grows or not found.fixed + found.work < found.compiled:
        return None
    return (
        f"torch runs and records so small a graph sooner: about {found.fixed + found.work:.1f} µs, with its backward "
        f"pass, where compiled code would take {found.compiled:.1f} (without gradients, or with "
        "config.leave_small_graphs = False, it is compiled)"
    )


def small_calls(gm: GraphModule) -> SmallCalls | None:
    """The calls of a graph of any size that torch had better run; None if there are none, or it runs all.

    What takes time with each element is taken to do so in proportion to the elements of the largest input.
    """
    found = _estimate_of(gm)
    if found is None or not found.grows or not 0 < found.work < math.inf or found.largest > _OTHERS * found.elements:
        return None
    below = int(found.elements * (found.compiled - found.fixed) / found.work)
    if below < _FEW:
        return None
    reason = (
        f"torch runs and records calls sooner in which input {found.position} has less than {below:,} elements, with "
        "their backward pass (without gradients, or with config.leave_small_graphs = False, all are compiled)"
    )
    return SmallCalls(found.position, below, reason)


@dataclass(frozen=True)
class _Estimate:
    """Microseconds of a graph, forward and backward: what torch takes for each call and for the sizes at hand, and what
    compiled code takes for each call.

    ``grows``: the sizes may be any, and torch's kernels take longer the larger they are.  ``elements`` are those of the
    largest input, at ``position``, and ``largest`` those of the largest tensor at all.
    """

    fixed: float
    work: float
    compiled: float
    grows: bool
    position: int
    elements: int
    largest: int


def _estimate_of(gm: GraphModule) -> _Estimate | None:
    """None if the graph is too large, or has what was not measured."""
    calls = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    if not 0 < len(calls) <= _NODES or any(n.op == "call_module" for n in calls):
        return None
    try:
        with internals.new_fake_mode(), torch.enable_grad(), torch.random.fork_rng([]):
            inputs = _inputs(gm)
            return None if inputs is None else _estimated(gm, *inputs)
    except Exception:  # it has what fake tensors, or autograd, cannot do, and who compiles it says so
        return None


def _estimated(gm: GraphModule, inputs: Sequence[Any], unknown: bool) -> _Estimate | None:
    in_library = _have_images_of_any_size(gm)
    passes = _Listed(in_library=in_library), _Listed(in_library=in_library, writes=True)
    with passes[0]:  # ``forward``, as a call of the module prints what raises, such as a write to one of these leaves
        results = [r for r in gm.forward(*inputs) if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    if not results or not leaves:
        return None
    gradients = [torch.ones_like(r) for r in results]
    with passes[1]:
        torch.autograd.grad(results, leaves, gradients, allow_unused=True)
    fixed, work, grows = _BEGIN + _GRADIENT * len(leaves), 0.0, False
    for listed, each in zip(passes, (_FORWARD, _BACKWARD), strict=True):
        spent = listed.microseconds(each)
        if spent is None:
            return None
        fixed += spent[0]
        work += spent[1]
        grows |= unknown and spent[2]
    ran = [(name, dtype) for listed in passes for name, dtype, *_ in listed.ran]
    called = sum(
        name in _LIBRARY or any(name in each.called for each in passes) or (name in _PRODUCTS and dtype in _HALVES)
        for name, dtype in ran
    )
    compiled = _COMPILED + _COMPILED_GRADIENT * len(leaves) + _CALLED * called
    counts = {at: v.numel() for at, v in enumerate(inputs) if isinstance(v, torch.Tensor)}
    position = max(counts, key=counts.__getitem__)
    largest = max((elements for listed in passes for _, _, elements, _ in listed.ran), default=0)
    return _Estimate(fixed, work, compiled, grows, position, counts[position], largest)


class _Listed(internals.TorchDispatchMode):
    """Lists the operators that torch runs in its context, and the elements of the largest tensor of each."""

    def __init__(self, *, in_library: bool = False, writes: bool = False) -> None:
        """``in_library``: no convolution is ours; ``writes``: what is written to is nobody else's, as in the formulas
        of gradients."""
        super().__init__()
        self._in_library, self._writes = in_library, writes
        self.ran: list[tuple[str, torch.dtype | None, int, float]] = []
        self.called: set[str] = set()
        self.is_known = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [v for v in tree_leaves((args, kwargs, result)) if isinstance(v, torch.Tensor)]
        name = func._schema.name.removeprefix("aten::")
        if func._schema.is_mutable:
            self.is_known &= self._writes
            name = name.removesuffix("_")
        floats = [t.dtype for t in tensors if t.dtype.is_floating_point]
        largest = max(tensors, key=torch.Tensor.numel, default=None)
        if name.startswith("convolution"):
            self.is_known &= self._in_library or not _is_ours(func, args, kwargs)
        if largest is not None and name not in _NOTHING:
            self.is_known &= all(t.device.type == "cpu" for t in tensors) and all(d in _COLUMN for d in floats)
            by_rows = _by_rows(name, func, args, kwargs) if name in _ROWS else 0.0
            if name not in _SLOWER and _is_called(func):
                self.called.add(name)
            self.ran.append((name, floats[0] if floats else torch.float32, largest.numel(), by_rows))
        return result

    def microseconds(self, each: float) -> tuple[float, float, bool] | None:
        """What these take beyond what compiled code would: in each call, for their elements, and whether the latter is
        more the larger these are."""
        if not self.is_known:
            return None
        fixed, work, traffic, grows = 0.0, 0.0, 0.0, False
        is_cubic = any("linalg" in name for name, *_ in self.ran)  # the rest then counts for nothing in large sizes
        for name, dtype, elements, by_rows in self.ran:
            if name in _VIEWS:
                fixed += _VIEW
                continue
            if name not in _SLOWER and name not in self.called:
                return None
            fixed += each + _FIXED.get(name, 0.0)
            is_called = name in _LIBRARY or name in self.called
            slower = 0.0 if name in self.called else _SLOWER[name][_COLUMN[dtype]]
            saved = 0.0 if is_called or name in _PRODUCTS else traffic
            grows |= slower > (_CALL_VARIES if is_called else 0) or saved > 0 or name in _ROWS
            work += 1e-3 * (elements * (slower + saved) + by_rows)
            traffic = _TRAFFIC
        return fixed, work, grows and not is_cubic


def _is_called(op: Any) -> bool:
    """Whether compiled code calls torch's kernel of ``op``: nothing lowers it, and nothing takes it apart."""
    from ..common.pipeline.decompose import corrections
    from .generate import decompositions
    from .lowering import calls

    apart = decompositions().keys() | corrections().keys()
    return calls.is_callable(op) and not calls.stays_whole(op) and op not in apart


def _by_rows(name: str, op: Any, args: Any, kwargs: Any) -> float:
    """Nanoseconds that torch's kernel takes for the rows of its operand, beside those for its elements."""
    given = _given(op, args, kwargs)
    sizes = args[0].shape
    if "group" in given:  # of channels, each normalized as a row of any length
        return float(given["N"] * given["group"] * _ROWS[name][0])
    if "normalized_shape" in given:
        dims = set(range(len(sizes) - len(given["normalized_shape"]), len(sizes)))
    else:
        dim = given.get("dim")
        if dim is None or dim == [] or not len(sizes):
            return 0.0
        dims = {d % len(sizes) for d in (dim if isinstance(dim, (list, tuple)) else (dim,))}
    extent = 1
    for d in reversed(range(len(sizes))):
        if d not in dims:
            break
        extent *= sizes[d]
    longest = _VECTOR if "normalized_shape" in given else _VECTOR - 1
    if len(sizes) - 1 not in dims or not 0 < extent <= longest:
        return 0.0
    each_row, each_element = _ROWS[name]
    return float(args[0].numel() // extent * (each_row + each_element * extent))


def _given(op: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    names = (argument.name for argument in internals.operator_schema(op).arguments)
    return {**dict(zip(names, args, strict=False)), **(kwargs or {})}


_BY_PIXELS = frozenset(
    (
        "conv2d",
        "conv_transpose2d",
        "convolution",
        "relu",
        "relu_",
        "sigmoid",
        "tanh",
        "silu",
        "hardswish",
        "leaky_relu",
        "relu6",
        "add",
    )
)
"""What takes as long for images in channels last as for others: most of these walk memory as it lies."""


def _is_by_pixels(gm: GraphModule) -> bool:
    calls = (n for n in gm.graph.nodes if n.op not in ("placeholder", "output", "get_attr"))
    names = {n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "") for n in calls}
    return names <= _BY_PIXELS


_MULTIPLIES = frozenset(("matmul", "mm", "linear", "addmm"))


def _is_multiplied(node: Node, strides: Sequence[int]) -> bool:
    """Whether a tensor is a transposed matrix, which libraries read as soon as others, and only products read it."""
    names = {n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "") for n in node.users}
    return len(strides) == 2 and strides[0] == 1 and names <= _MULTIPLIES


def _is_in_channels_last(value: torch.Tensor) -> bool:
    return value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)


def _is_ours(op: Any, args: Any, kwargs: Any) -> bool:
    """Whether our code computes a convolution otherwise than torch's library: its windows have several elements and
    share none, or each channel has its own."""
    given = _given(op, args, kwargs)
    _, depth, *window = given["weight"].shape
    steps = given["stride"] if len(given["stride"]) == len(window) else [*given["stride"]] * len(window)
    is_one = all(k == 1 for k in window)
    apart = not any(given["padding"]) and all(k <= s for k, s in zip(window, steps, strict=True))
    each = given["groups"] != 1 and depth == 1
    return bool(each or given["transposed"] or (given["groups"] == 1 and apart and not is_one))


def _have_images_of_any_size(gm: GraphModule) -> bool:
    """Whether the pixels of a batch of images, or the steps of a sequence, may be of any number."""
    values = (node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder"))
    return any(type(n) is not int for v in values if isinstance(v, torch.Tensor) for n in v.shape[2:])


def _inputs(gm: GraphModule) -> tuple[list[Any], bool] | None:
    """Fake inputs in the sizes of the first call, and whether other calls may have others; None: compile it."""
    made: list[Any] = []
    symbolic = False
    by_pixels = _is_by_pixels(gm)
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        if not isinstance(value, torch.Tensor):
            if isinstance(value, torch.SymInt):
                symbolic, value = True, internals.possible_value(value)
            if type(value) not in (int, float, bool):
                return None
            made.append(value)
            continue
        if not internals.is_fake(value) or value.device.type != "cpu" or value.layout is not torch.strided:
            return None
        sizes = [_first(n) for n in value.shape]
        symbolic = symbolic or any(type(n) is not int for n in value.shape)
        strides = [_first(n) for n in value.stride()]
        in_rows = value.is_contiguous() or (strides[-1] == 1 and sizes[-1] >= _ROW and sorted(strides)[::-1] == strides)
        in_order = in_rows or (by_pixels and _is_in_channels_last(value)) or _is_multiplied(node, strides)
        if math.prod(sizes) > _SMALL and not in_order:
            return None
        fresh = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
        made.append(fresh.requires_grad_(value.requires_grad))
    return made, symbolic


def _first(size: Any) -> int:
    return size if type(size) is int else int(internals.possible_value(size))
