"""Writes to tensors that overlap themselves do, or refuse with the words, what they do in eager.

Programs are combinations of a tensor and an operator that writes to it; each runs twice under each backend.
"""

from __future__ import annotations

import operator

import pytest
import torch
from tiers import slow_but

import torchmux
from torchmux.backends.common.pipeline.overlap import PART_OF_SYMBOLIC, is_overlapping
from torchmux.registry.errors import FallbackRefused

TENSORS = {
    "one element": lambda: torch.zeros(1).expand(4),
    "rows": lambda: torch.arange(3.0).expand(2, 3),
    "columns": lambda: torch.arange(3.0)[:, None].expand(3, 2),
    "nothing repeated": lambda: torch.arange(3.0)[:, None].expand(3, 1),
    "windows": lambda: torch.as_strided(torch.arange(6.0), (3, 3), (1, 1)),
    "stride 0": lambda: torch.as_strided(torch.arange(6.0), (2, 3), (0, 1)),
    "gaps": lambda: torch.arange(6.0)[::2],
    "recorded": lambda: (torch.arange(3.0, requires_grad=True) * 1).expand(2, 3),
}


def ones(x):
    return torch.ones(x.shape)


FIRST = torch.tensor([0])
WRITES = {
    "fill": lambda x: x.fill_(3),
    "zero": lambda x: x.zero_(),
    "add": lambda x: x.add_(1),
    "mul": lambda x: x.mul_(2),
    "copy": lambda x: x.copy_(ones(x)),
    "setitem": lambda x: x.__setitem__(0, 5.0),
    "a part": lambda x: x[:1].add_(1),
    "a row": lambda x: x[0].fill_(7),
    "clamp": lambda x: x.clamp_(0, 1),
    "masked": lambda x: x.masked_fill_(x > 0, 2.0),
    "uniform": lambda x: x.uniform_(),
    "bernoulli": lambda x: x.bernoulli_(0.5),
    "index_fill": lambda x: x.index_fill_(0, FIRST, 1.0),
    "index_add": lambda x: x.index_add_(0, FIRST, torch.ones(1, *x.shape[1:])),
    "index_put": lambda x: x.index_put_((FIRST,), torch.tensor(1.0)),
    "scatter": lambda x: x.scatter_(0, torch.zeros(x.shape, dtype=torch.long), 1.0),
    "lerp": lambda x: x.lerp_(ones(x), 0.5),
    "cumsum": lambda x: x.cumsum_(0),
    "out": lambda x: torch.add(ones(x), 1, out=x),
    "foreach": lambda x: torch._foreach_add_([x], 1),
    "a view": lambda x: (x.t() if x.dim() == 2 else x).fill_(1),
    "detached": lambda x: x.detach().fill_(2),
    "read before and after": lambda x: (x + 1, x.fill_(1), x * 2)[2],
    "a copy": lambda x: x.clone().fill_(3),
}


def inner_fill(x):
    x.expand(4).fill_(3)
    return x * 2


def inner_part(x):
    y = torch.cat([x, x, x])
    y.as_strided((2, 2), (1, 1))[0].fill_(7)
    return y


def inner_refused(x):
    y = x * 1
    y.expand(4)[:2].add_(1)
    return y


def inner_result(x):
    y = (x * 1).expand(4)
    y.fill_(3)
    return y.sum()


INNER = (inner_fill, inner_part, inner_refused, inner_result)


def outcome(f, x):
    torch.manual_seed(0)
    try:
        result = f(x)
    except RuntimeError as error:
        return type(error), str(error)
    told = result.tolist() if isinstance(result, torch.Tensor) else None
    return told, x.tolist(), result is x


def check(f, backend, make, name):
    torchmux.reset()
    compiled = torchmux.compile(f, backend=backend)
    for _ in range(2):
        assert outcome(compiled, make()) == outcome(f, make()), name


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", slow_but(["eager", "aot_eager", "native"], "eager", "native"))
@pytest.mark.parametrize("tensor", TENSORS)
def test_writes_to_an_argument(tensor, backend):
    for name, write in WRITES.items():
        check(write, backend, TENSORS[tensor], name)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("f", INNER)
def test_writes_to_a_tensor_of_the_graph(f, requires_grad, backend):
    check(f, backend, lambda: torch.ones(1, requires_grad=requires_grad) * 1, f.__name__)


