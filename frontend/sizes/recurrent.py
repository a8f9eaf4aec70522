"""Recurrent layers, which are taken apart into their steps: a graph has one number of them."""

from __future__ import annotations

from typing import Any

import torch

from ..breaks import OPERATION, GraphBreak

_LAYERS = (torch.gru, torch.lstm, torch.rnn_relu, torch.rnn_tanh)
_HAS_BIASES, _BATCH_FIRST = 3, 8  # arguments; weights stand in the first place if the sequences are packed


def refuse_changing_lengths(target: Any, args: list[Any]) -> None:
    """Break the graph at a recurrent layer whose sequences have a symbolic length.

    Its fake run counts the steps, which makes the length a constant: each further length would be compiled anew, and
    by a compiler step by step.  The layer runs in eager instead, and what surrounds it is compiled for any length.
    """
    if target not in _LAYERS or len(args) <= _BATCH_FIRST or not isinstance(args[_HAS_BIASES], bool):
        return
    length = args[0].shape[1 if args[_BATCH_FIRST] else 0]
    if isinstance(length, torch.SymInt) and length.node.expr.free_symbols:
        raise GraphBreak(OPERATION, f"{target.__name__} of sequences whose length changes: each would be another graph")
