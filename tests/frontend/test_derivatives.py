"""Every derivative of a compiled function is eager's: functions, ways to differentiate, and whether it ran before."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad, functional

import torchmux

FUNCTIONS = {
    "cubic": lambda x: (x**3).sum(),
    "sin": lambda x: (x.sin() * x.exp()).sum(),
    "matmul": lambda x: (x.view(2, 2) @ x.view(2, 2).t()).pow(2).sum(),
    "softmax": lambda x: F.softmax(x, 0)[0],
    "gelu": lambda x: F.gelu(x).prod(),
    "norm": lambda x: F.layer_norm(x, (4,)).pow(3).sum(),
    "where": lambda x: torch.where(x > 0, x * x, x.exp()).sum(),
    "in_place": lambda x: (x * 1).mul_(x).add_(x.sin()).sum(),
}


def tangent(f, x, v):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(x, v))).tangent


def double_backward(f, x, v):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    (gradient * v).sum().backward()
    return x.grad


def forward_over_reverse(f, x, v):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), v)
        (gradient,) = torch.autograd.grad(f(dual), dual, create_graph=True)
        return forward_ad.unpack_dual(gradient).tangent


FORWARD = {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}
DERIVATIVES = {
    "hessian": lambda f, x, v: functional.hessian(f, x),
    "hessian_batched": lambda f, x, v: functional.hessian(f, x, vectorize=True),
    "hessian_forward": lambda f, x, v: functional.hessian(f, x, **FORWARD),
    "jacobian": lambda f, x, v: functional.jacobian(f, x),
    "jacobian_forward": lambda f, x, v: functional.jacobian(f, x, vectorize=True, strategy="forward-mode"),
    "hvp": lambda f, x, v: functional.hvp(f, x, v)[1],
    "vhp": lambda f, x, v: functional.vhp(f, x, v)[1],
    "jvp": lambda f, x, v: functional.jvp(f, x, v)[1],
    "func_grad": lambda f, x, v: torch.func.grad(f)(x),
    "func_jvp": lambda f, x, v: torch.func.jvp(f, (x,), (v,))[1],
    "func_hessian": lambda f, x, v: torch.func.hessian(f)(x),
    "func_jacrev": lambda f, x, v: torch.func.jacrev(f)(x),
    "func_jacfwd": lambda f, x, v: torch.func.jacfwd(f)(x),
    "vmap": lambda f, x, v: torch.vmap(f)(torch.stack([x, v])),
    "tangent": tangent,
    "double_backward": double_backward,
    "forward_over_reverse": forward_over_reverse,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_derivative(function, backend):
    f = FUNCTIONS[function]
    for number, (name, derive) in enumerate(DERIVATIVES.items()):
        torch.manual_seed(3)
        x, v = torch.randn(4), torch.randn(4)
        torchmux.reset()
        compiled = torchmux.compile(f, backend=backend)
        if number % 2:  # it has compiled code for plain calls and for training
            compiled(x.clone())
            compiled(x.clone().requires_grad_()).backward()
        torch.testing.assert_close(
            derive(compiled, x, v), derive(f, x, v), rtol=1e-4, atol=1e-5, msg=f"{function} {name}"
        )
