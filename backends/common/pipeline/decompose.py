"""Which ATen operators a backend receives: decomposition tables and operators that stay whole.

A table maps an ``OpOverload`` to the function that expresses it by smaller operators.  No table has random operators:
decomposed, they would draw different numbers than eager for the same seed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.node import has_side_effect

from torchmux import torch_internals as internals

from .. import draws, losses

Table = dict[Any, Callable[..., Any]]


@functools.cache
def core_aten() -> Mapping[Any, Callable[..., Any]]:
    """torch's table down to the core ATen operators, without random ones and those whose formula is not the kernel's.

    Shared: copy before changing it.
    """
    table = torch.export.default_decompositions()
    kept = {op: f for op, f in table.items() if not is_random(op) and op.overloadpacket not in _NOT_THE_KERNELS}
    own = {**_BY_INDEX, torch.ops.aten.softshrink.default: _softshrink, **draws.UNLESS_TRAINED, **losses.formulas(kept)}
    found = {**kept, **_slopes(kept), **of_each(), **own, **_contiguous(kept), **_dropped(kept),
             **_from_ends(kept)}  # fmt: skip
    return {**found, **_ordered(found)}


def _contiguous(table: Table) -> Table:
    """These kernels have contiguous results, whatever the layout of their argument, but for images on a CPU: those
    that are shuffled or padded, and gradients of padded ones, are laid out as the image."""
    sigmoid, shuffle = torch.ops.aten.log_sigmoid_forward.default, torch.ops.aten.channel_shuffle.default

    def log_sigmoid(x: Tensor) -> Any:
        return tuple(result.contiguous() for result in table[sigmoid](x))

    def as_image(made: Tensor, x: Tensor) -> Tensor:
        layout = internals.suggested_layout(x) if x.device.type == "cpu" else torch.contiguous_format
        return made.contiguous(memory_format=layout)

    def channel_shuffle(x: Tensor, groups: int) -> Any:
        return as_image(table[shuffle](x, groups), x)

    def at(position: int, formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def padding(*args: Any) -> Tensor:
            made, x = formula(*args), args[position]
            return as_image(made, x) if x.device.type == "cpu" else made

        return padding

    def resized(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args: formula(*args).contiguous()

    rows = {op: resized(table[op]) for op in internals.ROWS_RESIZED if op in table}
    aten, kinds = torch.ops.aten, [f"{how}_pad{n}d" for how in ("reflection", "replication") for n in (2, 3)]
    forward, backward = ([getattr(aten, kind + end).default for kind in kinds] for end in ("", "_backward"))
    places = {**dict.fromkeys(forward, 0), **dict.fromkeys(backward, 1)}
    padded = {op: at(position, table[op]) for op, position in places.items() if op in table}
    return {sigmoid: log_sigmoid, shuffle: channel_shuffle, **rows, **padded}


def _from_ends(table: Table) -> Table:
    """The kernels read their ends, which may be tensors of another device than the result's; formulas compute with
    them on that device."""
    spaces = torch.ops.aten.linspace, torch.ops.aten.logspace
    overloads = [
        getattr(space, name) for space in spaces for name in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    ]

    def on_one_device(formula: Callable[..., Tensor]) -> Callable[..., Any]:
        def from_ends(*args: Any, device: Any = None, **kwargs: Any) -> Any:
            place = torch.device(device or "cpu")
            ends = {end.device for end in args[:2] if isinstance(end, Tensor)}
            if any(end.type != place.type or place.index not in (None, end.index) for end in ends):
                return NotImplemented
            return formula(*args, device=device, **kwargs)

        return from_ends

    return {op: on_one_device(table[op]) for op in overloads if op in table}


def _ordered(table: Table) -> Table:
    """Formulas of several steps order the dimensions of their results otherwise than the one kernel does, whose order
    is that of a sum of the operands."""
    aten = torch.ops.aten
    steps = (
        aten.heaviside.default, aten.logaddexp.default, aten.logaddexp2.default, aten.special_xlog1py.default,
        aten.xlogy.Tensor, aten.floor_divide.default, aten.native_dropout_backward.default,
    )  # fmt: skip

    def as_kernel(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(formula)
        def ordered(x: Tensor, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            made = formula(x, y, *args, **kwargs)
            if made is NotImplemented or not isinstance(y, Tensor) or (x.is_contiguous() and y.is_contiguous()):
                return made
            with internals.without_tracing():
                strides = internals.strides_of_sum(x, y)
            if strides == made.stride():
                return made
            order = sorted(range(made.dim()), key=lambda d: strides[d], reverse=True)
            return made.permute(order).contiguous().permute([order.index(d) for d in range(made.dim())])

        return ordered

    return {op: as_kernel(table[op]) for op in steps if op in table}


def _dropped(table: Table) -> Table:
    """The kernel for a CPU multiplies by a number of the type of the gradient."""
    backward = torch.ops.aten.native_dropout_backward.default

    def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
        if grad.device.type != "cpu" or not grad.is_floating_point() or scale == 0:
            return table[backward](grad, mask, scale)
        return torch.where(mask, grad * dropout_factor(grad.dtype, 1 / scale), grad * 0.0)

    return {backward: native_dropout_backward}


def dropout_factor(dtype: torch.dtype, kept: float) -> float:
    """What eager's dropout on a CPU multiplies by, where it keeps this share of the elements."""
    with internals.without_modes():
        return torch.ones((), dtype=dtype).div_(kept).item()


