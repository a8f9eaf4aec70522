"""Whether a result is its argument, or shares memory with it, is the same as in eager, also when an option changes.

Programs are combinations of an operator, its options in turn, and a tensor; sizes are static or symbolic.
"""

from __future__ import annotations

import pytest
import torch
from tiers import slow_but
from torch.nn import functional as F

import torchmux

PROGRAMS = {
    "dropout": (lambda x, o: F.dropout(x, o), [0.5, 0.0, 1.0, 0.0]),
    "dropout_train": (lambda x, o: F.dropout(x, 0.5, o), [True, False, True]),
    "alpha_dropout": (lambda x, o: F.alpha_dropout(x, o, True), [0.5, 0.0]),
    "feature_dropout": (lambda x, o: F.dropout1d(x, o), [0.5, 0.0, 0.5]),
    "to": (lambda x, o: x.to(o), [torch.float32, torch.float64, torch.float32]),
    "to_dev": (lambda x, o: x.to("cpu"), [0]),
    "to_copy": (lambda x, o: x.to(torch.float32, copy=o), [False, True]),
    "type_as": (lambda x, o: x.type_as(o), [torch.ones(1), torch.ones(1, dtype=torch.float64)]),
    "float": (lambda x, o: x.float(), [0]),
    "type": (lambda x, o: x.type(o), [torch.float32, torch.float16]),
    "contiguous": (lambda x, o: x.contiguous(), [0]),
    "cont_cl": (lambda x, o: x.contiguous(memory_format=torch.contiguous_format), [0]),
    "pad": (lambda x, o: F.pad(x, (o, o)), [0, 1, 0]),
    "expand": (lambda x, o: x.expand(o, *x.shape), [1, 2]),
    "expand_same": (lambda x, o: x.expand(x.shape), [0]),
    "expand_as": (lambda x, o: x.expand_as(x), [0]),
    "reshape": (lambda x, o: x.reshape(o), [(-1,), (3, 2), (2, 3), (6,)]),
    "reshape_as": (lambda x, o: x.reshape_as(x), [0]),
    "view": (lambda x, o: x.view(x.shape), [0]),
    "view_as": (lambda x, o: x.view_as(x), [0]),
    "flatten": (lambda x, o: x.flatten(o), [0, 1]),
    "broadcast_to": (lambda x, o: torch.broadcast_to(x, x.shape), [0]),
    "broadcast_tensors": (lambda x, o: torch.broadcast_tensors(x, x)[0], [0]),
    "squeeze": (lambda x, o: x.squeeze(o), [0, 1]),
    "narrow": (lambda x, o: x.narrow(0, 0, o), [1, 2]),
    "slice": (lambda x, o: x[:o], [1, 5]),
    "slice_all": (lambda x, o: x[:], [0]),
    "ellipsis": (lambda x, o: x[...], [0]),
    "index": (lambda x, o: x[o], [0, 1]),
    "fancy": (lambda x, o: x[[0, 1]], [0]),
    "mask": (lambda x, o: x[x > 0], [0]),
    "clone": (lambda x, o: x.clone(), [0]),
    "detach": (lambda x, o: x.detach(), [0]),
    "data": (lambda x, o: x.data, [0]),
    "t": (lambda x, o: x.t(), [0]),
    "tt": (lambda x, o: x.t().t(), [0]),
    "T": (lambda x, o: x.T, [0]),
    "mT": (lambda x, o: x.mT, [0]),
    "permute": (lambda x, o: x.permute(o), [(0, 1), (1, 0)]),
    "movedim": (lambda x, o: x.movedim(0, o), [0, 1]),
    "chunk": (lambda x, o: x.chunk(o)[0], [1, 2]),
    "split": (lambda x, o: x.split(o)[0], [1, 2]),
    "unbind": (lambda x, o: x.unbind()[0], [0]),
    "cat1": (lambda x, o: torch.cat([x]), [0]),
    "stack1": (lambda x, o: torch.stack([x]), [0]),
    "atleast": (lambda x, o: torch.atleast_1d(x), [0]),
    "atleast3": (lambda x, o: torch.atleast_3d(x), [0]),
    "ravel": (lambda x, o: x.ravel(), [0]),
    "real": (lambda x, o: torch.real(x), [0]),
    "conj": (lambda x, o: x.conj(), [0]),
    "resolve": (lambda x, o: x.resolve_conj(), [0]),
    "conj_physical": (lambda x, o: torch.conj_physical(x), [0]),
    "positive": (lambda x, o: +x, [0]),
    "abs_in": (lambda x, o: x.abs_(), [0]),
    "relu_in": (lambda x, o: F.relu(x, o), [True, False, True]),
    "identity": (lambda x, o: torch.nn.Identity()(x), [0]),
    "ret": (lambda x, o: x, [0]),
    "two": (lambda x, o: (x, x)[o], [0, 1]),
    "repeat": (lambda x, o: x.repeat(o, 1), [1, 2]),
    "tile": (lambda x, o: x.tile((o, 1)), [1, 2]),
    "roll": (lambda x, o: x.roll(o), [0, 1]),
    "flip": (lambda x, o: x.flip(()), [0]),
    "sum0": (lambda x, o: x.sum(()), [0]),
    "avgp": (lambda x, o: F.avg_pool1d(x, 1), [0]),
    "adaptive": (lambda x, o: F.adaptive_avg_pool1d(x, 3), [0]),
    "diff": (lambda x, o: torch.diff(x, n=o), [0, 1]),
    "as_tensor": (lambda x, o: torch.as_tensor(x), [0]),
    "asarray": (lambda x, o: torch.asarray(x), [0]),
    "requires": (lambda x, o: x.detach().requires_grad_(o), [False, True]),
    "nan": (lambda x, o: x.nan_to_num(), [0]),
    "clampnone": (lambda x, o: x.clamp(min=o), [0.0, -9.0]),
    "unfold": (lambda x, o: x.unfold(0, 1, 1), [0]),
    "diagonal": (lambda x, o: x.diagonal(), [0]),
    "swap": (lambda x, o: x.swapaxes(0, o), [0, 1]),
    "uns": (lambda x, o: x.unsqueeze(0).squeeze(0), [0]),
    "half": (lambda x, o: x.to(o).to(torch.float32), [torch.float32, torch.float16]),
    "cpu": (lambda x, o: x.cpu(), [0]),
    "zero_add": (lambda x, o: x + o, [0, 1]),
    "mul1": (lambda x, o: x * o, [1, 2]),
    "pow1": (lambda x, o: x**o, [1, 2]),
    "view_dtype": (lambda x, o: x.view(o), [torch.float32, torch.int32]),
    "unflatten": (lambda x, o: x.unflatten(0, (1, 2)), [0]),
    "tensor_split": (lambda x, o: x.tensor_split(o)[0], [1, 2]),
    "select": (lambda x, o: x.select(0, 0), [0]),
    "as_strided": (lambda x, o: x.as_strided(x.shape, x.stride()), [0]),
    "einsum": (lambda x, o: torch.einsum("ij->ij", x), [0]),
    "einsumT": (lambda x, o: torch.einsum("ij->ji", x), [0]),
    "meshgrid": (lambda x, o: torch.meshgrid(x[0], x[1], indexing="ij")[0], [0]),
    "matmulI": (lambda x, o: x @ torch.eye(3), [0]),
    "block": (lambda x, o: torch.block_diag(x), [0]),
    "where": (lambda x, o: torch.where(x > -9, x, x), [0]),
    "tril": (lambda x, o: x.tril(9), [0]),
    "pixel": (lambda x, o: F.pixel_shuffle(x[None], 1), [0]),
    "ch": (lambda x, o: torch.channel_shuffle(x[None, :, :, None], 1), [0]),
    "squeeze_m": (lambda x, o: torch.squeeze(x, (0, 1)), [0]),
    "vmapid": (lambda x, o: torch.vmap(lambda r: r)(x), [0]),
}
TENSORS = {
    "plain": lambda grad: torch.ones(2, 3, requires_grad=grad),
    "one row": lambda grad: torch.ones(1, 3, requires_grad=grad),
    "no leaf": lambda grad: torch.ones(2, 3, requires_grad=grad) * 1,
    "transposed": lambda grad: torch.ones(3, 2, requires_grad=grad).t(),
    "gaps": lambda grad: torch.ones(2, 6, requires_grad=grad)[:, ::2],
    "empty": lambda grad: torch.ones(0, 3, requires_grad=grad),
}
BACKENDS = ("eager", "aot_eager", "native")
OFTEN = ("dropout", "dropout_train", "pad", "to", "contiguous", "reshape", "expand")


