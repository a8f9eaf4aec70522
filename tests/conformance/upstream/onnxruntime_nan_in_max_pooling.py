"""onnxruntime: MaxPool leaves out nan, and of minus infinity it makes the lowest finite number.

Exits with 1 while it does one of both.
"""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

row = np.array([[[1.0, np.nan, -np.inf, -np.inf]]], np.float32)
data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4])
result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2])
node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2])
graph = helper.make_graph([node], "graph", [data], [result])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(found,) = session.run(None, {"x": row})
print("onnxruntime", onnxruntime.__version__, "MaxPool", found, "of", row)
sys.exit(int(not (np.isnan(found[0, 0, 0]) and np.isneginf(found[0, 0, 1]))))
