"""Chains of the backends that come with torchmux: results, gradients, changed weights, and the next process."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import torchmux

AVAILABLE = set(torchmux.list_backends())
CHAINS = [
    pytest.param(chain, marks=pytest.mark.skipif(not AVAILABLE.issuperset(chain), reason="not installed"))
    for chain in map(str.split, ("openvino native", "onnxrt native", "onnxrt tvm", "native openvino", "openvino eager"))
]


class Net(nn.Module):
    """Most backends take all of it but ``erfinv``; norms and activations are taken apart by some, not by others."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        hidden = nn.functional.gelu(self.norm(self.one(x)))
        hidden = torch.erfinv(torch.tanh(hidden.cumsum(-1)) * 0.5)
        return torch.softmax(self.two(hidden), -1).transpose(0, 1)


@pytest.mark.parametrize("chain", CHAINS)
def test_results_and_gradients(chain) -> None:
    net, x = Net(), torch.randn(3, 8)
    compiled = torchmux.compile(net, backend=chain)
    with torch.no_grad():
        got, wanted = compiled(x), net(x)
        torch.testing.assert_close(got, wanted)
        assert got.stride() == wanted.stride()
        net.one.weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x))
    weights = torch.randn(4, 3)
    (compiled(x) * weights).sum().backward()
    got_gradients = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    (net(x) * weights).sum().backward()
    torch.testing.assert_close(got_gradients, [p.grad for p in net.parameters()], rtol=1e-4, atol=1e-5)
    used = {p.placed_on for p in torchmux.report(compiled).placements}
    assert used <= {*chain, "eager"}


@pytest.mark.skipif(not AVAILABLE.issuperset(("openvino", "native")), reason="not installed")
def test_options_of_a_member_reach_it() -> None:
    net, x = Net().eval(), torch.randn(3, 8)
    options = {"openvino": {"freeze": True}, "native": {"fusion": False}}
    compiled = torchmux.compile(net, backend=["openvino", "native"], options=options)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
        net.one.weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x))  # frozen weights are watched


_PROGRAM = """
import json, torch, torchmux
torch.manual_seed(0)
from test_chain_backends import Net
net, x = Net().eval(), torch.randn(3, 8)
compiled = torchmux.compile(net, backend={chain!r})
with torch.no_grad():
    torch.testing.assert_close(compiled(x), net(x))
(entry,) = torchmux.report(compiled).graphs
report = entry.report
print(json.dumps([report.cache_hits, sorted(map(str, report.placements)), list(map(str, report.crossings))]))
"""


@pytest.mark.skipif(not AVAILABLE.issuperset(("openvino", "native")), reason="not installed")
def test_the_next_process_follows_the_recipe(run_python, request) -> None:
    folder, chain = request.path.parent, ["openvino", "native"]
    first, second = (
        json.loads(run_python(_PROGRAM.format(chain=chain), path=(folder,)).splitlines()[-1]) for _ in range(2)
    )
    assert second[0] == 3
    assert first[1:] == second[1:]