def relation(f, x, option):
    torch.manual_seed(0)
    try:
        result = f(x, option)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error)
    shows_x = result._base is not None and result._base is (x if x._base is None else x._base)
    shares = result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    place = (result.storage_offset(), result.stride()) if shares else None
    return result is x, shares, shows_x, place, result.shape, result.is_leaf, result.requires_grad


@pytest.mark.parametrize(
    ("backend", "dynamic", "step"), [("eager", None, 1), ("aot_eager", None, 3), ("aot_eager", True, 4)]
)
def test_each_operator_with_some_tensor(backend, dynamic, step):
    for number, operator in list(enumerate(PROGRAMS))[::step]:
        name = list(TENSORS)[number % len(TENSORS)]
        run(operator, backend, dynamic, {name: TENSORS[name]})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("operator", OFTEN)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", slow_but(BACKENDS, "eager", "native"))
def test_common_operators(operator, backend, dynamic):
    run(operator, backend, dynamic, {name: TENSORS[name] for name in ("plain", "gaps")})


@pytest.mark.slow
@pytest.mark.parametrize("operator", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_operator_with_all_tensors(operator, backend, dynamic):
    run(operator, backend, dynamic, TENSORS)


def run(operator, backend, dynamic, tensors):
    f, options = PROGRAMS[operator]
    for name, make in tensors.items():
        for grad in (False, True):
            torchmux.reset()
            compiled = torchmux.compile(f, backend=backend, dynamic=dynamic)
            for option in (*options, options[0]):
                found, expected = relation(compiled, make(grad), option), relation(f, make(grad), option)
                assert found == expected, (operator, name, grad, option)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_what_is_written_to_the_result_of_dropout_is_written_to_its_argument(backend):
    def f(x, p):
        y = F.dropout(x, p)
        y.add_(1)
        return y

    compiled = torchmux.compile(f, backend=backend)
    for p in (0.5, 0.25, 0.0):
        x = torch.ones(3)
        compiled(x, p)
        assert x.tolist() == [2.0 if p == 0 else 1.0] * 3


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.sum(-1),
        lambda x: (x * 2).sum(1),
        lambda x: (x * 2).amax(-1),
        lambda x: x.max(0)[0],
        lambda x: x @ x.mT,
    ],
)
def test_results_of_training_change_in_place(program):
    """Native computes some with one more dimension, and a view of that could not be changed."""
    found = []
    for function in (program, torchmux.compile(program, backend="native")):
        x = torch.arange(24.0).reshape(2, 3, 4).div(7).requires_grad_()
        y = function(x).clone() if function is program else function(x)  # eager may need its own result
        y.mul_(3)
        (y * y).sum().backward()
        found.append((y.detach(), x.grad))
    torch.testing.assert_close(found[1], found[0])


