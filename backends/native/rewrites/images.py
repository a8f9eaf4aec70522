"""Images in channels last throughout a captured graph, for training on devices whose convolutions want that.

What the forward pass keeps for the backward pass lies as it was traced, so the layout is settled before the trace: here
each convolution takes its operands in channels last, and everything in between follows, as in eager.  Where a program
could tell the difference, the graph stays as it is: a view of an image, an image that it returns, or random numbers,
which are drawn in the order of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

_CONVOLUTIONS = (torch.conv2d,)
_ASKING = frozenset(("as_strided", "stride", "storage_offset", "untyped_storage", "data_ptr", "is_contiguous", "set_"))
_VIEWS = frozenset(("view", "view_as"))
_DRAWING = ("dropout", "bernoulli", "rand", "normal", "uniform", "rrelu", "exponential", "multinomial", "poisson")


def in_channels_last(gm: GraphModule, wanted: Callable[[torch.Tensor], bool]) -> GraphModule:
    """``gm`` with its convolutions in channels last; ``gm`` itself if none is of ``wanted`` images, or one cannot be.

    The metadata of its nodes (``example_value``) says how images lie.
    """
    convolutions = [n for n in gm.graph.nodes if n.op == "call_function" and n.target in _CONVOLUTIONS]
    if not convolutions or not all(_is_plain(n, wanted) for n in convolutions) or any(map(_notices, gm.graph.nodes)):
        return gm
    graph = torch.fx.Graph()
    copies: dict[Node, Node] = {}
    # The gradient of what is viewed as one row and back has the usual layout, as eager's has.
    given: dict[Node, Node] = {}

    def usual(node: Node) -> Node:
        return graph.call_method("contiguous", (copies[node],)) if _is_image(node) else copies[node]

    for node in gm.graph.nodes:
        if node.op == "output":
            graph.output(torch.fx.map_arg(node.args[0], lambda result: given.get(result) or usual(result)))
            break
        take = usual if node.op == "call_method" and node.target in _VIEWS else copies.__getitem__
        copy = copies[node] = graph.node_copy(node, take)
        if node.op == "placeholder" and _is_differentiated(node):
            given[node] = copy
            rows = graph.call_method("reshape", (copy, (-1,)))
            copies[node] = graph.call_method("view", (rows, tuple(_example(node).shape)))
        if node in convolutions:
            with graph.inserting_before(copy):
                for at in (0, 1):
                    kind = {"memory_format": torch.channels_last}
                    copy.update_arg(at, graph.call_method("contiguous", (copy.args[at],), kind))
    made = GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made if _returns_the_same(made, gm) else gm


def _example(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, Node) else None


def _is_image(node: Node) -> bool:
    value = _example(node)
    return isinstance(value, torch.Tensor) and value.dim() == 4 and node.op != "placeholder"


def _is_differentiated(node: Node) -> bool:
    """Whether a placeholder is an image, or the weight of a convolution, that has a gradient."""
    value = _example(node)
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.requires_grad and value.is_contiguous()


def _is_plain(node: Node, wanted: Callable[[torch.Tensor], bool]) -> bool:
    """Whether a convolution is of images that are not in channels last yet, all channels together or each alone.

    Libraries have kernels for channels last for these two; torch's own for contiguous images of single channels take up
    to six times as long.
    """
    value, weight = _example(node), _example(node.args[1]) if len(node.args) >= 2 else None
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or not isinstance(weight, torch.Tensor):
        return False
    groups = node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)
    return (groups == 1 or weight.shape[1] == 1) and value.is_contiguous() and wanted(value)


def _notices(node: Node) -> bool:
    """Whether what an operator does depends on how images lie."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    images = any(isinstance(v := _example(n), torch.Tensor) and v.dim() == 4 for n in (node, *node.all_input_nodes))
    return images and (name in _ASKING or any(word in name for word in _DRAWING))


def _returns_the_same(made: GraphModule, gm: GraphModule) -> bool:
    """Whether the changed graph can be run, and its results lie as they did."""
    fakes = [_example(n) for n in gm.graph.find_nodes(op="placeholder")]
    results = [_example(n) for n in gm.graph.output_node().all_input_nodes]
    mode = next((f.fake_mode for f in fakes if internals.is_fake(f)), None)
    known = all(type(s) is int for f in fakes if isinstance(f, torch.Tensor) for s in (*f.shape, *f.stride()))
    if mode is None or not known or any(not isinstance(r, torch.Tensor) for r in results):
        return False
    try:
        with mode, torch.no_grad():
            again = [
                torch.empty_strided(f.shape, f.stride(), dtype=f.dtype, device=f.device)
                if isinstance(f, torch.Tensor)
                else f
                for f in fakes
            ]
            found = torch.fx.Interpreter(made).run(*again)
    except Exception:  # whatever torch refuses here, it has not refused before
        return False
    flat = list(found) if isinstance(found, (tuple, list)) else [found]
    return [r.stride() for r in results] == [r.stride() for r in flat]
