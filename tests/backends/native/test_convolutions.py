"""Convolutions choose the order of dimensions in memory that suits them."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def network(x, first, second, third):
    y = F.max_pool2d(F.relu(F.conv2d(x, first, stride=2)), 2)
    z = F.relu(F.conv2d(y, second) * 2)
    return F.conv2d(z + y, third, padding=1)


def test_images_of_few_channels_lie_channels_last(check) -> None:
    weights = torch.randn(16, 3, 3, 3), torch.randn(16, 16, 1, 1), torch.randn(20, 16, 3, 3)
    report = check(network, torch.randn(2, 3, 33, 41), *weights)
    python = report.output_code[1]
    assert "fit(result[0], (5120, 1, 320, 16, ))" in python  # of the first convolution: 16 channels of 16 by 20
    assert "fit(result[0], (1280, 1, 160, 16, ))" in python  # of the pooling, which hands the layout on


def test_heavy_weights_keep_the_usual_order(check) -> None:
    weights = torch.randn(64, 3, 3, 3), torch.randn(64, 64, 1, 1), torch.randn(64, 64, 3, 3)
    python = check(network, torch.randn(1, 3, 15, 15), *weights).output_code[1]
    assert "fit(result[0], (3136, 1, 448, 64, ))" in python
    assert "fit(result[0], (576, 9, 3, 1, ))" in python


def test_images_that_are_returned_lie_as_in_eager(check) -> None:
    def one(x, first):
        return F.conv2d(x, first) + 1

    def several(x, first, second):
        y = F.conv2d(x, first)
        z = F.conv2d(y, second)
        return y, z, (z * 2).relu()

    x, first, second = torch.randn(1, 3, 9, 9), torch.randn(16, 3, 3, 3), torch.randn(16, 16, 3, 3)
    check(one, x, first)
    check(several, x, first, second)