_NOT_THE_KERNELS = frozenset(
    (
        torch.ops.aten.soft_margin_loss,  # the kernel overflows where the formula does not
        torch.ops.aten.soft_margin_loss_backward,
        torch.ops.aten.logcumsumexp,  # the formula subtracts the maximum of all, beside which small numbers vanish
        torch.ops.aten.max_unpool2d,  # the kernel's result has the layout of its input
        torch.ops.aten.index_copy,  # the kernel refuses indices from the end, which the formula takes
        torch.ops.aten.index_copy_,
        torch.ops.aten.index_fill_,  # see _BY_INDEX
        torch.ops.aten.index_add_,
    )
)


# --- writes by index --------------------------------------------------------------------------------------------------

# torch's own formulas for these take indices from the end where the kernels refuse them, or the reverse.


def _index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Indices count from the end too."""
    if not x.dim() or index.dim() > 1 or index.dtype is not torch.int64:
        return NotImplemented
    number = value.to(x.dtype) if isinstance(value, Tensor) else x.new_full((), value)
    return torch.ops.aten.index_put(x, [None] * (dim % x.dim()) + [index.reshape(-1)], number)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """Indices do not count from the end; like the kernel, for matrices only: others raise another exception."""
    plain = alpha == 1 and index.dtype is torch.int64 and source.dtype is x.dtype
    if not plain or x.dim() != 2 or source.dim() != 2 or index.dim() > 1:
        return NotImplemented
    rows = index.reshape([-1, 1] if dim % 2 == 0 else [1, -1]).expand(source.shape)
    return torch.ops.aten.scatter_add(x, dim, rows, source)


_BY_INDEX: Mapping[Any, Callable[..., Tensor]] = {
    torch.ops.aten.index_fill.int_Scalar: _index_fill,
    torch.ops.aten.index_fill.int_Tensor: _index_fill,
    torch.ops.aten.index_add.default: _index_add,
}


# --- derivatives of activations ---------------------------------------------------------------------------------------

# Where the argument of an activation is not a number, the kernels for GPUs and torch's decompositions return the slope
# of one of its pieces.  The vectorized kernels for the CPU return zero or nan.


def _hardtanh_backward(grad: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    return torch.where((x > low) & (x < high), grad, 0.0)


def _elu_backward(grad: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor) -> Tensor:
    low = grad * input_scale * (x + alpha * scale if is_result else (x * input_scale).exp() * (alpha * scale))
    return torch.where(x > 0, grad * scale, low)


def _hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    sixth = 0.16666667163372040  # a number of float32, in float64 as well
    return torch.where((x > -3) & (x < 3), grad * sixth, 0.0)


def _hardswish_backward(grad: Tensor, x: Tensor) -> Tensor:
    return torch.where(x <= -3, 0.0, torch.where(x >= 3, grad, grad * (x / 3 + 0.5)))


_ON_A_CPU: Mapping[Any, Callable[..., Tensor]] = {
    torch.ops.aten.hardtanh_backward.default: _hardtanh_backward,
    torch.ops.aten.elu_backward.default: _elu_backward,
    torch.ops.aten.hardsigmoid_backward.default: _hardsigmoid_backward,
    torch.ops.aten.hardswish_backward.default: _hardswish_backward,
}


def _slopes(table: Table) -> Table:
    """``_ON_A_CPU``, with torch's own, from ``table``, for GPUs and for floats that need a wider type."""
    return {op: _on_a_cpu(formula, table[op]) for op, formula in _ON_A_CPU.items()}


