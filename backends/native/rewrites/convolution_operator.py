"""The operator ``torchmux::convolution``: two dimensions, with what is added to the result, and a relu.

A frozen graph calls it where the target finishes convolutions itself; lowering makes an abstract operation of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define(
    "convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? addend, int[] stride, int[] padding, int[] dilation, "
    "int groups, bool relu) -> Tensor"
)

CONVOLUTION = torch.ops.torchmux.convolution.default


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    addend: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    relu: bool,
) -> Tensor:
    result = torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    result = result if addend is None else result + addend
    return result.relu() if relu else result


_library.impl("convolution", _convolution, "CompositeExplicitAutograd")
