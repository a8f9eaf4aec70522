"""Branches that only raise are taken for not taken, and nothing is different where they are taken.

The assertions inside of compiled functions are to be Python's own: PYTEST_DONT_REWRITE.
"""

import traceback

import pytest
import torch

import torchmux

X = torch.ones(3)


def graphs(compiled):
    return torchmux.report(compiled).graph_count


def same_error(compiled, plain, *args, **kwargs):
    """Both raise the same, from the same lines."""
    with pytest.raises(Exception) as expected:
        plain(*args, **kwargs)
    with pytest.raises(type(expected.value)) as found:
        compiled(*args, **kwargs)
    assert str(found.value) == str(expected.value)
    lines = [
        [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(e.tb)][1:] for e in (found, expected)
    ]  # fmt: skip
    assert lines[0] == lines[1]


def test_assertions_and_validations():
    def fn(x, scale=2, *rest, shift=1, **more):
        assert x.sum() > 0, f"not positive: {x.sum()}"
        if not torch.isfinite(x).all():
            raise ValueError(f"not finite: {x}")
        for each in rest:
            assert each.ge(0).all() and each.le(9).all(), "out of range"
        return x * scale + shift + len(more)

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    y = X + 1
    z = X + 2
    good = (X, 3, y, z)
    assert torch.equal(compiled(*good, shift=5, a=1), fn(*good, shift=5, a=1))
    for bad in ((-X, 3, y, z), (X / 0, 3, y, z), (X, 3, y, -z), (X, 3, y * 10, z)):
        same_error(compiled, fn, *bad, shift=5, a=1)
    assert torch.equal(compiled(*good, shift=5, a=1), fn(*good, shift=5, a=1))
    assert graphs(compiled) == 1
    assert not torchmux.report(compiled).breaks


def test_a_function_of_torch_that_validates_data():
    def fn(x, var):
        return torch.nn.functional.gaussian_nll_loss(x, X, var)

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X + 1, X * 2), fn(X + 1, X * 2))
    same_error(compiled, fn, X + 1, -X)
    assert graphs(compiled) == 1


def test_inside_of_a_model():
    class Checked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.calls = 0

        def check(self, x):
            self.calls += 1
            if x.isnan().any():
                raise ValueError(f"nan in call {self.calls}")

        def forward(self, x):
            self.check(x)
            y = self.linear(x)
            self.check(y)
            return y.relu()

    model = Checked()
    compiled = torchmux.compile(model, backend="aot_eager", fullgraph=True)
    compiled(X).sum().backward()
    assert model.linear.weight.grad is not None
    assert model.calls == 2
    with pytest.raises(ValueError, match="nan in call 3"):
        compiled(X * float("nan"))
    assert model.calls == 3
    assert not torchmux.report(compiled).breaks


def test_distributions_validate_their_arguments(monkeypatch):
    # torch's own frontend switches this off for the whole process.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", __debug__)

    def fn(x):
        normal = torch.distributions.Normal(x, x.abs())
        return normal.log_prob(x + 1), normal.rsample()

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    for call in (compiled, fn):
        torch.manual_seed(0)
        assert len(call(X)) == 2
    same_error(compiled, fn, X * 0)
    assert graphs(compiled) == 1


def test_what_constraints_check_is_expected_to_hold():
    def fn(x, matrix):
        return torch.distributions.MultivariateNormal(x, matrix).log_prob(x + 1)

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X, torch.eye(3)), fn(X, torch.eye(3)))
    skewed = torch.eye(3) + torch.arange(9.0).view(3, 3)
    for bad in (-torch.eye(3), skewed, torch.eye(3) / 0):
        same_error(compiled, fn, X, bad)
    assert torch.equal(compiled(X, torch.eye(3) * 2), fn(X, torch.eye(3) * 2))
    assert graphs(compiled) == 1


def test_effects_and_random_numbers_of_a_call_that_raises():
    def run(call):
        seen = []
        torch.manual_seed(3)
        with pytest.raises(AssertionError):
            call(-X, seen)
        return seen, torch.rand(2)

    def fn(x, seen):
        seen.append(float(len(seen)))
        noise = torch.rand(3)
        assert x.sum() > 0
        seen.append("behind")
        return torch.dropout(x, 0.5, True) + noise

    compiled = torchmux.compile(fn, backend="eager")
    seen = []
    compiled(X, seen)
    assert seen == [0.0, "behind"]
    assert graphs(compiled) == 1
    (found, numbers), (expected, others) = run(compiled), run(fn)
    assert found == expected == [0.0]
    assert torch.equal(numbers, others)


