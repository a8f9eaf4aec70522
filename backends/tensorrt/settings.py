"""torchmux's options as torch_tensorrt's settings, and symbolic sizes as ranges of an optimization profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from .options import TensorrtOptions


def settings_for(options: TensorrtOptions, device: int) -> Any:
    """torch_tensorrt's ``CompilationSettings``.

    Two of its defaults are not ours: it computes float32 in TF32, and it takes every attention mask for a causal one.
    """
    from torch_tensorrt import Device, dtype
    from torch_tensorrt.dynamo._settings import CompilationSettings

    half = {"f16": dtype.f16, "bf16": dtype.bf16}.get(options.precision)
    return CompilationSettings(
        enabled_precisions={dtype.f32} if half is None else {dtype.f32, half},
        use_explicit_typing=half is None,
        disable_tf32=options.precision == "model",
        attn_bias_is_causal=False,
        workspace_size=options.workspace_size,
        min_block_size=options.min_block_size,
        optimization_level=options.optimization_level,
        max_aux_streams=options.max_aux_streams,
        hardware_compatible=options.hardware_compatible,
        version_compatible=options.version_compatible,
        pass_through_build_failures=True,
        device=Device(gpu_id=device),
    )


@dataclass(frozen=True)
class Profile:
    """The sizes that an engine takes for one input: the least, those it is tuned for, and the largest."""

    least: tuple[int, ...]
    usual: tuple[int, ...]
    largest: tuple[int, ...]

    def takes(self, size: Sequence[int]) -> bool:
        return all(low <= s <= high for low, s, high in zip(self.least, size, self.largest, strict=True))


def profile_of(placeholder: Node, largest_size: int) -> Profile | None:
    """The profile of an input with symbolic sizes, or of an input that is a size; None if all sizes are known."""
    value = placeholder.meta["val"]
    sizes = tuple(value.shape) if isinstance(value, torch.Tensor) else (value,)
    if all(type(s) is int for s in sizes):
        return None
    ranges = [internals.size_range(s) if type(s) is not int else (s, s, s) for s in sizes]
    usual = tuple(hint for _, hint, _ in ranges)
    return Profile(
        # A dimension whose least size is 2 is one that is not 0 or 1 in the graph; TensorRT takes 1 as well.
        tuple(max(low, 1) for low, _, _ in ranges),
        usual,
        tuple(max(hint, largest_size) if high is None else high for _, hint, high in ranges),
    )


def input_for(placeholder: Node, profile: Profile | None) -> Any:
    """torch_tensorrt's ``Input`` for a placeholder."""
    from torch_tensorrt import Input

    value = placeholder.meta["val"]
    if profile is None:
        return Input(shape=tuple(value.shape), dtype=value.dtype, name=placeholder.name)
    is_size = not isinstance(value, torch.Tensor)
    return Input(
        min_shape=profile.least,
        opt_shape=profile.usual,
        max_shape=profile.largest,
        dtype=torch.int64 if is_size else value.dtype,
        name=placeholder.name,
        is_shape_tensor=is_size,
    )
