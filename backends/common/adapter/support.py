"""Refusals that adapters of other runtimes have in common, checked before the runtime is asked about a node.

A runtime with its own kernels and its own memory differs from torch in a few ways that are the same for every runtime.
Each difference is a named rule here.  An adapter creates one :class:`Common`, which says what its runtime supports, and
gives a reason for each rule that the runtime does not need.  ``tests/backends/adapters/test_common_refusals.py`` has a
node for each rule, and tries it with every adapter.

``native`` and ``cudagraphs`` do not need these rules: ``native`` implements torch's meaning of each operator, and
``cudagraphs`` runs torch's own kernels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..cache.cache import default_cache
from ..cache.keys import text_key
from ..pipeline import aliasing
from ..pipeline.decompose import can_stay_whole, draws_nothing, is_random
from . import indices
from .graphs import values_in_use
from .results import leaves_gaps_by_sizes

# --- operators by name ----------------------------------------------------------------------------------------


def operators_named(names: Iterable[str]) -> list[Any]:
    """ATen operators by names like ``"softmax.int"``; without a dot, the overload ``default``."""
    found = []
    for name in names:
        packet, _, overload = name.partition(".")
        found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found


def whole(names: Iterable[str], is_known: Callable[[Any], bool]) -> frozenset[Any]:
    """For ``keep_whole``: the named composite operators that the runtime knows and that can stay whole."""
    return frozenset(op for op in operators_named(names) if is_known(op) and can_stay_whole(op))


def remembered(what: str, fingerprint: str, find: Callable[[], Iterable[str]]) -> frozenset[str]:
    """Names that take long to find out and change with the runtime's version alone, from the artifact cache."""
    cache, key = default_cache(), text_key(what, fingerprint)
    stored = cache.load(key) if cache is not None else None
    if stored is not None:
        return frozenset(json.loads(stored))
    names = frozenset(find())
    if cache is not None:
        cache.store(key, json.dumps(sorted(names)).encode())
    return names


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


# --- how runtimes differ from torch -----------------------------------------------------------------------------------

# Operators that pick or order elements.
_ORDERS = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        "amax", "amin", "argmax", "argmin", "aminmax", "max", "min", "sort", "argsort", "topk", "kthvalue", "median",
        "mode", "cummax", "cummin",
    )
)  # fmt: skip

_REMAINDERS = frozenset(
    (torch.ops.aten.remainder, torch.ops.aten.fmod, torch.ops.aten.floor_divide, torch.ops.aten.div)
)


def rounds_down(node: Node) -> bool:
    """Whether ``node`` is a remainder of floats, or their quotient rounded down.

    Exporters' formulas for these are right for integers, but wrong for infinite numbers.
    """
    op = node.target.overloadpacket
    if op not in _REMAINDERS or (op is torch.ops.aten.div and node.kwargs.get("rounding_mode") != "floor"):
        return False
    return node.meta["val"].is_floating_point()


TRAPS = "an integer is divided by a value that may be 0, where torch raises, or -1; the processor would end the process"


def may_trap(node: Node) -> bool:
    """Whether ``node`` divides integers by a tensor, by 0 or by -1.

    On x86, a division by zero ends the process with a signal, and so does dividing the lowest number by -1.
    """
    if node.target.overloadpacket not in _REMAINDERS or node.meta["val"].is_floating_point():
        return False
    return not isinstance(node.args[1], int) or node.args[1] in (0, -1)


def compares_numbers(node: Node, *, lowest_is_finite: bool = False) -> bool:
    """Whether ``node`` picks or orders floats by their size.

    Runtimes compare as processors do: nan is neither larger nor smaller than any number.  In torch, nan wins every
    maximum and minimum.  ``lowest_is_finite``: the runtime's maximum is never less than the lowest finite number.
    """
    if node.target.overloadpacket not in _ORDERS:
        return False
    argument = node.args[0]
    if not isinstance(argument, Node) or not argument.meta["val"].is_floating_point():
        return False
    return not _only_shifts(node, argument, lowest_is_finite)


def _only_shifts(node: Node, argument: Node, lowest_is_finite: bool) -> bool:
    """Whether ``node`` is the maximum that a softmax subtracts first; a nan appears in the sum of powers anyway.

    A softmax that returns zeros for rows of minus infinity compares the maximum with it, and subtracts zero there.
    """
    aten = torch.ops.aten

    def shifts(user: Node, by: Node) -> bool:
        is_difference = user.target is aten.sub.Tensor and user.args == (argument, by) and not user.kwargs
        return is_difference and all(is_summed(use, user) for use in user.users)

    def is_summed(user: Node, difference: Node) -> bool:
        if user.target is aten.exp.default:
            return True
        power = user.args[1] if user.target is aten.sub.Tensor and user.args[0] is difference else None
        return isinstance(power, Node) and power.target is aten.log.default

    def is_allowed(user: Node) -> bool:
        if user.target is aten.eq.Scalar:
            return (
                not lowest_is_finite
                and user.args[1] == -math.inf
                and all(mask.target is aten.masked_fill.Scalar and mask.args[1] is user for mask in user.users)
            )
        if user.target is aten.masked_fill.Scalar and user.args[0] is node:
            return all(shifts(use, user) for use in user.users)
        return shifts(user, node)

    return node.target is aten.amax.default and all(is_allowed(user) for user in node.users)


