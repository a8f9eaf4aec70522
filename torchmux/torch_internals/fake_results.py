"""Operators whose real results have other dtypes or strides than torch's fake ones, or that refuse what fakes take, and
the fake mode that knows.

What is traced says of each tensor what it is, and generated code reads memory as that.  So an operator that is said to
make bfloat16, and makes float32, is read as something else by whoever believes it.

The real ``addmm`` raises where one matrix is in float32 and the other in float64, the real ``gelu`` where it gets
integers.  A fake tells of neither, and generated code would compute a result.  So what is seldom in a program is tried:
an operator whose tensors are not all of one floating-point dtype runs once on zeros.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import fake_answers
from .fake_layouts import ROWS_RESIZED, in_usual_layout, laid_out
from .modes import below_autograd
from .operators import forget_dispatch, python_kernels

_aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)

Dtypes = Mapping[int, torch.dtype]
"""The true dtypes of some results, by their positions."""


def correct(mode: Any) -> Any:
    """Make a FakeTensorMode, also one of torch's own, answer with the dtypes and strides of the real kernels.

    Its class stays what it is: torch looks up the rules of its higher-order operators by the class of the mode.
    """
    _correct_formulas()
    if "dispatch" not in vars(mode):
        mode.dispatch = functools.partial(_dispatch, weakref.ref(mode))
    return mode


@functools.cache
def _correct_formulas() -> None:
    """Have torch's Python formulas for some operators lay their results out as the kernels do, in this process.

    No mode sees the operator itself where symbolic sizes, or a trace, take such a formula.
    """
    import torch._decomp

    for op in ROWS_RESIZED:
        kernels = python_kernels(op)
        for key, formula in list(kernels.items()):
            if key in (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd):
                kernels[key] = _made_contiguous(formula)
        forget_dispatch(op)


def _made_contiguous(formula: Callable[..., Any]) -> Callable[..., Any]:
    def contiguous(*args: Any, **kwargs: Any) -> Any:
        made = formula(*args, **kwargs)
        return made if made is NotImplemented else made.contiguous()

    return contiguous


def _dispatch(reference: weakref.ref[Any], func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
    """The answer that was given before to the same question, or a new one."""
    mode: Any = reference()
    kwargs = kwargs or {}
    if func is _DEVICE:
        return type(mode).dispatch(mode, func, types, args, kwargs)
    if (view := fake_answers.made_view(mode, func, args, kwargs)) is not None:
        return view
    refuses = getattr(mode, "refuses_dtypes", False)
    key = fake_answers.key_of(mode, func, args, kwargs, refuses)
    if key is not None and (known := fake_answers.recalled(mode, key, args)) is not None:
        return known
    result = _answer(mode, func, types, args, kwargs, refuses)
    if key is not None:
        fake_answers.remember(mode, key, func, args, kwargs, result)
    return result


_DEVICE = torch.ops.prim.device.default  # kernels in C++ ask for it several times in each operator


def _answer(mode: Any, func: Any, types: Any, args: Sequence[Any], kwargs: Any, refuses: bool) -> Any:
    if func in _NEAREST and _has_no_images(args[0]):
        with mode:
            return args[0].new_empty((*args[0].shape[:2], *args[1]))
    mode.refuses_dtypes = False  # not within the operator
    try:
        # Called without the mode, operators of these make torch import all of its distributed tensors.
        inside = mode if func in _OUTSIDE else _AS_IT_IS
        is_random = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())  # higher-order operators have none
        with _nothing_drawn(args, kwargs) if is_random else _AS_IT_IS, inside:
            result = type(mode).dispatch(mode, func, types, args, kwargs)
    finally:
        mode.refuses_dtypes = refuses
    if refuses:
        _refuse(func, args, kwargs)
    rule = RULES.get(func)
    if rule is not None:
        result = _with_dtypes(mode, result, rule(args))
    if func in _DTYPES and result.dtype is not (dtype := _DTYPES[func](args)):
        with mode:
            return torch.empty_like(result, dtype=dtype)
    if func in BATCH_NORMS:
        result = in_usual_layout(mode, result)
    if _has_dimension_of_one(result):
        made = _with_real_strides(mode, func, args, kwargs, result)
        if made is not result:
            return made
    return laid_out(mode, func, args, result)


_AS_IT_IS = contextlib.nullcontext()

_NEAREST = frozenset(
    getattr(_aten, f"{name}{dims}d").default
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for dims in (1, 2, 3)
)
"""Operators whose fakes of no images fail in a check, and write that to standard errors."""


def _has_no_images(x: Any) -> bool:
    """Whether a batch has no images, whose sizes are known and not zero."""
    count, *sizes = x.shape
    return type(count) is int and count == 0 and all(type(size) is int and size > 0 for size in sizes)


@contextlib.contextmanager
def _nothing_drawn(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Leave all generators as they are: where an operator has no fake, as ``binomial``, torch runs it on zeros."""
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)]
    generators = [torch.default_generator, *given]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    before = [(each, each.get_state()) for each in generators]
    try:
        yield
    finally:
        for each, state in before:
            each.set_state(state)


