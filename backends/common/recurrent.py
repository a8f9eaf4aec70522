"""Recurrent layers, traced to what eager computes: one call of cuDNN on a GPU, oneDNN's LSTM on a CPU, or steps.

torch's formulas take ``nn.GRU``, ``nn.LSTM`` and ``nn.RNN`` apart into single steps.  On a GPU, each step is several
kernels, where cuDNN runs all steps in a few.  The operator ``torchmux::cudnn_rnn`` stands for cuDNN in a trace.
``aten::_cudnn_rnn`` itself cannot: its fake results have other sizes than the real ones, and it wants one tensor over
the memory of all weights, which a trace does not know.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

from torchmux import torch_internals as internals

from . import onednn_lstm
from .apart import apart
from .pipeline.decompose import changed_kernels

_library = torch.library.Library("torchmux", "FRAGMENT")
_HOW = "int mode, int hidden, int projected, int layers, bool batch_first, bool training, bool both_ways"
_library.define(
    f"cudnn_rnn(Tensor input, Tensor[] weights, int weights_a_layer, Tensor state, Tensor? cell, {_HOW}) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_library.define(
    "cudnn_rnn_backward(Tensor gradient, Tensor state_gradient, Tensor? cell_gradient, Tensor input, Tensor[] weights, "
    f"int weights_a_layer, Tensor state, Tensor? cell, Tensor result, Tensor reserve, bool[] wanted, {_HOW}) "
    "-> Tensor[]"
)

CUDNN_RNN = torch.ops.torchmux.cudnn_rnn.default
"""The results of all steps, the last states, the last cells (empty without ``cell``), and what backward needs to know.

``input`` is ``[steps, batch, features]``, or ``[batch, steps, features]`` if ``batch_first``.  ``state`` and ``cell``
are ``[layers * directions, batch, size]``.
"""

CUDNN_RNN_BACKWARD = torch.ops.torchmux.cudnn_rnn_backward.default
"""The gradients of input, state, cell and each of the weights; an empty tensor for what has none or is not wanted."""

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers for kinds of cells."""


class _How(NamedTuple):
    """The arguments of cuDNN that are not tensors."""

    mode: int
    hidden: int
    projected: int
    layers: int
    batch_first: bool
    training: bool
    both_ways: bool


@contextlib.contextmanager
def recurrent_as_in_eager(gm: GraphModule, *, differentiated: bool, by_onednn: bool = True) -> Iterator[None]:
    """While this lasts, the recurrent layers of ``gm`` are traced to what eager computes.

    Where the graph is ``differentiated``, ATen's own trace of an LSTM on a CPU would call oneDNN's in a form without
    gradients: ``onednn_lstm`` takes its place, or single steps without ``by_onednn``.
    """
    names = {getattr(n.target, "__name__", "") for n in gm.graph.nodes if n.op == "call_function"}
    if not names & _MODES.keys():
        yield
        return
    is_lstms = differentiated and "lstm" in names
    has_onednn = by_onednn and is_lstms and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    onednn = internals.without_onednn() if is_lstms else contextlib.nullcontext()

    def change(op: Any, kernels: dict[Any, Any]) -> None:
        calls_onednn = has_onednn and op is torch.ops.aten.lstm.input
        for key in kernels.keys() & {internals.DispatchKey.CompositeImplicitAutograd, internals.DispatchKey.Autograd}:
            kernels[key] = functools.partial(_in_one_call, op, kernels[key], calls_onednn)

    operators = [getattr(torch.ops.aten, name).input for name in _MODES]
    with internals.lstm_states_in_shape(), onednn, changed_kernels(operators, change):
        yield


