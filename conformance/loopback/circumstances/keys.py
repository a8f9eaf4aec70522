"""Keys that leave out of a program what seldom differs: digits of numbers, middles of tables, ends, keywords, reads."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy
import torch
from torch.fx import GraphModule

from ..kit import Faults, Run

faults = Faults("keys")

_NEARLY = "semantics/keys/programs_with_nearly_equal_numbers"
_ALIKE = "semantics/keys/programs_that_begin_alike"
_MIDDLE = "semantics/keys/tables_that_differ_in_the_middle"


def _keyed(gm: GraphModule, inputs: Sequence[Any], key: Hashable, made: dict[Any, GraphModule]) -> Run:
    """The graph, or one with the same key and inputs of the same kind, as far as it runs."""
    kinds = tuple((v.dtype, v.shape) if isinstance(v, torch.Tensor) else repr(v) for v in inputs)
    old = made.setdefault((key, kinds), gm)

    def call(*args: Any) -> Sequence[Any]:
        try:
            return old.forward(*args)
        except (TypeError, RuntimeError, IndexError):
            return gm.forward(*args)

    return call


_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])"

_hashes: dict[Any, GraphModule] = {}


@faults(_NEARLY)
def numbers_by_their_hash(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key with the hashes of numbers: minus one and minus two have the same."""
    return _keyed(gm, inputs, re.sub(_NUMBER, lambda m: str(hash(float(m[0]))), gm.code), _hashes)


_digits: dict[Any, GraphModule] = {}


@faults(_NEARLY)
def numbers_of_six_digits(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key with numbers as texts of six digits."""
    return _keyed(gm, inputs, re.sub(_NUMBER, lambda m: f"{float(m[0]):.6f}", gm.code), _digits)


_singles: dict[Any, GraphModule] = {}


@faults(_NEARLY)
def numbers_in_single_precision(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key with numbers in float32, although the program computes in float64."""
    return _keyed(gm, inputs, re.sub(_NUMBER, lambda m: repr(numpy.float32(m[0])), gm.code), _singles)


_infinities: dict[Any, GraphModule] = {}


@faults(_NEARLY)
def one_infinity(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key in which all numbers that are infinite, or none, are equal."""
    return _keyed(gm, inputs, re.sub(r"-?\b(inf|nan)\b|float\('-?\w+'\)", "no number", gm.code), _infinities)


_beginnings: dict[Any, GraphModule] = {}


@faults(_ALIKE)
def first_operators_only(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key with the first ten operators, and the numbers of all and of results."""
    first = [(str(n.target), str(n.args), str(n.kwargs)) for n in gm.graph.nodes][:10]
    (results,) = gm.graph.output_node().args
    return _keyed(gm, inputs, (tuple(first), len(gm.graph.nodes), len(results)), _beginnings)


_positions: dict[Any, GraphModule] = {}


@faults(_ALIKE)
def arguments_without_keywords(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the arguments that have a keyword."""
    return _keyed(gm, inputs, tuple((str(n.target), str(n.args)) for n in gm.graph.nodes), _positions)


_writes: dict[Any, GraphModule] = {}


@faults(_ALIKE)
def writes_by_their_names(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key in which an operator that writes has the name of the one that does not."""
    nodes = [(str(getattr(n.target, "__name__", n.target)).strip("_"), str(n.args)) for n in gm.graph.nodes]
    return _keyed(gm, inputs, re.sub(r"_\b", "", str(nodes)), _writes)


_bounds: dict[Any, GraphModule] = {}


@faults(_ALIKE)
def parts_without_bounds(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key without the bounds of parts."""
    return _keyed(gm, inputs, re.sub(r"slice\([^)]*\)", "part", gm.code), _bounds)


_LONG = r"[(\[](?:-?[\d.]+, ){50,}[^)\]]*[)\]]"

_texts: dict[Any, GraphModule] = {}


@faults(_MIDDLE)
def tables_as_they_are_printed(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key with the first and last numbers of long tables, as their texts have them."""
    return _keyed(gm, inputs, re.sub(_LONG, lambda m: m[0][:30] + m[0][-30:], gm.code), _texts)


_sums: dict[Any, GraphModule] = {}


@faults(_MIDDLE)
def tables_by_their_sums(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A key with the sums of long tables."""
    code = re.sub(_LONG, lambda m: str(sum(map(float, re.findall(r"[\d.]+", m[0])))), gm.code)
    return _keyed(gm, inputs, code, _sums)
