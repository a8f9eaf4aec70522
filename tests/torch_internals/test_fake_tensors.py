"""Tensors without data, and the fake mode of a compilation."""

from __future__ import annotations

import weakref

import pytest
import torch

import torchmux
from torchmux import torch_internals as ti
from torchmux.torch_internals import fake_results

from .walk import checks


@checks("fake_tensor_mode", "is_fake")
def test_fake_mode() -> None:
    for symbolic in (False, True):
        mode = ti.fake_tensor_mode(symbolic=symbolic)
        assert (mode.shape_env is not None) == symbolic
        with mode:
            assert ti.is_fake(torch.ones(2).sin())


@checks("is_fake_class", "is_wrapper", "parts_of")
def test_kinds_of_tensors() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    with ti.fake_tensor_mode(symbolic=False):
        fake = torch.ones(2)
    assert ti.is_fake_class(type(fake)) and not ti.is_fake_class(torch.Tensor)
    assert ti.is_wrapper(TwoTensor(torch.ones(2), torch.ones(2)))
    assert not ti.is_wrapper(torch.ones(2)) and not ti.is_wrapper(fake)
    a, b = torch.ones(2), torch.ones(2)
    inner = TwoTensor(a, b)
    for value, parts in ((a, [a]), (3, [3]), (inner, [a, b]), (TwoTensor(inner, inner), [a, b, a, b])):
        found = ti.parts_of(value)
        assert len(found) == len(parts) and all(x is y for x, y in zip(found, parts, strict=True))


@checks("plain_fake")
def test_plain_fake() -> None:
    """Plain tensors are as ``from_tensor`` makes them, and all others are left to it."""

    def look(fake):
        return (
            type(fake), fake.shape, fake.stride(), fake.dtype, fake.device, fake.requires_grad, fake.is_leaf,
            fake._is_view(), isinstance(fake, torch.nn.Parameter), torch._C._dispatch_keys(fake).raw_repr(),
            fake.untyped_storage().nbytes(), sorted(vars(fake)),
        )  # fmt: skip

    plain = [
        torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.ones(3, 1, 2), torch.ones(()), torch.ones(2, dtype=torch.long), torch.ones(2, requires_grad=True),
        torch.empty_strided((2, 3), (1, 2)), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ]  # fmt: skip
    ours, torchs = ti.fake_tensor_mode(symbolic=False), ti.fake_tensor_mode(symbolic=False)
    for tensor in plain:
        fake = ti.plain_fake(ours, tensor)
        assert look(fake) == look(torchs.from_tensor(tensor)), tensor
        assert ours.from_tensor(tensor) is fake
        for alias in (tensor.detach(), tensor.data.as_strided((1,), (1,))):
            assert ti.plain_fake(ours, alias) is None
            assert ti.share_storage(ours.from_tensor(alias), fake)
    base = torch.ones(4)
    with_grad = torch.ones(2, requires_grad=True)
    with_grad.sum().backward()
    with torch.inference_mode():
        inference = torch.ones(2)
    others = [
        base[1:], with_grad, with_grad * 2, inference, torch.ones(0), torch.ones(1).expand(3), torch.ones(2).conj(),
        torch.ones(2, dtype=torch.cfloat).conj(), torch.empty_strided((2,), (3,)).resize_(1),
        torch.ones(2, device="meta"),
    ]  # fmt: skip
    assert [ti.plain_fake(ours, tensor) is None for tensor in others] == [
        True, True, True, True, True, True, False, True, True, True
    ]  # fmt: skip
    assert ti.plain_fake(ti.fake_tensor_mode(symbolic=True), torch.ones(2)) is None


@checks("forget_real_tensors")
def test_no_references_stay() -> None:
    mode, tensor = ti.fake_tensor_mode(symbolic=False), torch.ones(2)
    mode.from_tensor(tensor)
    assert weakref.getweakrefs(tensor)
    ti.forget_real_tensors(mode)
    assert not weakref.getweakrefs(tensor)
    assert mode.from_tensor(tensor).shape == (2,)


@checks("fake_tensor_errors")
def test_fake_errors() -> None:
    mode = ti.fake_tensor_mode(symbolic=False)
    errors = ti.fake_tensor_errors()
    assert set(errors) == {"data_dependent", "dynamic_output", "unsupported", "guard"}
    with mode, pytest.raises(errors["data_dependent"]):
        torch.ones(1).item()
    with mode, pytest.raises(errors["dynamic_output"]):
        torch.ones(1).nonzero()


@checks("tracing_context", "tracing_with", "active_fake_mode", "inputs_are_mutated")
def test_tracing() -> None:
    assert ti.active_fake_mode() is None
    mode = ti.fake_tensor_mode(symbolic=False)
    with ti.tracing_context(mode):
        assert ti.active_fake_mode() is mode
        with ti.tracing_with(mode):
            assert ti.active_fake_mode() is mode
        assert not ti.inputs_are_mutated()
    with ti.tracing_with(mode):
        assert ti.active_fake_mode() is mode


@checks("ignoring_new_symbols")
def test_symbols_that_nobody_needs() -> None:
    mode = ti.fake_tensor_mode(symbolic=True, scalars=True)
    with mode, ti.ignoring_new_symbols(mode):
        torch.ones(()).item()
    assert not mode.shape_env.pending_fresh_unbacked_symbols
    with ti.ignoring_new_symbols(ti.new_fake_mode()):
        pass


