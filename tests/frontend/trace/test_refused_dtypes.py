"""What eager refuses for its dtypes, every backend refuses: fake tensors do not, and a compiler would compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.torch_internals import fake_results

REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "linear": F.linear,
    "matmul": lambda x, y: x @ y,
    "addmm": lambda x, y: torch.addmm(x, y, y),
    "layer_norm": lambda x, y: F.layer_norm(x, (2,), y[0]),
    "batch_norm": lambda x, y: F.batch_norm(x, y[0], y[1]),
    "group_norm": lambda x, y: F.group_norm(x, 1, y[0]),
    "cross_entropy": lambda x, y: F.cross_entropy(x, torch.tensor([0, 1]), weight=y[0]),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x / 2, y),
    "index_add": lambda x, y: x.index_add(0, torch.tensor([0, 1]), y),
    "setitem": lambda x, y: x.clone().__setitem__(torch.tensor([0, 1]), y),
    "values_for_a_mask": lambda x, y: x.clone().__setitem__(x > 0, y.flatten()),
    "index_of_floats": lambda x, y: x.clone().__setitem__(y, x),
    "heaviside": torch.heaviside,
    "complex": torch.complex,
    "gelu": lambda x, y: F.gelu(x.long()),
    "silu": lambda x, y: F.silu(x.long()),
    "relu_of_bool": lambda x, y: torch.relu(x > 0),
    "bitwise_and": lambda x, y: x & x,
    "interpolate": lambda x, y: F.interpolate(x[None].long(), scale_factor=2),
}
TAKEN: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "promotes": lambda x, y: x + y * x.long() - (x > 0).int(),
    "index": lambda x, y: x[torch.tensor([1])] + x.index_select(0, torch.tensor([0])),
    "mask": lambda x, y: torch.where(x > 0, x, y).masked_fill(y > 3, 0),
    "values_for_a_mask": lambda x, y: x.long().index_put((x > 0,), torch.arange(4)),
    "rows_for_a_mask": lambda x, y: x.index_put((torch.tensor([True, True]),), x * 3),
    "one_row_for_a_mask": lambda x, y: x.long().index_put((x[0] > 0,), torch.arange(2)),
    "values_for_a_mask_of_bytes": lambda x, y: x.index_put(((x > 0).byte(),), torch.arange(4.0)),
    "embedding": lambda x, y: F.embedding(x.long() - 1, x),
    "norm_in_half": lambda x, y: F.layer_norm(x.bfloat16(), (2,), x[0], x[0]),
    "converting_copy": lambda x, y: x.clone().copy_(y).add_(y),
    "view_as_integers": lambda x, y: x.view(torch.int32) & 7,
    "draws": lambda x, y: x.long().random_(2, 3),
    "autocast": lambda x, y: _under_autocast(x, y),
}


def _under_autocast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x.bfloat16() @ x


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, backend: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError, IndexError)) as eager:
        REFUSED[name](*_inputs())
    with pytest.raises((RuntimeError, NotImplementedError, IndexError)) as compiled:
        torchmux.compile(REFUSED[name], backend=backend)(*_inputs())
    assert (compiled.type, str(compiled.value)) == (eager.type, str(eager.value))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str, dynamic: bool) -> None:
    got = torchmux.compile(TAKEN[name], backend="eager", fullgraph=True, dynamic=dynamic)(*_inputs())
    torch.testing.assert_close(got, TAKEN[name](*_inputs()))


def test_fullgraph_raises_what_eager_raises() -> None:
    with pytest.raises(RuntimeError, match="expected m1 and m2 to have the same dtype"):
        torchmux.compile(REFUSED["matmul"], backend="eager", fullgraph=True)(*_inputs())


def test_random_state_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    torchmux.compile(lambda x: x.long() + (x > 0), backend="eager")(torch.ones(2))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("function", [lambda x, y: x // y, lambda x, y: x % y, lambda x, y: torch.fmod(x, y)])
def test_integers_are_divided(function):
    x, y = torch.arange(-6, 7), torch.full((13,), 4)
    assert torch.equal(torchmux.compile(function, backend="eager", strict=True, fullgraph=True)(x, y), function(x, y))


def test_assertions_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of zeros fails, and stops a GPU for good."""
    tried = []

    def error(func: Any, *_: Any) -> None:
        tried.append(func._schema.name)

    monkeypatch.setattr(fake_results, "_error", error)
    monkeypatch.setattr(fake_results, "_taken", set())

    def f(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all())
        return x + 1

    torchmux.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    assert tried and not [name for name in tried if "assert" in name]
