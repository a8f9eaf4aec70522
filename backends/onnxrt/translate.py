"""From an ATen graph to an ONNX model without weights.

Constants (frozen parameters, tensors that the graph holds) are initializers whose data is not in the model: the session
receives torch's own memory for them.  A model therefore stays small for any weights, far below the 2 GiB limit of a
protobuf message, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

from ..common.adapter import attention

_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def to_onnx(gm: GraphModule, constants: Sequence[int]) -> bytes:
    """The serialized ONNX model of ``gm``, whose nodes have ``meta["val"]``; ``gm`` itself is changed.

    The model's inputs and then its initializers are named ``input_<position>`` by the position of the placeholder,
    its outputs ``output_<position>``.  Placeholders at ``constants`` become initializers without data; a symbolic
    size becomes an int64 scalar.
    """
    import numpy
    from onnxscript import ir, optimizer

    attention.clear_masked_rows(gm.graph)
    for node in gm.graph.nodes:
        # The exporter runs the graph on fake tensors, whose strides need not be those that the trace knows.
        if node.op == "call_function" and node.target in _VIEWS:
            node.target = torch.ops.aten.reshape.default
    gm.recompile()
    internals.onnx_type_promotion(gm)
    for node in gm.graph.nodes:
        node.meta.setdefault("nn_module_stack", {})  # the exporter warns about each node that has none
    version, opset = internals.onnx_versions()
    graph = ir.Graph([], [], nodes=[], name="torchmux", opset_imports={"": opset})
    model = ir.Model(graph, ir_version=version, producer_name="torchmux")
    values = internals.onnx_translate(gm.graph, model)
    inputs = list(graph.inputs)
    results = [values[node.name] for node in _outputs(gm)]
    graph.outputs.clear()
    _give_outputs(ir, graph, results)
    # onnxruntime does most of this itself, but too late: it looks for fusions first, for which a bias that is an
    # expanded zero is no constant yet, and the parts of a split are copied out of a sequence.
    optimizer.inline(model)
    with numpy.errstate(all="ignore"):  # what is infinite or no number is so in torch as well
        optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)
    _name_inputs(ir, graph, inputs, constants)
    internals.onnx_add_opset_imports(model)
    return ir.to_proto(model).SerializeToString()


def _outputs(gm: GraphModule) -> list[Node]:
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    return list(output.args[0])


def _give_outputs(ir: Any, graph: Any, results: list[Any]) -> None:
    """Declare the outputs; one that is also an input or another output gets a separate node."""
    taken = {id(v) for v in graph.inputs}
    for position, value in enumerate(results):
        if id(value) in taken or value.producer() is None:
            node = ir.Node("", "Identity", [value], num_outputs=1)
            node.outputs[0].dtype, node.outputs[0].shape = value.dtype, value.shape
            graph.append(node)
            value = node.outputs[0]
        taken.add(id(value))
        value.name = f"output_{position}"
        graph.outputs.append(value)


def _name_inputs(ir: Any, graph: Any, inputs: list[Any], constants: Sequence[int]) -> None:
    graph.inputs.clear()
    for position, value in enumerate(inputs):
        value.name = f"input_{position}"
        if position in constants:
            size = value.dtype.itemsize
            for dim in value.shape:
                size *= dim
            value.const_value = ir.ExternalTensor(
                value.name, 0, int(size), value.dtype, shape=value.shape, name=value.name
            )
            graph.initializers[value.name] = value
        else:
            graph.inputs.append(value)
