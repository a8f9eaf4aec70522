"""What the tests of regions share: a function compiled and not, its results and its gradients."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

import torchmux

BACKENDS = ("eager", "aot_eager")


def gradients(results, leaves):
    """The gradients of a sum over all results, for those of ``leaves`` that want one."""
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    for leaf in wanted:
        leaf.grad = None
    ends = [r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad]
    if not ends or not wanted:
        return None
    loss = sum((end * torch.arange(1.0, end.numel() + 1).view_as(end)).sum() for end in ends)
    loss.backward(retain_graph=True)
    return [leaf.grad for leaf in wanted]


def agree(function, *args, backend, parameters=(), breaks=0, compiled=None, seed=None, **options):
    """Compile and run with gradients, and compare with eager; the compiled function.

    ``breaks`` is the number of graph breaks, or None for any; ``compiled`` is what an earlier call returned.
    """
    if compiled is None:
        compiled = torchmux.compile(function, backend=backend, fullgraph=breaks == 0, **options)
    leaves = [*(a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)), *parameters]
    outcomes = []
    for run in (function, compiled):
        if seed is not None:
            torch.manual_seed(seed)
        results = run(*args)
        found = gradients(results, leaves)
        outcomes.append((results, found, None if seed is None else torch.rand(2)))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    flags = [[r.requires_grad for r in pytree.tree_leaves(o[0]) if isinstance(r, torch.Tensor)] for o in outcomes]
    assert flags[0] == flags[1]
    if breaks is not None:
        assert len(torchmux.report(compiled).breaks) == breaks
    return compiled


def broke(compiled):
    """The reasons of all graph breaks in one string."""
    return "\n".join(record.message() for record in torchmux.report(compiled).breaks)


def vector(size=4, grad=True):
    return (torch.arange(float(size)) - 1.5).requires_grad_(grad)


def matrix(rows=3, columns=3, grad=True):
    return ((torch.arange(float(rows * columns)) - 3.3) / 5).reshape(rows, columns).requires_grad_(grad)
