"""The implementation: which nodes numpy accepts, and how a graph of them runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch.fx.node import map_arg

from torchmux.registry import CompiledPart, CompileRequest

aten = torch.ops.aten


def _product(a: Any, b: Any, precise: bool) -> Any:
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype) if precise else a @ b


# One entry for each operator; the last argument says whether matrix products are computed in float64.
TABLE: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: lambda a, b, precise: a + b,
    aten.sub.Tensor: lambda a, b, precise: a - b,
    aten.mul.Tensor: lambda a, b, precise: a * b,
    aten.relu.default: lambda a, precise: np.maximum(a, 0),
    aten.tanh.default: lambda a, precise: np.tanh(a),
    aten.t.default: lambda a, precise: a.T,
    aten.permute.default: lambda a, dims, precise: a.transpose(dims),
    aten.mm.default: _product,
    aten.addmm.default: lambda bias, a, b, precise: bias + _product(a, b, precise),
}


class NumpyBackend:
    """Follows `torchmux.registry.Backend`; of the optional members in `BackendExtras` it needs none."""

    def supports(self, node: torch.fx.Node) -> Literal[True] | str:
        """``True``, or the reason why this node runs in eager; users read it in the report."""
        if node.target not in TABLE:
            return f"{node.target} is not among the operators that numpy runs here"
        if node.kwargs:
            return f"{node.target} is called with {', '.join(node.kwargs)}"
        value = node.meta["val"]
        operands = [value, *(operand.meta["val"] for operand in node.all_input_nodes)]
        for tensor in operands:
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
                return f"numpy does not run on {tensor.device.type}"
            # One dtype throughout: numpy and torch promote mixed dtypes differently.
            if isinstance(tensor, torch.Tensor) and tensor.dtype is not value.dtype:
                return f"numpy promotes {tensor.dtype} and {value.dtype} differently from torch"
        if value.dtype not in (torch.float32, torch.float64):
            return f"numpy is used only for float32 and float64, not {value.dtype}"
        return True

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> CompiledPart:
        """A callable on flat inputs; every node passed :meth:`supports`, and the options are checked."""
        precise = request.options.matmul_precision == "float64"
        nodes = list(gm.graph.nodes)
        # A tensor that the program makes of numbers is an attribute of the graph's module.
        constants = {
            node: functools.reduce(getattr, node.target.split("."), gm).detach().numpy()
            for node in nodes
            if node.op == "get_attr"
        }
        orders = [
            value.meta["val"].dim_order() if isinstance(value, torch.fx.Node) else () for value in nodes[-1].args[0]
        ]

        def run(*inputs: Any) -> tuple[Any, ...]:
            values: dict[torch.fx.Node, Any] = {}
            remaining = iter(inputs)
            for node in nodes:
                if node.op == "placeholder":
                    value = next(remaining)
                    values[node] = value.detach().numpy() if isinstance(value, torch.Tensor) else value
                elif node.op == "get_attr":
                    values[node] = constants[node]
                elif node.op == "call_function":
                    # A result without dimensions would become a numpy scalar.
                    values[node] = np.asarray(TABLE[node.target](*map_arg(node.args, values.get), precise))
                elif node.op == "output":
                    results = map_arg(node.args[0], values.get)
                    return tuple(_as_torch(value, order) for value, order in zip(results, orders, strict=True))
            raise AssertionError("a graph ends with its output")

        return run


def _as_torch(value: Any, order: tuple[int, ...]) -> Any:
    """A result in eager's memory layout: later operators may take views of it, and numpy chooses its own layout."""
    if not isinstance(value, np.ndarray):
        return value
    result = torch.from_numpy(value)
    if result.dim_order() == order:
        return result
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)