def test_the_report_says_why():
    compiled = torchmux.compile(lambda x: x.fill_(3), backend="native")
    compiled(torch.zeros(1).expand(4))
    assert "several elements lie in one place" in str(torchmux.report(compiled))


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_expanded_after_a_write_may_be_compiled(backend, dynamic):
    """As in routers of experts, which mark groups and expand the marks; nothing writes to what overlaps."""

    def f(scores, weight):
        marks = torch.zeros_like(scores)
        marks.scatter_(1, scores.topk(2, dim=1)[1], 1.0)
        spread = marks.unsqueeze(-1).expand(-1, -1, 3).reshape(scores.shape[0], -1)
        return (spread * (scores @ weight)).sum(1)

    compiled = torchmux.compile(f, backend=backend, dynamic=dynamic)
    scores, weight = torch.randn(5, 4), torch.randn(4, 12, requires_grad=True)
    compiled(scores, weight).sum().backward()
    got, weight.grad = weight.grad, None
    f(scores, weight).sum().backward()
    torch.testing.assert_close(got, weight.grad)
    assert not torchmux.report(compiled).fallbacks


def test_what_overlaps():
    base = torch.zeros(4, 6)
    assert not any(map(is_overlapping, (base, base.t(), base[::2, 1::3], base[:, None], torch.zeros(0).expand(3, 0))))
    windows = base.as_strided((3, 3), (1, 1)), base.as_strided((2, 2), (3, 0)), base.as_strided((3, 4), (3, 1))
    assert all(map(is_overlapping, windows))


def writes_to_both(base, part, x):
    base += x
    part.mul_(2)
    return part + 0, base.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native", "inductor"])
def test_inputs_that_share_memory_in_another_place(backend):
    compiled = torchmux.compile(writes_to_both, backend=backend)
    for begin in (0, 2, 1, None):
        outcomes = []
        for run in (writes_to_both, compiled):
            base = torch.arange(4.0)
            part = torch.ones(2) if begin is None else base[begin : begin + 2]
            outcomes.append((run(base, part, torch.ones(4)), base, part))
        torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=0)


PARTS_OF_SHARED = (
    lambda part: part[0],
    lambda part: (part[1:], part[:1]),
    lambda part: part.view(2, 2).t(),
    lambda part: (part + 1, part[0] * 2, part),
)


@pytest.mark.parametrize("backend", slow_but(["aot_eager", "native", "inductor"], "aot_eager"))
def test_results_that_are_views_of_inputs_that_share_memory(backend):
    for view in PARTS_OF_SHARED:

        def write(base, part, view=view):
            base.add_(1)
            return view(part)

        found = []
        for run in (write, torchmux.compile(write, backend=backend)):
            base = torch.arange(8.0)
            results = run(base, base[2:6])
            results = results if isinstance(results, tuple) else (results,)
            assert base.tolist() == list(range(1, 9))
            base.add_(1)  # which is seen in views
            found.append([(result.tolist(), result.storage_offset(), result.stride()) for result in results])
        assert found[0] == found[1]


@pytest.mark.parametrize("backend", slow_but(["aot_eager", "native", "inductor"], "aot_eager"))
@pytest.mark.parametrize("grad", [False, True])
def test_results_that_are_views_of_an_input_of_any_size(backend, grad):
    def write(x):
        x[0] = 5
        return x.reshape(-1)[1:3]

    compiled = torchmux.compile(write, backend=backend)
    for count in (4, 5, 6):
        for begin, step in ((0, 1), (2, 1), (0, 2)):
            found = []
            for run in (write, compiled):
                base = torch.arange(20.0, requires_grad=grad) * 1
                result = run(base[begin : begin + count * step : step])
                found.append((result.tolist(), result.storage_offset(), result.stride(), base.tolist()))
            assert found[0] == found[1]


WITHOUT_NUMBERS = (
    lambda x: x.add_(1),
    lambda x: operator.iadd(x, 1),
    lambda x: (x.mul_(2), x.t(), x.detach())[1:],
    lambda x: (x.add_(1), x.unsqueeze(0).transpose(1, 2))[1],
    lambda x: (x.add_(1), x.unsqueeze(1).squeeze(1).permute(1, 0), x * 2)[1:],
    lambda x: (x.add_(1), x.detach().t().add_(1))[1],
)


@pytest.mark.parametrize("backend", slow_but(["aot_eager", "native"], "aot_eager"))
def test_views_without_numbers_are_compiled_for_any_size(backend):
    for write in WITHOUT_NUMBERS:
        compiled = torchmux.compile(write, backend=backend, dynamic=True)
        for rows, columns in ((3, 4), (5, 6)):
            for place in (
                lambda base: base[7 : 7 + rows * columns].view(rows, columns),  # noqa: B023
                lambda base: base[3 : 3 + rows * columns].view(columns, rows).t(),  # noqa: B023
                lambda base: base.view(10, 20)[1 : 1 + rows, 3 : 3 + 2 * columns : 2],  # noqa: B023
            ):
                found = []
                for run in (write, compiled):
                    base = torch.arange(200.0, requires_grad=True) * 1
                    results = run(place(base))
                    results = results if isinstance(results, tuple) else (results,)
                    found.append([base.tolist(), *((r.tolist(), r.storage_offset(), r.stride()) for r in results)])
                assert found[0] == found[1]
        assert not [graph.report.fallbacks for graph in torchmux.report(compiled).graphs if graph.report.fallbacks]
    compiled = torchmux.compile(lambda x: (x.add_(1), x[1:])[1], backend=backend, dynamic=True)
    compiled(torch.ones(3, 4, requires_grad=True) * 1)
    assert PART_OF_SYMBOLIC in str(torchmux.report(compiled))


