"""``torchmux.compile_repeated_blocks``: equal layers share what one of them was compiled to."""

from __future__ import annotations

import copy

import pytest
import torch

import torchmux


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))

    def forward(self, x, scale=1.0):
        return x + self.inner(x) * scale


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, scale=0.5)
        return x


@pytest.mark.parametrize("blocks", [None, ["Block"]])
def test_layers_share_their_code_and_keep_their_weights(blocks):
    torch.manual_seed(0)
    torchmux.reset()
    net = Net()
    wanted = copy.deepcopy(net)
    keys = list(net.state_dict())
    names = torchmux.compile_repeated_blocks(net, blocks, backend="aot_eager", fullgraph=True)
    assert names == [f"layers.{n}" for n in range(6)]
    assert list(net.state_dict()) == keys
    x = torch.randn(3, 8, requires_grad=True)  # as the inputs of all layers but the first do anyway
    for _ in range(2):
        torch.testing.assert_close(net(x), wanted(x))
        report = torchmux.report(net.layers[0].forward.func)
        assert (report.graph_count, report.recompiles) == (1, [])
        with torch.no_grad():
            for each in (net, wanted):
                each.layers[3].inner[0].weight.mul_(2)
    net(x).sum().backward()
    wanted(x).sum().backward()
    for found, right in zip(net.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(found.grad, right.grad)


def test_models_without_such_layers():
    with pytest.raises(ValueError, match="finds no layers that are repeated"):
        torchmux.compile_repeated_blocks(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="Name their classes"):
        torchmux.compile_repeated_blocks(Net(), ["Layer"])
    with pytest.raises(TypeError, match="takes a module"):
        torchmux.compile_repeated_blocks(lambda x: x)
