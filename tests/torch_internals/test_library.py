"""What torch's library keeps to itself, in Python."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("calls_forward_alone")
def test_graph_modules() -> None:
    plain = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    assert ti.calls_forward_alone(plain)

    class WithCall(torch.nn.Module):
        def __call__(self, x):
            return -super().__call__(x)

        def forward(self, x):
            return x + 1

    tracer = torch.fx.Tracer()
    model = WithCall()
    own = torch.fx.GraphModule(model, tracer.trace(model))
    assert ti.calls_forward_alone(own)  # takes no methods over from the model that it was made of
    type(own).__call__ = WithCall.__call__
    assert not ti.calls_forward_alone(own)


@checks("distribution_checks")
def test_distribution_checks() -> None:
    for check in ti.distribution_checks():
        assert check(torch.tensor([True, True]), "") is True
        assert check(torch.tensor([True, False]), "") is False
    newer = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
    assert len(ti.distribution_checks()) == 1 or not newer


@checks("pytree", "broadcast_dims")
def test_pytrees() -> None:
    leaves, structure = ti.pytree.tree_flatten({"a": (1, [2]), "b": 3})
    assert leaves == [1, 2, 3]
    assert ti.pytree.tree_unflatten(leaves, structure) == {"a": (1, [2]), "b": 3}
    assert ti.broadcast_dims({"a": 0, "b": None}, structure) == [0, 0, None]
    assert ti.broadcast_dims((0, 1), structure) is None
