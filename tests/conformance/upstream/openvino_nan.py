"""OpenVINO on a CPU: relu, softmax and max pooling take nan for a number.  Exits with 1 while they do."""

import sys

import numpy as np
import openvino
from openvino import opset13 as op

data = np.array([[[np.nan, 1.0, -2.0, 0.0]]], np.float32)
x = op.parameter([1, 1, 4], np.float32)
pooled = op.max_pool(x, [2], [1], [0], [0], [2]).output(0)
compiled = openvino.Core().compile_model(
    openvino.Model([op.softmax(x, -1).output(0), op.relu(x).output(0), pooled], [x]),
    "CPU",
    {"INFERENCE_PRECISION_HINT": "f32"},
)
softmax, relu, pooled = compiled(data).to_tuple()
print("openvino", openvino.__version__, "softmax", softmax, "relu", relu, "max pooling", pooled, "of", data)
sys.exit(int(not (np.isnan(softmax).all() and np.isnan(relu[0, 0, 0]) and np.isnan(pooled[0, 0, 0]))))