def test_a_graph_that_fails_where_a_check_would_have_raised():
    def fn(table, index):
        assert index.max() < len(table), "too large"
        return table[index] * 2

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    table = torch.arange(4.0)
    assert torch.equal(compiled(table, torch.tensor([1, 3])), torch.tensor([2.0, 6.0]))
    with pytest.raises(AssertionError, match="too large"):
        compiled(table, torch.tensor([1, 4]))


def writes_to_an_input(x):
    x.add_(1)
    assert x.sum() > 0
    return x * 2


def writes_to_a_part_of_an_input(x):
    x[0] = 5
    assert x.sum() > 0
    return x * 2


def writes_running_statistics(x):
    y = torch.nn.functional.batch_norm(x.expand(2, 3) * 2, x, torch.ones(3), training=True)
    assert x.sum() > 0
    return y


def writes_by_an_argument(x):
    torch.neg(x, out=x)
    assert x.sum() > 0
    return x


def inplace_function(x):
    y = torch.nn.functional.relu(x, inplace=True)
    assert y.sum() > 0
    return y


def writes_statistics_itself(x):
    y = torch.native_batch_norm(x.expand(2, 3) * 2, None, None, x, torch.ones(3), True, 0.1, 1e-5)[0]
    assert x.sum() > 0
    return y


def writes_to_a_list(x):
    torch._foreach_mul_([x, x[:1]], 2.0)
    assert x.sum() > 0
    return x + 1


def writes_to_a_later_argument(x):
    torch._amp_foreach_non_finite_check_and_unscale_([x], found := x[0].clone(), torch.tensor(2.0))
    assert x.sum() > 0
    return found


def writes_a_state(x):
    torch._fused_sgd_(
        [torch.zeros(3)], [torch.ones(3)], [x], weight_decay=0.0, momentum=0.5, lr=0.1, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False,
    )  # fmt: skip
    assert x.sum() > 0
    return x * 2


WRITING = (
    writes_statistics_itself,
    writes_to_a_list,
    writes_to_a_later_argument,
    writes_a_state,
    writes_to_an_input,
    writes_to_a_part_of_an_input,
    writes_running_statistics,
    writes_by_an_argument,
    inplace_function,
)


@pytest.mark.parametrize("fn", WRITING)
def test_graphs_that_write_are_not_run_twice(fn):
    compiled = torchmux.compile(fn, backend="eager")
    for value in (1.0, -1.0, 2.0, -9.0):
        inputs, outcomes = [X * value, X * value], []
        for call, x in zip((compiled, fn), inputs, strict=True):
            try:
                outcomes.append(call(x))
            except AssertionError:
                outcomes.append(torch.zeros(0))
        assert torch.equal(*outcomes)
        assert torch.equal(*inputs)
    assert torchmux.report(compiled).breaks


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_buffers_are_put_back(backend):
    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total += x.detach().sum(0)
            y = self.norm(x)
            assert x.sum() > 0, "behind what is written"
            self.total.mul_(2)
            return y

    models = Normed(), Normed()
    compiled = torchmux.compile(models[0], backend=backend, fullgraph=True)
    x = torch.randn(4, 3).abs()
    for sign in (1, -1, 1, -1):
        for call in (compiled, models[1]):
            try:
                call(x * sign).sum().backward()
            except AssertionError:
                assert sign < 0
        for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
            torch.testing.assert_close(one, other)
    assert torchmux.report(compiled).graph_count == 1


def test_what_the_graph_made_itself_may_be_written():
    def fn(x):
        y = x * 2
        y.add_(1)
        y[0] = 3
        assert y.sum() > 0, "negative"
        y.mul_(0)  # the condition is that of before
        return y

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 0)
    same_error(compiled, fn, X * -9)


def test_a_branch_whose_exception_the_program_catches():
    def fn(x):
        try:
            if x.sum() < 0:
                raise ValueError
        except ValueError:
            x = -x
        return x * 2

    compiled = torchmux.compile(fn, backend="eager")
    for value in (1, -1, 2, -2, -3, 3, -4, 4, -5):
        assert torch.equal(compiled(X * value), X * abs(value) * 2)
    assert any("data-dependent branch" in entry.message() for entry in torchmux.report(compiled).breaks)


