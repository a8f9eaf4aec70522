"""LSTM layers on a CPU as eager runs them: one call of oneDNN for each layer and direction, with its backward pass.

``aten::mkldnn_rnn_layer`` itself cannot stand in a trace that is differentiated: what it hands to its backward pass
exists only where gradients are recorded, and its fake results lack it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .apart import apart

_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define(
    "onednn_lstm(Tensor input, Tensor[] weights, Tensor state, Tensor cell, bool reverse) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_library.define(
    "onednn_lstm_backward(Tensor gradient, Tensor state_gradient, Tensor cell_gradient, Tensor input, "
    "Tensor[] weights, Tensor state, Tensor cell, Tensor result, Tensor last_state, Tensor last_cell, Tensor reserve, "
    "bool reverse) -> Tensor[]"
)

ONEDNN_LSTM = torch.ops.torchmux.onednn_lstm.default
"""The results of all steps, the last state and cell, and what backward needs to know, of one layer in one direction.

``input`` is ``[steps, batch, features]``, ``state`` and ``cell`` are ``[batch, size]``; ``weights`` are two, or four
with biases.
"""

ONEDNN_LSTM_BACKWARD = torch.ops.torchmux.onednn_lstm_backward.default
"""The gradients of input, state, cell and each of the weights."""

_LSTM = 2
"""oneDNN's number for this kind of cells, as ATen has it."""


def is_onednns(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether eager would call oneDNN, if that is not turned off, where gradients are recorded."""
    state, cell = states
    if any(each.device.type != "cpu" for each in (x, state, cell, *weights)) or not x.numel():
        return False
    if state.shape[-1] != cell.shape[-1]:  # projections
        return False
    return x.dtype is torch.float32 or (x.dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def by_layers(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    both_ways: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """``aten::lstm``, as eager composes it of oneDNN's layers."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        x, states, weights = x.to(dtype), [s.to(dtype) for s in states], [w.to(dtype) for w in weights]
    x = (x.transpose(0, 1) if batch_first else x).contiguous()
    ways, each = 1 + both_ways, 4 if biases else 2
    last: list[tuple[Tensor, Tensor]] = []
    for layer in range(layers):
        results = []
        for way in range(ways):
            at = layer * ways + way
            given = list(weights[at * each : (at + 1) * each])
            result, state, cell, _ = ONEDNN_LSTM(x, given, states[0][at], states[1][at], way > 0)
            results.append(result)
            last.append((state, cell))
        x = results[0] if ways == 1 else torch.cat(results, -1)
        if dropout > 0 and training and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    state, cell = (torch.stack(each) for each in zip(*last, strict=True))
    return (x.transpose(0, 1) if batch_first else x), state, cell


def run_onednn_lstm(
    x: Tensor, weights: list[Tensor], state: Tensor, cell: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    size, biases = state.shape[-1], len(weights) == 4
    given = [x, *_four(weights), state, cell]
    with torch.enable_grad():  # oneDNN keeps what backward needs only then
        return torch.ops.aten.mkldnn_rnn_layer.default(
            *(each.detach() for each in given), reverse, [], _LSTM, size, 1, biases, False, False, True
        )


def run_onednn_lstm_backward(
    gradient: Tensor,
    state_gradient: Tensor,
    cell_gradient: Tensor,
    x: Tensor,
    weights: list[Tensor],
    state: Tensor,
    cell: Tensor,
    result: Tensor,
    last_state: Tensor,
    last_cell: Tensor,
    reserve: Tensor,
    reverse: bool,
) -> list[Tensor]:
    size, biases = state.shape[-1], len(weights) == 4
    given = x, *_four(weights), state, cell, result, last_state, last_cell, gradient, state_gradient, cell_gradient
    of_x, *of_weights, of_state, of_cell = torch.ops.aten.mkldnn_rnn_layer_backward.default(
        *given, reverse, _LSTM, size, 1, biases, True, False, [], False, reserve
    )
    found = of_x, of_state, of_cell, *of_weights[: len(weights)]  # some in float32, which autograd rounds
    return [each.to(of.dtype).contiguous() for each, of in zip(found, (x, state, cell, *weights), strict=True)]


def _four(weights: list[Tensor]) -> list[Tensor]:
    """Two weights and their biases, or zeros, which are not read, in their place."""
    return weights if len(weights) == 4 else [*weights, *(torch.zeros_like(each) for each in weights)]


# --- for tracing ------------------------------------------------------------------------------------------------------


@functools.lru_cache(256)
def _reserve(steps: int, batch: int, features: int, size: int, biases: bool, dtype: torch.dtype) -> int:
    """The bytes that oneDNN hands to its backward pass, found by running the layer once: nothing else tells them."""

    def run() -> int:
        zeros = functools.partial(torch.zeros, dtype=dtype)
        weights = [zeros(4 * size, features), zeros(4 * size, size), *[zeros(4 * size)] * (2 * biases)]
        state = zeros(batch, size)
        return run_onednn_lstm(zeros(steps, batch, features), weights, state, state, False)[3].numel()

    return int(apart(run))


def _fake(
    x: Tensor, weights: list[Tensor], state: Tensor, cell: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    steps, batch, features = x.shape
    size = state.shape[-1]
    reserve = _reserve(steps, batch, features, size, len(weights) == 4, x.dtype)
    return (
        x.new_empty(steps, batch, size),
        state.new_empty(state.shape),
        cell.new_empty(cell.shape),
        x.new_empty(reserve, dtype=torch.uint8),
    )


def _fake_backward(*arguments: Any) -> list[Tensor]:
    x, weights, state, cell = arguments[3:7]
    return [each.new_empty(each.shape) for each in (x, state, cell, *weights)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weights, state, cell, ctx.reverse = inputs
    ctx.mark_non_differentiable(output[3])
    ctx.save_for_backward(x, state, cell, *output, *weights)


def _backward(ctx: Any, gradient: Tensor, of_state: Tensor, of_cell: Tensor, _: Any) -> tuple[Any, ...]:
    x, state, cell, result, last_state, last_cell, reserve, *weights = ctx.saved_tensors
    kept = x, weights, state, cell, result, last_state, last_cell, reserve
    found = ONEDNN_LSTM_BACKWARD(gradient, of_state, of_cell, *kept, ctx.reverse)
    needed = ctx.needs_input_grad
    of_weights = [each if keep else None for each, keep in zip(found[3:], needed[1], strict=True)]
    return found[0] if needed[0] else None, of_weights, *found[1:3], None


_library.impl("onednn_lstm", run_onednn_lstm, "CompositeExplicitAutograd")
_library.impl("onednn_lstm_backward", run_onednn_lstm_backward, "CompositeExplicitAutograd")
torch.library.register_fake("torchmux::onednn_lstm", _fake, lib=_library)
torch.library.register_fake("torchmux::onednn_lstm_backward", _fake_backward, lib=_library)
torch.library.register_autograd("torchmux::onednn_lstm", _backward, setup_context=_save, lib=_library)
