"""The two passes of the function that AOTAutograd makes, without the layers that only unusual graphs need.

AOTAutograd prepares for changed inputs, results that share memory, subclasses and more.  For the usual graph, in which
none of this occurs, its code takes longer than many a kernel: some 80 µs of a training step.  Here the same compiled
code runs with the same tensors saved.  Whatever is unusual about a call goes the long way, as does a backward pass that
is not compiled yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import forward_ad

from .fake_tensors import is_fake, is_wrapper
from .modes import disable_autocast, is_any_autocast_enabled

_functorch_level = torch._C._functorch.peek_interpreter_stack
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # others exist at a level of functorch
_is_deterministic = torch._C._get_deterministic_algorithms
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_is_view = torch.Tensor._is_view
_is_grad_enabled = torch.is_grad_enabled


class ShortPasses:
    """The passes of ``function``, an ``autograd.Function`` of AOTAutograd's, for calls with nothing unusual.

    :attr:`apply` records a call.  Results that are not differentiated have no gradient in ``backward``, where
    AOTAutograd is used to zeros (``set_materialize_grads``); see :meth:`completed`.
    """

    def __init__(self, function: Any, plain: PlainPasses) -> None:
        self._function, self._plain = function, plain
        self._wanted = tuple(zip(plain.differentiable, plain.layouts, strict=True))
        self._backward: Callable[..., Any] | None = None
        self._is_ready: Callable[[tuple[int, ...]], bool] | None = getattr(function.compiled_bw, "is_ready", None)
        # Of function.apply, this leaves out what concerns functorch, which where_they_fit() excludes.
        self.apply = super(torch.autograd.Function, function).apply  # type: ignore[misc]
        boxed = function.compiled_fw
        # Since torch 2.12, autograd's engine passes all gradients in one list, and each is freed after its last use.
        self.is_boxed = getattr(function, "boxed_grads_call", False)
        self._forward: Callable[..., Any] = getattr(boxed, "direct", None) or (lambda *args: boxed(list(args)))
        of_calls = function._backward_cls  # what the contexts of all calls begin with
        of_calls.symints = of_calls.opaque_objects = of_calls._tensors_no_vc_check = of_calls.shapes = ()
        of_calls.is_short = False

    @classmethod
    def of(cls, function: Any, inputs: Sequence[Any], plain: PlainPasses | None) -> ShortPasses | None:
        """The short passes, if the graph, of which ``plain`` is known, and these inputs allow for them.

        Whoever calls :attr:`apply` detaches inputs on which no gradients depend, as AOTAutograd does.
        """
        tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        sizes = [v for v in inputs if type(v) in (int, torch.SymInt)]
        # A tensor that consists of others may have no memory of its own, as long as it is communicated.
        parted = any(is_wrapper(t) and not is_fake(t) for t in tensors)
        if plain is None or parted or not len(tensors) + len(sizes) == len(inputs) == plain.inputs:
            return None
        return cls(function, plain)

    def where_they_fit(
        self, otherwise: Callable[..., Sequence[Any]], left_out: Sequence[tuple[int, bool]]
    ) -> Callable[..., Sequence[Any]]:
        """A function that records a call of the usual kind, and leaves any other to ``otherwise``.

        Args:
            left_out: the inputs on which no gradients depend, and whether the graph reads them; AOTAutograd detaches
                them as well.
        """
        apply = self.apply

        # What surrounds a small graph's kernels is mostly frames of Python's, so one function asks everything.
        def call(*args: Any) -> Sequence[Any]:
            if not _is_grad_enabled() or _functorch_level() is not None or forward_ad._current_level >= 0:
                return otherwise(*args)
            if left_out:
                taken = list(args)
                for at, is_read in left_out:
                    taken[at] = args[at].detach() if is_read else None
                args = tuple(taken)
            results: Sequence[Any] = apply(*args)
            return results

        return call

    def called_by_engine(self, backward: Callable[..., Any]) -> None:
        """Let autograd's engine call ``backward``, which is the function's, without looking it up each time."""
        if self.is_boxed and "apply_boxed" in vars(torch.autograd.function.BackwardCFunction):
            self._function._backward_cls.apply_boxed = backward

    def forward(self, ctx: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The forward pass: the results, with all that either way of the backward pass needs in ``ctx``."""
        plain = self._plain
        if plain.written:
            torch.autograd.graph.increment_version([args[at] for at in plain.written])
        if is_any_autocast_enabled():
            with disable_autocast():
                found = self._forward(*args)
        else:
            found = self._forward(*args)
        # Attributes are set as torch.autograd.Function's methods do.
        ctx.to_save = _without_views(found[plain.saved])
        if unchecked := found[plain.saved_unchecked]:
            ctx._tensors_no_vc_check = _without_views(unchecked)
        ctx.symints = found[plain.saved_sizes]
        ctx.is_short, ctx.materialize_grads = True, False
        results = tuple(found[: plain.results])
        if plain.is_symbolic:
            ctx.shapes = [results[position].shape for position in plain.differentiable]
            for position, dims in plain.marked:
                plain.mark(results[position], dims)
        if plain.views:
            changed = list(results)
            for position in plain.views:
                # The memory in a tensor that is no view and counts its own writes, in a tenth of `_unsafe_view`'s time.
                changed[position] = changed[position].data
            results = tuple(changed)
        if plain.constant:
            ctx.mark_non_differentiable(*[results[position] for position in plain.constant])
        return results

    def backward(self, ctx: Any, gradients: list[Any]) -> tuple[Any, ...] | None:
        """The gradients of all inputs; None if AOTAutograd has to compute them, or this is no usual backward pass.

        The list is emptied.
        """
        run = self._backward
        if run is None:
            run = self._backward = getattr(self._function.compiled_bw, "direct", None)
        usual = not _is_grad_enabled() and _functorch_level() is None and forward_ad._current_level < 0
        if run is None or not usual or not ctx.is_short or _is_deterministic():
            return None
        args = [*ctx.symints, *ctx.saved_tensors, *ctx._tensors_no_vc_check]
        plain = self._plain
        missing: tuple[int, ...] = ()
        for position, layout in self._wanted:
            gradient = gradients[position]
            if gradient is None:
                tangent = plain.differentiable.index(position)
                missing += (tangent,)
                gradient = plain.zeros(tangent, ctx.shapes)
            if type(gradient) is not torch.Tensor or _is_batched(gradient):
                return None
            if layout[0] is torch.contiguous_format:
                gradient = gradient.contiguous()
            elif (gradient := _laid_out(gradient, *layout)) is None:
                return None
            args.append(gradient)
            del gradient
        if self._is_ready is not None and not self._is_ready(missing):
            return None
        gradients.clear()
        if not _keeps_graph():
            ctx.kept = None
            ctx.maybe_clear_saved_tensors()
        if is_any_autocast_enabled():
            with disable_autocast():
                return tuple(run(args, missing))
        return tuple(run(args, missing))

    def completed(self, ctx: Any, gradients: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]]:
        """Which tangents have no gradient, and the gradients with zeros in their place, as AOTAutograd takes them."""
        answer, positions = list(gradients), self._plain.differentiable
        missing = tuple(n for n, position in enumerate(positions) if gradients[position] is None)
        for tangent in missing:
            answer[positions[tangent]] = self._plain.zeros(tangent, ctx.shapes)
        return missing, answer