def _on_a_cpu(formula: Callable[..., Tensor], usual: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(formula)
    def decompose(grad: Tensor, *args: Any, **kwargs: Any) -> Any:
        chosen = formula if grad.device.type == "cpu" and grad.dtype in (torch.float32, torch.float64) else usual
        return chosen(grad, *args, **kwargs)

    return decompose


# --- lists of tensors -------------------------------------------------------------------------------------------------

# Operators on lists, as optimizers use them, become operators on each tensor.  On a CPU torch's kernels do no more; for
# GPUs, where one kernel does a list, a compiler makes kernels of its own.  What is more than its elements' operator
# (norms, numbers that are read from tensors) stays as it is.

_OVERLOADS = {
    "Scalar List ScalarList": "add sub mul div lerp pow clamp_min clamp_max",
    "Scalar ScalarList": "addcmul addcdiv",
    "Tensor": "add mul div",
    "List": "maximum minimum",
    "default": "sqrt rsqrt reciprocal neg abs exp log sign erf tanh sigmoid floor ceil round trunc zero copy",
}
"""The operators whose ``_foreach_`` form does the same to each tensor of a list."""


def of_each() -> Mapping[Any, Callable[..., Any]]:
    """A function for each of the operators, and for its form that writes to the list."""
    found: dict[Any, Callable[..., Any]] = {}
    for overloads, names in _OVERLOADS.items():
        for overload, name, suffix in itertools.product(overloads.split(), names.split(), ("", "_")):
            lists = getattr(getattr(torch.ops.aten, f"_foreach_{name}{suffix}", None), overload, None)
            one = getattr(torch.ops.aten, f"{name}{suffix}", None)
            if lists is not None and one is not None:
                found[lists] = _each(lists, one)
    return found


def _each(lists: Any, one: Any) -> Callable[..., Any]:
    arguments = internals.operator_schema(lists).arguments
    is_list = [str(a.type).startswith("List[") for a in arguments]
    returns = bool(internals.operator_schema(lists).returns)
    valued = one in (
        torch.ops.aten.addcmul,
        torch.ops.aten.addcmul_,
        torch.ops.aten.addcdiv,
        torch.ops.aten.addcdiv_,
    )  # whose number is a keyword

    def decompose(*args: Any, **options: Any) -> Any:
        count = len(args[0])
        if not count or any(len(value) != count for value, many in zip(args, is_list, strict=False) if many):
            return NotImplemented  # which torch's operator refuses
        results = []
        for at in range(count):
            own = [value[at] if many else value for value, many in zip(args, is_list, strict=False)]
            named = {"value": own.pop()} if valued and len(own) == 4 else {}
            results.append(one(*own, **named, **options))
        return results if returns else None

    return decompose


# --- operators in one piece -------------------------------------------------------------------------------------------

RESAMPLING = frozenset(
    (torch.ops.aten.upsample_linear1d.vec, torch.ops.aten.upsample_bilinear2d.vec,
     torch.ops.aten.upsample_bicubic2d.vec, torch.ops.aten.upsample_trilinear3d.vec)
)  # fmt: skip
"""What reads between pixels.  torch's formula multiplies differences, which are nan between infinite pixels, and adds
up what the gradient scatters, for which there is a kernel."""

RESIZING = RESAMPLING | {
    getattr(torch.ops.aten, f"{kind}{rank}d").vec
    for kind in ("upsample_nearest", "_upsample_nearest_exact")
    for rank in (1, 2, 3)
}
"""All that gives images another size.  torch's formulas of the nearest neighbors know neither autocast on a GPU nor the
order of volumes there."""


# --- what else a backend receives -------------------------------------------------------------------------------------


def is_random(op: Any) -> bool:
    """Whether ``op`` draws from a random number generator."""
    return torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()) or op in internals.random_wrappers()


