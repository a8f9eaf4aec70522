"""Derivatives that a compiled graph does not have: torch computes them from the captured graph.

Compiled code gives gradients, and nothing that can be differentiated again.  AOTAutograd's own answer to
``create_graph=True`` is an error at best; at worst it takes what forward has kept for constants, and second derivatives
are zeros.  So a backward pass that autograd records, one whose gradients are batched or have tangents, and a call of
which an input has a tangent, run the captured graph in torch.  The backward pass runs it once more from its inputs,
which are therefore kept until then.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals
from torchmux.registry.errors import DerivativeUnavailable

from .decompose import draws_nothing, is_random
from .runtime import in_torch, outside_autocast
from .symbols import has_symbols
from .tangents import Tangents

Run = Callable[..., Sequence[Any]]

_AGAIN = "a backward pass that is differentiated again (create_graph=True), batched or in forward mode"
_OTHER = "a backward pass that gets a gradient of another class of tensors, or none, where one consists of others"
_UNUSUAL = "a backward pass for which the artifact cache has no code, or which deterministic algorithms are to run"
_TANGENTS = "an input has a tangent (forward-mode differentiation)"


def has_tangent(values: Sequence[Any]) -> bool:
    """Whether any of these is a dual tensor of the active ``forward_ad.dual_level``."""
    return any(
        isinstance(v, torch.Tensor)
        and (v.is_floating_point() or v.is_complex())
        and forward_ad.unpack_dual(v).tangent is not None
        for v in values
    )


def eager_with_tangents(run: Run, captured: GraphModule, *, strict: bool) -> Run:
    """A function that calls ``run``, or the captured graph if an input has a tangent.

    Raises:
        FallbackRefused: on such a call, if ``strict``.
    """
    otherwise = in_torch(captured, _TANGENTS, strict=strict)

    def in_dual_level(*args: Any) -> Sequence[Any]:
        return otherwise(*args) if has_tangent(args) else run(*args)

    any_call = internals.by_mode(outside_autocast(run), under_autocast=run, in_dual_level=in_dual_level)
    return run.short(any_call) if isinstance(run, Derivatives) else any_call


@dataclass
class Joint:
    """Facts about the joint graph of forward and backward, collected before it is split."""

    used: frozenset[int] = frozenset()  # inputs whose contents gradients depend on
    unused: frozenset[int] = frozenset()  # inputs without a gradient
    is_random: bool = False
    is_known: bool = False

    def noticed(self, split: Callable[..., Any]) -> Callable[..., Any]:
        """The partitioner ``split``, wrapped so that it examines the graph first."""

        def noticing(joint: GraphModule, inputs: Any, *, num_fwd_outputs: int, **settings: Any) -> Any:
            self._look(joint, num_fwd_outputs)
            return split(joint, inputs, num_fwd_outputs=num_fwd_outputs, **settings)

        return noticing

    def _look(self, joint: GraphModule, results: int) -> None:
        output = next(n for n in reversed(joint.graph.nodes) if n.op == "output")
        gradients = output.args[0][results:]
        self.unused = frozenset(i for i, n in enumerate(gradients) if n is None)
        pending = [n for n in gradients if isinstance(n, Node)]
        seen = set(pending)
        while pending:
            new = [n for n in _read(pending.pop()) if n not in seen]
            seen.update(new)
            pending.extend(new)
        primals = [n for n in joint.graph.find_nodes(op="placeholder") if not n.name.startswith("tangents")]
        self.used = frozenset(i for i, n in enumerate(primals) if n in seen)
        self.is_random = any(_is_random(n) for n in joint.graph.nodes)
        self.is_known = True


def _read(node: Node) -> Sequence[Node]:
    """The inputs whose contents the results depend on; a training batch norm only updates its statistics."""
    if not isinstance(node.target, internals.OpOverload) or "batch_norm" not in node.target.__name__:
        return node.all_input_nodes
    names = [argument.name for argument in internals.operator_schema(node.target).arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    trains = all(given.get(name, True) is True for name in ("training", "train", "update"))
    statistics = [given.get(name) for name in ("running_mean", "running_var")] if trains else []
    return [n for n in node.all_input_nodes if n not in statistics]


def _is_random(node: Node) -> bool:
    return isinstance(node.target, internals.OpOverload) and is_random(node.target) and not draws_nothing(node)


class _Now(threading.local):
    """The call that runs in a thread in the way of AOTAutograd: its inputs, and the state of random numbers."""

    inputs: tuple[Sequence[Any], Any] | None = None


@dataclass(frozen=True)
class Recorder:
    """What records the gradients of a compiled graph: an ``autograd.Function``, and what is known of it."""

    function: Any
    returns: internals.Returns
    plain: internals.PlainPasses | None
    expected: internals.ExpectedGradients | None = None
    is_of_aot: bool = True  # AOTAutograd's, whose own passes take what the short ones do not

    @classmethod
    def of_aot(cls, tangents: Sequence[torch.Tensor]) -> Recorder:
        """What AOTAutograd made last in this tracing context; ``tangents`` are those of the traced graph."""
        function = internals.compiled_function()
        if function is None:
            raise RuntimeError("this version of torch hides the function by which AOTAutograd records gradients")
        expected = internals.ExpectedGradients(function) if internals.has_subclasses(function) else None
        plain = internals.PlainPasses.of(function, tangents)
        return cls(function, internals.Returns.of(function), plain, expected)


class Derivatives:
    """A graph compiled with its backward pass; torch computes that if it is differentiated in turn."""

    def __init__(
        self,
        forward: Run,
        captured: GraphModule,
        example_inputs: Sequence[Any],
        joint: Joint,
        tangents: Tangents,
        recorder: Recorder,
        *,
        strict: bool,
    ) -> None:
        """``forward`` takes the calls that :meth:`short` leaves."""
        function = recorder.function
        self.recorder, self.joint, self.tangents = recorder, joint, tangents
        self._forward = tangents.watched(forward)
        occasions = (_AGAIN, _OTHER) if recorder.is_of_aot else (_AGAIN, _UNUSUAL)
        self._in_torch = {what: in_torch(captured, what, strict=strict) for what in occasions}
        self._returns, self._expected = recorder.returns, recorder.expected
        self._now = _Now()
        devices = sorted({v.device.type for v in example_inputs if isinstance(v, torch.Tensor)} | {"cpu"})
        self._cuda = [v.device for v in example_inputs if isinstance(v, torch.Tensor) and v.device.type == "cuda"][:1]
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            for kind in devices
            if torch.amp.is_autocast_available(kind)
        ]
        placeholders = captured.graph.find_nodes(op="placeholder")
        # Those that gradients do not depend on may require some, as weights do of which autocast makes a cast.  Code
        # reads the sizes of a tensor that no operator of the graph reads.  If all are such, the results still require
        # gradients, as a norm of order 0 does.
        differentiated = [at for at, value in enumerate(example_inputs) if getattr(value, "requires_grad", False)]
        self._left_out = [
            (at, bool(placeholders[at].users) or has_symbols(placeholders[at]))
            for at in joint.unused
            if at < len(placeholders) and at in differentiated and not joint.unused.issuperset(differentiated)
        ]
        self._short = internals.ShortPasses.of(function, example_inputs, recorder.plain)
        self._watch(function)

    @property
    def is_plain(self) -> bool:
        """Whether :meth:`short` has passes of its own."""
        return self._short is not None

    def __call__(self, *args: Any) -> Sequence[Any]:
        self._now.inputs = args, self._random_state() if self.joint.is_random else None
        try:
            return self._forward(*args)
        finally:
            self._now.inputs = None

    def short(self, otherwise: Run) -> Run:
        """A function that takes the short passes where a call is of the usual kind, and else calls ``otherwise``."""
        return otherwise if self._short is None else self._short.where_they_fit(otherwise, self._left_out)

    def _watch(self, function: Any) -> None:
        """Set both passes of the function, around those that AOTAutograd's has."""
        forward, backward, now, short = function.forward, function.backward, self._now, self._short
        keeps_graph, is_random = internals.keeps_graph, self.joint.is_random
        is_of_aot = self.recorder.is_of_aot

        def keeping(ctx: Any, *args: Any) -> Any:
            given: Any = now.inputs
            if given is None and short is not None:
                random = self._random_state() if is_random else None
                results = short.forward(ctx, args)
                ctx.kept = args, _versions(args), random
                return results
            inputs, random = given
            results = forward(ctx, *args)
            ctx.kept = (inputs, _versions(inputs), random) if len(inputs) == len(args) else None
            return results

        def choosing(ctx: Any, *gradients: Any) -> Any:
            if short is not None and ctx.is_short:
                boxed = gradients[0] if short.is_boxed else list(gradients)
                if (found := short.backward(ctx, boxed)) is not None:
                    return found
            if _is_differentiated(gradients):
                return self._again(ctx, gradients)
            if not is_of_aot:
                return self._again(ctx, gradients, _UNUSUAL)
            if self._expected is not None and not self._expected.accepts(given := _unboxed(gradients)):
                return self._again(ctx, self._expected.without_made_up(given), _OTHER)
            if not keeps_graph():
                ctx.kept = None
            if short is not None and ctx.is_short:
                missing, completed = short.completed(ctx, _unboxed(gradients))
                self.tangents.note(missing)
                return backward(ctx, completed) if short.is_boxed else backward(ctx, *completed)
            return backward(ctx, *gradients)

        function.forward, function.backward = map(staticmethod, map(internals.not_captured, (keeping, choosing)))
        if short is not None:
            short.called_by_engine(choosing)

    def _random_state(self) -> tuple[torch.Tensor, ...]:
        return torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._cuda)

    # --- the backward pass in torch --------------------------------------------------------------------------------

    def _again(self, ctx: Any, boxed: Sequence[Any], what: str = _AGAIN) -> tuple[torch.Tensor | None, ...]:
        """The gradients of all inputs, as functions of the inputs and of the gradients of the results."""
        gradients = self.tangents.without_made_up(_unboxed(boxed))
        inputs, random = self._inputs_of(ctx, gradients, what)
        with torch.enable_grad(), contextlib.ExitStack() as stack:
            for kind, dtype, enabled in self._autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
            if random is not None:
                stack.enter_context(torch.random.fork_rng(self._cuda))
                torch.set_rng_state(random[0])
                for device, state in zip(self._cuda, random[1:], strict=True):
                    torch.cuda.set_rng_state(state, device)
            changed = self._returns.inputs_changed
            stand_ins = [_stand_in(v, i in changed) if isinstance(v, torch.Tensor) else v for i, v in enumerate(inputs)]
            results = self._in_torch[what](*stand_ins)
        ends, weights = self._ends(results, gradients)
        begins = [i for i, v in enumerate(stand_ins) if isinstance(v, torch.Tensor) and v.requires_grad]
        found: list[torch.Tensor | None] = [None] * len(inputs)
        if ends and begins:
            computed = torch.autograd.grad(
                ends, [stand_ins[i] for i in begins], weights, create_graph=torch.is_grad_enabled(), allow_unused=True
            )
            for position, gradient in zip(begins, computed, strict=True):
                found[position] = gradient
        return tuple(found)

    def _inputs_of(self, ctx: Any, gradients: Sequence[Any], what: str) -> tuple[Sequence[Any], Any]:
        """The inputs of the call, if they still have the contents on which the gradients depend."""
        why, kept = "", getattr(ctx, "kept", None)
        inputs, versions, random = kept or ((), None, None)
        batched = internals.is_functorch_active() or any(map(internals.is_batched, gradients))
        if kept is None:
            why = "its inputs are no longer known; a backward pass without retain_graph=True has forgotten them"
        elif any(g is not None for g in gradients[: self._returns.first_result]):
            why = "it changes an input in place, and the change is differentiated"
        elif random is not None and batched:
            why = "it draws random numbers, which cannot be repeated for a batch of gradients"
        elif versions is None:
            why = "one of its inputs was made in inference mode"
        elif any(isinstance(inputs[i], torch.Tensor) and versions[i] != inputs[i]._version for i in self._used(inputs)):
            why = "the graph, or the program after it, has changed an input of it in place"
        if why:
            raise DerivativeUnavailable(
                f"This is {what}. torch would compute it from the inputs of the graph, but {why}. Call the function "
                "uncompiled for this, or under torchmux.set_stance('force_eager')."
            )
        return inputs, random

    def _used(self, inputs: Sequence[Any]) -> Iterable[int]:
        """The inputs on whose contents gradients depend; maybe more where some consist of several in the graph."""
        return self.joint.used if self._expected is None else range(len(inputs))

    def _ends(self, results: Sequence[Any], gradients: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The results that have a gradient, and their gradients."""
        returns = self._returns
        pairs = list(zip(results, gradients[returns.first_result : returns.first_base], strict=True))
        for base, gradient in enumerate(gradients[returns.first_base :]):
            view = results[returns.view_of_base[base]]
            pairs.append((view._base if view._is_view() else view, gradient))
        used = [(r, g) for r, g in pairs if g is not None and isinstance(r, torch.Tensor) and r.requires_grad]
        return [r for r, _ in used], [g for _, g in used]


def _is_differentiated(gradients: Sequence[Any]) -> bool:
    """Whether a backward pass with these gradients is recorded, batched, or in forward mode."""
    if torch.is_grad_enabled() or internals.is_functorch_active():
        return True
    given = _unboxed(gradients)
    return any(map(internals.is_batched, given)) or (internals.is_forward_ad_active() and has_tangent(given))


def refuse(run: Run, backend: str) -> Run:
    """``run``, compiled in this tracing context by a backend that has no derivatives beyond gradients.

    Raises:
        DerivativeUnavailable: in a call with tangents, and in a backward pass that is to be differentiated again.
    """
    words = (
        f"{backend} computes gradients, and no other derivatives: {{}}. Use backend='native' or 'aot_eager', for which "
        "torch computes the others from the captured graph, or call the function uncompiled."
    )
    function = internals.compiled_function()
    if function is not None:
        backward = function.backward
        expected = internals.ExpectedGradients(function) if internals.has_subclasses(function) else None

        def choosing(ctx: Any, *gradients: Any) -> Any:
            if _is_differentiated(gradients):
                raise DerivativeUnavailable(words.format(f"this is {_AGAIN}"))
            if expected is not None and not expected.accepts(_unboxed(gradients)):
                raise DerivativeUnavailable(words.format(f"this is {_OTHER}"))
            return backward(ctx, *gradients)

        function.backward = staticmethod(internals.not_captured(choosing))
    is_active = internals.is_forward_ad_active

    def call(*args: Any) -> Sequence[Any]:
        if is_active() and has_tangent(args):
            raise DerivativeUnavailable(words.format(_TANGENTS))
        return run(*args)

    return call


def _unboxed(gradients: Sequence[Any]) -> Sequence[Any]:
    """Newer versions of torch pass all gradients in one list."""
    return gradients[0] if len(gradients) == 1 and isinstance(gradients[0], list) else gradients


def _versions(values: Sequence[Any]) -> list[int] | None:
    """How often each tensor has been written to; None if a tensor does not count its writes."""
    try:
        return list(map(_version, values))
    except AttributeError:
        return _versions([v if isinstance(v, torch.Tensor) else _NUMBER for v in values])
    except RuntimeError:
        return None


_version = operator.attrgetter("_version")
_NUMBER = types.SimpleNamespace(_version=0)


def _stand_in(tensor: torch.Tensor, is_changed: bool) -> torch.Tensor:
    """A tensor at which autograd stops; a copy if the graph writes to it."""
    if is_changed:
        return tensor.clone()
    return tensor.view_as(tensor) if tensor.requires_grad else tensor