def _without_views(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """These tensors as they can be saved: a view that is saved keeps the graph of what it shows."""
    if any(map(_is_view, tensors)):
        return tuple([t.detach() if t._is_view() else t for t in tensors])
    return tuple(tensors)


def _laid_out(gradient: torch.Tensor, known: Any, sizes: Any, strides: Any) -> torch.Tensor | None:
    """``gradient`` in the layout for which backward was compiled; None if it has other sizes."""
    if known is not None:
        return gradient.contiguous(memory_format=known)
    if sizes is None or gradient.shape != sizes:
        return None
    if gradient.stride() == strides:
        return gradient
    return torch.empty_strided(sizes, strides, dtype=gradient.dtype, device=gradient.device).copy_(gradient)


class PlainPasses:
    """Where things stand in what the two passes of :func:`compiled_function` get and return, in the usual case.

    The usual case: no input is changed but by the graph itself, no result shares memory with another tensor, and
    tensors have no subclass.
    """

    def __init__(self, metadata: Any, tangents: Sequence[torch.Tensor]) -> None:
        self.inputs = len(metadata.input_info)
        self.results = metadata.num_forward_returns
        self.written = tuple(metadata.mutated_graph_handled_indices_seen_by_autograd)
        self.saved = metadata.tensors_saved_for_backwards_with_vc_check_slice
        self.saved_unchecked = metadata.tensors_saved_for_backwards_no_vc_check_slice
        self.saved_sizes = metadata.symints_saved_for_backwards_slice
        self.views = tuple(metadata.unsafe_view_out_indices)
        self.constant = tuple(i for i, info in enumerate(metadata.output_info) if not info.requires_grad)
        # Before torch 2.12, one name says both.
        self.differentiable = tuple(
            i
            for i, info in enumerate(metadata.output_info)
            if getattr(info, "requires_grad_for_backward", info.requires_grad)
        )
        self.tangents = tuple((tuple(t.shape), t.dtype, t.device) for t in tangents)
        self.is_symbolic = any(type(size) is not int for shape, *_ in self.tangents for size in shape)
        self.marked = tuple((i, info.dynamic_dims) for i, info in enumerate(metadata.output_info) if info.dynamic_dims)
        self.mark: Any = _marks_dimensions() if self.marked else None
        layouts = [meta.memory_format for meta in metadata.subclass_tangent_meta]
        self.layouts = tuple(
            (layout.memory_format, layout.size and tuple(layout.size), layout.stride and tuple(layout.stride))
            for layout in layouts
        )

    def told(self) -> dict[str, Any] | None:
        """All of it, for :meth:`again` in another process; None if a size is a symbol."""
        return None if self.is_symbolic or self.marked else dict(vars(self))

    @classmethod
    def again(cls, told: Mapping[str, Any]) -> PlainPasses:
        """What :meth:`told` has told."""
        made = cls.__new__(cls)
        vars(made).update(told)
        return made

    @classmethod
    def of(cls, function: Any, tangents: Sequence[torch.Tensor]) -> PlainPasses | None:
        """What is known of a function, if it is of the usual kind and torch describes it as expected."""

        known = function.metadata
        try:
            if not _is_plain(function, known):
                return None
            passes = cls(known, tangents)
        except (AttributeError, TypeError, ImportError):  # another version of torch
            return None
        counts = {len(passes.layouts), len(passes.differentiable), len(passes.tangents)}
        numbers = [n for _, *known in passes.layouts for layout in known for n in layout or ()]
        return passes if len(counts) == 1 and all(type(n) is int for n in numbers) else None

    def zeros(self, tangent: int, shapes: Sequence[torch.Size]) -> torch.Tensor:
        """In place of the gradient of a result that has none; ``shapes`` are those of a call of symbolic sizes."""
        shape, dtype, device = self.tangents[tangent]
        return torch.zeros(shapes[tangent] if shapes else shape, dtype=dtype, device=device)


def plain_function(forward: Callable[..., Any], backward: Callable[..., Any], is_ready: Callable[..., bool]) -> Any:
    """An ``autograd.Function`` whose passes are :class:`ShortPasses`, made without AOTAutograd.

    Args:
        forward: the code of the forward pass.
        backward: the code of the backward pass, which takes a list and which tangents are missing.
        is_ready: whether there is such code for these missing tangents.
    """
    from torch.autograd.function import BackwardCFunction

    class PlainFunction(torch.autograd.Function):
        boxed_grads_call = "apply_boxed" in vars(BackwardCFunction)
        compiled_fw = SimpleNamespace(direct=forward)
        compiled_bw = SimpleNamespace(direct=backward, is_ready=is_ready)

    return PlainFunction


def _marks_dimensions() -> Callable[[torch.Tensor, set[int]], None]:
    """What notes on a result which of its sizes vary."""
    from torch._functorch._aot_autograd.runtime_wrappers import mark_dynamo_propagated_dynamic_indices

    return mark_dynamo_propagated_dynamic_indices


def _is_plain(function: Any, known: Any) -> bool:
    import torch
    from torch.autograd.function import BackwardCFunction

    unusual = (
        function.maybe_subclass_metadata is not None,
        not hasattr(BackwardCFunction, "maybe_clear_saved_tensors"),
        any(i.mutates_metadata for i in known.input_info),  # of data that is written to, the graph takes care or copies
        known.mutated_inp_runtime_indices,
        known.num_outputs_aliased,
        known.num_intermediate_bases,
        known.num_outputs != len(known.output_info),
        known.num_forward_returns != known.num_outputs,
        any(i.output_type.name not in ("non_alias", "unsafe_view_alias") for i in known.output_info),
        any(not issubclass(i.raw_type, torch.Tensor) for i in known.output_info),
        any(type(m).__name__ != "PlainTensorMeta" or not m.memory_format for m in known.subclass_tangent_meta),
        known.num_opaque_objects_saved_for_bw,
        known.grad_enabled_mutation is not None,
        known.is_rng_op_functionalized,
        known.num_graphsafe_rng_states,
        known.tokens,
        known.num_backward_tokens,
        known.indices_of_inputs_that_requires_grad_with_mutations_in_bw,
    )
    return not any(unusual)
