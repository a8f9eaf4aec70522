"""From an ATen graph to an OpenVINO model, through OpenVINO's own decoder of torch.fx graphs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..common.adapter.bugs import raise_mistake
from .rewrite import rewrite

# How the frontend reports what it could not convert.
_REPORT = "Model wasn't fully converted"
_NO_RULE = "No conversion rule found for operations: "
_FAILED = "Exception happened during conversion of operation "
_SAYS_NOTHING = ("Check '", "FrontEnd API", "Exception from", "Summary:", "-- Conversion is")


@functools.cache
def _frontend() -> Any:
    from openvino.frontend import FrontEndManager

    return FrontEndManager().load_by_framework("pytorch")


@functools.cache
def _decoder_class() -> Any:
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    class Decoder(TorchFXPythonDecoder):
        """Names inputs by their place in the graph, since the frontend wants every name of a value to be a number."""

        def get_input_debug_name(self, index: int) -> str:
            return str(self._inputs[index])

        def get_input_signature_name(self, index: int) -> str:
            return f"input_{index}"

    return Decoder


def to_openvino(gm: GraphModule) -> Any:
    """The ``openvino.Model`` of ``gm``, whose nodes have ``meta["val"]``; ``gm`` itself is changed.

    Its inputs are the placeholders in order, a symbolic size an int64 scalar; symbolic dimensions are dynamic.
    Tensors that ``gm`` holds become constants on torch's memory: the owner of the model must also hold ``gm``.

    Raises:
        RuntimeError: the frontend does not convert some node (``OpConversionFailure``, which names it).
    """
    rewrite(gm.graph)
    return _as_it_is(gm)


def _as_it_is(gm: GraphModule) -> Any:
    placeholders = gm.graph.find_nodes(op="placeholder")
    shapes, types = [_shape(n) for n in placeholders], [_type(n) for n in placeholders]
    # What is loaded refers to the decoder without keeping it alive; a name of its own does.
    decoder = _decoder_class()(gm, input_shapes=shapes, input_types=types)
    return _frontend().convert(_frontend().load(decoder))


def blamed(gm: GraphModule, error: BaseException) -> dict[str, str]:
    """The nodes of ``gm`` that made :func:`to_openvino` raise ``error``, by name, and what is wrong with each.

    Nodes may convert alone and fail together, where the frontend has lost track of a shape.
    """
    names = {node.name for node in gm.graph.nodes}
    found = {}
    for entry in str(error).split(_FAILED)[1:]:
        name = entry.partition("/")[0]
        if name in names:
            found[name] = reason_of(entry.partition("\n-- ")[0].partition("\n\n")[0])
    return found


def reason_of(error: BaseException | str) -> str:
    """The last sentence of an OpenVINO exception that says something; what comes before is where in its sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_SAYS_NOTHING)]
    return f"OpenVINO refuses: {(telling or lines or ['no reason'])[-1].removeprefix('-- ')[:200]}"


def without_rule(operators: Sequence[Any]) -> set[Any]:
    """Those of some ATen overloads that the frontend has no conversion rule for, whatever their arguments.

    It is asked to convert a graph of all of them, with arguments that are wrong for most: its complaint tells the
    operators without a rule from those whose rule did not like the arguments.
    """
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2, 2)
    graph.output(tuple(graph.call_function(op, (x,)) for op in operators))
    try:
        _as_it_is(GraphModule({}, graph))
    except Exception as error:
        raise_mistake(error)
        text = str(error)
        if _REPORT in text:
            _, found, rest = text.partition(_NO_RULE)
            names = set(rest.partition("\n")[0].split(", ")) if found else set()
            return {op for op in operators if str(op) in names}
        if len(operators) == 1:
            return set(operators)
        # Some operator confused the frontend altogether: it is one half or the other that holds it.
        middle = len(operators) // 2
        return without_rule(operators[:middle]) | without_rule(operators[middle:])
    return set()


def _shape(node: Node) -> list[int]:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return []
    return [size if type(size) is int else -1 for size in value.shape]


def _type(node: Node) -> Any:
    value = node.meta["val"]
    return value.dtype if isinstance(value, torch.Tensor) else "int"
