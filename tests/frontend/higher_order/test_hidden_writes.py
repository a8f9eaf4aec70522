"""Functions of autograd that write through ``.data``, which no compiler may make a write of that autograd sees."""

import torch

import torchmux


class Assign(torch.autograd.Function):
    """As ODE solvers have it: several results in one tensor, of which parts are saved in between."""

    @staticmethod
    def forward(ctx, scratch, value, index):
        ctx.index = index
        scratch.data[index] = value
        return scratch

    @staticmethod
    def backward(ctx, grad):
        return grad, grad[ctx.index], None


def steps(x, weight, stop):
    rows = Assign.apply(torch.empty(4, 2, 4), x * weight, (..., 0))
    for i in range(3):
        y = x + torch.sum(rows[..., : i + 1] * 0.1, dim=-1)
        if stop:
            torchmux.graph_break()
        rows = Assign.apply(rows, torch.tanh(y * weight), (..., i + 1))
    return rows.sum() + y.sum()


def test_a_write_through_data_stays_hidden():
    x, weight = torch.randn(4, 2), torch.randn(4, 2, requires_grad=True)
    for stop in (False, True):
        (expected,) = torch.autograd.grad(steps(x, weight, stop), weight)
        compiled = torchmux.compile(lambda x, stop=stop: steps(x, weight, stop), backend="aot_eager")
        (found,) = torch.autograd.grad(compiled(x), weight)
        torch.testing.assert_close(found, expected)
        assert any("behind autograd's back" in each.reason for each in torchmux.report(compiled).breaks)
