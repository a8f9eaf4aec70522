"""Autocast inside of operators.

Eager's autocast casts the arguments of the operators that it knows, also where they are called by another operator.
A tracer below autograd sees the outer operator first, and by then autocast no longer sees what it consists of.  Under
autocast such operators are therefore taken apart here, with autocast active.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Interpreter

from torchmux import torch_internals as internals

_KEYS = {"cpu": internals.DispatchKey.AutocastCPU, "cuda": internals.DispatchKey.AutocastCUDA}
_BACKEND = {"cpu": internals.DispatchKey.CPU, "cuda": internals.DispatchKey.CUDA}
_IMPLICIT = internals.DispatchKey.CompositeImplicitAutograd
_EXPLICIT = internals.DispatchKey.CompositeExplicitAutogradNonFunctional


class CastingInside(Interpreter):
    """Runs a captured graph with the casts that autocast makes inside of its operators."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self._mode = _TakesApart()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if not may_cast(self.module):
            return super().run(*args, **kwargs)
        with self._mode:
            return super().run(*args, **kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        self._mode.active = {
            device: torch.get_autocast_dtype(device) for device in _KEYS if torch.is_autocast_enabled(device)
        }
        return super().run_node(n)


class CastingModule(torch.nn.Module):
    """A captured graph as :class:`CastingInside` runs it, for AOTAutograd."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__()
        self.gm = gm

    def forward(self, *args: Any) -> Any:
        return CastingInside(self.gm).run(*args)


def may_cast(gm: Any) -> bool:
    """Whether autocast is active around the graph, or somewhere in it."""
    enters = torch.amp.autocast_mode._enter_autocast
    return internals.is_any_autocast_enabled() or any(n.target is enters for n in gm.graph.nodes)


class _TakesApart(internals.TorchDispatchMode):
    """Takes apart what autocast does not know; ``active`` has the dtype of each device with autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.active: dict[str, torch.dtype] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.active or not isinstance(func, internals.OpOverload) or self._is_known(func):
            return func(*args, **kwargs)
        if func in _FORMULAS:
            with self, self._casting():
                return _FORMULAS[func](*args, **kwargs)
        if internals.is_composite(func) and _IMPLICIT not in internals.python_kernels(func):
            with self, self._casting():
                return internals.run_kernel(func, _IMPLICIT, *args, **kwargs)
        key = self._kernel(func)
        if key is None or internals.operator_schema(func).is_mutable or not self._casts(func, key, args, kwargs):
            return func(*args, **kwargs)
        with self, self._casting():
            return internals.run_kernel(func, key, *args, **kwargs)

    def _is_known(self, op: Any) -> bool:
        """Whether autocast casts the operator's own arguments, and so nothing inside of it."""
        return any(internals.has_kernel(op, _KEYS[device]) for device in self.active)

    def _kernel(self, op: Any) -> Any:
        """The key of a kernel that calls other operators, if the operator has no other one."""
        if internals.has_kernel(op, _IMPLICIT):  # in C++; of Python's there may be one beside the device's own
            return _IMPLICIT
        if any(internals.has_kernel(op, _BACKEND[device]) for device in self.active):
            return None
        return _EXPLICIT if internals.has_kernel(op, _EXPLICIT) else None

    def _casts(self, op: Any, key: Any, args: Any, kwargs: Any) -> bool:
        """Whether autocast knows something that the operator consists of, in a call that leaves no trace."""
        sees = _Sees(self)
        with internals.without_tracing(), sees, self._casting():
            internals.run_kernel(op, key, *args, **kwargs)
        return sees.known

    @contextlib.contextmanager
    def _casting(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for device, dtype in self.active.items():
                stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
            yield


class _Sees(internals.TorchDispatchMode):
    """Notices operators that autocast knows, at any depth."""

    def __init__(self, outer: _TakesApart) -> None:
        super().__init__()
        self.known = False
        self._outer = outer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, internals.OpOverload):
            self.known = self.known or self._outer._is_known(func)
            key = self._outer._kernel(func)
            if key is not None and not self.known:
                with self, self._outer._casting():
                    return internals.run_kernel(func, key, *args, **kwargs)
        return func(*args, **kwargs)


def _encoder_layer(
    x: Any, width: int, heads: int, qkv: Any, qkv_bias: Any, projection: Any, projection_bias: Any, use_gelu: bool,
    norm_first: bool, eps: float, weight1: Any, bias1: Any, weight2: Any, bias2: Any, ffn1: Any, ffn_bias1: Any,
    ffn2: Any, ffn_bias2: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """What the kernel of ``nn.TransformerEncoderLayer`` calls; its sums are written over what attention returns."""
    attention = (width, heads, qkv, qkv_bias, projection, projection_bias, mask, False, True, mask_type)
    norm1 = functools.partial(F.layer_norm, normalized_shape=(width,), weight=weight1, bias=bias1, eps=eps)
    norm2 = functools.partial(F.layer_norm, normalized_shape=(width,), weight=weight2, bias=bias2, eps=eps)
    seen = norm1(x) if norm_first else x
    attended = torch._native_multi_head_attention(seen, seen, seen, *attention)[0]
    attended = (attended + x).to(attended.dtype)
    attended = attended if norm_first else norm1(attended)
    hidden = F.linear(norm2(attended) if norm_first else attended, ffn1, ffn_bias1)
    result = F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn2, ffn_bias2)
    result = (result + attended).to(result.dtype)
    return result if norm_first else norm2(result)


_FORMULAS = {torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
"""Operators with kernels that call others, under autocast."""