@checks("floats_needed", "keep_number")
def test_floats() -> None:
    mode = ti.fake_tensor_mode(symbolic=True, scalars=True)
    source = mode.from_tensor(torch.tensor(0.5, dtype=torch.float64))
    with mode:
        number = source.item()
        alias = source.detach()
        ti.keep_number(source, alias)
        assert str(alias.item().node.expr) == str(number.node.expr)

    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._dynamo.symbolic_convert import TensorifyState

    TensorifyState.specialize("zf7")
    assert ti.floats_needed(ValueError()) is None
    assert ti.floats_needed(TensorifyScalarRestartAnalysis()) == {"zf7"}
    assert TensorifyState.empty()


@checks("correct")
def test_dtypes_of_real_kernels() -> None:
    mode = ti.correct(ti.fake_tensor_mode(symbolic=False))
    assert ti.correct(mode) is mode
    with mode:
        x, weight = torch.ones(4, 3, dtype=torch.bfloat16), torch.ones(3)
        results = torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, weight, True, 0.1, 1e-5)
    assert [result.dtype for result in results] == [torch.bfloat16, torch.float32, torch.float32]


def test_strides_of_dimensions_of_one_element() -> None:
    """They are the real operator's, which in torch's fakes they are not: of views, elementwise, of images."""
    mode = ti.correct(ti.fake_tensor_mode(symbolic=False))
    gray = torch.ones(2, 1, 4, 5).to(memory_format=torch.channels_last)
    turned = torch.ones(2).as_strided((2, 1, 1), (1, 1, 2))
    folded = torch.ones(256).as_strided((1, 8, 32, 1), (32, 32, 1, 32))
    for function, given in (
        (lambda x: x.relu(), gray),
        (lambda x: torch.nn.functional.interpolate(x, scale_factor=2), gray),
        (lambda x: torch.nn.functional.layer_norm(x, (1, 4, 5)), gray),
        (lambda x: torch.nn.functional.batch_norm(x, torch.ones(1), torch.ones(1)), gray),
        (lambda x: x.transpose(2, 3).flip(3), gray),
        (lambda x: x + 1, turned),
        (lambda x: x.int() // x.int(), turned),
        (lambda x: x.view(1, 8, 32), folded),
        (lambda x: x.reshape(1, 8, 32), folded),
        *((function, x) for function in (
            torch.zeros_like, torch.rand_like, lambda x: torch.full_like(x, 2), lambda x: x.sort(-1)[1],
            lambda x: torch.tril(x[None]),
            lambda x: x.log_softmax(-1), lambda x: x[torch.zeros(1, dtype=torch.int64)], lambda x: x.fmod(2),
            lambda x: torch.index_put(x, (torch.zeros(1, dtype=torch.int64),), torch.ones(())),
        ) for x in (torch.ones(1, 3).t(), torch.ones(2)[::2], turned, torch.ones(1, 2, 3)[:, :, ::2])),
        (lambda x: x + 1, torch.ones(1, 0).t()),
        (torch.zeros_like, torch.ones(3, 1, 0)),
    ):  # fmt: skip
        with mode:
            found = function(mode.from_tensor(given))
        assert found.stride() == function(given).stride()


@checks("ROWS_RESIZED")
def test_rows_resized() -> None:
    real = torch.ones(5, 4, 3).permute(2, 1, 0)
    mode = ti.new_fake_mode()
    for op in ti.ROWS_RESIZED:
        arguments = ([7],) if op._overloadname == "default" else ([7], None)
        with mode:
            fake = op(mode.from_tensor(real), *arguments)
        assert fake.stride() == op(real, *arguments).stride()


@checks("strides_of_sum")
def test_strides_of_sum() -> None:
    """They are those of every result that one kernel computes, in torch's fakes too."""
    x, y = torch.ones(33, 1), torch.empty_strided((5, 7, 1, 5), (35, 1, 35, 7))
    assert ti.strides_of_sum(x, y) == torch.logaddexp2(x, y).stride() == (1155, 1, 7, 231)
    mode = ti.new_fake_mode()
    fakes = [mode.from_tensor(t) for t in (x, y)]
    with mode:
        assert ti.strides_of_sum(*fakes) == (1155, 1, 7, 231)


@checks("suggested_layout")
def test_suggested_layout() -> None:
    image = torch.empty(2, 3, 4, 5)
    assert ti.suggested_layout(image) is torch.contiguous_format
    assert ti.suggested_layout(image.to(memory_format=torch.channels_last)) is torch.channels_last


@torch.library.custom_op("torchmux_tests::drawn", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def drawn(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x)


@drawn.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(7)
    return torch.empty_like(x)


def test_fakes_of_draws_draw_nothing() -> None:
    """Where an operator has no fake, torch runs it on zeros, and on a GPU its generator goes on."""
    x = torch.ones(3)
    state = torch.get_rng_state()
    with ti.new_fake_mode() as mode:
        drawn(mode.from_tensor(x))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    expected = drawn(x)
    torch.manual_seed(5)
    assert torch.equal(torchmux.compile(drawn, backend="eager")(x), expected)


def test_fakes_of_draws_leave_the_generators_of_programs() -> None:
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()
    with fake_results._nothing_drawn((torch.ones(2), generator), {}):
        torch.rand(3, generator=generator)
    assert torch.equal(generator.get_state(), state)