def _with_dtypes(mode: Any, result: Any, dtypes: Dtypes) -> Any:
    wrong = [at for at, dtype in dtypes.items() if result[at] is not None and result[at].dtype is not dtype]
    if not wrong:
        return result
    with mode:
        made = {at: torch.empty_like(result[at], dtype=dtypes[at]) for at in wrong}
    return tuple(made.get(at, value) for at, value in enumerate(result))


def _mixed(args: Sequence[Any]) -> bool:
    """Whether the first argument is in half precision on the CPU and another tensor is in float32."""
    first, *others = (t for t in tree_leaves(args) if isinstance(t, torch.Tensor))
    if first.device.type != "cpu" or first.dtype not in _HALF:
        return False
    return any(t.dtype is torch.float32 for t in others)


def _statistics(first: int) -> Callable[[Sequence[Any]], Dtypes]:
    """Mean and inverse deviation, at ``first`` and after it, stay in float32 if a weight or a statistic is."""
    return lambda args: dict.fromkeys((first, first + 1), torch.float32) if _mixed(args) else {}


def _with_running(at: int) -> Callable[[Sequence[Any]], Dtypes]:
    """As :func:`_statistics`, with new running statistics at ``at``, which have the dtype of the old ones."""
    statistics = _statistics(1)

    def rule(args: Sequence[Any]) -> Dtypes:
        if args[0].device.type != "cpu":
            return {}
        return {**statistics(args), at: args[3].dtype, at + 1: args[4].dtype}

    return rule


BATCH_NORMS = frozenset(
    (
        _aten.native_batch_norm.default,
        _aten._native_batch_norm_legit.default,
        _aten._native_batch_norm_legit.no_stats,
        _aten._native_batch_norm_legit_no_training.default,
        _aten._native_batch_norm_legit_functional.default,
        _aten._batch_norm_with_update.default,
        _aten._batch_norm_with_update_functional.default,
        _aten._batch_norm_no_update.default,
        _aten.native_batch_norm_backward.default,
    )
)

_OUTSIDE = frozenset((_aten.native_layer_norm.default, _aten.native_group_norm.default))
"""Operators whose fakes call others, and do so outside of the mode."""


def _of_counts(args: Sequence[Any]) -> torch.dtype:
    """That of ``bincount``, whose fakes have that of the numbers before torch 2.13."""
    weights = args[1] if len(args) > 1 else None
    if weights is None:
        return torch.int64
    return torch.float32 if weights.dtype is torch.float32 else torch.float64


_DTYPES: dict[Any, Callable[[Sequence[Any]], torch.dtype]] = {
    _aten.huber_loss.default: lambda args: args[0].dtype,
    _aten.bincount.default: _of_counts,
    # Fakes of a bool to the power of a bool are of int64.
    _aten.pow.Tensor_Scalar: lambda args: torch.result_type(*args[:2]),
}
"""The true dtypes of operators with one result."""

RULES: dict[Any, Callable[[Sequence[Any]], Dtypes]] = {
    **dict.fromkeys(
        (
            _aten.native_batch_norm.default,
            _aten._native_batch_norm_legit.default,
            _aten._native_batch_norm_legit.no_stats,
            _aten._native_batch_norm_legit_no_training.default,
            _aten._batch_norm_with_update.default,
            _aten._batch_norm_no_update.default,
            _aten.native_batch_norm_backward.default,
            _aten.native_layer_norm.default,
            _aten.native_group_norm.default,
        ),
        _statistics(1),
    ),
    _aten._native_batch_norm_legit_functional.default: _with_running(3),
    _aten._batch_norm_with_update_functional.default: _with_running(4),
}

