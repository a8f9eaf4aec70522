"""Overloads and their kernels, functions in C, and operators that take functions."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks

ADD = torch.ops.aten.add.Tensor
SIN = torch.ops.aten.sin.default


@checks("python_kernels", "forget_dispatch", "run_kernel", "DispatchKey")
def test_kernels() -> None:
    key = ti.DispatchKey.CPU
    assert key not in ti.python_kernels(SIN)
    ti.forget_dispatch(SIN)
    x = torch.ones(2)
    assert torch.equal(ti.run_kernel(SIN, key, x), x.sin())


@checks("functions_in_c")
def test_functions_in_c() -> None:
    image, matrix = torch.randn(1, 1, 4, 4), torch.randn(3, 3)
    pooled, _ = ti.functions_in_c["nn"].adaptive_max_pool2d(image, (1, 1))
    assert torch.equal(pooled, image.amax((2, 3), keepdim=True))
    assert torch.equal(ti.functions_in_c["linalg"].linalg_inv_ex(matrix)[0], torch.linalg.inv(matrix))


@checks("has_kernel")
def test_kernels_in_c() -> None:
    assert ti.has_kernel(SIN, ti.DispatchKey.CPU)
    assert not ti.has_kernel(SIN, ti.DispatchKey.AutocastCPU)
    assert ti.has_kernel(torch.ops.aten.mm.default, ti.DispatchKey.AutocastCPU)
    # Python has a kernel for this key, by which the operator counts as composite; calling C++'s would end the process.
    assert not ti.has_kernel(torch.ops.aten.native_batch_norm.default, ti.DispatchKey.CompositeImplicitAutograd)


@checks("overloads")
def test_overloads() -> None:
    assert ti.overloads(ADD) == [ADD]
    assert ADD in ti.overloads(torch.ops.aten.add)
    assert ti.overloads(torch.add) == []


@checks("operator_schema", "is_composite", "OpOverload", "python_registrations")
def test_schemas() -> None:
    assert [a.name for a in ti.operator_schema(ADD).arguments] == ["self", "other", "alpha"]
    assert isinstance(ADD, ti.OpOverload)
    assert not ti.is_composite(ADD)
    with torch.library._scoped_library("torchmux_internals", "DEF") as library:
        library.define("one(Tensor x) -> Tensor")
        library.impl("one", lambda x: x, "CPU")
        assert "torchmux_internals/one/CPU" in ti.python_registrations()
    assert ti.is_composite(torch.ops.aten.reshape.default)


@checks("custom_device_name", "SDPBackend", "without_torch_function", "group_tensors_by_device_and_dtype")
def test_questions() -> None:
    assert ti.custom_device_name() == "privateuseone"
    assert torch.nn.attention.SDPBackend is ti.SDPBackend
    for disabled in ti.without_torch_function:
        with disabled():
            one = torch.ones(1)
    ((key, (lists, indices)),) = ti.group_tensors_by_device_and_dtype([[one]], True).items()
    assert (key, lists, indices) == ((one.device, one.dtype), [[one]], [0])


@checks("random_wrappers")
def test_random_wrappers() -> None:
    save, repeat = ti.random_wrappers()
    state, first = save(torch.ops.aten.rand.default, [3], device=torch.device("cpu"))
    assert torch.equal(repeat(state, torch.ops.aten.rand.default, [3], device=torch.device("cpu")), first)


@checks("tag_checkpoint")
def test_checkpoint() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x.sin())
    assert torch.equal(ti.tag_checkpoint()(graph, torch.ones(2)), torch.ones(2).sin())


@checks("checkpoints_by_decorators")
def test_checkpoints_by_decorators() -> None:
    for checkpoint in ti.checkpoints_by_decorators():
        x = torch.ones(2, requires_grad=True)
        checkpoint(lambda a, b: a.sin() * b, (x,), {"b": 2}, use_reentrant=False).sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.ones(2).cos())


@checks("while_loop")
def test_while_loop() -> None:
    assert callable(ti.while_loop)
    assert torch.ops.higher_order.while_loop is not None


@checks("scan_stacks_along_its_dimension")
def test_scans_of_columns() -> None:
    from torch._higher_order_ops.scan import scan

    _, rows = scan(lambda carry, x: (carry + x, x * 2), torch.zeros(3), torch.ones(3, 4), dim=1)
    assert (rows.shape == (3, 4)) is ti.scan_stacks_along_its_dimension()
