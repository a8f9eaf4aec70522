"""``torch.func`` and ``torch.cond``, ``while_loop``: one graph, eager's numbers and gradients."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import torchmux

from ..training import BACKENDS, agree, broke, matrix, vector

WEIGHT = torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_()
SCALE = 2.0


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def product(x):
    return (WEIGHT @ x).sin() * SCALE


def total(x):
    return product(x).sum()


# --- transforms ---------------------------------------------------------------------------------------------------

MADE_BEFORE = vmap(total, in_dims=1)
PARTIAL = {"w": torch.linspace(0, 1, 3), "b": torch.ones(3)}


def dictionaries(x):
    def inner(tensors, y):
        return {"sum": tensors["w"] + y, "pair": (y.sum(), tensors["b"])}

    return vmap(inner, in_dims=({"w": None, "b": None}, 0), out_dims={"sum": 1, "pair": 0})(PARTIAL, x)


def aux(x):
    def inner(a, rest):
        return (a * rest["k"]).sum(), {"double": a * 2}

    grads, (value, more) = grad_and_value(inner, argnums=(0, 1), has_aux=True)(x, {"k": x.cos()})
    return grads, value, more["double"]


def pulled(x):
    out, pull = vjp(product, x[0])
    return out, pull(x[1]), vmap(pull)(x)


def pulled_tree(x):
    out, pull, rest = vjp(lambda a, b: ({"o": a * b}, a + 1), x[0], x[1], has_aux=True)
    return out, pull({"o": x[2]}), rest


def pushed(x):
    return jvp(lambda a, b: {"o": product(a) * b}, (x[0], x[1]), (x[1], x[2]))


def jacobians(x):
    return (
        jacrev(lambda a, b: (product(a) * b, a.sum()), argnums=(0, 1))(x[0], x[1]),
        jacfwd(product)(x[0]),
        jacrev(lambda a: (product(a), a * 2), has_aux=True)(x[0]),
    )


TRANSFORMS = {
    "vmap": lambda x: vmap(product)(x),
    "vmap made outside": lambda x: MADE_BEFORE(x),
    "vmap of some arguments": lambda x: vmap(lambda a, b: a * b + a.shape[0], in_dims=(1, None), out_dims=1)(x, x[0]),
    "vmap of vmap": lambda x: vmap(vmap(lambda a: a.exp() * 2))(x),
    "vmap of trees": dictionaries,
    "vmap in chunks": lambda x: vmap(product, chunk_size=2)(x),
    "vmap of a builtin": lambda x: vmap(torch.dot)(x, x),
    "grad": lambda x: grad(total)(x[0]),
    "grad of grad": lambda x: grad(lambda a: grad(lambda b: b.sin() * a)(a))(x[0, 0]),
    "grad with more results": aux,
    "gradients per example": lambda x: vmap(grad(total))(x),
    "jacobians": jacobians,
    "hessian": lambda x: hessian(total)(x[0]),
    "vjp": pulled,
    "vjp of trees": pulled_tree,
    "jvp": pushed,
}


# torch 2.11 asks data for a size in `jacrev` of several results: there the graph breaks, and says so.
OLD = torch.__version__.startswith("2.11.")
transforms = pytest.mark.parametrize("name", [name for name in TRANSFORMS if not (OLD and name == "jacobians")])


@transforms
def test_transforms(backend, name):
    compiled = agree(TRANSFORMS[name], matrix(), backend=backend, parameters=(WEIGHT,))
    with torch.no_grad():
        torch.testing.assert_close(compiled(matrix()), TRANSFORMS[name](matrix()))


@transforms
def test_transforms_without_gradients_around_them(backend, name, monkeypatch):
    """Nothing requires a gradient, so the graph is compiled for inference; the transform differentiates still."""
    monkeypatch.setattr(sys.modules[__name__], "WEIGHT", WEIGHT.detach())
    agree(TRANSFORMS[name], matrix(grad=False), backend=backend, strict=backend == "aot_eager")


def test_grad_modes_inside(backend):
    def inner(a):
        with torch.no_grad():
            factor = a * 2
        return (a * factor).sum()

    agree(lambda x: grad(inner)(x), matrix(grad=False), backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(torchmux.compile(grad(inner), backend=backend)(vector()), grad(inner)(vector()))


def test_random_numbers(backend):
    def function(x):
        return vmap(lambda a: a + torch.rand(3), randomness="different")(x)

    agree(function, matrix(), backend=backend, seed=4)
    with pytest.raises(RuntimeError, match="randomness"):
        torchmux.compile(lambda x: vmap(lambda a: a + torch.rand(3))(x), backend=backend)(matrix())


def test_sizes_that_change(backend):
    def function(x):
        return vmap(lambda a: a * x.shape[0])(x), grad(lambda a: a.sin().sum())(x)

    compiled = agree(function, matrix(3), backend=backend)
    for rows in (4, 6, 8):
        agree(function, matrix(rows), backend=backend, compiled=compiled)
    assert len(torchmux.report(compiled).graphs) == 2


def test_what_a_transform_reads_is_guarded(backend, monkeypatch):
    def function(x):
        return vmap(grad(total))(x), MADE_BEFORE(x)

    compiled = agree(function, matrix(), backend=backend)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    agree(function, matrix(), backend=backend, compiled=compiled)
    monkeypatch.setattr(sys.modules[__name__], "MADE_BEFORE", vmap(total, in_dims=0))
    agree(function, matrix(), backend=backend, compiled=compiled)


def test_side_effects_of_what_is_transformed(backend):
    seen = []

    def inner(a):
        seen.append(len(seen))
        return a * 2

    compiled = torchmux.compile(lambda x: vmap(inner)(x), backend=backend, fullgraph=True)
    compiled(matrix())
    compiled(matrix())
    assert seen == [0, 1]


def fails(a):
    raise ValueError(f"no {a.dim()}")


@pytest.mark.parametrize("function", [
    lambda x: vmap(fails)(x), lambda x: grad(fails)(x), lambda x: torch.cond(x.sum() > 0, fails, fails, (x,))
])  # fmt: skip
def test_exceptions_of_the_user(backend, function):
    with pytest.raises(Exception, match=r"no \d|ValueError" if OLD else r"no \d"):
        torchmux.compile(function, backend=backend)(matrix())


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: vmap(torch.sin, in_dims=5)(x), ValueError),
        (lambda x: vmap(lambda a: 3)(x), ValueError),
        (lambda x: grad(torch.sin)(x), RuntimeError),
        (lambda x: grad(total, argnums=4)(x[0]), RuntimeError),
        (lambda x: vmap(lambda a: a.item())(x), RuntimeError),
    ],
)
def test_what_torch_refuses_is_refused(backend, function, error):
    for call in (function, torchmux.compile(function, backend=backend)):
        with pytest.raises(error):
            call(matrix())


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 7


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: vmap(lambda a: a.mul_(2))(x * 1), "in place"),
        (lambda x: torch.autograd.functional.jacobian(product, x[0]), "autograd"),
        (lambda x: torch.autograd.grad(x.sin().sum(), x), "autograd"),
    ],
)
def test_what_a_graph_cannot_do_runs_in_eager(backend, function, words):
    compiled = agree(function, matrix(), backend=backend, breaks=None)
    assert words in broke(compiled)


def test_a_function_of_autograd_inside_a_transform(backend):
    agree(lambda x: grad(lambda a: Doubled.apply(a).sum())(x), matrix(), backend=backend)


def test_saved_tensors_hooks_around_a_region(backend):
    def function(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
            return x.sin() * x

    agree(function, vector(), backend=backend, breaks=None)


# --- modules ------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return self.last(self.first(x)) + self.shift + sum(p.sum() for p in self.parameters())


def test_functional_call(backend):
    model, norm = Tied(), nn.BatchNorm1d(3)
    other = {"first.weight": matrix()}
    state = {**dict(norm.named_parameters()), **{k: v.clone() for k, v in norm.named_buffers()}}

    def function(x):
        normal = functional_call(norm, [state], x)
        return functional_call(model, other, (normal,)), functional_call(model, {"shift": x[0]}, x), model(x)

    agree(function, matrix(), backend=backend, parameters=(other["first.weight"], *model.parameters()), seed=0)
    assert norm.num_batches_tracked == 0
    assert state["num_batches_tracked"] == 2


def test_gradients_of_a_functional_call(backend):
    model, weights = Tied(), {"first.weight": matrix(grad=False)}

    def function(x):
        def loss(given, example):
            return functional_call(model, given, (example,)).square().sum()

        return grad(loss)(weights, x), vmap(grad(loss), in_dims=(None, 0))(weights, x)

    agree(function, matrix(), backend=backend)


def test_an_ensemble(backend):
    models = [nn.Linear(3, 2) for _ in range(3)]
    state = stack_module_state(models)
    base = nn.Linear(3, 2)

    def function(x):
        return vmap(lambda p, b, a: functional_call(base, (p, b), (a,)), in_dims=(0, 0, None))(*state, x)

    agree(function, matrix(), backend=backend, parameters=tuple(state[0].values()))


def test_the_names_of_a_functional_call_are_guarded(backend):
    model, weights = Tied(), {"first.weight": matrix()}

    def function(x):
        return functional_call(model, weights, (x,))

    compiled = agree(function, matrix(), backend=backend)
    model.last.weight = nn.Parameter(torch.ones(3, 3))
    agree(function, matrix(), backend=backend, compiled=compiled)
    weights["last.weight"] = matrix()
    agree(function, matrix(), backend=backend, compiled=compiled)


def test_nested_compile_regions(backend):
    @torch.compiler.nested_compile_region
    def block(x):
        return product(x).exp()

    agree(lambda x: block(x) + block(x * 2), matrix(), backend=backend)


# --- control flow -------------------------------------------------------------------------------------------------


def branches(x):
    def positive(a, b):
        return {"r": WEIGHT @ a, "s": (b * 2,)}

    return torch.cond(x.sum() > 0, positive, lambda a, b: {"r": a.sin(), "s": (b + 1,)}, (x, x.sum(0)))


def nested_branches(x):
    def positive(a):
        return torch.cond(a.max() > 1, lambda b: b * SCALE, lambda b: b - WEIGHT, (a,))

    return torch.cond(x.sum() > 0, positive, lambda a: a.cos(), (x,)) + 1


def without_operands(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda: y + 1, lambda: y @ WEIGHT)


@pytest.mark.parametrize("function", [branches, nested_branches, without_operands])
def test_cond(backend, function):
    compiled = None
    for factor in (1, -1, 5):
        x = ((matrix(grad=False).abs() + 0.1) * factor).requires_grad_()
        compiled = agree(function, x, backend=backend, parameters=(WEIGHT,), compiled=compiled)
    assert len(torchmux.report(compiled).graphs) == 1


def test_cond_in_vmap(backend):
    """Both branches for all rows where the condition depends on the row, as eager does."""

    def each(x):
        return vmap(lambda row: torch.cond(row.sum() > 0, torch.sin, lambda r: r + SCALE, (row,)))(x)

    def all_of_them(x):
        positive = x.sum() > 0
        return vmap(lambda row: torch.cond(positive, torch.sin, torch.cos, (row,)))(x)

    for function in (each, all_of_them):
        compiled = agree(function, matrix(grad=False), backend=backend)
        agree(function, -matrix(grad=False), backend=backend, compiled=compiled)


@pytest.mark.parametrize("captures_numbers", [False, True])
def test_cond_with_numbers(backend, captures_numbers):
    """A number of one branch is known when the graph has run; what both return is known before."""

    def passes_on(x):
        return torch.cond(x.sum() > 0, lambda y: (y + 1, 3, 5), lambda y: (y - 1, 4, 5), (x,))

    def uses_what_both_return(x):
        y, _, number = passes_on(x)
        return y * number

    def computes(x):
        y, number, _ = passes_on(x)
        return y + 1 if number > 3 else y - 1

    with torchmux.config.patch(capture_scalar_outputs=captures_numbers):
        for function, breaks in ((passes_on, 0), (uses_what_both_return, 0), (computes, None)):
            compiled = None
            for given in (matrix(grad=False), -matrix(grad=False), matrix(4, grad=False)):
                options = {"breaks": breaks, "compiled": compiled}
                compiled = agree(function, given, backend=backend, **options)


def test_cond_by_what_is_known(backend):
    def function(x, flag):
        rows = torch.cond(x.shape[0] > 3, lambda a: a * 2, lambda a: a * 3, (x,))
        return torch.cond(flag, lambda a: a + 1, lambda a: a - 1, (rows,))

    compiled = None
    for rows, flag in ((3, True), (3, False), (5, True), (6, True)):
        compiled = agree(function, matrix(rows), flag, backend=backend, compiled=compiled)


INNER = torch.sin


def test_branches_are_guarded(backend, monkeypatch):
    def function(x):
        return torch.cond(x.sum() > 0, lambda a: INNER(a), lambda a: a - 1, (x,))

    x = matrix(grad=False).abs() + 1
    compiled = agree(function, x, backend=backend)
    monkeypatch.setattr(sys.modules[__name__], "INNER", torch.cos)
    agree(function, x, backend=backend, compiled=compiled)
    monkeypatch.setattr(sys.modules[__name__], "INNER", lambda a: a * SCALE)
    agree(function, x, backend=backend, compiled=compiled)


SEEN = []


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.cond(x.sum() > 0, lambda a: SEEN.append(1) or a + 1, lambda a: a - 1, (x,)), "changes list"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a, lambda a: a - 1, (x,)), "not a new tensor"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a.sum(), (x,)), "different shapes"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a.add_(1) * 2, lambda a: a * 2, (x * 1,)), "in place"),
        (lambda x: torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (x, x[0])), "share memory"),
    ],
)
def test_branches_that_cannot_be_graphs(backend, function, words):
    compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    with pytest.raises(torchmux.Unsupported, match=words):
        compiled(matrix())


def test_while_loop(backend):
    def function(x):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * WEIGHT), (torch.tensor(0), x))

    agree(function, matrix(grad=False), backend=backend, parameters=(WEIGHT,))


@pytest.mark.parametrize("other", ["onnxrt", "openvino", "tvm"])
@pytest.mark.parametrize("function", [branches, TRANSFORMS["gradients per example"], TRANSFORMS["vjp"]])
def test_under_other_backends(other, function):
    if not next(info for info in torchmux.backends() if info.name == other).available:
        pytest.skip(f"{other} is not installed")
    compiled = torchmux.compile(function, backend=other)
    with torch.no_grad():
        torch.testing.assert_close(compiled(matrix()), function(matrix()))


@pytest.mark.parametrize("aux", [1, None, "text", {"n": (2.0,)}])
def test_what_is_returned_beside_the_result_are_tensors(aux):
    def differentiated(x):
        return grad(lambda a: (total(a), aux), has_aux=True)(x)

    x = torch.randn(3)
    with pytest.raises(RuntimeError) as expected:
        differentiated(x)
    with pytest.raises(RuntimeError) as found:
        torchmux.compile(differentiated, backend="eager")(x)
    assert str(found.value) == str(expected.value)


def test_chunks_that_draw_alike(backend):
    """torch puts the random state back for each chunk, which a compiler would not see."""

    def drawn(x):
        return vmap(lambda row: row + torch.rand(4), randomness="same", chunk_size=2)(x)

    compiled = torchmux.compile(drawn, backend=backend)
    torch.manual_seed(0)
    expected = drawn(torch.zeros(5, 4))
    torch.manual_seed(0)
    found = compiled(torch.zeros(5, 4))
    torch.testing.assert_close(found, expected)
    assert torch.equal(found[0], found[4])