def test_a_break_behind_an_expectation():
    def fn(x):
        assert x.sum() > 0
        y = x * 2
        torchmux.graph_break()
        return y + 1

    compiled = torchmux.compile(fn, backend="eager")
    assert torch.equal(compiled(X), X * 3)
    same_error(compiled, fn, -X)


def test_branches_that_do_more_than_raise_break_the_graph():
    def fn(x, log):
        if x.sum() < 0:
            log.append(1)
            if len(log) > 1:
                raise ValueError
        return x * 2

    compiled = torchmux.compile(fn, backend="eager")
    assert torch.equal(compiled(X, []), X * 2)
    assert torchmux.report(compiled).breaks


def test_cells_and_generators():
    limit = torch.tensor(0.0)

    def fn(x):
        def check(t):
            assert t.sum() > limit, t.sum()
            return t

        return sum(check(t) for t in (x, x * 2)), (lambda: x)()

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X)[0], X * 3)
    with pytest.raises(AssertionError, match="-3"):
        compiled(-X)
    limit = torch.tensor(100.0)
    with pytest.raises(AssertionError):
        compiled(X)


def test_gradients_are_switched_back():
    def fn(x):
        with torch.no_grad():
            assert x.sum() > 0
            y = x[torch.tensor([1]) if x.dim() else 0]
        return x * y

    compiled = torchmux.compile(fn, backend="eager")
    x = X.clone().requires_grad_()
    assert compiled(x).requires_grad
    with pytest.raises(AssertionError):
        compiled(-x)
    assert torch.is_grad_enabled()


def test_checks_of_torch():
    def fn(x):
        torch._check_tensor_all(x > 0, lambda: "not positive")
        return x * 2

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    with pytest.raises(RuntimeError, match="not positive"):
        compiled(-X)


def test_messages_that_nobody_reads():
    def check(condition, message):
        if isinstance(message, str) and not condition:
            raise ValueError(message)

    def fn(x):
        check((x > 0).all(), f"not positive: {x}, {x.sum()} of {len(x)}")
        return x * 2

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    same_error(compiled, fn, -X)


@pytest.mark.parametrize(
    "use",
    [
        lambda text, into: text,
        lambda text, into: into.append(text),
        lambda text, into: text + "!",
        lambda text, into: len(text),
        lambda text, into: text == "tensor(3.)",
        lambda text, into: into.append({"a": [text]}) or f"<{text}>",
        lambda text, into: text.upper() if text else None,
        lambda text, into: {text: 1},
    ],
)
def test_messages_that_somebody_reads(use):
    def fn(x, into):
        text = f"{x.sum()}"
        y = x * 2
        return y, use(text, into)

    compiled = torchmux.compile(fn, backend="eager")
    for x in (X, X + 1):
        found, expected = [], []
        result, wanted = compiled(x, found), fn(x, expected)
        assert torch.equal(result[0], wanted[0])
        assert result[1] == wanted[1]
        assert found == expected


def test_a_format_that_tensors_do_not_take():
    def fn(x):
        text = f"{x:.2f}"
        return x * 2, text

    with pytest.raises(TypeError):
        torchmux.compile(fn, backend="eager")(X)


def test_ahead_of_a_break():
    def function(x, log):
        log.append(1)
        assert (x > 0).all(), "not positive"
        x = x * 2
        torchmux.graph_break()
        if not (x < 10).all():
            raise ValueError("too large")
        x = x + 1
        print(end="")
        return x * 2

    made = torchmux.compile(function, backend="eager")
    for number in (1.0, 1.0, -1.0, 9.0, float("nan"), 1.0):
        outcomes = []
        for call in (made, function):
            log: list[int] = []
            try:
                result = call(torch.full((3,), number), log).tolist()
            except Exception as error:
                result = (type(error), str(error))
            outcomes.append((result, log))
        assert outcomes[0] == outcomes[1]
    assert torchmux.report(made).graph_count == 3
    assert {each.kind for each in torchmux.report(made).breaks} == {"TM005", "TM003"}


def test_ahead_of_a_break_and_caught_by_the_program():
    def function(x):
        try:
            y = x * 2
            assert (x > 0).all()
            torchmux.graph_break()
            return y * 3
        except AssertionError:
            return x - 1

    made = torchmux.compile(function, backend="eager")
    for number in (1.0, -1.0, -1.0, -1.0, -1.0, 1.0):
        x = torch.full((3,), number)
        assert torch.equal(made(x), function(x))
