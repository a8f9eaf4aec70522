"""onnxruntime: ReduceMax, ReduceMin and MaxPool leave out nan.  Exits with 1 while they do."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

row = np.array([[1.0, np.nan, -2.0, 0.0]], np.float32)
data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])
node = helper.make_node("ReduceMax", ["x"], ["y"], keepdims=1)
graph = helper.make_graph([node], "graph", [data], [result])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
(found,) = session.run(None, {"x": row})
print("onnxruntime", onnxruntime.__version__, "ReduceMax", found, "numpy", row.max())
sys.exit(int(not np.isnan(found).all()))