def test_a_graph_of_which_nothing_is_compiled_runs_as_captured():
    """Also where another process, or an earlier compilation, has traced it."""

    def shown(x):
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            return x.t(), x[1:].expand(2, -1, -1), x.view(-1)

    for _ in range(2):
        torchmux.reset()
        compiled = torchmux.compile(shown, backend="native", fullgraph=True)
        x = torch.randn(3, 4)
        with torch.no_grad():
            results = compiled(x)
        for got, expected in zip(results, shown(x), strict=True):
            assert got.data_ptr() == expected.data_ptr()
            assert (got.shape, got.stride()) == (expected.shape, expected.stride())
        x.add_(1)
        assert torch.equal(results[2], x.view(-1))


def test_what_no_result_needs_is_not_run_where_nothing_is_compiled():
    compiled = torchmux.compile(lambda x: (x.t(), x.sin().cos().dtype), backend="native", fullgraph=True)
    x = torch.randn(3, 4)
    compiled(x)
    with torch.autograd.profiler.profile() as profile:
        result, dtype = compiled(x)
    assert result.data_ptr() == x.data_ptr()
    assert dtype is torch.float32
    assert not {"aten::sin", "aten::cos"} & {event.name for event in profile.function_events}


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_a_view_of_a_result_shows_it_where_inputs_share_memory(backend):
    """AOTAutograd counts inputs anew where one that is written shows another; results keep their numbers."""

    def f(w, other, x, shown):
        scaled = other * w.sum()
        x[0] = 1
        found = [scaled, x @ w, shown @ w]
        return *found, found[2].detach(), found[1].detach(), found[0].detach()

    w = torch.rand(3, 3, requires_grad=True)
    compiled = torchmux.compile(f, backend=backend, fullgraph=True)
    x, other = torch.rand(4, 3), torch.rand(4, 2)
    y = x.clone()
    expected, results = f(w, other, y, y[1:]), compiled(w, other, x, x[1:])
    for at, base in ((3, 2), (4, 1), (5, 0)):
        assert results[at].data_ptr() == results[base].data_ptr()
    torch.testing.assert_close(results, expected)