# --- strides of dimensions of one element ----------------------------------------------------------------------------

# No element depends on such a stride, so torch's formulas take any.  A program sees it in ``stride()``, and so do the
# operators that get the result.  The strides of a view are those that C++ finds without memory.  Those of operators on
# all elements and of images depend on their kernels, which therefore run once, on ones.

_VIEWS = frozenset((_aten.view.default, _aten._unsafe_view.default))
_TRIED = frozenset(getattr(getattr(_aten, name.partition(".")[0]), name.partition(".")[2] or "default") for name in (
    "flip", "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit_functional", "upsample_nearest2d", "upsample_nearest2d.vec",
    "_upsample_nearest_exact2d", "upsample_bilinear2d", "upsample_bilinear2d.vec", "empty_like", "zeros_like",
    "ones_like", "full_like", "sort", "sort.stable", "argsort", "argsort.stable", "triu", "tril", "diag_embed",
    "_log_softmax", "complex", "polar", "renorm", "_prelu_kernel", "binary_cross_entropy", "im2col",
    "linalg_vector_norm", "sum.dim_IntList", "prod.dim_int", "var.correction", "max_pool2d_with_indices",
    "index.Tensor", "index_put", "index_add", "scatter_add",
))  # fmt: skip
_LIKES = frozenset((_aten.rand_like.default, _aten.randn_like.default, _aten.randint_like.default))
"""Operators on all elements of which nothing must be drawn."""
_INDEXING = frozenset((_aten.index.Tensor, _aten.index_put.default, _aten.index_add.default, _aten.scatter_add.default))


def _has_dimension_of_one(result: Any) -> bool:
    """Whether a result of known sizes, or the first of several, has a stride that no element depends on."""
    first = result[0] if isinstance(result, tuple) and result else result
    return isinstance(first, torch.Tensor) and first.dim() > 0 and _is_known(first) and min(first.shape) < 2