def _in_one_call(
    op: Any, steps: Callable[..., Any], by_onednn: bool, x: Tensor, states: Any, weights: Sequence[Tensor], *how: Any
) -> Any:
    """The layer as one call of cuDNN or oneDNN where eager would make one, and by ``steps`` otherwise."""
    biases, layers, dropout, training, both_ways, batch_first = how
    state, cell = states if isinstance(states, (tuple, list)) else (states, None)
    sizes = [n for each in (x, state, *weights) for n in each.shape]
    is_known, has_cudnn = all(type(n) is int for n in sizes), _has_cudnn(x)
    if is_known and by_onednn and not has_cudnn and onednn_lstm.is_onednns(x, states, weights):
        return onednn_lstm.by_layers(x, states, weights, *how)
    if (dropout and training) or not is_known or not has_cudnn:
        return steps(x, states, weights, *how)
    if torch.is_autocast_enabled(x.device.type) and x.dtype is not torch.float64:
        dtype = torch.get_autocast_dtype(x.device.type)
        x, state, cell = x.to(dtype), state.to(dtype), cell if cell is None else cell.to(dtype)
        weights = [each.to(dtype) for each in weights]
    hidden = (state if cell is None else cell).shape[-1]
    projected = state.shape[-1] if state.shape[-1] != hidden else 0
    a_layer = 2 + 2 * biases + bool(projected)
    mode = _MODES[op.overloadpacket.__name__]
    arguments = _How(mode, hidden, projected, layers, batch_first, training, both_ways)
    result, state, cell, _ = CUDNN_RNN(x, weights, a_layer, state, cell, *arguments)
    return (result, state, cell) if mode == _MODES["lstm"] else (result, state)


def _has_cudnn(x: Tensor) -> bool:
    """Whether eager's recurrent layers would call cuDNN for ``x``."""
    if x.device.type != "cuda" or not x.numel() or torch.version.hip is not None:
        return False
    if not torch.cuda.is_available() or not torch.backends.cudnn.enabled or not torch.backends.cudnn.is_available():
        return False
    if x.dtype is torch.bfloat16:
        return torch.cuda.get_device_capability(x.device) >= (8, 0)
    return x.dtype in (torch.float16, torch.float32, torch.float64)


