"""torch's own samples for its operators.  Only this module uses the private torch module that has them.

``torch.testing._internal.common_methods_invocations.op_db`` lists operators with functions that create inputs for them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree


@dataclass(frozen=True)
class Sample:
    """One way to call an operator."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        """The same with every tensor replaced."""
        parts = _pytree.tree_map_only(torch.Tensor, function, (self.input, self.args, self.kwargs))
        return Sample(*parts)


@dataclass(frozen=True)
class Operator:
    """An operator with samples.  ``name`` may have a variant: ``nn.functional.pad.reflect``."""

    name: str
    call: Callable[..., Any]
    dtypes: frozenset[torch.dtype]
    backward_dtypes: frozenset[torch.dtype]
    elementwise: bool
    is_core: bool
    random: bool
    _info: Any

    @property
    def expression(self) -> str:
        """The function's public name, such as ``torch.nn.functional.pad``; empty if torch has none."""
        found: Any = torch
        for part in self._info.name.split("."):
            found = getattr(found, part, None)
        return f"torch.{self._info.name}" if found is self.call else ""

    def samples(self, dtype: torch.dtype, device: str, *, requires_grad: bool, count: int) -> Iterator[Sample]:
        """At most ``count`` samples, always the same for the same random seed."""
        with _outside_of_tests():
            made = self._info.sample_inputs(device, dtype, requires_grad=requires_grad)
            samples = list(itertools.islice(made, count))
        for sample in samples:
            yield Sample(sample.input, tuple(sample.args), dict(sample.kwargs))


@contextlib.contextmanager
def _without_expecttest() -> Iterator[None]:
    """Import torch's samples if ``expecttest`` is missing.

    Their module also has a base class for torch's own tests, which derives from a class of that package.  Samples need
    neither.
    """
    if importlib.util.find_spec("expecttest") is not None:
        yield
        return
    absent = types.ModuleType("expecttest")
    absent.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules["expecttest"] = absent
    try:
        yield
    finally:
        del sys.modules["expecttest"]


@contextlib.contextmanager
def _outside_of_tests() -> Iterator[None]:
    """Say at once that no test of torch's asks for samples: torch looks for it in the source of every caller."""
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    with contextlib.ExitStack() as stack:
        for module in (common_utils, core):
            if hasattr(module, "extract_test_fn"):  # or this version of torch does not look
                stack.enter_context(mock.patch.object(module, "extract_test_fn", lambda: None))
        yield


def operator(name: str) -> Operator:
    """The operator of that name.

    Raises:
        KeyError: torch has no samples for it.
    """
    return {operator.name: operator for operator in operators()}[name]


@functools.cache
def operators() -> tuple[Operator, ...]:
    """All operators for which torch has samples, by name.  The import takes seconds."""
    with _without_expecttest():
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    found: dict[str, Operator] = {}
    for info in op_db:
        name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        found[name] = Operator(
            name,
            info.op,
            frozenset(info.dtypes),
            frozenset(info.backward_dtypes) if info.supports_autograd else frozenset(),
            isinstance(info, (UnaryUfuncInfo, BinaryUfuncInfo)),
            _is_core(info.aten_name or info.name),
            name in _RANDOM or ("dropout" in name and name.startswith("nn.functional.")),
            info,
        )
    return tuple(found[name] for name in sorted(found))


# Operators whose results have undefined values.
UNDEFINED = frozenset(
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    )
)

# Operators that draw random numbers, although their names do not say so.
_RANDOM = frozenset(
    (
        "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place",
        "normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform",
        "nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    )
)  # fmt: skip


def _is_core(name: str) -> bool:
    """Whether an overload of this name belongs to torch's core ATen operators."""
    packet = getattr(torch.ops.aten, name.rpartition(".")[2], None)
    if packet is None:
        return False
    return any(torch.Tag.core in getattr(packet, overload).tags for overload in packet.overloads())
