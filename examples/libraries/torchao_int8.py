"""A model whose linear layers torchao has quantized, compiled: weights in int8, activations in float32.

Run it with: python examples/libraries/torchao_int8.py
It needs torchao: python -m pip install torchao
"""

import torch
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_

import torchmux

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval()
quantize_(model, Int8WeightOnlyConfig())
compiled = torchmux.compile(model)

x = torch.randn(4, 32)  # four rows of 32 numbers
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)

report = torchmux.report(compiled)
assert report.graph_count == 1 and not report.breaks
print(report)