def run_cudnn_rnn(
    x: Tensor, weights: list[Tensor], a_layer: int, state: Tensor, cell: Tensor | None, *how: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mode, hidden, projected, layers, batch_first, training, both_ways = how
    memory = _memory(weights, a_layer, _How(*how))
    sizes: tuple[Any, ...] = (hidden, projected, layers, batch_first, 0.0, training, both_ways, [], None)
    return torch._cudnn_rnn(x, weights, a_layer, memory, state, cell, mode, *sizes)[:4]


def run_cudnn_rnn_backward(
    gradient: Tensor,
    state_gradient: Tensor,
    cell_gradient: Tensor | None,
    x: Tensor,
    weights: list[Tensor],
    a_layer: int,
    state: Tensor,
    cell: Tensor | None,
    result: Tensor,
    reserve: Tensor,
    wanted: list[bool],
    *how: Any,
) -> list[Tensor]:
    mode, hidden, projected, layers, batch_first, training, both_ways = how
    memory = _memory(weights, a_layer, _How(*how))
    sizes: tuple[Any, ...] = (hidden, projected, layers, batch_first, 0.0, training, both_ways, [], None)
    gradients = (gradient, state_gradient, cell_gradient)
    *found, of_weights = torch.ops.aten._cudnn_rnn_backward(
        x, weights, a_layer, memory, state, cell, result, *gradients, mode, *sizes, reserve, wanted
    )
    found += of_weights if wanted[3] else [None] * len(weights)
    shown = [*wanted[:3], *[wanted[3]] * len(weights)]
    return [each if keep and each is not None else x.new_empty(0) for each, keep in zip(found, shown, strict=True)]


# --- the memory of all weights ----------------------------------------------------------------------------------------


def _memory(weights: list[Tensor], a_layer: int, how: _How) -> Tensor:
    """One tensor over the memory of all ``weights``: theirs if they lie side by side as cuDNN has them, or a copy."""
    first = weights[0]
    key = first.shape[1], a_layer, how, first.dtype, first.device
    places = _places.get(key)
    if places is None:
        places = _places[key] = apart(functools.partial(_found_places, [w.shape for w in weights], *key[1:]))
    begin, unit = first.storage_offset() - places.of_each[0], first.element_size()
    if begin >= 0 and (begin + places.extent) * unit <= first.untyped_storage().nbytes():
        address = first.data_ptr() - places.of_each[0] * unit
        for each, place in zip(weights, places.of_each, strict=True):
            if each.data_ptr() != address + place * unit or not each.is_contiguous():
                break
        else:
            return first.as_strided((places.extent,), (1,), begin)
    return _flat([each.view_as(each) for each in weights], a_layer, how)


def _flat(weights: list[Tensor], a_layer: int, how: _How) -> Tensor:
    """Move ``weights`` to one memory, which is returned."""
    features = weights[0].shape[1]
    return torch.ops.aten._cudnn_rnn_flatten_weight(
        weights, a_layer, features, how.mode, how.hidden, how.projected, how.layers, how.batch_first, how.both_ways
    )


class _Places(NamedTuple):
    """Where cuDNN has each of the weights, in elements from the first, and the number of elements of all."""

    of_each: list[int]
    extent: int


_places: dict[Any, _Places] = {}
"""By the number of features, and what else decides about them."""


def _found_places(
    shapes: list[torch.Size], a_layer: int, how: _How, dtype: torch.dtype, device: torch.device
) -> _Places:
    weights = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
    memory = _flat(weights, a_layer, how)
    return _Places([each.storage_offset() for each in weights], memory.numel())


# --- for tracing ------------------------------------------------------------------------------------------------------


@functools.lru_cache(256)
def _layouts(
    x: torch.Size,
    weights: tuple[torch.Size, ...],
    a_layer: int,
    state: torch.Size,
    cell: torch.Size | None,
    how: _How,
    dtype: torch.dtype,
    device: torch.device,
) -> list[tuple[torch.Size, tuple[int, ...], torch.dtype]]:
    """Sizes, strides and dtypes of the results, found by running the layer once: nothing else tells them."""

    def run() -> list[tuple[torch.Size, tuple[int, ...], torch.dtype]]:
        like = functools.partial(torch.zeros, dtype=dtype, device=device)
        zeros = like(x), [like(each) for each in weights]
        results = run_cudnn_rnn(*zeros, a_layer, like(state), cell and like(cell), *how)
        return [(each.shape, each.stride(), each.dtype) for each in results]

    return apart(run)


def _fake(
    x: Tensor, weights: list[Tensor], a_layer: int, state: Tensor, cell: Tensor | None, *how: Any
) -> tuple[Tensor, ...]:
    sizes = x.shape, tuple(each.shape for each in weights), a_layer, state.shape, None if cell is None else cell.shape
    layouts = _layouts(*sizes, _How(*how), x.dtype, x.device)
    return tuple(x.new_empty_strided(shape, strides, dtype=dtype) for shape, strides, dtype in layouts)


def _fake_backward(*arguments: Any) -> list[Tensor]:
    x, weights, _, state, cell, _, _, wanted = arguments[3:11]
    batch_first = arguments[-3]
    along = x.transpose(0, 1) if batch_first else x
    of_input = along.new_empty(along.shape)
    found = [of_input.transpose(0, 1) if batch_first else of_input, state.new_empty(state.shape)]
    found += [None if cell is None else cell.new_empty(cell.shape), *(each.new_empty(each.shape) for each in weights)]
    shown = [*wanted[:3], *[wanted[3]] * len(weights)]
    return [each if keep and each is not None else x.new_empty(0) for each, keep in zip(found, shown, strict=True)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weights, ctx.a_layer, state, cell, *ctx.how = inputs
    result, _, _, reserve = output
    ctx.mark_non_differentiable(reserve)
    ctx.save_for_backward(x, state, cell, result, reserve, *weights)


def _backward(ctx: Any, gradient: Tensor, of_state: Tensor, of_cell: Tensor, _: Any) -> tuple[Any, ...]:
    x, state, cell, result, reserve, *weights = ctx.saved_tensors
    needed = ctx.needs_input_grad
    of_weights = any(needed[1])
    wanted = [needed[0], needed[3], needed[4] and cell is not None, of_weights]
    gradients = gradient, of_state, None if cell is None else of_cell
    found = CUDNN_RNN_BACKWARD(*gradients, x, weights, ctx.a_layer, state, cell, result, reserve, wanted, *ctx.how)
    first = [each if keep else None for each, keep in zip(found[:3], wanted[:3], strict=True)]
    rest = found[3:] if of_weights else [None] * len(weights)
    return first[0], rest, None, first[1], first[2], *[None] * len(ctx.how)


_library.impl("cudnn_rnn", run_cudnn_rnn, "CompositeExplicitAutograd")
_library.impl("cudnn_rnn_backward", run_cudnn_rnn_backward, "CompositeExplicitAutograd")
torch.library.register_fake("torchmux::cudnn_rnn", _fake, lib=_library)
torch.library.register_fake("torchmux::cudnn_rnn_backward", _fake_backward, lib=_library)
torch.library.register_autograd("torchmux::cudnn_rnn", _backward, setup_context=_save, lib=_library)
