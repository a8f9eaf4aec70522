"""Random arithmetic on sizes and numbers over many calls: eager's results, and a bounded number of compilations.

A program is a list of statements over integer, float and tensor variables. Each line is guarded by nothing: what
Python raises, the compiled function raises.
"""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

import torchmux

INT_EXPRESSIONS = (
    "x.shape[0]", "x.shape[1]", "x.numel()", "len(x)", "{a} + {b}", "{a} - {b}", "{a} * 2", "{a} // 2", "{a} // {b}",
    "{a} % 3", "{a} % {b}", "-{a}", "abs({a} - {b})", "min({a}, {b})", "max({a}, {b}, 3)", "({a} + 7) // 8 * 8",
    "int({a} / 2)", "int({a} * 0.5)", "round({a} / 4)", "math.floor({a} / 3)", "math.ceil({a} / 3)",
    "divmod({a}, 4)[1]", "{a} if {a} > {b} else {b}", "sum((x.shape[0], {a}))", "int({a} > {b})", "{a} ** 2 % 17",
    "torch.sym_max({a}, {b})", "int(float({a}))", "{a} << 1", "{a} >> 1", "{a} & 3", "math.gcd({a}, 6)",
    "len(range({a} % 5))", "x.stride(0)", "math.trunc({a} / {b})", "int(math.sqrt({a} * {a}))",
)  # fmt: skip
FLOAT_EXPRESSIONS = (
    "f", "{a} / {b}", "{a} / 7", "math.sqrt(abs({a}))", "f * {a}", "f + 0.5", "float({a})", "round({a} / 7, 2)",
    "max(f, 0.25)", "{a} * 0.1 + f", "{a} ** 0.5", "f / 3",
)  # fmt: skip
TENSOR_EXPRESSIONS = (
    "y + {a}", "y * {f}", "y.reshape(-1)[:max({a} % 5, 1)]", "y[: {a}]", "y[{a} % len(y)].reshape(-1)", "y.reshape(-1)",
    "torch.arange(abs({a}) % 9 + 1)", "torch.zeros(abs({a}) % 7 + 1, 2)", "torch.cat([y.reshape(-1), x.reshape(-1)])",
    "x.expand(2, *x.shape).reshape(-1)", "torch.full((3,), {f})", "y / {f}", "x.t() * {a}", "x.sum(0) * {f}",
    "y.new_ones(x.shape[0]) * {a}", "x.narrow(0, 0, x.shape[0] // 2) + {f}", "y.repeat(abs({a}) % 3 + 1, *y.shape[1:])",
    "y.reshape(-1).split(2)[0]", "torch.nn.functional.pad(x, (0, {a} % 3))", "x.view(x.shape[0], -1)",
)  # fmt: skip
CONDITIONS = (
    "{a} > {b}",
    "{a} % 2 == 0",
    "2 < {a} <= 9",
    "{f} > 0.3",
    "{a} == {b}",
    "{a}",
    "not {a} - {b}",
    "{a} != 3",
)


@st.composite
def programs(draw):
    """A function's text."""
    lines, ints = [], ["x.shape[0]", "n", "m"]

    def fill(text):
        floats = ["f", "(f * 2)", f"({draw(st.sampled_from(ints))} / 3)"]
        return text.format(
            a=draw(st.sampled_from(ints)), b=draw(st.sampled_from(ints)), f=draw(st.sampled_from(floats))
        )

    for number in range(draw(st.integers(2, 6))):
        kind = draw(st.sampled_from(("int", "int", "float", "tensor", "tensor", "branch")))
        if kind == "int":
            lines.append(f"i{number} = {fill(draw(st.sampled_from(INT_EXPRESSIONS)))}")
            ints.append(f"i{number}")
        elif kind == "float":
            lines.append(f"f = {fill(draw(st.sampled_from(FLOAT_EXPRESSIONS)))}")
        elif kind == "tensor":
            lines.append(f"y = {fill(draw(st.sampled_from(TENSOR_EXPRESSIONS)))}")
        else:
            lines.append(f"if {fill(draw(st.sampled_from(CONDITIONS)))}:")
            lines.append(f"    y = {fill(draw(st.sampled_from(TENSOR_EXPRESSIONS)))}")
    kept = ", ".join(name for name in ints if name.isidentifier())
    return (
        "def program(x, n, m, f):\n    y = x * 2\n"
        + "".join(f"    {line}\n" for line in lines)
        + (f"    return y, f, y.shape, {kept}\n")
    )


CALLS = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.integers(1, 6),
        st.integers(-3, 12),
        st.integers(1, 9),
        st.sampled_from((0.5, 0.25, 1.5, 3.0)),
    ),
    min_size=2,
    max_size=7,
)


def _call(function, rows, columns, n, m, f):
    x = (torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) - 3) / 4
    try:
        return function(x, n, m, f)
    except Exception as error:
        return type(error)


def _same(expected, actual):
    assert type(expected) is type(actual), (expected, actual)
    if isinstance(expected, tuple):
        assert len(expected) == len(actual)
        for a, b in zip(expected, actual, strict=True):
            _same(a, b)
    elif isinstance(expected, torch.Tensor):
        assert expected.shape == actual.shape and expected.dtype is actual.dtype
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    else:
        assert expected == actual or (expected != expected and actual != actual), (expected, actual)


def _check(text, calls):
    namespace = {"torch": torch, "math": __import__("math")}
    exec(compile(text, f"<program {abs(hash(text))}>", "exec"), namespace)
    program = namespace["program"]
    torchmux.reset()
    with torchmux.config.patch(recompile_limit=64):
        compiled = torchmux.compile(program, backend="eager")
        for call in calls:
            _same(_call(program, *call), _call(compiled, *call))
        count = len(torchmux.report(compiled).recompiles)
        for call in calls:
            _same(_call(program, *call), _call(compiled, *call))
        # What was compiled for a call fits it, unless it raised or broke on the way.
        report = torchmux.report(compiled)
        if not report.breaks:
            assert len(report.recompiles) == count, report.recompiles[count:]
            assert count < len(set(calls)), report.recompiles


QUICK = hypothesis.settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
AT_LENGTH = hypothesis.settings(QUICK, max_examples=500, derandomize=False)


@QUICK
@hypothesis.given(programs(), CALLS)
def test_random_arithmetic_is_eagers(text, calls):
    _check(text, calls)


@pytest.mark.slow
@AT_LENGTH
@hypothesis.given(programs(), CALLS)
def test_random_arithmetic_is_eagers_at_length(text, calls):
    _check(text, calls)
