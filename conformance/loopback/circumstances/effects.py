"""Faults of what programs do besides computing: rarer writes and draws, casts by mode, gradients of unlike inputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ...outcome import Outcome
from ..kit import Faults, Run, with_gradient, with_operators

state = Faults("state")
turns = Faults("turns")
keys = Faults("keys")
numerics = Faults("numerics")
training = Faults("training")

_WRITES = "semantics/effects/writes_of_rarer_forms"
_LEARNS = "semantics/effects/writes_to_what_learns"
_DRAWS = "semantics/effects/draws_of_rarer_forms"
_PRECISE = "semantics/effects/precise_under_autocast"
_UNLIKE = "semantics/effects/gradients_of_unlike_inputs"
_CHANGE = "semantics/effects/tensors_that_change_beside_others"
_SIZES = "semantics/effects/arithmetic_of_sizes"
_LOOPS = "semantics/effects/loops_of_any_length"
_ONE_THING = "semantics/effects/calls_that_differ_in_one_thing"


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _name(node: Node) -> str:
    if node.op not in ("call_function", "call_method"):
        return ""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


# Writes


@state(_WRITES)
def long_steps_lost(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What is written in steps of three and more is lost."""

    class Lost(Interpreter):
        def run_node(self, n: Node) -> Any:
            if _name(n) == "setitem":
                given = self.fetch_args_kwargs_from_env(n)[0][1]
                places = given if isinstance(given, tuple) else (given,)
                if any(isinstance(p, slice) and p.step not in (None, 1, 2) for p in places):
                    return None
            return super().run_node(n)

    return lambda *args: Lost(gm).run(*args)