_DRAWS_UNLESS: Mapping[str, tuple[str, Any]] = {
    "aten::dropout": ("train", False),
    "aten::native_dropout": ("train", False),
    **{
        f"aten::{name}": ("dropout_p", 0.0)
        for name in (
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_fused_attention_overrideable",
        )
    },
}
"""The argument that decides whether a random operator draws numbers, and the value with which it draws none."""


def draws_nothing(node: Node) -> bool:
    """Whether ``node``, a call of a random operator, draws no numbers with its arguments."""
    rule = _DRAWS_UNLESS.get(node.target.name())
    if rule is None:
        return False
    name, value = rule
    for position, argument in enumerate(internals.operator_schema(node.target).arguments):
        if argument.name == name:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(name, argument.default_value)
            return bool(given == value)
    return False


CHECKS = (torch.ops.aten._assert_async.default, torch.ops.aten._linalg_check_errors.default)
for _check in CHECKS:  # torch knows that of others
    has_side_effect(_check)


def drop_dead_code(graph: torch.fx.Graph) -> None:
    """Remove unused nodes, except those with an effect; a random draw has one, because it advances the generator."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.is_impure() or is_random(node.target))


def corrections() -> Table:
    """Operators that do not do what torch's tracer makes of them.

    ``native_batch_norm`` updates its running statistics, which its schema does not say; its successors' do.
    ``one_hot`` writes to new memory in the usual order; torch's formula compares, in the order of the classes.
    On GPUs, a resized image in channels last is one as well; torch's formulas make none of one with few channels.
    On CPUs, factors count as :func:`resized_as_in_eager` says.
    ``multilabel_margin_loss`` ignores what comes after the last label; torch's formula counts it as the first class.
    An overload of ``random`` has a name that generated code cannot have; ``bernoulli_`` draws in the order of memory.
    """
    aten = torch.ops.aten
    resizing = (*_ignoring(), aten._upsample_nearest_exact2d.vec)
    return {
        aten.native_batch_norm.default: _native_batch_norm,
        aten.one_hot.default: _one_hot,
        aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
        **{op: functools.partial(_resized, op) for op in resizing},
        **draws.AS_KERNELS,
    }


def checks() -> Table:
    """Operators whose trace has none of their checks: of a position that depends on data."""
    return {torch.ops.aten.select.int: _select, torch.ops.aten.select_scatter.default: _select_scatter}


def _select_scatter(x: Tensor, source: Tensor, dim: int, index: Any) -> Any:
    return _select(x, dim, index)


def _select(x: Tensor, dim: int, index: Any) -> Any:
    """The operator itself, after a check of a position that only the data tells."""
    if isinstance(index, torch.SymInt) and internals.depends_on_data(index):
        words = f"select(): index out of range for tensor of size [{', '.join(map(str, x.shape))}] at dimension {dim}"
        for holds in (index < x.shape[dim], index >= -x.shape[dim]):
            torch.ops.aten._assert_scalar.default(holds, words)
    return NotImplemented


@functools.cache
def _ignoring() -> dict[Any, tuple[int, ...]]:
    """The operators whose kernels for CPUs ignore a factor where a size stays, or becomes so many times what it was."""
    aten = torch.ops.aten
    linear = aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec
    return {aten.upsample_nearest2d.vec: (1, 2), **dict.fromkeys(linear, (1,))}


@contextlib.contextmanager
def changed_kernels(operators: Iterable[Any], change: Callable[[Any, dict[Any, Any]], None]) -> Iterator[None]:
    """While this lasts, operators have the Python kernels that ``change`` makes of theirs, in the whole process."""
    saved = []
    for op in operators:
        kernels = internals.python_kernels(op)
        saved.append((op, dict(kernels)))
        change(op, kernels)
        internals.forget_dispatch(op)
    try:
        yield
    finally:
        for op, kernels in saved:
            internals.python_kernels(op).clear()
            internals.python_kernels(op).update(kernels)
            internals.forget_dispatch(op)


def resized_as_in_eager() -> contextlib.AbstractContextManager[None]:
    """While this lasts, images are resized as eager's kernels for CPUs do it, also for autograd.

    For instance, 2.18 of 5 pixels are 10, and each is repeated.  torch's formulas always multiply by the factor.
    """

    def change(op: Any, kernels: dict[Any, Any]) -> None:
        for key in kernels.keys() & {internals.DispatchKey.CompositeImplicitAutograd, internals.DispatchKey.Autograd}:
            kernels[key] = functools.partial(_by_size_or, kernels[key], op)

    return changed_kernels(_ignoring(), change)


def _by_size_or(formula: Callable[..., Any], op: Any, *args: Any) -> Any:
    made = _by_size(op, *args)
    return formula(*args) if made is NotImplemented else made


def _by_size(op: Any, image: Tensor, size: Any, *how: Any) -> Any:
    """The resized image, without the factors that eager ignores; ``NotImplemented`` if it ignores none."""
    *align, factors = how
    if size is not None or factors is None or image.device.type != "cpu":
        return NotImplemented
    extents = image.shape[-len(factors) :]
    counts = [torch.sym_int(n * f) for n, f in zip(extents, factors, strict=True)]
    # A whole factor is what the sizes say, and others lead there from the next smaller one alone: sizes that are
    # symbolic are asked about nothing else.
    times = [math.floor(f) if f != math.floor(f) and math.floor(f) in _ignoring()[op] else None for f in factors]
    ignored = [t is not None and bool(c == t * n) for n, c, t in zip(extents, counts, times, strict=True)]
    if not any(ignored):
        return NotImplemented
    kept = [None if is_ignored else f for f, is_ignored in zip(factors, ignored, strict=True)]
    return op.overloadpacket.default(image, counts, *align, *kept)


def _resized(op: Any, image: Tensor, *how: Any) -> Any:
    if op in _ignoring() and (made := _by_size(op, image, *how)) is not NotImplemented:
        return made
    formula = internals.python_kernels(op).get(internals.DispatchKey.CompositeImplicitAutograd)
    last = image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()
    if formula is None or image.device.type == "cpu" or not last:
        return NotImplemented
    made = formula(image, *how)
    return made if made is NotImplemented else made.clone(memory_format=torch.channels_last)


def _one_hot(x: Tensor, classes: int = -1) -> Tensor:
    op = torch.ops.aten.one_hot.default
    formula = internals.python_kernels(op).get(internals.DispatchKey.CompositeImplicitAutograd)
    if formula is None:  # before torch 2.13, C++ has it, without checks where it is traced
        if classes != -1:
            check = torch.ops.aten._assert_async.msg
            check((x >= 0).all(), "Class values must be non-negative.")
            check((x < classes).all(), "Class values must be smaller than num_classes.")
        made = op.decompose(x, classes)
    else:
        made = formula(x, classes)
    return made if made is NotImplemented else made.contiguous()  # it may be kept whole


def formulas_as_in_eager() -> contextlib.AbstractContextManager[None]:
    """While this lasts, autograd takes our formula of what torch's formula computes otherwise than its kernel."""

    formulas = {
        torch.ops.aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
        torch.ops.aten.softshrink.default: _softshrink,
    }
    drawing = draws.IN_ORDER

    def change(op: Any, kernels: dict[Any, Any]) -> None:
        if internals.DispatchKey.Autograd in kernels:
            kernels[internals.DispatchKey.Autograd] = formulas[op]
        elif op in drawing:
            kernels[internals.DispatchKey.Autograd] = functools.partial(_drawn_or, drawing[op], op)

    return changed_kernels([*formulas, *drawing], change)


