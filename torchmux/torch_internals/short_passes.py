"""The two passes of the function that AOTAutograd makes, without the layers that only unusual graphs need.

AOTAutograd prepares for changed inputs, results that share memory, subclasses and more.  For the usual graph, in which
none of this occurs, its code takes longer than many a kernel: some 80 µs of a training step.  Here the same compiled
code runs with the same tensors saved.  Whatever is unusual about a call goes the long way, as does a backward pass that
is not compiled yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .functorch import is_functorch_active
from .modes import is_any_autocast_enabled

_unsafe_view = torch.ops.aten._unsafe_view.default


class ShortPasses:
    """The passes of ``function``, an ``autograd.Function`` of AOTAutograd's, for calls with nothing unusual."""

    def __init__(self, function: Any, plain: PlainPasses) -> None:
        self._function, self._plain = function, plain
        self._wanted = tuple(zip(plain.differentiable, plain.layouts, strict=True))

    @classmethod
    def of(cls, function: Any, inputs: Sequence[Any], unused: frozenset[int]) -> ShortPasses | None:
        """The short passes, if the graph allows for them; gradients do not depend on the inputs ``unused``.

        AOTAutograd detaches such inputs.
        """
        plain = PlainPasses.of(function)
        tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        if (
            plain is None
            or len(tensors) != plain.inputs
            or len(inputs) != plain.inputs
            or any(t.device.type != "cpu" for t in tensors)  # elsewhere, backward runs in another thread
            or any(inputs[i].requires_grad for i in unused if i < len(inputs))
        ):
            return None
        return cls(function, plain)

    @staticmethod
    def fit() -> bool:
        """Whether a call that begins now is of the usual kind."""
        return torch.is_grad_enabled() and not is_any_autocast_enabled() and not is_functorch_active()

    def forward(self, ctx: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The forward pass: the results, with all that either way of the backward pass needs in ``ctx``."""
        plain = self._plain
        found = self._function.compiled_fw(list(args))
        ctx.save_for_backward(*[t.detach() if t._is_view() else t for t in found[plain.saved]])
        ctx._tensors_no_vc_check = [t.detach() if t._is_view() else t for t in found[plain.saved_unchecked]]
        ctx.symints = ctx.opaque_objects = ()
        results = list(found[: plain.results])
        for position in plain.views:
            results[position] = _unsafe_view(results[position], results[position].shape)
        ctx.mark_non_differentiable(*[results[position] for position in plain.constant])
        ctx._materialize_non_diff_grads = False
        return tuple(results)

    def backward(self, ctx: Any, gradients: list[Any]) -> tuple[Any, ...] | None:
        """The gradients of all inputs; None if AOTAutograd has to compute them."""
        run = self._function.compiled_bw
        if run is None or is_any_autocast_enabled() or torch.are_deterministic_algorithms_enabled():
            return None
        args = [*ctx.saved_tensors, *ctx._tensors_no_vc_check]
        for position, layout in self._wanted:
            gradient = gradients[position]
            gradient = _laid_out(gradient, *layout) if type(gradient) is torch.Tensor else None
            if gradient is None:
                return None
            args.append(gradient)
            del gradient
        gradients.clear()
        ctx.maybe_clear_saved_tensors()
        return tuple(run(args))


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

    The usual case: no input is changed, no result shares memory with another tensor, sizes are known, tensors have no
    subclass, and autocast is off.
    """

    def __init__(self, metadata: Any) -> None:
        self.inputs = len(metadata.input_info)
        self.results = metadata.num_forward_returns
        self.saved = metadata.tensors_saved_for_backwards_with_vc_check_slice
        self.saved_unchecked = metadata.tensors_saved_for_backwards_no_vc_check_slice
        self.views = tuple(metadata.unsafe_view_out_indices)
        self.constant = tuple(i for i, info in enumerate(metadata.output_info) if not info.requires_grad)
        self.differentiable = tuple(i for i, info in enumerate(metadata.output_info) if info.requires_grad_for_backward)
        layouts = [meta.memory_format for meta in metadata.subclass_tangent_meta]
        self.layouts = tuple(
            (layout.memory_format, layout.size and tuple(layout.size), layout.stride and tuple(layout.stride))
            for layout in layouts
        )

    @classmethod
    def of(cls, function: Any) -> PlainPasses | None:
        """What is known of a function, if it is of the usual kind and torch describes it as expected."""
        import torch

        known = function.metadata
        try:
            if torch._C._is_any_autocast_enabled() or not _is_plain(function, known):
                return None
            passes = cls(known)
        except (AttributeError, TypeError):  # another version of torch
            return None
        return passes if len(passes.layouts) == len(passes.differentiable) else None


def _is_plain(function: Any, known: Any) -> bool:
    import torch
    from torch.autograd.function import BackwardCFunction

    unusual = (
        function.maybe_subclass_metadata is not None,
        function.num_symints_saved_for_bw,
        not function.boxed_grads_call,
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
        known.dynamic_outputs,
        known.dynamic_saved_tensors_idxs,
        known.num_opaque_objects_saved_for_bw,
        known.grad_enabled_mutation is not None,
        known.is_rng_op_functionalized,
        known.num_graphsafe_rng_states,
        known.tokens,
        known.num_backward_tokens,
        known.indices_of_inputs_that_requires_grad_with_mutations_in_bw,
    )
    return not any(unusual)
