"""Functions under the names of libdevice for Triton's interpreter, whose tensors are arrays of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle


def _of_lanes(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def apply(*given: Any) -> Any:
        arrays = [torch.from_numpy(np.array(x.handle.data)) for x in given]
        found = function(*arrays).numpy()
        element = given[0].dtype
        is_block = any(x.type.is_block() for x in given)
        kind = tl.block_type(element, list(found.shape)) if is_block else element
        return tl.tensor(TensorHandle(found, element), kind)

    return apply


exp, expm1, exp2 = _of_lanes(torch.exp), _of_lanes(torch.expm1), _of_lanes(torch.exp2)
log, log1p, log2, log10 = map(_of_lanes, (torch.log, torch.log1p, torch.log2, torch.log10))
erf, erfc, lgamma = map(_of_lanes, (torch.erf, torch.erfc, torch.lgamma))
sin, cos, tan = map(_of_lanes, (torch.sin, torch.cos, torch.tan))
asin, acos, atan, atan2 = map(_of_lanes, (torch.asin, torch.acos, torch.atan, torch.atan2))
sinh, cosh, tanh = map(_of_lanes, (torch.sinh, torch.cosh, torch.tanh))
asinh, acosh, atanh = map(_of_lanes, (torch.asinh, torch.acosh, torch.atanh))
pow, hypot, nextafter, fmod = map(_of_lanes, (torch.pow, torch.hypot, torch.nextafter, torch.fmod))
trunc, rint, copysign = map(_of_lanes, (torch.trunc, torch.round, torch.copysign))
