"""``config.verify_correctness``: compares each graph's first call with eager before its results are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchmux.registry.errors import NumericsError
from torchmux.registry.report import GraphReport, operator_name

# How much worse than eager a result may be, both measured against the same computation in float64.
_TOLERATED = 10.0


class Verified:
    """A compiled graph that runs together with the captured one at its first call.

    Both run on copies of the inputs, under the same random state, and with gradients if the graph trains; results,
    gradients and what became of the inputs must agree.
    """

    def __init__(self, compiled: Any, captured: torch.fx.GraphModule, backend: str) -> None:
        self.run = compiled
        self.captured = captured
        self.backend = backend
        self.verified = False

    @property
    def built(self) -> Any:
        return self.run.built

    @property
    def report(self) -> GraphReport:
        """Of the compiled graph; it may change from call to call."""
        found: GraphReport = self.run.report
        return found

    def __call__(self, *args: Any) -> Sequence[Any]:
        if not self.verified:
            self._verify(args)
            self.verified = True
        return self.run(*args)

    def _verify(self, args: Sequence[Any]) -> None:
        ours = _Outcome(self.run, args)
        theirs = _Outcome(self.captured.forward, args)
        if len(ours.values) != len(theirs.values):
            raise NumericsError(
                f"{self.backend} returned {len(ours.results)} results for a graph with {len(theirs.results)} results."
            )
        reference: _Outcome | None = None
        for place, (mine, wanted) in enumerate(zip(ours.values, theirs.values, strict=True)):
            difference = _difference(mine, wanted)
            if difference is None:
                continue
            if isinstance(difference, float):
                reference = reference or _reference(self.captured, args)
                exact = reference.values[place] if reference and len(reference.values) > place else None
                if exact is not None and _is_as_good(mine, wanted, exact):
                    continue
                difference = f"differs by up to {difference:.3g}"
            raise NumericsError(
                f"config.verify_correctness: {self._name(place, len(theirs.results), args)} of {self.backend} does not "
                f"match eager: it {difference}. torchmux.verify(model, inputs, backend={self.backend!r}), or python -m "
                "torchmux bisect, finds the operators that it comes from."
            )

    def _name(self, place: int, results: int, args: Sequence[Any]) -> str:
        placeholders = [node.name for node in self.captured.graph.nodes if node.op == "placeholder"]
        if place >= results:
            kind = "the gradient of" if place >= results + len(args) else "the value it leaves in"
            return f"{kind} input {placeholders[(place - results) % len(args)]}"
        (output,) = (node for node in self.captured.graph.nodes if node.op == "output")
        node = output.args[0][place]
        if not isinstance(node, torch.fx.Node):
            return f"result {place}"
        made = f", {operator_name(node)} at {node.meta.get('source_line', '?')}" if node.op.startswith("call") else ""
        return f"result {place} ({node.name}{made})"


class _Outcome:
    """What a run on copies of ``args`` gave: results, the inputs afterwards, and their gradients."""

    def __init__(self, run: Callable[..., Any], args: Sequence[Any], dtype: torch.dtype | None = None) -> None:
        copies = _copies(args, dtype)
        devices = {value.device for value in args if isinstance(value, torch.Tensor) and value.device.type == "cuda"}
        with torch.random.fork_rng(devices=list(devices)):
            self.results = tuple(run(*copies))
            gradients = self._gradients(copies)
        self.values = [*self.results, *copies, *gradients]

    def _gradients(self, copies: list[Any]) -> list[Any]:
        roots = [r for r in self.results if isinstance(r, torch.Tensor) and r.requires_grad]
        leaves = [c for c in copies if isinstance(c, torch.Tensor) and c.requires_grad and c.is_leaf]
        if not roots or not leaves or not torch.is_grad_enabled():
            return [None] * len(copies)
        found = iter(torch.autograd.grad(roots, leaves, [torch.ones_like(r) for r in roots], allow_unused=True))
        return [next(found) if any(c is leaf for leaf in leaves) else None for c in copies]


def _copies(args: Sequence[Any], dtype: torch.dtype | None) -> list[Any]:
    """Copies that overlap in memory where ``args`` do; floating-point ones as ``dtype`` if given."""
    storages: dict[int, torch.UntypedStorage] = {}
    made: list[Any] = []
    for value in args:
        if not isinstance(value, torch.Tensor):
            made.append(value)
            continue
        plain = value.detach()
        if dtype is not None and plain.is_floating_point():
            copied = plain.to(dtype)
            copied = copied.clone() if copied is plain else copied
        else:
            storage = plain.untyped_storage()
            if storage._cdata not in storages:
                storages[storage._cdata] = storage.clone()
            copied = torch.empty(0, dtype=plain.dtype, device=plain.device)
            copied.set_(storages[storage._cdata], plain.storage_offset(), plain.size(), plain.stride())
        made.append(copied.requires_grad_(value.requires_grad))
    return made


def _reference(captured: torch.fx.GraphModule, args: Sequence[Any]) -> _Outcome | None:
    """The run in float64, or None where the graph cannot be run in another precision."""
    try:
        return _Outcome(captured.forward, args, torch.float64)
    except Exception:  # the graph names dtypes itself: eager is then the only thing to compare with
        return None


def _difference(mine: Any, wanted: Any) -> str | float | None:
    """None if alike, words if not of one kind, else the greatest difference of the numbers."""
    if not isinstance(wanted, torch.Tensor) or not isinstance(mine, torch.Tensor):
        same = type(mine) is type(wanted) and (mine is wanted or mine == wanted)
        return None if same else f"is {mine!r} instead of {wanted!r}"
    for name in ("dtype", "device", "shape"):
        if getattr(mine, name) != getattr(wanted, name):
            return f"has {name} {getattr(mine, name)} instead of {getattr(wanted, name)}"
    mine, wanted = mine.detach(), wanted.detach()
    if not wanted.is_floating_point() and not wanted.is_complex():
        different = int((mine != wanted).sum())
        return f"has different values in {different} of {wanted.numel()} positions" if different else None
    try:
        torch.testing.assert_close(mine, wanted, equal_nan=True)
    except AssertionError:
        return float((mine.double() - wanted.double()).abs().nan_to_num(float("inf")).max())
    return None


def _is_as_good(mine: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor) -> bool:
    if not exact.is_floating_point() or exact.shape != mine.shape:
        return False
    exact = exact.detach().double()
    scale = float(exact.abs().max()) * torch.finfo(mine.dtype).eps if exact.numel() else 0.0
    errors = [float((each.detach().double() - exact).abs().max()) for each in (mine, wanted)]
    return errors[0] <= _TOLERATED * max(errors[1], scale)