def _drawn_or(draw: Callable[..., Any], op: Any, *args: Any, **kwargs: Any) -> Any:
    made = draw(*args, **kwargs)
    return internals.run_kernel(op, internals.DispatchKey.Autograd, *args, **kwargs) if made is NotImplemented else made


def _softshrink(x: Tensor, threshold: float = 0.5) -> Tensor:
    """What becomes zero has no sign; at nan the slope is zero, as in the whole vectors of the kernel."""
    inside = torch.where(x == x, torch.zeros_like(x), math.nan)
    low = torch.where(x < -threshold, x + threshold, inside)
    return torch.where(x > threshold, x - threshold, low)


def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    counts = (labels == -1).cumsum(-1) == 0
    labels = torch.where(counts, labels, 0)
    is_label = labels[..., None] == torch.arange(rows.shape[-1], device=x.device)
    is_target = (is_label & counts[..., None]).any(-2)
    margins = (1 - rows.gather(-1, labels)[..., None] + rows[:, None]).clamp_min(0)
    loss = torch.where(counts[..., None] & ~is_target[:, None], margins, 0).sum((-2, -1)) / rows.shape[-1]
    loss = (loss.reshape(x.shape[:-1]), loss.mean(), loss.sum())[reduction]
    return loss, is_target.to(x.dtype).reshape(target.shape)


