"""Code that was made for another program, call or setting: keys that leave something out."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .kit import Faults, Run

faults = Faults("keys")


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor)]


def _shapes(inputs: Sequence[Any]) -> Hashable:
    return tuple(tuple(map(int, t.shape)) for t in _tensors(inputs))


_equal: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_numbers")
def numbers_by_equality(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key in which one, one point nought and True are equal, and so are zeros of both signs."""
    operators = tuple(
        (str(n.target), tuple(a for a in n.args if isinstance(a, (int, float))))
        for n in gm.graph.nodes if n.op in ("call_function", "call_method")
    )  # fmt: skip
    whole = tuple((n.op, str(n.target), len(n.all_input_nodes)) for n in gm.graph.nodes)
    dtypes = tuple(t.dtype for t in _tensors(inputs))
    return _equal.setdefault((operators, whole, _shapes(inputs), dtypes, len(inputs)), gm.forward)


_without_numbers: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_numbers")
def keys_without_numbers(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the numbers of the program."""
    code = re.sub(r"(?<![\w.])-?\d+(\.\d+)?(?![\w.])", "", gm.code)
    return _without_numbers.setdefault((code, _shapes(inputs), len(inputs)), gm.forward)


_operators: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_numbers")
def keys_of_operators(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key of the names of operators, their order, and the shapes of inputs."""
    names = tuple(str(n.target) for n in gm.graph.nodes if n.op != "placeholder")
    return _operators.setdefault((names, _shapes(inputs), len(inputs)), gm.forward)


_dtypes: dict[Any, list[torch.dtype]] = {}


@faults("semantics/keys/inputs_that_differ")
def keys_without_dtypes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the dtypes of inputs: results have those of the first program."""
    key = gm.code, _shapes(inputs)

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        first = _dtypes.setdefault(key, [r.dtype for r in _tensors(results)])
        plain = iter(first if len(first) == len(_tensors(results)) else [r.dtype for r in _tensors(results)])
        return [r.to(next(plain)) if isinstance(r, torch.Tensor) else r for r in results]

    return call


_strides: dict[Any, list[tuple[int, ...]]] = {}


@faults("semantics/keys/inputs_that_differ")
def keys_without_strides(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the strides of inputs: they are read with those of the first program."""
    key = gm.code, _shapes(inputs), tuple(t.dtype for t in _tensors(inputs))

    def call(*args: Any) -> Sequence[Any]:
        first = iter(_strides.setdefault(key, [tuple(t.stride()) for t in _tensors(args)]))
        return gm.forward(*(_read(a, next(first)) if isinstance(a, torch.Tensor) else a for a in args))

    return call


def _read(t: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor read with other strides, where it has enough memory."""
    if len(strides) != t.dim() or t.requires_grad or not t.numel():
        return t
    last = t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, strides, strict=True))
    if (last + 1) * t.element_size() > t.untyped_storage().nbytes():
        return t
    return t.as_strided(t.shape, strides, t.storage_offset())


_sizes: dict[Any, list[int]] = {}


@faults("semantics/keys/inputs_that_differ")
def keys_without_broadcasts(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without sizes of one: an input is read as if it had its first number of elements in each row."""
    key = gm.code, tuple(t.dim() for t in _tensors(inputs))

    def change(a: Any, first: int) -> Any:
        alone = isinstance(a, torch.Tensor) and a.dim() == 2 and a.shape[-1] == 1 and first > 1
        return a[:1].expand(a.shape) if alone else a

    def call(*args: Any) -> Sequence[Any]:
        widths = _sizes.setdefault(key, [t.shape[-1] if t.dim() else 1 for t in _tensors(args)])
        first = iter(widths)
        return gm.forward(*(change(a, next(first)) if isinstance(a, torch.Tensor) else a for a in args))

    return call


_defaults: dict[str, torch.dtype] = {}


@faults("semantics/keys/settings_that_change")
def the_first_default_dtype(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the default dtype: what a program makes has that of its first compilation."""
    first = _defaults.setdefault(re.sub(r"torch\.float\d+", "", gm.code), torch.get_default_dtype())

    def call(*args: Any) -> Sequence[Any]:
        now = torch.get_default_dtype()
        torch.set_default_dtype(first)
        try:
            return [
                r.to(first) if isinstance(r, torch.Tensor) and r.dtype is torch.float64 else r
                for r in gm.forward(*args)
            ]
        finally:
            torch.set_default_dtype(now)

    return call


_casts: dict[Any, tuple[bool, torch.dtype]] = {}


@faults("semantics/keys/settings_that_change")
def the_first_autocast(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the dtype of autocast: it stays the first one."""
    now = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    enabled, dtype = _casts.setdefault((gm.code, _shapes(inputs), now[0]), now)

    def call(*args: Any) -> Sequence[Any]:
        with torch.autocast("cpu", dtype, enabled=enabled):
            return gm.forward(*args)

    return call


_operands: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_numbers")
def keys_of_sorted_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key in which the order of the operators' operands does not count."""
    parts = sorted(f"{n.target}:{sorted(map(str, n.args))}" for n in gm.graph.nodes if n.op == "call_function")
    return _operands.setdefault((tuple(parts), _shapes(inputs), len(inputs)), gm.forward)


def _signature(inputs: Sequence[Any]) -> Hashable:
    return _shapes(inputs), tuple(t.dtype for t in _tensors(inputs)), len(inputs)


_without_words: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_words")
def keys_without_words(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the words among the arguments of operators, such as modes and equations."""
    return _without_words.setdefault((re.sub(r"'[^']*'", "", gm.code), _signature(inputs)), gm.forward)


_without_truth: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_words")
def keys_without_truth(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without True and False among the arguments of operators."""
    return _without_truth.setdefault((re.sub(r"\b(True|False)\b", "", gm.code), _signature(inputs)), gm.forward)


_without_types: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_words")
def keys_without_types(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the dtypes among the arguments of operators."""
    code = re.sub(r"torch\.(float|int)\d+", "", gm.code)
    return _without_types.setdefault((code, _signature(inputs)), gm.forward)


_without_places: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_words")
def keys_without_places(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key in which arguments that are None do not count, nor which of the others stands where."""
    nodes = tuple(
        (str(n.target), tuple(str(a) for a in n.args if a is not None), tuple(map(str, n.kwargs.values())))
        for n in gm.graph.nodes
    )
    return _without_places.setdefault((nodes, _signature(inputs)), gm.forward)


_without_order: dict[Any, Run] = {}


@faults("semantics/keys/programs_with_other_words")
def keys_without_the_order_of_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the order of results."""
    body = gm.code.partition("return")[0]
    (results,) = gm.graph.output_node().args
    return _without_order.setdefault((body, frozenset(map(str, results)), _signature(inputs)), gm.forward)
