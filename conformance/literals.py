"""Values as Python text, for standalone scripts."""

from __future__ import annotations

import base64
import io
import math
import zlib
from typing import Any

import torch

SMALL = 60
"""Tensors of at most this many elements are written out."""


class NotWritable(ValueError):
    """A value that cannot be written as text."""


class Text:
    """Turns values into expressions over ``torch`` and, if ``unpacks`` says so, :func:`unpack`."""

    def __init__(self) -> None:
        self.unpacks = False

    def of(self, value: Any) -> str:
        """The expression.

        Raises:
            NotWritable: there is none, for example for a random generator.
        """
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, tuple):
            inner = ", ".join(map(self.of, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.of, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.of(k)}: {self.of(v)}" for k, v in value.items()) + "}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, slice):
            return f"slice({self.of(value.start)}, {self.of(value.stop)}, {self.of(value.step)})"
        if isinstance(value, complex) and not (math.isfinite(value.real) and math.isfinite(value.imag)):
            return f"complex({self.of(value.real)}, {self.of(value.imag)})"
        if value is Ellipsis:
            return "..."
        plain = (bool, int, float, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)
        if isinstance(value, plain):
            return repr(value)
        raise NotWritable(f"a {type(value).__name__}")

    def _tensor(self, tensor: torch.Tensor) -> str:
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if not plain or tensor.is_meta:
            raise NotWritable(f"a {type(tensor).__name__} of layout {tensor.layout}")
        bare = tensor.detach()
        own = bare.is_contiguous() and not bare.is_conj() and not bare.is_neg()
        if own and bare.numel() <= SMALL and bare.dtype in _WRITTEN and (bare.dim() < 2 or bare.numel()):
            values = bare.tolist() if bare.dtype is not torch.float32 else _shortest(bare)
            written = f"torch.tensor({self.of(values)}, dtype={bare.dtype})"
        else:
            self.unpacks = True
            written = f"unpack({pack(bare)})"
        return f"{written}.requires_grad_()" if tensor.requires_grad else written


# ``tolist`` and ``torch.tensor`` are exact for these.
_WRITTEN = frozenset(
    (
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
)  # fmt: skip


def _shortest(tensor: torch.Tensor) -> Any:
    """The elements, nested as in the tensor, with only the digits that distinguish them in float32."""
    rounded = torch.tensor([float(str(x)) for x in tensor.reshape(-1).numpy()], dtype=torch.float64)
    same = torch.equal(rounded.float().nan_to_num(7.0), tensor.reshape(-1).nan_to_num(7.0))
    return (rounded.view(tensor.shape) if same else tensor).tolist()


def pack(value: Any) -> str:
    """Tensors, with their strides and shared memory, as string literals; :func:`unpack` reads them."""
    stored = io.BytesIO()
    torch.save(value, stored)
    text = base64.b85encode(zlib.compress(stored.getvalue(), 9)).decode()
    if len(text) <= 80:
        return repr(text)
    lines = (repr(text[start : start + 100]) for start in range(0, len(text), 100))
    return "\n" + "".join(f"        {line}\n" for line in lines) + "    "


def unpack(text: str) -> Any:
    """The tensors that :func:`pack` packed."""
    return torch.load(io.BytesIO(zlib.decompress(base64.b85decode(text))), weights_only=True)
