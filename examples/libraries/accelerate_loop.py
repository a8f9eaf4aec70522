"""A training loop of accelerate: ``prepare`` takes the compiled module.

Run it with: python examples/libraries/accelerate_loop.py
It needs accelerate: python -m pip install accelerate
"""

import accelerate
import torch
from torch import nn

import torchmux

torch.manual_seed(0)
x, y = torch.randn(8, 8), torch.arange(8) % 2

accelerator = accelerate.Accelerator(cpu=True)
model = torchmux.compile(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)))
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))

losses = []
for _ in range(5):
    loss = nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

assert losses[-1] < losses[0]
report = torchmux.report(model)
assert report.graph_count == 1 and not report.breaks
print(report)
