"""``torch.autograd.Function`` inside of ``torch.func.grad``, ``vmap`` and their relatives."""

from __future__ import annotations

import pytest
import torch

import torchmux


class SquareTimes(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor, y):
        return x**2 * y * factor, x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor, y = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, y, output[0])

    @staticmethod
    def backward(ctx, grad, _):
        x, y, product = ctx.saved_tensors
        return 2 * x * y * ctx.factor * grad, None, product / y * grad


def square_times(a, b):
    product, sign = SquareTimes.apply(a, 2.0, b)
    return product * sign


func = torch.func
IN_TRANSFORMS = {
    "grad": lambda x: func.grad(lambda a, b: square_times(a, b).sum(), argnums=(0, 1))(x, x + 3),
    "second order": lambda x: func.vmap(func.grad(func.grad(lambda a: square_times(a, a + 3))))(x[0]),
    "vmap": lambda x: func.vmap(square_times, in_dims=(1, None), out_dims=1)(x, x[:, 0]),
    "per example": lambda x: func.vmap(func.grad(lambda a: square_times(a, a + 3).sum()))(x),
    "jacobian": lambda x: func.jacrev(func.jacrev(lambda a: square_times(a, a + 3).sum()))(x[0]),
    "vjp": lambda x: func.vjp(lambda a: square_times(a, a + 3), x)[1](x),
    "levels": lambda x: func.grad(lambda a: func.grad(lambda b: square_times(a, b).sum())(a + 3).sum())(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("name", IN_TRANSFORMS)
def test_inside_of_transforms(name, backend):
    function = IN_TRANSFORMS[name]
    torch.manual_seed(0)
    compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    for records in (False, True):
        outcomes = []
        for run in (function, compiled):
            x = torch.linspace(0.5, 2, 6).reshape(2, 3).requires_grad_(records)
            results = run(x)
            leaves = torch.utils._pytree.tree_leaves(results)
            if records:
                sum(leaf.sum() for leaf in leaves).backward()
            outcomes.append([results, x.grad])
        torch.testing.assert_close(outcomes[1], outcomes[0])


class MappedByItself(SquareTimes):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x, factor, y):
        return (x * 5, x * 6), (in_dims[0], in_dims[0])


def test_a_vmap_of_its_own_runs():
    def mapped(x):
        return torch.func.vmap(lambda a: MappedByItself.apply(a, 1.0, a)[0])(x)

    compiled = torchmux.compile(mapped, backend="eager")
    x = torch.ones(2, 3)
    assert torch.equal(compiled(x), x * 5)
    assert "vmap is its own" in str(torchmux.report(compiled))


def test_what_is_neither_argument_nor_result_is_left_to_the_transform():
    factor = torch.full((3,), 3.0, requires_grad=True)

    class Captures(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return grad * factor

    def differentiated(x):
        return torch.func.grad(lambda a: Captures.apply(a).sum())(x)

    compiled = torchmux.compile(differentiated, backend="eager")
    x = torch.ones(3)
    assert torch.equal(compiled(x), differentiated(x))
    assert torchmux.report(compiled).break_count
