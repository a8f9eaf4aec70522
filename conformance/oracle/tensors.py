"""Two tensors: a backend's and eager's.

These must be equal: dtypes, shapes, strides, integers, bools, which tensors share memory, where a result is not finite,
the signs of infinities, and all bits where eager rounds nothing.  Other floating-point numbers may differ by what
``bounds`` allows.

A computation runs three times: in eager, in eager with float64 (the reference) and in the backend.  Where eager is not
finite and the reference, rounded to the dtype, is another number, eager's kernel is what errs: one that divides
infinity by itself, say, where the kernel for another layout does not.  There, either is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from . import bounds

PERIOD = 1_000_003
"""After how many elements random numbers repeat; a prime, so that no two rows of a tensor have the same."""


@dataclass(frozen=True)
class Difference:
    """Where and how two results differ: ``what`` is one of value, dtype, shape, stride, alias, type, exception.

    ``rounded``: it is about numbers that are rounded, so other runs of eager may show that eager is as far off.
    """

    where: str
    what: str
    words: str
    rounded: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.words}" if self.where else self.words


def compare_tensors(
    where: str,
    found: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor | None,
    *,
    elementwise: bool = False,
    strides: bool = True,
    signs: bool = True,
    excess: torch.Tensor | None = None,
    shift: torch.Tensor | None = None,
    jump: torch.Tensor | None = None,
    scale: float = 0.0,
    terms: int = 0,
    subnormals: bool = True,
    independent: bool = True,
    few_draws: bool = False,
    around: float = 0.0,
) -> Difference | None:
    """The first difference between a backend's tensor and eager's; ``reference`` is the float64 tensor, if any.

    ``excess`` is the largest excess of eager at each element over several draws, and ``shift`` the largest distance
    between the exact numbers of two draws, which measures the condition of the problem; ``jump`` is how far they jump
    where rounding errors decide on the side of a threshold.  Without them and without
    ``elementwise``, a number that cancels to nearly nothing cannot be told from one that does not: units are then those
    of the largest number, and the excess the one that all but a hundredth of the elements stay below.  ``scale`` is the
    largest number among all results, for tensors in which everything cancels.  ``signs``: those of zeros count.
    ``terms`` is how many numbers are summed, if that is a long sum.  ``independent``: elements have no sum in common,
    whose error all of them would share.  ``few_draws``: the draws are too few for the elements, of which some are exact
    in all draws by chance; then no element is held to less than without draws.  ``around`` is how large numbers are
    that cancel on the way for all inputs: one unit of these is allowed.
    """
    if found.dtype is not expected.dtype:
        return Difference(where, "dtype", f"dtype {found.dtype}, eager has {expected.dtype}")
    if found.shape != expected.shape:
        return Difference(where, "shape", f"shape {tuple(found.shape)}, eager has {tuple(expected.shape)}")
    if found.device != expected.device:
        return Difference(where, "device", f"on {found.device}, eager has it on {expected.device}")
    if found.layout is not expected.layout:
        return Difference(where, "layout", f"layout {found.layout}, eager has {expected.layout}")
    if strides and found.layout is torch.strided and telling_strides(found) != telling_strides(expected):
        return Difference(where, "stride", f"strides {found.stride()}, eager has {expected.stride()}")
    if found.requires_grad is not expected.requires_grad:
        return Difference(where, "requires_grad", f"requires_grad is {found.requires_grad}, unlike in eager")
    a, b = plain(found), plain(expected)
    r = None if reference is None else plain(reference)
    if r is not None and r.shape != b.shape:
        r = None
    if not b.is_floating_point():
        return None if torch.equal(a, b) else _first_wrong(where, a, b, a != b)
    return _compare_floats(
        where, a, b, r, expected.is_complex(), elementwise, signs, excess, shift, jump, scale, terms, subnormals,
        independent, few_draws, around,
    )  # fmt: skip


def identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether nothing tells two tensors apart but where they are."""
    kinds = [(t.dtype, t.shape, t.device, t.layout, t.requires_grad) for t in (one, other)]
    if kinds[0] != kinds[1] or one.layout is not torch.strided or telling_strides(one) != telling_strides(other):
        return False
    a, b = plain(one), plain(other)
    return _same_bits(a, b) if a.is_floating_point() else torch.equal(a, b)


def nudged(
    value: torch.Tensor, generator: torch.Generator, precision: torch.dtype | None = None, reach: float = 1.0
) -> torch.Tensor:
    """``value``, of floating-point numbers, each changed by up to one unit in the last place of ``precision``, which is
    its own dtype by default: the same problem, with different rounding errors.

    With another ``reach``, numbers of float32 and float64 change by so many units; one of half precision is far enough.
    """
    if not value.is_floating_point():
        return value
    steps = random_like(value, torch.rand, generator) * 2 - 1
    unit = torch.finfo(precision or value.dtype).eps
    unit *= reach if value.dtype in (torch.float32, torch.float64) else 1.0
    return (value.double() * (1 + unit * steps)).to(value.dtype)


