"""Compile a function and a module, inspect the report, and handle a graph break.

Run it with: python examples/quickstart.py
"""

import torch

import torchmux

# --- available backends ----------------------------------------------------------------------------------------------

for row in torchmux.backends():
    print(f"{row.name:10} {'yes' if row.available else row.reason}")

# --- a module --------------------------------------------------------------------------------------------------------

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
compiled = torchmux.compile(model, backend="aot_eager")

x = torch.randn(8, 16)
torch.testing.assert_close(compiled(x), model(x))
assert compiled.state_dict().keys() == model.state_dict().keys()

# Training works too: the backward graph goes to the same backend.
compiled(x).square().mean().backward()
assert all(parameter.grad is not None for parameter in model.parameters())

print(torchmux.report(compiled))

# --- a function that cannot be captured in one graph -----------------------------------------------------------------


@torchmux.compile(backend="eager")
def scale(x):
    if x.sum() > 0:  # the direction is known only after the graph runs
        return x * 2
    return x - 1


torch.testing.assert_close(scale(torch.ones(3)), torch.full((3,), 2.0))
torch.testing.assert_close(scale(-torch.ones(3)), torch.full((3,), -2.0))

print(torchmux.explain(scale)(torch.ones(3)))

# --- the same with graph breaks forbidden ----------------------------------------------------------------------------


@torchmux.compile(backend="eager", fullgraph=True)
def scale_in_one_graph(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


try:
    scale_in_one_graph(torch.ones(3))
except torchmux.Unsupported as error:
    print(error)
else:
    raise AssertionError("fullgraph=True must refuse a branch on the value of a tensor")
