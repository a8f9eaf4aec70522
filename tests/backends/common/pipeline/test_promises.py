"""Operators of torch whose results are not what their fake results say."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

import torchmux
from torchmux.backends.common.pipeline.promises import copied
from torchmux.registry.errors import CompilationFailed

NAME = "torchmux_promises"


@pytest.fixture
def operators() -> Iterator[object]:
    library = torch.library.Library(NAME, "DEF")
    for name, kernel, schema in (
        ("dtype", lambda x: x.float() * 2, "(Tensor x) -> Tensor"),
        ("sizes", lambda x: x[:-1].clone(), "(Tensor x) -> Tensor"),
        ("strides", lambda x: x.mT.contiguous().mT + 1, "(Tensor x) -> Tensor"),
        ("one_of_two", lambda x: (x + 1, x.double()), "(Tensor x) -> (Tensor, Tensor)"),
        ("seldom", lambda x, m: x.float() * 2, "(Tensor x, str m) -> Tensor"),
    ):
        library.define(f"{name}{schema}")
        library.impl(name, kernel, "CPU")
        two = name == "one_of_two"
        library.impl(
            name,
            (lambda x, *rest: (torch.empty_like(x), torch.empty_like(x))) if two else lambda x, *r: torch.empty_like(x),
            "Meta",
        )
    yield getattr(torch.ops, NAME)
    library._destroy()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_another_dtype_is_converted_and_logged(operators, backend, dynamic, caplog) -> None:
    def program(x):
        return torch.relu(operators.dtype(x + 1)) * 3 + operators.one_of_two(x)[1]

    x = torch.arange(24).reshape(4, 6).to(torch.bfloat16)
    wanted = torch.relu((x + 1) * 2) * 3 + x
    compiled = torchmux.compile(program, backend=backend, dynamic=dynamic)
    with caplog.at_level(logging.WARNING, "torchmux.fallback"):
        found = compiled(x)
    torch.testing.assert_close(found.float(), wanted.float(), rtol=1e-2, atol=1e-2)
    if backend == "native":
        assert found.dtype is torch.bfloat16
        assert "returned torch.float32 where the trace says torch.bfloat16" in caplog.text
        assert "returned torch.float64" in caplog.text


@pytest.mark.parametrize("dynamic", [False, True])
def test_other_sizes_are_an_error(operators, dynamic) -> None:
    compiled = torchmux.compile(lambda x: operators.sizes(x * 2) + 1, backend="native", dynamic=dynamic)
    with pytest.raises(CompilationFailed, match="returned a tensor of sizes"):
        compiled(torch.ones(4, 6))


def test_other_strides_are_copied(operators) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    compiled = torchmux.compile(lambda x: operators.strides(x * 2) * 3, backend="native")
    assert torch.equal(compiled(x), (x * 2 + 1) * 3)


def test_what_is_left_to_torch_is_looked_at_too(operators, caplog) -> None:
    """``native_batch_norm`` was such an operator: left to torch, read by a kernel of the backward pass."""

    def program(x, z):
        return torch.relu(operators.dtype(torch.view_as_real(z)[..., 0].to(torch.bfloat16) + x)) + 1

    x, z = torch.ones(4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.complex64)
    for _ in range(2):  # traced, then from its recipe
        torchmux.reset()
        caplog.clear()
        found = torchmux.compile(program, backend="native")(x, z)
        assert torch.equal(found, torch.full((4,), 5.0, dtype=torch.bfloat16))
        assert "where the trace says" in caplog.text


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_other_strides_where_they_are_seen(operators, backend) -> None:
    """A view that the kernel's strides do not allow, and elements that are chosen by their address."""

    def program(x):
        y = operators.strides(x * 2)
        return y.view(-1) + 1, y.as_strided((5,), (1,), 3) * 2

    x = torch.arange(24.0).reshape(4, 6)
    y = (x * 2 + 1).view(-1)
    found = torchmux.compile(program, backend=backend)(x)
    assert torch.equal(found[0], y + 1)
    assert torch.equal(found[1], y[3:8] * 2)


ROW = torch.arange(24.0)
OVERLAPPING = {
    "a row repeated": (ROW[1:7].expand(5, 6), (0, 1)),
    "windows": (ROW.unfold(0, 4, 1), (1, 1)),
    "windows repeated": (ROW.unfold(0, 4, 1).expand(3, 21, 4), (0, 1, 1)),
    "a column repeated from a copy": (ROW[1:7].expand(5, 6).contiguous(), (0, 1)),
    "nothing": (ROW[:0].expand(5, 0), (0, 1)),
    "one by one": (ROW[::2], (1,)),
}


@pytest.mark.parametrize(("value", "strides"), OVERLAPPING.values(), ids=OVERLAPPING)
def test_copies_have_strides_by_which_elements_share_memory(value, strides):
    copy = copied(value, strides)
    assert copy.stride() == strides
    assert torch.equal(copy, value)
    assert copy.untyped_storage().data_ptr() != value.untyped_storage().data_ptr() or not value.numel()
