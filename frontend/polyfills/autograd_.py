"""Hooks of tensors, as functions of autograd."""

import torch


class HookedGradient(torch.autograd.Function):
    """A copy of a tensor, which may be changed in place; `hook` is called with its gradient before that goes on."""

    @staticmethod
    def forward(ctx, tensor, hook):
        ctx.hook = hook
        return tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        found = ctx.hook(grad)
        return (grad if found is None else found), None
