"""Wrong memory: strides, beginnings, views, dtypes, sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..outcome import Outcome
from .kit import Faults, Run, changed, with_gradient

faults = Faults("layout")


@faults.results("semantics/aliasing/strides_of_results")
def wrong_stride(t: torch.Tensor) -> torch.Tensor:
    """Results have transposed strides."""
    if t.dim() < 2:
        return t
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.is_contiguous() else t.contiguous()


@faults("semantics/mutation/input_in_place")
def lost_mutation(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs are copied first, so the caller does not see what the graph changes in place."""
    return _with_inputs(gm, lambda t: t.clone() if not t.requires_grad else t)


@faults.results("semantics/numbers/promotion")
def wrong_dtype(t: torch.Tensor) -> torch.Tensor:
    """float32 results become float64."""
    return t.double() if t.dtype is torch.float32 else t


def _with_inputs(gm: GraphModule, change: Callable[[torch.Tensor], torch.Tensor]) -> Run:
    def call(*args: Any) -> Sequence[Any]:
        return gm.forward(*(change(a) if isinstance(a, torch.Tensor) else a for a in args))

    return call


@faults("semantics/lengths/each_beginning")
def forgotten_beginnings(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs are read from the beginning of their memory."""
    return _with_inputs(gm, lambda t: t.as_strided(t.shape, t.stride(), 0) if t.storage_offset() else t)


@faults("semantics/lengths/each_order")
def forgotten_orders(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Inputs that are permuted are read as if they were contiguous."""

    def change(t: torch.Tensor) -> torch.Tensor:
        dense = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1 == t.numel()
        return t.as_strided(t.shape, torch.empty(t.shape).stride(), t.storage_offset()) if dense else t

    return _with_inputs(gm, change)


@faults("semantics/aliasing/strided_inputs")
def forgotten_expansions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Only the first row of an expanded input is read; the others are zero."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if 0 not in t.stride() or t.dim() != 2:
            return t
        found = torch.zeros(t.shape, dtype=t.dtype)
        found[:, 0] = t[:, 0]
        return found

    return _with_inputs(gm, change)


@faults("semantics/aliasing/inputs_that_begin_anywhere")
def aligned_loads(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Loads are rounded down to 16 bytes."""

    def change(t: torch.Tensor) -> torch.Tensor:
        per = max(16 // t.element_size(), 1)
        return t.as_strided(t.shape, t.stride(), t.storage_offset() // per * per) if t.storage_offset() % per else t

    return _with_inputs(gm, change)


@faults.results("semantics/lengths/channels_last")
def no_channels_last(t: torch.Tensor) -> torch.Tensor:
    """Results with four dimensions are always contiguous."""
    return t.contiguous() if t.dim() == 4 else t


@faults.results("semantics/lengths/each_length")
def forgotten_tails(t: torch.Tensor) -> torch.Tensor:
    """The elements after the last whole vector of 16 keep the value of the one before them."""
    tail = t.shape[0] % 16 if t.dim() == 1 else 0
    if not tail or t.shape[0] < 16:
        return t
    return torch.cat([t[:-tail], t[-tail - 1].expand(tail)])


@faults.results("semantics/lengths/each_width")
def forgotten_last_rows(t: torch.Tensor) -> torch.Tensor:
    """The last row of a matrix with an odd number of rows above 30 is zero."""
    if t.dim() != 2 or t.shape[0] < 30 or t.shape[0] % 2 == 0:
        return t
    return t * (torch.arange(t.shape[0])[:, None] < t.shape[0] - 1)


@faults("semantics/lengths/each_length_dynamic")
def the_first_size(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Code for any size computes as many elements as the example had."""
    largest = max((t.shape[0] for t in inputs if isinstance(t, torch.Tensor) and t.dim()), default=0)

    def change(t: torch.Tensor) -> torch.Tensor:
        smaller = t.dim() == 1 and 1 < t.shape[0] < int(largest) // 2
        return torch.cat([t[:-1], t[-1:] * 0]) if smaller else t

    return changed(gm.forward, change)


@faults("semantics/aliasing/view_of_an_input")
def copies_for_views(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Results that are views of inputs are copies."""

    def call(*args: Any) -> Sequence[Any]:
        memory = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        return [
            r.clone() if isinstance(r, torch.Tensor) and r.untyped_storage().data_ptr() in memory else r
            for r in gm.forward(*args)
        ]

    return call


@faults("semantics/aliasing/a_result_goes_back_in")
def results_in_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A result reuses the memory of an input that the program still has."""

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        for place, result in enumerate(results):
            for given in args:
                fits = isinstance(given, torch.Tensor) and isinstance(result, torch.Tensor) and not result.requires_grad
                if fits and given.shape == result.shape and given.dtype is result.dtype and not given.requires_grad:
                    results[place] = given.copy_(result)
                    break
        return results

    return call


@faults("semantics/numbers/promotion")
def one_memory_for_two_results(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Two results of the same kind share memory, as a wrong plan of memory has them."""

    def call(*args: Any) -> Sequence[Any]:
        results = list(gm.forward(*args))
        seen: dict[Any, torch.Tensor] = {}
        for place, result in enumerate(results):
            if isinstance(result, torch.Tensor) and not result.requires_grad:
                key = (result.shape, result.dtype, result.stride())
                results[place] = seen[key].copy_(result) if key in seen else result
                seen.setdefault(key, result)
        return results

    return call


@faults.operator("semantics/aliasing/views_of_one_result", "getitem", "t")
def views_that_are_copies(result: Any, *rest: Any) -> Any:
    """Views of computed tensors are copies."""
    return result.clone() if isinstance(result, torch.Tensor) else result


@faults.results("semantics/training/one_step")
def no_gradients(t: torch.Tensor) -> torch.Tensor:
    """Results do not require the gradient that they have in eager, and get another history."""
    return (t.detach() * 1).requires_grad_() if t.requires_grad else t


@faults.operator("semantics/numbers/no_dimensions", "add", "mul")
def numbers_with_a_dimension(result: Any, *rest: Any) -> Any:
    """Tensors without dimensions get one."""
    return result.reshape(1) if isinstance(result, torch.Tensor) and not result.dim() else result


@faults.operator("semantics/lengths/sizes_of_one", "mean", outcome=Outcome.CRASH)
def lost_dimensions(result: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Reduced dimensions of size one are dropped although they are to be kept."""
    return result.squeeze() if named.get("keepdim") else result


@faults("semantics/mutation/read_after_write")
def reordered_writes(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Writes to inputs happen before anything is read."""

    def call(*args: Any) -> Sequence[Any]:
        was = [a.detach().clone() if isinstance(a, torch.Tensor) and not a.requires_grad else None for a in args]
        gm.forward(*args)
        changed_inputs = [a if w is None or torch.equal(a, w) else a.clone() for a, w in zip(args, was, strict=True)]
        results = gm.forward(*changed_inputs)
        return results

    return call


@faults("semantics/lengths/channels_last_between")
def contiguous_gradients(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients of inputs are contiguous, also those of images in channels last."""

    def change(g: torch.Tensor) -> torch.Tensor:
        return g.contiguous() if g.dim() == 4 else g

    return lambda *args: gm.forward(*(with_gradient(a, change) for a in args))


@faults.instead("semantics/mutation/shapes_changed_in_place", "squeeze_")
def dropped_dimensions_that_stay(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """What drops its dimensions in place keeps them where it is read again."""
    return x.clone().squeeze(*rest)
