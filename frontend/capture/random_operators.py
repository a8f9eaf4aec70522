"""Which nodes of a graph may draw random numbers."""

from __future__ import annotations

import inspect
import re
import types
from typing import Any

import torch

from torchmux import torch_internals as ti

_NAMES = re.compile(
    r"rand|drop|bernoulli|normal(?!ize)|multinomial|poisson|exponential|uniform|cauchy|geometric|gumbel|rrelu|attention|"
    r"fractional|lstm|gru|rnn"
)
_ATTENTION = torch.nn.functional.scaled_dot_product_attention


def may_draw(node: Any) -> bool:
    """Whether an operator may draw random numbers: by its name, unless its arguments say that it does not."""
    if node.op not in ("call_function", "call_method"):
        return False
    if overloads := ti.overloads(node.target):  # of a library's own operators, nobody knows
        return any(op.namespace != "aten" or torch.Tag.nondeterministic_seeded in op.tags for op in overloads)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if _NAMES.search(name) is None:
        return False
    if node.target is _ATTENTION:
        dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return not (type(dropout) in (int, float) and dropout == 0)
    return argument(node, "training") is not False


def argument(node: Any, name: str) -> Any:
    """What a node gives for a parameter of the function that it calls; None if nothing, or if nobody knows."""
    if name in node.kwargs:
        return node.kwargs[name]
    if not isinstance(node.target, types.FunctionType):
        return None
    return inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get(name)