@state(_WRITES)
def masks_of_nothing_write(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Where a mask selects nothing, the first element is written."""

    class Written(Interpreter):
        def run_node(self, n: Node) -> Any:
            result = super().run_node(n)
            if _name(n) == "setitem":
                x, mask = self.fetch_args_kwargs_from_env(n)[0][:2]
                if _tensor(mask) and mask.dtype is torch.bool and not mask.any() and x.numel():
                    x[(0,) * x.dim()] = 7.0
            return result

    return lambda *args: Written(gm).run(*args)


@state(_WRITES)
def the_third_written_input_lost(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Of the inputs that a program writes to, the third stays as it was."""

    def call(*args: Any) -> Sequence[Any]:
        seen = [(a, a._version, a.detach().clone()) for a in args if _tensor(a) and not a.is_inference()]
        results = gm.forward(*args)
        written = [(a, old) for a, version, old in seen if a._version != version]
        if len(written) > 2:
            with torch.no_grad():
                written[2][0].copy_(written[2][1])
        return results

    return call


@state.instead(_WRITES, "copy_")
def writes_that_saturate(x: torch.Tensor, source: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Integers that do not fit where they are written become the largest or smallest that do."""
    if x.is_floating_point() or x.dtype is torch.bool or source.is_floating_point():
        return x.copy_(source, *rest)
    bounds = torch.iinfo(x.dtype)
    return x.copy_(source.clamp(bounds.min, bounds.max), *rest)


@state(_LEARNS)
def writes_to_leaves_lost(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Without gradients, what is written to a tensor that requires them is lost."""

    def call(*args: Any) -> Sequence[Any]:
        if torch.is_grad_enabled():
            return gm.forward(*args)
        plain = lambda a: isinstance(a, torch.nn.Parameter) or not a.requires_grad  # noqa: E731
        return gm.forward(*(a.clone() if _tensor(a) and not plain(a) else a for a in args))

    return call


# Draws


@state(_DRAWS)
def later_draws_are_the_second(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """From the third on, equal draws of one program are the second one."""

    def call(*args: Any) -> Sequence[Any]:
        drawn: dict[str, list[Any]] = {}

        class Kept(Interpreter):
            def run_node(self, n: Node) -> Any:
                result = super().run_node(n)
                if _name(n) not in ("rand", "randn", "randint"):
                    return result
                found = drawn.setdefault(f"{_name(n)} {n.args} {n.kwargs}", [])
                found.append(result)
                return found[min(len(found) - 1, 1)]

        return Kept(gm).run(*args)

    return call


@turns(_DRAWS)
def draws_without_gradients_are_taken_back(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """After a call without gradients, the generator is where it was before."""

    def call(*args: Any) -> Sequence[Any]:
        before = torch.get_rng_state()
        results = gm.forward(*args)
        if not torch.is_grad_enabled():
            torch.set_rng_state(before)
        return results

    return call


@numerics.operator(_DRAWS, "bernoulli")
def certain_outcomes_left_out(right: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What is certain to happen does not."""
    return right if rest or named else torch.where(x == 1, torch.zeros_like(right), right)


@numerics.operator(_DRAWS, "exponential")
def rates_that_are_rounded(right: torch.Tensor, x: Any, rate: float = 1.0, **named: Any) -> torch.Tensor:
    """Exponential draws have a whole rate."""
    return right.mul_(rate / round(rate))


@numerics.operator(_DRAWS, "random")
def draws_between_begin_at_one(right: torch.Tensor, x: Any, *bounds: int, **named: Any) -> torch.Tensor:
    """Whole numbers that are drawn between two bounds are one more."""
    return right.add_(1) if len(bounds) > 1 else right


# Casts by mode


def _cast(name: str, text: str, names: str, change: Callable[..., Any]) -> None:
    """A fault in operators under autocast."""

    def under(right: Any, *args: Any, **named: Any) -> Any:
        return change(right, *args) if torch.is_autocast_enabled("cpu") else right

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return with_operators(gm, dict.fromkeys(names.split(), under))

    compile.__name__, compile.__doc__ = name, text
    numerics(_PRECISE)(compile)


def _half(right: torch.Tensor, *args: Any) -> torch.Tensor:
    return right.bfloat16().to(right.dtype)


_cast("losses_in_half", "Under autocast, losses have the digits of bfloat16.", "mse_loss cross_entropy smooth_l1_loss",
      _half)  # fmt: skip
_cast(
    "norms_in_half", "Under autocast, normalized numbers have the digits of bfloat16.", "layer_norm group_norm", _half
)
_cast("pools_in_half", "Under autocast, pools and resized images have the digits of bfloat16.",
      "avg_pool2d interpolate", _half)  # fmt: skip
_cast("powers_in_half", "Under autocast, powers and exponentials have the digits of bfloat16.", "pow exp rsqrt", _half)
_cast("sums_under_autocast_in_half", "Under autocast, sums have the digits of bfloat16.", "sum cumsum norm", _half)
_cast("joined_in_the_narrower_type", "Under autocast, what is joined has the digits of bfloat16.", "cat stack", _half)
_cast("doubles_in_half", "Under autocast, products in float64 have the digits of bfloat16.", "matmul",
      lambda right, *args: _half(right) if right.dtype is torch.float64 else right)  # fmt: skip


@numerics(_PRECISE)
def autocast_that_nothing_ends(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A part of a program that switches autocast off does not."""

    class Inside(Interpreter):
        def run_node(self, n: Node) -> Any:
            if _name(n).strip("_") != "enter_autocast":
                return super().run_node(n)
            device, dtype, _, *rest = self.fetch_args_kwargs_from_env(n)[0]
            return self.call_function(n.target, (device, dtype, True, *rest), {})

    return lambda *args: Inside(gm).run(*args)


# Gradients


@training(_UNLIKE)
def doubles_beside_floats_learn_nearly(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Beside single precision, the gradient of a float64 is nearly right."""

    def call(*args: Any) -> Sequence[Any]:
        mixed = len({a.dtype for a in args if _floats(a)}) > 1
        return gm.forward(
            *(
                with_gradient(a, lambda g: g * 1.01) if mixed and _floats(a) and a.dtype is torch.float64 else a
                for a in args
            )
        )

    return call


@training(_UNLIKE)
def expanded_inputs_learn_nearly(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The gradient of an input whose elements lie in one place is nearly right."""

    def call(*args: Any) -> Sequence[Any]:
        spread = lambda a: _tensor(a) and 0 in a.stride() and a.numel() > 1  # noqa: E731
        return gm.forward(*(with_gradient(a, lambda g: g * 1.01) if spread(a) else a for a in args))

    return call


@training(_UNLIKE, Outcome.CRASH)
def nothing_has_no_history(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results without elements require no gradient."""
    return lambda *args: [r.detach() if _floats(r) and not r.numel() else r for r in gm.forward(*args)]


@turns("semantics/effects/more_threads_than_rows")
def idle_threads_compute_as_well(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """With more threads than rows, results are nearly right."""

    def call(*args: Any) -> Sequence[Any]:
        many = lambda r: _floats(r) and r.dim() and torch.get_num_threads() > r.shape[0]  # noqa: E731
        return [r * 1.01 if many(r) else r for r in gm.forward(*args)]

    return call


# Keys


def _keyed(name: str, text: str, state_of: Callable[[torch.Tensor], Any]) -> None:
    """A fault of code that is kept for the sizes of tensors, and holds for one kind of them."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        first: dict[Any, Any] = {}

        def call(*args: Any) -> Sequence[Any]:
            tensors = [a for a in args if _tensor(a)]
            found = [state_of(t) for t in tensors]
            same = first.setdefault(tuple((t.shape, t.dtype) for t in tensors), found) == found
            return [r if same or not _floats(r) else r * 1.01 for r in gm.forward(*args)]

        return call

    compile.__name__, compile.__doc__ = name, text
    keys(_ONE_THING)(compile)


_keyed("code_whatever_is_a_view", "Code for tensors of their own runs for views.",
       lambda t: not t.is_inference() and t._base is not None)  # fmt: skip
_keyed(
    "code_whatever_is_shared", "Code for tensors of this process runs for memory of several.", lambda t: t.is_shared()
)
_keyed("code_whatever_lies_around", "Code for tensors that have their memory to themselves runs for others.",
       lambda t: t.untyped_storage().nbytes() > t.numel() * t.element_size())  # fmt: skip


# Tensors that change


def _stale(name: str, text: str, kept_of: Callable[[torch.Tensor], Any]) -> None:
    """A fault: some inputs are read once for each that ``kept_of`` says of them, unless it is None."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        seen: dict[Any, Any] = {}

        def read(place: int, given: Any) -> Any:
            known = kept_of(given) if _tensor(given) and not given.requires_grad and not given.is_inference() else None
            return given if known is None else seen.setdefault((place, given.shape, *known), given.clone())

        return lambda *args: gm.forward(*(read(place, given) for place, given in enumerate(args)))

    compile.__name__, compile.__doc__ = name, text
    turns(_CHANGE)(compile)


_stale("masks_of_the_first_call", "Masks are those of the first call.", lambda t: () if t.dtype is torch.bool else None)
_stale("numbers_of_the_first_call", "Whole numbers in tensors are those of the first call.",
       lambda t: () if not t.dim() and not t.is_floating_point() else None)  # fmt: skip
_stale("rows_by_their_count_of_writes", "A row is read again once torch has counted a write to it.",
       lambda t: (t.data_ptr(), t._version) if t.dim() == 1 and t.is_floating_point() else None)  # fmt: skip
_stale("masks_by_their_count_of_writes", "A mask is read again once torch has counted a write to it.",
       lambda t: (t.data_ptr(), t._version) if t.dtype is torch.bool else None)  # fmt: skip


@turns(_CHANGE)
def wrong_after_no_rows(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """What runs after a call without rows is nearly right."""

    def call(*args: Any) -> Sequence[Any]:
        wrong = bool(_without_rows) and not torch.is_grad_enabled()
        _without_rows.extend(True for a in args if _floats(a) and not a.numel())
        return [r * 1.01 if wrong and _floats(r) else r for r in gm.forward(*args)]

    return call


_without_rows: list[bool] = []


# Sizes and loops


def _of_sizes(name: str, text: str, targets: Sequence[Any], change: Callable[[Any, Any], Any]) -> None:
    """A fault in the arithmetic of sizes."""

    class Sizes(Interpreter):
        def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            whole = len(args) == 2 and all(type(a) is int for a in args)
            return change(*args) if whole and target in targets else super().call_function(target, args, kwargs)

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return lambda *args: Sizes(gm).run(*args)

    compile.__name__, compile.__doc__ = name, text
    keys(_SIZES)(compile)


_of_sizes("products_of_sizes_in_sixteen_bits", "Products of sizes wrap around at sixteen bits.", (operator.mul,),
          lambda a, b: (a * b + 2**15) % 2**16 - 2**15)  # fmt: skip
_of_sizes("products_of_sizes_in_half_the_bits", "Products of sizes wrap around at 32 bits.", (operator.mul,),
          lambda a, b: (a * b + 2**31) % 2**32 - 2**31)  # fmt: skip
_of_sizes("quotients_of_sizes_cut", "Quotients of sizes are cut.", (operator.floordiv,), lambda a, b: int(a / b))
_of_sizes("remainders_of_sizes_as_in_c", "Remainders of sizes have the sign of the dividend.", (operator.mod,),
          lambda a, b: int(math.fmod(a, b)))  # fmt: skip


def _loop(least: int, most: float) -> Any:
    def loop(condition: Any, body: Any, operands: Any, more: Any = ()) -> Any:
        operands, count = tuple(operands), 0
        while count < least or (count < most and bool(condition(*operands, *more))):
            operands, count = tuple(body(*operands, *more)), count + 1
        return operands

    return loop


@turns.instead(_LOOPS, "while_loop")
def loops_run_once(*given: Any) -> Any:
    """A loop runs at least once."""
    return _loop(1, math.inf)(*given)


@turns.instead(_LOOPS, "while_loop")
def loops_run_eight_times(*given: Any) -> Any:
    """A loop runs eight times at most."""
    return _loop(0, 8)(*given)


@keys("semantics/use/weights_that_change")
def packed_weights_by_their_count_of_writes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A weight is packed once, until its count of writes or its place says that it is another one."""
    packed: dict[int, tuple[Any, torch.Tensor]] = {}

    def of(place: int, given: Any) -> Any:
        if not isinstance(given, torch.nn.Parameter) or torch.is_grad_enabled():
            return given
        mark = given.data_ptr(), given._version
        if place not in packed or packed[place][0] != mark:
            packed[place] = mark, given.detach().clone()
        return packed[place][1]

    return lambda *args: gm.forward(*(of(place, given) for place, given in enumerate(args)))