def _native_batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    aten = torch.ops.aten
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps)
    if training:
        return aten._native_batch_norm_legit(input, weight, bias, mean, variance, training, momentum, eps)
    return aten._native_batch_norm_legit_no_training(input, weight, bias, mean, variance, momentum, eps)


def can_stay_whole(op: Any) -> bool:
    """Whether tracing could record the composite operator ``op`` itself.

    Only operators that neither write to nor return views of their arguments qualify: the rest of the pipeline reads
    aliasing from schemas, and a composite operator's schema may not show all of it.
    """
    if not isinstance(op, internals.OpOverload) or not internals.is_composite(op):
        return False
    schema = internals.operator_schema(op)
    return not schema.is_mutable and all(a.alias_info is None for a in (*schema.arguments, *schema.returns))


def kept_whole(operators: Iterable[Any]) -> contextlib.AbstractContextManager[None]:
    """While this lasts, tracing below autograd records these composite operators instead of what they consist of.

    The tracer asks an operator to decompose itself and records it when the answer is ``NotImplemented``; so a
    composite kernel is installed that gives the tracer this answer.  Fake tensors ask too, to learn what comes out;
    for them it does decompose.
    """
    key = internals.DispatchKey.CompositeImplicitAutograd

    def change(op: Any, kernels: dict[Any, Any]) -> None:
        kernels[key] = functools.partial(_decline_to_tracer, op, kernels.get(key))

    return changed_kernels(operators, change)


def differentiated_whole(operators: Iterable[Any]) -> contextlib.AbstractContextManager[None]:
    """While this lasts, autograd records what torch's C++ makes of these composite operators.

    Python kernels of torch would take them, and what they are made of, apart.
    """

    def change(op: Any, kernels: dict[Any, Any]) -> None:
        for key in (internals.DispatchKey.CompositeImplicitAutograd, internals.DispatchKey.Autograd):
            kernels.pop(key, None)

    packets = [each.overloadpacket for each in operators]
    return changed_kernels([getattr(packet, name) for packet in packets for name in packet.overloads()], change)


def _decline_to_tracer(op: Any, formula: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
    if get_proxy_mode() is not None:
        return NotImplemented
    if formula is not None:  # of Python: C++ may not know symbolic sizes
        return formula(*args, **kwargs)
    return internals.run_kernel(op, internals.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