@pytest.mark.parametrize("backend", ["aot_eager", "native", "inductor"])
def test_inputs_that_share_memory_otherwise_are_refused_under_strict(backend):
    compiled = torchmux.compile(writes_to_both, backend=backend, strict=True)
    compiled(torch.arange(4.0), torch.ones(2), torch.ones(4))
    base = torch.arange(4.0)
    with pytest.raises(FallbackRefused, match="overlap in memory otherwise"):
        compiled(base, base[:2], torch.ones(4))
    assert torch.equal(base, torch.arange(4.0))


def test_where_inputs_that_are_only_read_share_memory_does_not_matter(caplog):
    def step(cache, rows, columns):
        cache += 1
        return rows + columns + cache

    compiled = torchmux.compile(step, backend="native", dynamic=False)
    table = torch.arange(8.0)
    for begin in (0, 2, 4):
        rows, columns = table[begin : begin + 2], table[begin + 2 : begin + 4]
        assert torch.equal(compiled(torch.zeros(2), rows, columns), rows + columns + 1)
    assert "overlap in memory" not in caplog.text


def _windows(x):
    windows = x.unfold(0, 2, 3)
    windows.select(1, 0).neg_()
    return windows, x * 2


def _all_windows(x):
    x.unfold(0, 2, 2).mul_(3)
    return x * 2


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize(("f", "size"), [(_windows, 8), (_all_windows, 8), (_all_windows, 7)])
def test_windows_that_leave_elements_out(f, size, backend, requires_grad):
    """Functionalization makes zeros of what the windows leave out."""
    x = torch.arange(1.0, size + 1)

    def g(x):
        return f(x * 1.0 if requires_grad else x)

    expected, compiled = g(x.clone().requires_grad_(requires_grad)), torchmux.compile(g, backend=backend)
    given = x.clone().requires_grad_(requires_grad)
    torch.testing.assert_close(compiled(given), expected)
    is_all = (f, size) == (_all_windows, 8)
    assert ("leave some out" in str(torchmux.report(compiled))) != is_all
    if not requires_grad:
        f(x)
        assert torch.equal(given, x)


WINDOWS = {
    "windows": lambda x: (x * 1).unfold(1, 2, 1),
    "rows that overlap": lambda x: (x * 2).as_strided((4, 3), (2, 1), 1),
    "repeated rows": lambda x: (x * 2).expand(2, 3, 4),
    "a view beside them": lambda x: (x.exp().unfold(0, 2, 1), x.t() * 2),
}


@pytest.mark.parametrize("program", WINDOWS)
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_each_element_of_windows_has_its_gradient(program, backend):
    def gradient(function):
        x = torch.arange(12.0).reshape(3, 4).div(7).requires_grad_()
        results = function(x)
        results = [results] if isinstance(results, torch.Tensor) else results
        given = [torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape) for r in results]
        return torch.autograd.grad(results, x, given)[0]

    found = gradient(torchmux.compile(WINDOWS[program], backend=backend))
    torch.testing.assert_close(found, gradient(WINDOWS[program]))


def _one_of_several(x):
    part = (x * 2).unbind(0)[1]
    part.mul_(2)
    return part + 1


def _made_without_gradients(x):
    y = x * 2
    with torch.no_grad():
        part = y[1:]
    return part.mul_(2)


@pytest.mark.parametrize("f", [_one_of_several, _made_without_gradients])
def test_views_that_eager_refuses_to_write_to(f):
    for run in (f, torchmux.compile(f, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            run(torch.ones(3, requires_grad=True) * 1)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.detach().mul_(2), lambda x: (x.data.mul_(2), x * 3)[1], lambda x: x.detach()[0].fill_(7),
        lambda x: x.detach().copy_(x * 2).sum(), lambda x: (torch._foreach_mul_([x.detach()], 2.0), x * 2)[1],
    ],
)  # fmt: skip
def test_writes_behind_autograd(write):
    """AOTAutograd would write to the input itself, which autograd refuses for leaves and their views."""

    def leaf():
        return torch.arange(1.0, 4.0).requires_grad_()

    compiled = torchmux.compile(write, backend="aot_eager")
    for make in (lambda: leaf() * 1, leaf, lambda: leaf().view(3), lambda: torch.ones(3)):
        ours, theirs = make(), make()
        found, expected = compiled(ours), write(theirs)
        assert torch.equal(found, expected)
        assert torch.equal(ours, theirs)
        assert found.requires_grad == expected.requires_grad
