"""A user's program, for type checkers; it also runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import torch

import torchmux


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    def own(self) -> int:
        return 3


def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@torchmux.compile
def plain(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torchmux.compile(backend="eager", fullgraph=True)
def with_arguments(x: torch.Tensor) -> torch.Tensor:
    return x + 1


net = torchmux.compile(Net(), backend="eager")
assert_type(net, Net)
assert_type(net.own(), int)
compiled = torchmux.compile(scale, backend="eager", dynamic=True, strict=True)
wanted: Callable[[torch.Tensor, float], torch.Tensor] = compiled
compiled(torch.ones(2), 2.0)
plain(torch.ones(2))
with_arguments(torch.ones(2))

report = torchmux.report(compiled)
assert_type(report.share, float)
for placement in report.placements:
    assert_type(placement, torchmux.Placement)
    print(placement.op, placement.placed_on, placement.reason)
names: list[str] = torchmux.list_backends()
for row in torchmux.backends():
    assert_type(row, torchmux.BackendInfo)
verification = torchmux.verify(scale, (torch.ones(2), torch.tensor(2.0)), backend="eager")
assert_type(verification, torchmux.Verification)
assert_type(verification.to_dict(), dict[str, Any])
with torchmux.config.patch(recompile_limit=3):
    assert_type(torchmux.config.recompile_limit, int)
try:
    torchmux.compile(scale, backend="no such backend")
except torchmux.UnknownBackend as error:
    print(error)
