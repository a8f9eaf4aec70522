"""A switch of an operator may depend on a number that is symbolic."""

import pytest
import torch

import torchmux


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_a_switch_is_decided_and_guarded(backend):
    def function(x, share):
        return x.sum(0, keepdim=share < 0.5), torch.argmax(x, 0, keepdim=share < 0.5), x * (share < 0.5)

    compiled = torchmux.compile(function, backend=backend, dynamic=True, fullgraph=True)
    x = torch.randn(3, 4)
    for share in (0.2, 0.3, 0.7, 0.1):
        torch.testing.assert_close(compiled(x, share), function(x, share))
    assert torchmux.report(compiled).graph_count == 2
