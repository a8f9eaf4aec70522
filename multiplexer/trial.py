"""Runs of a graph's code: their inputs, and everything that shows what the code does.

Each run has a name.  ``call`` has the inputs of the call, ``again`` the same once more.  ``other``, ``signs`` and
``ties`` have inputs like them, which every process makes alike: all values change places; floats also change their
size, their sign, or become few values with zeros among them.  Integers and bools only change places, so that indices
stay in range.  ``thread`` is ``other`` in another thread.  ``kept`` looks at the results of ``call`` once more at the
end.

Each run is a call of the program, for backends that ask :mod:`torchmux.program_calls`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from torchmux import program_calls
from torchmux.conformance.oracle import nudged, random_like, reach, sharing

from . import surroundings
from .parcel import Parcel

SEED = 20261

LIKE_THE_CALL = ("other", "signs", "ties")
"""The runs with inputs like those of the call."""

WORDS = {
    "call": "on the inputs of the call",
    "again": "in the second call with the same inputs",
    "other": "on inputs like those of the call",
    "signs": "on inputs like those of the call with other signs",
    "ties": "on inputs like those of the call with ties and zeros",
    "thread": "when another thread calls it",
    "kept": "in the results of the first call once others follow: their memory is used again",
}
"""Where something is wrong, for people."""


def names(like: Sequence[str], *, keeps: bool) -> list[str]:
    """The runs of a candidate; ``like``: those of ``LIKE_THE_CALL`` that eager can do; ``keeps``: as the candidate."""
    thread = ["thread"] if "other" in like else []
    return ["call", "again", *like, *thread, *(["kept"] if keeps else [])]


def inputs_of(run: str) -> str:
    """The run whose inputs this one has."""
    return {"again": "call", "kept": "call", "thread": "other"}.get(run, run)


class Trials:
    """Inputs and runs of the graph of one parcel."""

    def __init__(self, parcel: Parcel) -> None:
        self.parcel = parcel
        self.real = parcel.real_inputs()

    def inputs(self, run: str, *, wide: bool = False, draw: int = 0) -> list[Any]:
        """Fresh inputs; parameters and buffers are the tensors that code was compiled with, unless ``wide``.

        A ``draw`` other than 0 changes each number by a unit in the last place or a few, those of parameters, too.
        """
        order = torch.Generator().manual_seed(SEED + sum(map(ord, run)))
        steps = torch.Generator().manual_seed(draw)
        static = set(self.parcel.static_inputs)
        shared = _shared([v for p, v in enumerate(self.real) if isinstance(v, torch.Tensor) and p not in static])
        bases: dict[int, torch.Tensor] = {}

        def drawn(value: torch.Tensor) -> torch.Tensor:
            return nudged(value, steps, reach=reach(draw)) if draw else value

        def changed(value: torch.Tensor) -> torch.Tensor:
            return drawn(value if run == "call" else _CHANGES[run](value, order))

        found = []
        for position, value in enumerate(self.real):
            if not isinstance(value, torch.Tensor) or (position in static and not wide and not draw):
                found.append(value)
                continue
            with torch.inference_mode(value.is_inference()), torch.no_grad():
                if position in static:
                    fresh = widened(drawn(value.detach())) if wide else drawn(value.detach()).clone()
                elif (storage := _storage(value)) in shared or not _is_dense(value):
                    # Copies share memory as the originals do, also with themselves.
                    if storage not in bases:
                        base = torch.empty(0, dtype=value.dtype, device=value.device).set_(value.untyped_storage())
                        bases[storage] = widened(changed(base)) if wide else changed(base).clone()
                    fresh = bases[storage].as_strided(value.shape, value.stride(), value.storage_offset())
                else:
                    made = changed(value.detach())
                    fresh = widened(made) if wide else torch.empty_like(made).copy_(made)
            found.append(fresh.requires_grad_(value.requires_grad) if not fresh.is_inference() else fresh)
        return found

    def runs(self, run: Callable[..., Any], names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """These runs in turn, each with what it shows; what one shows is to be written before the next begins."""
        first = None
        for name in names:
            if name == "kept":
                assert first is not None
                yield name, {"results": first["results"]}
            elif name == "thread":
                yield name, _in_thread(lambda: self.observed(run, "thread"))
            else:
                found = self.observed(run, name)
                first = found if first is None and "kept" in names else first
                yield name, found

    def observed(self, run: Callable[..., Any], name: str, *, wide: bool = False, draw: int = 0) -> dict[str, Any]:
        """What ``run`` returns, which inputs it writes to, its gradients, and what shares memory."""
        inputs = self.inputs(inputs_of(name), wide=wide, draw=draw)
        before = [v.detach().clone() if isinstance(v, torch.Tensor) else None for v in inputs]
        torch.manual_seed(SEED)
        program_calls.made[0] += 1
        outputs = list(run(*inputs))
        gradients = _gradients(outputs, inputs) if self.parcel.training else []
        written = {}
        with torch.inference_mode(any(isinstance(v, torch.Tensor) and v.is_inference() for v in inputs)):
            for position, (value, was) in enumerate(zip(inputs, before, strict=True)):
                if was is None or _same(value.detach(), was):
                    continue
                written[position] = value.detach().clone()
                if position in self.parcel.static_inputs and not wide and not draw:
                    value.detach().copy_(was)
        tensors = [v for v in (*outputs, *inputs) if isinstance(v, torch.Tensor)]
        return {
            "results": [_detached(v) for v in outputs],
            "written": written,
            "gradients": [_detached(v) for v in gradients],
            "random": _random_states(inputs),
            "sharing": sharing(tensors),
        }

    def call(self, run: Callable[..., Any]) -> Callable[[], None]:
        """A call as the program makes it, for timing; with its backward pass if the graph trains.

        It ends when the device has computed the results, and not when they are queued.
        """
        inputs = self.inputs("call")
        devices = {v.device for v in inputs if isinstance(v, torch.Tensor) and v.device.type == "cuda"}
        program_calls.made[0] += 1
        weights = _weights(list(run(*inputs))) if self.parcel.training else []

        def call() -> None:
            program_calls.made[0] += 1
            outputs = run(*inputs)
            if self.parcel.training:
                _gradients(list(outputs), inputs, weights)
            for device in devices:
                torch.cuda.synchronize(device)

        return call


def _shared(tensors: Sequence[torch.Tensor]) -> set[int]:
    """The storages that several of these tensors have."""
    found = [_storage(tensor) for tensor in tensors]
    return {storage for storage in found if found.count(storage) > 1}


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def _is_dense(value: torch.Tensor) -> bool:
    return value.layout is not torch.strided or torch.empty_like(value, device="meta").stride() == value.stride()


def _same(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same content; NaN is as NaN."""
    if torch.equal(value, other):
        return True
    if not (value.is_floating_point() or value.is_complex()):
        return False
    return value.shape == other.shape and torch.allclose(value, other, rtol=0.0, atol=0.0, equal_nan=True)


