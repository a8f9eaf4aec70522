"""What a call changes is undone, whatever the tensors are."""

from __future__ import annotations

import torch

from torchmux.multiplexer.running.effects import Effects, together


def test_inputs_of_all_kinds_become_what_they_were() -> None:
    tensors = [
        torch.randn(3, 4), torch.randn(5)[::2], torch.tensor(7), torch.tensor(1), torch.randn(4, 3).t(),
        torch.tensor([-0.0, torch.nan, torch.inf]), torch.empty(0), torch.randn(2).bfloat16(), torch.tensor([True]),
        torch.randn(2, dtype=torch.complex64), torch.randn(2, dtype=torch.complex64).conj(), torch.eye(2).to_sparse(),
        torch.nn.Parameter(torch.randn(2)),
    ]  # fmt: skip
    args = ["no tensor", *tensors]
    effects = Effects(together(args, range(1, len(args))))
    kept = [tensor.detach().clone() for tensor in tensors]
    before = effects.remember(args)
    assert len(before[0]) < len(tensors)  # some are copied together
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.zeros_like(tensor) if tensor.is_sparse else torch.ones_like(tensor))
    effects.undo(args, before)
    for tensor, was in zip(tensors, kept, strict=True):
        tensor, was = (t.detach().to_dense().resolve_conj() for t in (tensor, was))
        assert torch.equal(tensor.nan_to_num(3.0), was.nan_to_num(3.0))
        if tensor.dtype.is_floating_point:
            assert torch.equal(tensor.signbit(), was.signbit())


def test_a_copy_shares_no_memory_with_what_was_copied() -> None:
    args = [torch.zeros(2)]
    effects = Effects(together(args, [0]))
    before = effects.remember(args)
    args[0].add_(1)
    effects.undo(args, before)
    assert not args[0].any()
