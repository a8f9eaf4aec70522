"""Products of int8 in a graph that torchao's PT2E has quantized.

PT2E leaves pairs of quantization and dequantization around operators of float32.  Here linear layers and convolutions
between such pairs become one product of int8 in int32, with the scales and the bias after it, in operators that every
backend takes.  A product of n terms is exact up to n = 2 ** 17, where int32 ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.fx import GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

_TO_TENSOR = "quantize_per_tensor"
_FROM_TENSOR = "dequantize_per_tensor"
_FROM_CHANNEL = "dequantize_per_channel"

_MOST_TERMS = 2**17
"""128 * 128 * this is the end of int32."""


def quantized(x: torch.Tensor, scale: float, zero: int, low: int, high: int) -> torch.Tensor:
    """``x`` in int8: the nearest of the numbers ``(q - zero) * scale``."""
    whole = torch.round(x * (1.0 / scale))
    return torch.clamp(whole + zero if zero else whole, low, high).to(torch.int8)


def dequantized(q: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    whole = q.to(torch.float32)
    return (whole - zero if zero else whole) * scale


def dequantized_channels(q: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """``q`` in float32, with scales and zeros that have this ``shape`` beside it."""
    return (q.to(torch.float32) - zeros.reshape(shape)) * scales.reshape(shape)


def linear(
    q: torch.Tensor, zero: int, weight: torch.Tensor, sums: torch.Tensor, scales: torch.Tensor, bias: Any
) -> Any:
    """A linear layer of int8 in float32.

    Args:
        q: int8, [..., n], and ``zero`` stands for 0 in it.
        weight: int8, [n, m], and 0 stands for 0 in it.
        sums: int32, [m], of ``weight`` over n.
        scales: float32, [m], of the products.
        bias: float32, [m], or None.
    """
    rows = q.reshape(-1, weight.shape[0])
    found = torch._int_mm(rows, weight)
    result = (found - sums * zero if zero else found).to(torch.float32) * scales
    if bias is not None:
        result = result + bias
    return result.reshape(q.shape[:-1] + (weight.shape[1],))


def convolution(
    q: torch.Tensor,
    zero: int,
    weight: torch.Tensor,
    sums: torch.Tensor,
    scales: torch.Tensor,
    bias: Any,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Any:
    """A convolution in two dimensions as a linear layer of the windows: ``q`` is int8, [N, C, H, W]."""
    if any(padding):
        q = torch.nn.functional.pad(q, (padding[1], padding[1], padding[0], padding[0]), value=zero)
    if kernel == [1, 1]:
        windows = q[:, :, :: stride[0], :: stride[1]].permute(0, 2, 3, 1)
    else:
        high, wide = (step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True))
        windows = q.unfold(2, high, stride[0])[..., :: dilation[0]].unfold(3, wide, stride[1])[..., :: dilation[1]]
        windows = windows.permute(0, 2, 3, 1, 4, 5).flatten(3)
    return linear(windows, zero, weight, sums, scales, bias).permute(0, 3, 1, 2).contiguous()


def is_exact() -> bool:
    """Whether products of int8 are exact on this processor.  Some without VNNI add pairs of them in 16 bits."""
    ends = torch.tensor([-128, 127], dtype=torch.int8)
    left = ends.repeat(2)[:, None].expand(4, 64).contiguous()
    right = ends.repeat(4)[None].expand(64, 8).contiguous()
    return torch.equal(torch._int_mm(left, right), (left.long() @ right.long()).int())


def number_paddings(gm: GraphModule) -> None:
    """Write the paddings ``"same"`` and ``"valid"`` of convolutions as numbers, in place: torchao takes no others."""
    for node in list(gm.graph.nodes):
        if node.target is not torch.ops.aten.conv2d.padding:
            continue
        given: list[Any] = [*node.args, *[None] * (3 - len(node.args))]
        x, weight, bias, *rest = given
        defaults: list[Any] = [[1, 1], "valid", [1, 1], 1]
        stride, padding, dilation, groups = [*rest, *defaults[len(rest) :]]
        kernel = weight.meta["val"].shape[2:]
        steps = zip(_pair(dilation), kernel, strict=True)
        total = [step * (size - 1) if padding == "same" else 0 for step, size in steps]
        before = [each // 2 for each in total]
        (top, left), (bottom, right) = before, [all_of - b for all_of, b in zip(total, before, strict=True)]
        with gm.graph.inserting_before(node):
            if (top, left) != (bottom, right):  # torch adds the odd one after
                pad, (top, left) = [left, right, top, bottom], (0, 0)
                padded = gm.graph.call_function(torch.ops.aten.pad.default, (x, pad))
                padded.meta["val"] = torch.ops.aten.pad.default(x.meta["val"], pad)
                x = padded
            made = gm.graph.call_function(
                torch.ops.aten.conv2d.default, (x, weight, bias, stride, [top, left], dilation, groups)
            )
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        gm.graph.erase_node(node)
    gm.recompile()


def lower(gm: GraphModule) -> tuple[Counter[str], list[str]]:
    """Put products of int8 where ``gm`` has quantized ones, in place.

    Returns:
        How many there are by kind of layer, and which others stay products of float32, and why.
    """
    done: Counter[str] = Counter()
    left: list[str] = []
    for node in _all(gm, _TO_TENSOR):
        x, scale, zero, low, high, dtype = node.args
        shift = _shift(dtype)
        _replace(gm, node, quantized, (x, scale, zero - shift, low - shift, high - shift))
    for node in list(gm.graph.nodes):
        if node.target in _LAYERS:
            why = _lower(gm, node)
        elif _name(node) in _OTHER_LAYERS:
            why = f"PT2E does not quantize {node.target}"
        else:
            continue
        if why is None:
            done[_LAYERS[node.target]] += 1
        else:
            left.append(f"{node.name}: {why}")
    for node in _all(gm, _FROM_TENSOR):
        q, scale, zero, _, _, dtype = node.args
        _replace(gm, node, dequantized, (q, scale, zero - _shift(dtype)))
    for node in _all(gm, _FROM_CHANNEL):
        weight, scales, zeros, axis = node.args[:4]
        held = _held(gm, weight)
        dims = (weight.meta["val"] if held is None else held).dim()
        shape = [-1 if d == axis else 1 for d in range(dims)]
        _replace(gm, node, dequantized_channels, (weight, scales, zeros, shape))
    gm.graph.eliminate_dead_code()
    _drop_unused(gm)
    gm.recompile()
    return done, left


_LAYERS = {torch.ops.aten.linear.default: "linear layers", torch.ops.aten.conv2d.default: "convolutions"}
_OTHER_LAYERS = frozenset([
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "bilinear",
    "lstm", "gru", "rnn_tanh", "rnn_relu",
])  # fmt: skip


def _lower(gm: GraphModule, node: Node) -> str | None:
    """Replace a layer, or say why not."""
    given: list[Any] = [*node.args, *[None] * (3 - len(node.args))]
    x, weight, bias, *rest = given
    if node.kwargs or not (_is(x, _FROM_TENSOR) and _is(weight, _FROM_CHANNEL)):
        return "PT2E quantizes only its weight or its input, or neither"
    stored, scales, zeros, axis = weight.args[:4]
    values, factors, offsets = (_held(gm, each) for each in (stored, scales, zeros))
    if values is None or factors is None or offsets is None or values.dtype is not torch.int8 or axis or offsets.any():
        return "its weight is no constant of int8 with a scale for each output"
    terms = values[0].numel()
    if terms > _MOST_TERMS:
        return f"a sum of {terms} products does not fit into int32"
    defaults: list[Any] = [[1, 1], [0, 0], [1, 1], 1]
    stride, padding, dilation, groups = [*rest, *defaults[len(rest) :]]
    if groups != 1:
        return f"there is no product of int8 for a convolution with groups={groups}"
    q, scale, zero, _, _, dtype = x.args
    matrix = values.flatten(1).t()
    constants = (matrix, matrix.sum(0, dtype=torch.int32), factors.to(torch.float32) * scale)
    with gm.graph.inserting_before(node):
        held = [
            _hold(gm, f"{node.name}_{what}", c) for what, c in zip(("int8", "sums", "scales"), constants, strict=True)
        ]
    args = (q, zero - _shift(dtype), *held, bias)
    if node.target is torch.ops.aten.linear.default:
        _replace(gm, node, linear, args)
    else:
        _replace(gm, node, convolution, (*args, list(values.shape[2:]), *map(_pair, (stride, padding, dilation))))
    return None


def _shift(dtype: torch.dtype) -> int:
    """What makes int8 of ``dtype``: torch multiplies int8 alone."""
    return 128 if dtype is torch.uint8 else 0


def _pair(values: Any) -> list[int]:
    return [*values] * (2 // len(values))


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", "")).split(".")[0]


def _is(node: Any, name: str) -> bool:
    return isinstance(node, Node) and _name(node) == name


def _all(gm: GraphModule, name: str) -> list[Node]:
    return [node for node in gm.graph.nodes if _is(node, name)]


def _replace(gm: GraphModule, node: Node, function: Any, args: tuple[Any, ...]) -> None:
    """Put the operators of ``function`` in the place of ``node``."""
    tracer = GraphAppendingTracer(gm.graph)
    with gm.graph.inserting_before(node):
        made = function(*(Proxy(each, tracer) if isinstance(each, Node) else each for each in args))
    node.replace_all_uses_with(made.node)
    gm.graph.erase_node(node)


def _held(gm: GraphModule, node: Any) -> torch.Tensor | None:
    found = getattr(gm, node.target, None) if isinstance(node, Node) and node.op == "get_attr" else None
    return found if isinstance(found, torch.Tensor) else None


def _hold(gm: GraphModule, name: str, value: torch.Tensor) -> Node:
    gm.register_buffer(name, value)
    return gm.graph.get_attr(name)


def _drop_unused(gm: GraphModule) -> None:
    """Let go of tensors that the graph no longer reads, such as weights of float32."""
    read = {node.target for node in gm.graph.nodes if node.op == "get_attr"}
    for module_name, module in list(gm.named_modules()):
        prefix = f"{module_name}." if module_name else ""
        for name in [*dict(module.named_parameters(recurse=False)), *dict(module.named_buffers(recurse=False))]:
            if prefix + name not in read:
                delattr(module, name)