def random_like(like: torch.Tensor, draw: Callable[..., torch.Tensor], generator: torch.Generator) -> torch.Tensor:
    """Random float64 numbers of ``draw`` (:func:`torch.rand` or :func:`torch.randn`) for each element of ``like``.

    Those of a large tensor repeat, since to draw them costs more than to use them.  Every device gets the same.
    """
    number = like.numel()
    some = draw(min(number, PERIOD), generator=generator, dtype=torch.float64).to(like.device)
    if number > PERIOD:
        some = some.repeat(-(-number // PERIOD))[:number]
    return some.reshape(like.shape)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor: dense, real (a complex number is two), without a gradient."""
    bare = tensor.detach().resolve_conj().resolve_neg()
    if bare.layout is not torch.strided:
        bare = bare.to_dense()
    return torch.view_as_real(bare) if bare.is_complex() else bare


def telling_strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: not those of dimensions with one element, nor of empty tensors."""
    if not tensor.numel():
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _compare_floats(
    where: str,
    found: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor | None,
    is_complex: bool,
    elementwise: bool,
    signs: bool,
    excess: torch.Tensor | None,
    shift: torch.Tensor | None,
    jump: torch.Tensor | None,
    scale: float,
    terms: int,
    subnormals: bool,
    independent: bool,
    few_draws: bool,
    around: float,
) -> Difference | None:
    if not expected.numel() or _same_bits(found, expected):
        return None
    dtype = expected.dtype
    if dtype.itemsize == 1:  # torch has few operators on these, and float32 has all of their numbers
        found, expected = found.float(), expected.float()
        reference = None if reference is None else reference.double()
    special = ~torch.isfinite(expected)
    same = torch.where(special, _alike(found, expected), torch.isfinite(found))
    if reference is not None:
        rounded = reference.to(dtype).to(expected.dtype)
        near = torch.isfinite(rounded) & (
            (found.double() - reference).abs() <= (0.5 + _slack(dtype, False)) * bounds.units(reference.double(), dtype)
        )
        same |= special & (_alike(found, rounded) | near)
    if not bool(same.all()):
        return _first_wrong(where, found, expected, ~same)
    exact = (expected if reference is None else reference).double()
    usable = ~special & torch.isfinite(exact)
    every = bool(usable.all())

    def picked(numbers: torch.Tensor) -> torch.Tensor:
        return numbers.to(exact).reshape(-1) if every else numbers.to(exact)[usable]

    errors = bounds.Errors(
        picked(exact),
        picked(expected),
        picked(found),
        picked(_units(exact, dtype, is_complex)),
        _slack(dtype, reference is None),
        bounds.UNDERFLOW.get(dtype, 0.0) if subnormals else torch.finfo(dtype).tiny,
    )
    if not errors.exact.numel():
        return None
    drawn = excess is not None and bool((excess > 0).any())
    normal = usable if subnormals else usable & ((exact.abs() >= torch.finfo(dtype).tiny) | (exact == 0))
    long = bool(terms) and dtype in (torch.float32, torch.float64)  # a long sum is exact by chance
    may_be_exact = reference is not None and not drawn and not long
    if may_be_exact and _is_exact(expected, reference, normal, excess is not None and scale > 0):
        wrong = normal & ((found != expected) | (signs & (found.signbit() != expected.signbit())))
        return _first_wrong(where, found, expected, wrong, rounded=True) if bool(wrong.any()) else None
    drawn_excess = None if excess is None else picked(excess)
    allowed = _allowed(errors, elementwise, drawn_excess, scale, dtype, few_draws=few_draws)
    if few_draws and drawn_excess is not None:
        allowed = torch.maximum(allowed, _allowed(errors, elementwise, None, scale, dtype, few_draws=True))
    if shift is not None and shift.shape == exact.shape:
        allowed = allowed + bounds.CONDITION[dtype] * picked(shift)
    if jump is not None and jump.shape == exact.shape:
        allowed = allowed + bounds.MULTIPLE * picked(jump)
    if long:
        allowed = allowed + terms**0.5 * errors.unit
    if around:
        allowed = allowed + torch.finfo(dtype).eps * around
    off = errors.off
    if bool((off <= allowed).all()):
        judged = reference is not None and (independent or dtype in (torch.float16, torch.bfloat16))
        bias = errors.bias() if judged else 0.0
        if not bias:
            return None
        words = f"biased: off by {bias:.2g} units in the last place on average, away from zero if positive"
        return Difference(where, "value", words, rounded=True)
    worst = int((off / allowed).argmax())
    times = float(off[worst] / allowed[worst]) if float(allowed[worst]) else float("inf")
    return Difference(
        where,
        "value",
        f"{float(errors.found[worst]):.9g} is off by {float(off[worst]):.3g} "
        f"({float(off[worst] / errors.unit[worst]):.3g} units) where eager is off by "
        f"{float((errors.eager - errors.exact).abs()[worst]):.3g} and the largest element is "
        f"{float(errors.exact.abs().max()):.3g}: {times:.3g} times what is allowed",
        rounded=True,
    )


def _allowed(
    errors: bounds.Errors,
    elementwise: bool,
    excess: torch.Tensor | None,
    scale: float,
    dtype: torch.dtype,
    *,
    few_draws: bool,
) -> torch.Tensor:
    """The bound of each element."""
    own = errors.excess
    if elementwise:
        return errors.allowed(own if excess is None else torch.maximum(own, excess))
    typical = float(own.median())
    if excess is None:
        typical = _in_order(own, int(0.99 * (own.numel() - 1)))
        typical *= bounds.extreme(own.numel()) if few_draws else 1.0
        return errors.allowed(own.clamp(min=typical), errors.unit.max())
    allowed = errors.allowed(torch.maximum(own, excess).clamp(min=typical))
    # Eager has no correct digit: the remaining value is noise of any size, next to results that are not noise.
    if float((errors.eager - errors.exact).abs().max()) >= float(errors.exact.abs().max()):
        allowed = allowed + torch.finfo(dtype).eps * scale
    return allowed


def _in_order(numbers: torch.Tensor, place: int) -> float:
    """The number that so many are below.  On a GPU, one multiprocessor selects it, and all of them sort."""
    if numbers.is_cuda:
        return float(numbers.sort().values[place])
    return float(numbers.kthvalue(1 + place).values)


def _slack(dtype: torch.dtype, alone: bool) -> float:
    return bounds.SLACK[dtype] * (bounds.UNREFERENCED[dtype] if alone else 1.0)


def _units(exact: torch.Tensor, dtype: torch.dtype, is_complex: bool) -> torch.Tensor:
    """The units of elements; the parts of a complex number have those of its absolute value."""
    if not is_complex:
        return bounds.units(exact, dtype)
    size = exact.square().sum(-1, keepdim=True).sqrt().nan_to_num(posinf=torch.finfo(dtype).max)
    return bounds.units(size, dtype).expand_as(exact)


def _is_exact(expected: torch.Tensor, reference: torch.Tensor, usable: torch.Tensor, may_cancel: bool) -> bool:
    """Whether eager rounded nothing: all its finite numbers, and the signs of its zeros, are those of the reference.

    A tensor of nothing but zeros, next to results that are not, may be what is left when everything cancels.
    """
    if expected.dtype is torch.float64:
        return False  # the reference is no more exact
    if may_cancel and not bool(expected[usable].any()):
        return False
    same = (expected.double() == reference.double()) & (expected.signbit() == reference.signbit())
    return bool((same | ~usable).all())


def shift_of(found: Any, reference: Any) -> torch.Tensor | None:
    """How far two exact results are apart at each element, 0 where that says nothing; None for what has no errors."""
    if not isinstance(found, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return None
    one, other = plain(found), plain(reference)
    if one.shape != other.shape or not one.is_floating_point():
        return None
    return (one.double() - other.double()).abs().nan_to_num(0.0, 0.0, 0.0)


def excess_of(found: Any, reference: Any) -> torch.Tensor | None:
    """Eager's excess at each element in one draw, 0 where it says nothing; None for what has no errors."""
    if not isinstance(found, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return None
    eager, exact = plain(found), plain(reference)
    if eager.shape != exact.shape or not eager.is_floating_point():
        return None
    unit = _units(exact.double().nan_to_num(), eager.dtype, found.is_complex())
    return bounds.excess(eager.double(), exact.double(), unit).nan_to_num(0.0, 0.0, 0.0)


def _same_bits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether the numbers are eager's own: these are right, whatever their errors."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[expected.element_size()]
    return torch.equal(found.view(bits), expected.view(bits))


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Where two tensors have the same number, or both nan."""
    return (found == wanted) | (found.isnan() & wanted.isnan())


def distance(found: Any, reference: Any) -> float:
    """The largest distance of finite elements of a tensor from its float64 reference; 0 for anything else."""
    if not isinstance(found, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return 0.0
    if found.shape != reference.shape or not found.is_floating_point() or found.layout is not torch.strided:
        return 0.0
    off = (found.detach().double() - reference.detach().double()).abs()
    off = off[torch.isfinite(off)]
    return float(off.max()) if off.numel() else 0.0


def largest(values: Iterable[Any]) -> float:
    """The largest finite absolute value in floating-point tensors."""
    found = 0.0
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided:
            finite = value.detach().double().abs()
            finite = finite[torch.isfinite(finite)]
            found = max(found, float(finite.max()) if finite.numel() else 0.0)
    return found


def _first_wrong(
    where: str, found: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor, *, rounded: bool = False
) -> Difference:
    place = tuple(wrong.nonzero()[0].tolist())
    count = int(wrong.sum())
    more = f", and {count - 1} more" if count > 1 else ""
    at = "" if not place else f" at {list(place)}"
    words = f"{found[place].item()}{at}, eager has {expected[place].item()}{more}"
    return Difference(where, "value", words, rounded)


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor, the position of the first tensor that it shares memory with (its own if there is none)."""
    first: dict[Any, int] = {}
    found = []
    for position, tensor in enumerate(tensors):
        try:
            memory = tensor.untyped_storage()
            key: Any = memory._cdata if memory.nbytes() else position  # of nothing, there is nothing to share
        except (NotImplementedError, RuntimeError):  # sparse tensors have no single storage
            key = position
        found.append(first.setdefault(key, position))
    return found