def _random_states(inputs: Sequence[Any]) -> list[torch.Tensor]:
    devices = sorted({v.device.index for v in inputs if isinstance(v, torch.Tensor) and v.device.type == "cuda"})
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def _in_thread(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of some work in a thread of its own, with the settings that threads have for themselves."""
    state = surroundings.told(surroundings.THREAD_SETTINGS)
    found: list[dict[str, Any]] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            surroundings.restore(state)
            found.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if errors:
        raise RuntimeError(f"{WORDS['thread']}: {type(errors[0]).__name__}: {errors[0]}") from errors[0]
    return found[0]


class Wide(Interpreter):
    """Runs a graph in float64: what it says of narrower types is replaced."""

    def run_node(self, n: Node) -> Any:
        if n.op == "call_method" and n.target in ("float", "half", "bfloat16"):
            (args, _) = self.fetch_args_kwargs_from_env(n)
            return args[0].double()
        return super().run_node(n)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        args, kwargs = super().fetch_args_kwargs_from_env(n)
        return _wide_types(args), _wide_types(kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return widened(super().get_attr(target, args, kwargs))


def wide(gm: GraphModule) -> Callable[..., Any]:
    """``gm`` in float64."""
    return lambda *inputs: Wide(gm).run(*inputs)


def widened(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value.clone()


_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def _wide_types(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in _NARROW else value
    if isinstance(value, dict):
        return {key: _wide_types(each) for key, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_wide_types(each) for each in value)
    return value


def _shuffled(value: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """In another order, on the CPU; floats as float64."""
    order = torch.randperm(value.numel(), generator=draw)
    values = value.cpu().double() if value.is_floating_point() else value.cpu()
    return values.reshape(-1)[order].reshape(value.shape)


def _other(value: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """In another order, and each by up to a half smaller or larger."""
    made = _shuffled(value, draw)
    if value.is_floating_point() or value.is_complex():
        made = made * (0.5 + torch.rand(value.shape, generator=draw, dtype=torch.float64))
    return _like(value, made)


def _signs(value: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """In another order, by up to a factor of 8 smaller or larger, every other one negated."""
    made = _shuffled(value, draw)
    if value.is_floating_point() or value.is_complex():
        scales = 2.0 ** torch.randint(-3, 4, value.shape, generator=draw).double()
        made = made * scales * (torch.randint(0, 2, value.shape, generator=draw) * 2 - 1)
    return _like(value, made)


def _ties(value: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """In another order, rounded to quarters of the largest: few values, zeros among them."""
    made = _shuffled(value, draw)
    if value.is_floating_point() and value.numel():
        step = float(made.abs().nan_to_num(0.0, 0.0, 0.0).max()) / 4 or 1.0
        made = (made / step).round() * step
    return _like(value, made)


def _like(value: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value).copy_(made.to(value.dtype))


_CHANGES: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "other": _other,
    "signs": _signs,
    "ties": _ties,
}


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _weights(outputs: Sequence[Any]) -> list[Any]:
    draw = torch.Generator().manual_seed(SEED)
    return [
        random_like(v, torch.randn, draw).to(v.dtype) if isinstance(v, torch.Tensor) and v.requires_grad else None
        for v in outputs
    ]


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any] | None = None) -> list[Any]:
    weights = _weights(outputs) if weights is None else weights
    ends = [(v, w) for v, w in zip(outputs, weights, strict=True) if w is not None and v.requires_grad]
    begins = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf]
    if not ends or not begins:
        return []
    return list(torch.autograd.grad([v for v, _ in ends], begins, [w for _, w in ends], allow_unused=True))