def takes_itself_away(node: Node) -> bool:
    """Whether ``node`` is the softmax of a scalar, or its logarithm: 1 or 0, and nan where the scalar is not finite."""
    aten = torch.ops.aten
    is_softmax = node.target.overloadpacket in (
        aten.softmax, aten._softmax, aten._safe_softmax, aten.log_softmax, aten._log_softmax
    )  # fmt: skip
    return is_softmax and node.meta["val"].dim() == 0


# --- the rules --------------------------------------------------------------------------------------------------------


def _draws(node: Node, common: Common) -> bool:
    return is_random(node.target) and not draws_nothing(node)


def _compares(node: Node, common: Common) -> bool:
    return node.target not in common.compares_as_torch and compares_numbers(
        node, lowest_is_finite=common.lowest_is_finite
    )


ABOUT_OPERATORS: Mapping[str, tuple[Callable[[Node, Common], bool], str]] = {
    "random": (_draws, "its random numbers would not match torch's for the same seed"),
    "writes": (lambda node, common: aliasing.writes(node), "it writes to its arguments"),
    "addresses": (lambda node, common: aliasing.reads_by_address(node), aliasing.BY_ADDRESS),
    "comparisons": (_compares, "{runtime}'s comparisons skip nan, torch's do not"),
    "traps": (lambda node, common: may_trap(node), TRAPS),
    "remainders": (
        lambda node, common: rounds_down(node),
        "{runtime}'s remainder of floats differs from torch where a number is infinite",
    ),
    "gaps": (
        lambda node, common: leaves_gaps_by_sizes(node),
        "torch leaves gaps between the result's elements, at places that depend on the sizes of a call",
    ),
    "bags": (
        lambda node, common: indices.unchecked_bags(node),
        "torch raises where bags of rows begin at wrong places, {runtime} does not, and the graph computes the places",
    ),
}
"""The rules about operators: whether a rule applies to a node, and the reason that users read."""

ABOUT_VALUES: Mapping[str, str] = {
    "numbers": "a float or bool that is known only at run time would lose precision as an input of {runtime}",
    "layouts": "{runtime} has no {layout} tensors",
    "flags": "{runtime} would read the opposite or the conjugate of a tensor that torch notes, and has not computed",
    "dtypes": "{runtime} has no operators on {dtype}",
    "empty": "{runtime}'s operators do not support tensors without elements",
}
"""The rules about the inputs and results of a node, with the reasons that users read."""

RULES = (*ABOUT_OPERATORS, *ABOUT_VALUES)


@dataclass(frozen=True)
class Common:
    """The common refusals of one adapter.

    Args:
        runtime: its name in reasons.
        dtypes: the dtypes in which it computes as torch does.
        of_dtype: the adapter's own decision about the dtype of a tensor of a node: a reason refuses it, ``True``
            accepts it, and an empty string leaves the decision to ``dtypes``.
        words: the adapter's own reasons, by rule.
        lacks: the rules that the adapter does not need, each with a one-line reason.
        compares_as_torch: operators whose comparisons treat nan as torch does.
        lowest_is_finite: whether its maximum is never less than the lowest finite number.
    """

    runtime: str
    dtypes: frozenset[torch.dtype]
    of_dtype: Callable[[Node, torch.Tensor], Literal[True] | str] = lambda node, value: ""
    words: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    compares_as_torch: frozenset[Any] = frozenset()
    lowest_is_finite: bool = False

    def about_operator(self, node: Node) -> str:
        """Why the runtime is not given the operator of ``node``, an ``OpOverload``; empty if it is."""
        for rule, (applies, _) in ABOUT_OPERATORS.items():
            if rule not in self.lacks and applies(node, self):
                return self.reason(rule)
        return ""

    def about_values(self, node: Node) -> str:
        """Why the runtime is not given the inputs or used results of ``node``; empty if it is."""
        for value in values_in_use(node):
            if isinstance(value, (torch.SymFloat, torch.SymBool)) and "numbers" not in self.lacks:
                return self.reason("numbers")
            if isinstance(value, torch.Tensor) and (reason := self._about_tensor(node, value)):
                return reason
        return ""

    def reason(self, rule: str, **told: Any) -> str:
        """The reason that users read for a rule."""
        usual = ABOUT_VALUES[rule] if rule in ABOUT_VALUES else ABOUT_OPERATORS[rule][1]
        return self.words.get(rule, usual).format(runtime=self.runtime, **told)

    def _about_tensor(self, node: Node, value: torch.Tensor) -> str:
        if value.layout is not torch.strided and "layouts" not in self.lacks:
            return self.reason("layouts", layout=value.layout)
        if (value.is_neg() or value.is_conj()) and "flags" not in self.lacks:
            return self.reason("flags")
        answer = self.of_dtype(node, value)
        if isinstance(answer, str):
            if answer or value.dtype not in self.dtypes:
                return answer or self.reason("dtypes", dtype=dtype_name(value.dtype))
        if any(type(size) is int and size == 0 for size in value.shape) and "empty" not in self.lacks:
            return self.reason("empty")
        return ""


NOT_AN_OPERATOR = "not an ATen operator"


def is_operator(node: Node) -> bool:
    """Whether ``node`` calls an ``OpOverload``; the rules apply to nothing else."""
    return isinstance(node.target, internals.OpOverload)