def _with_real_strides(mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
    """``result`` of an operator on fake tensors of ``mode``; it, or the first of several, with the real strides."""
    from torch.utils._mode_utils import no_dispatch

    if func in _VIEWS:
        source = args[0]
        if not _is_known(source):
            return result
        with no_dispatch(), below_autograd():
            strides = torch.empty_strided(source.shape, source.stride(), device="meta").view(result.shape).stride()
        if strides == result.stride():
            return result
        with mode:
            return source.as_strided(result.shape, strides)
    leaves = tree_leaves((args, kwargs))
    is_overload = isinstance(func, torch._ops.OpOverload)
    if not is_overload or any(isinstance(a, (torch.SymInt, torch.SymFloat, torch.SymBool)) for a in leaves):
        return result  # a trial would make a constant of it
    given = [a for a in leaves if isinstance(a, torch.Tensor)]
    first = result[0] if isinstance(result, tuple) else result
    elementwise = torch.Tag.pointwise in func.tags and func.namespace == "aten" and not func._schema.is_mutable
    tried = (elementwise and not first._is_view()) or func in _TRIED or func in _LIKES
    if not tried or not all(map(_can_be_tried, given)) or all(map(_is_contiguous, given)):
        return result
    function, args = (_aten.empty_like.default, args[:1]) if func in _LIKES else (func, args)
    fill = functools.partial(_filled, whole=0 if func in _INDEXING else 1)
    try:
        with no_dispatch(), below_autograd():
            real = function(*tree_map(fill, tuple(args)), **tree_map(fill, kwargs))
    except (RuntimeError, TypeError, IndexError):  # as the program's own will
        return result
    if not isinstance(result, tuple):
        return _like_real(mode, result, real)
    made = tuple(_like_real(mode, *each) for each in zip(result, real, strict=True))
    return result if all(a is b for a, b in zip(made, result, strict=True)) else made


def _like_real(mode: Any, fake: Any, real: Any) -> Any:
    if not isinstance(fake, torch.Tensor) or not _is_known(fake) or fake.stride() == real.stride():
        return fake
    with mode:
        return torch.empty_strided(fake.shape, real.stride(), dtype=fake.dtype, device=fake.device)


def _is_known(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and all(type(n) is int for n in (*tensor.shape, *tensor.stride()))


def _can_be_tried(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and _is_known(tensor) and tensor.numel() <= _LARGEST


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """Whether all strides are those of a new tensor of some elements."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != expected:
            return False
        expected *= size
    return expected > 0


def _filled(value: Any, whole: int) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    number = 1 if value.dtype.is_floating_point or value.dtype.is_complex else whole
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).fill_(number)


# --- what real operators refuse ---------------------------------------------------------------------------------------

_LARGEST = 1 << 20
_taken: set[Any] = set()  # the operators with the dtypes that they take


def _refuse(func: Any, args: Sequence[Any], kwargs: Any) -> None:
    """Raise what the real operator raises for these dtypes, if it does; ``args`` have fake tensors, with hints.

    Raises:
        RuntimeError, NotImplementedError, TypeError, IndexError: the operator's own, which it does not raise for other
            dtypes.
    """
    given = list(fake_answers.tensors_in((*args, *kwargs.values())))
    if not given or _is_usual(func, given):
        return
    key = (func, *((t.dtype, t.device, t.dim() == 0) for t in given))
    if key in _taken:
        return
    # An assertion of zeros fails, which stops a GPU for good.
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    is_unsafe = "assert" in func._schema.name or _trusts_integers(func, given)
    if func.namespace != "aten" or is_random or is_unsafe or _only_views(func):
        _taken.add(key)
        return
    if (error := _error(func, args, kwargs, lambda dtype: dtype)) is None:
        _taken.add(key)
    elif any(_error(func, args, kwargs, other) is None for other in _OTHERS):
        raise error


def _is_usual(func: Any, given: Sequence[torch.Tensor]) -> bool:
    if not given[0].dtype.is_floating_point or func._schema.name.startswith("aten::bitwise_"):
        return False
    return all(t.dtype is given[0].dtype for t in given)


def _trusts_integers(func: Any, given: Sequence[torch.Tensor]) -> bool:
    """Whether a kernel goes where integers lead without a check, and zeros are none of them.

    Pivots count from 1, and LAPACK writes to where they lead; ``ctc_loss`` reads at the last of so many steps; repeats
    that are not as many as promised stop a GPU for good.
    """
    trusts = any(part in func._schema.name for part in ("linalg_", "lu_", "ldl_", "ctc_loss", "repeat_interleave"))
    return trusts and any(not t.dtype.is_floating_point and not t.dtype.is_complex for t in given)


def _only_views(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


_OTHERS: tuple[Callable[[torch.dtype], torch.dtype], ...] = (
    lambda dtype: torch.float32 if dtype.is_floating_point or dtype.is_complex else dtype,
    lambda dtype: torch.float32,
    lambda dtype: torch.int64,
    lambda dtype: torch.bool,
)
"""What is tried beside the dtypes of a call: if none is taken, they are not why the operator raises."""


_PUTS = (torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)


def _error(func: Any, args: Sequence[Any], kwargs: Any, dtype: Callable[[torch.dtype], torch.dtype]) -> Any:
    """What the real operator raises for zeros of the same sizes.  Of large ones nothing is said."""
    from torch.utils._mode_utils import no_dispatch

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value.node.hint
        sizes = [n if type(n) is int else n.node.hint for n in value.shape]
        if None in sizes or torch.Size(sizes).numel() > _LARGEST:
            raise _Unknown
        return torch.zeros(sizes, dtype=dtype(value.dtype), device=value.device)

    try:
        with no_dispatch(), below_autograd():
            tried = tree_map(real, tuple(args))
            kinds = {t.dtype for t in tried[1] if t is not None} if func in _PUTS else set()
            if torch.uint8 in kinds:  # a mask as well, for which one value is no case like the others
                raise _Unknown
            if torch.bool in kinds and tried[2].numel() != 1:
                # Zeros select nothing, so the values for what is selected do not fit.  A value fits any number of
                # places, and added, it is not a number to fill them with, which may have any dtype.
                tried = (*tried[:2], tried[2].new_zeros((1,) * tried[2].dim()), True)
            func(*tried, **tree_map(real, dict(kwargs)))
    except (RuntimeError, TypeError, IndexError) as error:  # NotImplementedError is a RuntimeError
        # That an integer is divided by zero is about the zeros of this trial.
        return None if str(error) == "ZeroDivisionError" else error
    except _Unknown:
        return None
    return None


class _Unknown(Exception):
    pass
