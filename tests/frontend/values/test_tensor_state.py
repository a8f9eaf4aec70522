"""The state of tensors: gradients, data, attributes, hooks, what is written in place and into ``out=``."""

import pytest
import torch

import torchmux

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of, leaf


def with_leaf():
    return (leaf(3, 4),)


@feature()
def out_of_a_new_tensor(x):
    made = torch.empty_like(x)
    result = torch.add(x, 1, out=made)
    return made, result is made


@feature(inputs=lambda: (tensor(), torch.zeros(3, 4)))
def out_of_an_argument(x, out):
    torch.mul(x, 2, out=out)
    return out + 1


@feature(inputs=lambda: (tensor(), torch.zeros(3, 1), torch.zeros(3, 1, dtype=torch.long)))
def out_of_two(x, values, indices):
    torch.max(x, 1, keepdim=True, out=(values, indices))
    return values * 2, indices


@feature(inputs=lambda: (tensor(), torch.zeros(3, 8)))
def out_of_a_view(x, buffer):
    torch.sin(x, out=buffer[:, 2:6])
    return buffer.sum()


@feature(inputs=with_leaf)
def detach(x):
    y = x.detach()
    return y + 1, y.requires_grad, (x * 2).detach().requires_grad, x * y


@feature(inputs=with_leaf)
def detach_in_place(x):
    y = x * 2
    y.detach_()
    return y, y.requires_grad


@feature()
def requires_grad_of_an_intermediate(x):
    y = (x * 2).requires_grad_()
    return y * 3, y.requires_grad, y.is_leaf


@feature(backward=False)
def requires_grad_of_an_input(x):
    x.requires_grad_()
    return x * 2


@feature()
def requires_grad_is_set(x):
    x.requires_grad = True
    return x * 2


@feature(inputs=with_leaf)
def requires_grad_is_taken_away(x):
    x.requires_grad_(False)
    return x * 2


@feature()
def grad_is_read():
    x = leaf(3)

    def run(x):
        return x * 2 if x.grad is None else x * x.grad

    yield run, (x,)
    yield run, (x,)
    x.grad = None
    yield run, (x,)


@feature()
def grad_is_written():
    x = leaf(3)

    def run(x):
        x.grad = x.detach() * 2
        return x * 3

    yield run, (x,)
    yield run, (x,)


@feature()
def grad_is_cleared():
    x = leaf(3)

    def run(x):
        y = x.grad * 2
        x.grad = None
        return y

    (x * 3).sum().backward()
    yield run, (x,)
    (x * 4).sum().backward()
    yield run, (x,)


@feature(backward=False)
def grad_is_changed_in_place():
    x = leaf(3)

    def run(x):
        x.grad.mul_(2)
        with torch.no_grad():
            x.add_(x.grad)
        return x * 1

    (x * 3).sum().backward()
    yield run, (x,)
    yield run, (x,)


@feature(inputs=with_leaf)
def data_is_read(x):
    return x.data * 2, x.data.requires_grad, x * 3


@feature(backward=False, inputs=with_leaf)
def data_is_changed(x):
    x.data.add_(1)
    x.data[0] = 0
    return x * 1


@feature(more="assigning .data is done between graphs", backward=False, inputs=with_leaf)
def data_is_assigned(x):
    x.data = x.data * 2
    return x + 1


@feature()
def data_of_an_argument_is_assigned(x):
    view = x.view(-1)
    x.data = x[:2] * 2
    x.add_(1)
    return x * 3, view, x.data, x.requires_grad, x.shape, x.contiguous() is x


@feature(inputs=lambda: (tensor(), tensor() * 2))
def data_of_arguments_is_swapped(x, y):
    x.data, y.data = y.data, x.data
    return x - y


@feature(backward=False, inputs=with_leaf)
def data_of_a_parameter_is_assigned_last(x):
    y = x.detach() + 1
    with torch.no_grad():
        x.data = x.data - 0.1
    return y


@feature()
def data_of_an_intermediate_is_assigned(x):
    y = x * 2
    y.data = x + 1
    return y * 3


@feature(more="assigning .data is done between graphs", inputs=lambda: (tensor(), leaf(3, 4)))
def data_is_swapped(x, y):
    kept = y.data
    y.data = x
    z = y * 2
    y.data = kept
    return z


@feature()
def parameter_made_inside(x):
    weight = torch.nn.Parameter(torch.ones(4, 4))
    return torch.nn.functional.linear(x, weight)


@feature()
def parameter_of_a_tensor(x):
    weight = torch.nn.Parameter(x, requires_grad=False)
    return weight * 2, isinstance(weight, torch.nn.Parameter), type(weight).__name__


@feature()
def attributes_set_by_the_program(x):
    y = x * 2
    y.scale = 3
    y.name_of_it = "y"
    return y * y.scale, hasattr(y, "other"), getattr(y, "other", 5)


@feature()
def attributes_of_an_argument():
    x = tensor()
    x.scale = 2

    def run(x):
        return x * x.scale

    yield run, (x,)
    x.scale = 3
    yield run, (x,)


@feature()
def attributes_of_an_argument_are_set():
    def run(x):
        x.seen = getattr(x, "seen", 0) + 1
        return x * x.seen

    x = tensor()
    yield run, (x,)
    yield x.seen
    yield run, (x,)
    yield x.seen


@feature()
def memory_formats():
    def run(x):
        y = x.to(memory_format=torch.channels_last)
        return (
            y,
            y.is_contiguous(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last) * 2,
        )

    yield run, (torch.randn(2, 3, 4, 5),)


@feature()
def gradient_functions_are_asked():
    def run(x):
        y = x * 2
        return y.requires_grad, y.is_leaf, x.is_leaf, y.grad_fn is not None, x.grad_fn is None, y

    yield run, (leaf(3),)


@feature()
def versions(x):
    before = x._version
    x.add_(1)
    return x._version - before, x * 1


@feature()
def apply_functions(x):
    x.fill_(2)
    x.zero_()
    x.copy_(torch.ones(4))
    x.clamp_(0, 0.5).mul_(3)
    x[0].fill_(9)
    return (
        x.masked_fill(x > 5, 0),
        x.index_fill(0, torch.tensor([1]), -1),
        x.scatter(1, torch.zeros(3, 1, dtype=torch.long), 7.0),
    )


@feature()
def hooks_on_intermediates(x):
    x = x.clone().requires_grad_()
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sum()


@feature()
def hooks_on_an_argument():
    x = leaf(3)

    def run(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sum()

    yield run, (x,)
    yield x.grad


@feature()
def retained_gradients():
    x = leaf(3)

    def run(x):
        y = x * 2
        y.retain_grad()
        return y, (y * y).sum()

    yield run, (x,)


@feature()
def storages(x):
    y = x.view(-1)
    return x.data_ptr() == y.data_ptr(), x.untyped_storage().nbytes(), x * 2


@feature(more="resize_ and set_ give a tensor another storage, between graphs")
def resized_and_set(x):
    y = torch.empty(0)
    y.resize_(2, 2).zero_()
    z = torch.empty(0)
    z.set_(x)
    return y + 1, z * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_state_is_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.parametrize("name", features_of(__name__))
def test_state_takes_no_more_graphs(name):
    check_graphs(__name__, name)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "write",
    [lambda y: y.sub_(y[0]), lambda y: y[1:].add_(y[:-1]), lambda y: y.view(2, 2).mul_(y.view(2, 2).t())],
    ids=["a number", "neighbours", "transposed"],
)
def test_writing_to_what_is_read(write, dynamic):
    """Eager refuses tensors that overlap in part; what was done before is done."""

    def f(y, table):
        table["before"] = True
        write(y)
        return y

    compiled = torchmux.compile(f, backend="eager", dynamic=dynamic)
    table = {}
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(torch.arange(4.0), table)
    assert table == {"before": True}


def test_writing_to_what_is_read_wholly():
    def f(y):
        y.mul_(y.view(-1))
        y[:2] += y[2:]
        return y.sub_(y)

    compiled = torchmux.compile(f, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.arange(4.0)), torch.zeros(4))


@pytest.mark.parametrize(
    "write",
    [lambda x: x.mul_(2), lambda x: x[1:].mul_(2), lambda x: x.__setitem__(0, 1.0)],
    ids=["all", "view", "item"],
)
def test_a_leaf_after_what_is_no_leaf(write):
    """Both require a gradient, but eager does not let anybody change a leaf; what was done before is done."""

    def f(x, table):
        table["before"] = True
        write(x)
        return x

    compiled = torchmux.compile(f, backend="eager")
    compiled(torch.ones(4, requires_grad=True) * 2, {})
    table = {}
    with pytest.raises(RuntimeError, match="leaf Variable"):
        compiled(torch.ones(4, requires_grad=True), table)
    assert table == {"before": True}


@pytest.mark.parametrize(
    ("operator", "dtype", "into"),
    [
        (torch.sum, torch.bfloat16, torch.float32), (torch.prod, torch.float32, torch.int64),
        (torch.mean, torch.float32, torch.float64), (torch.var, torch.float32, torch.bfloat16),
        (torch.logsumexp, torch.float32, torch.float64), (torch.nansum, torch.float32, torch.float64),
    ],
)  # fmt: skip
def test_out_of_another_dtype(operator, dtype, into):
    """Sums compute in the dtype of ``out=``, which a compiler of the graph does not."""
    x, found, expected = torch.linspace(1.01, 3, 24).view(8, 3).to(dtype), torch.zeros(3, dtype=into), None
    expected = operator(x, 0, out=found.clone())
    compiled = torchmux.compile(lambda x, out: operator(x * 1, 0, out=out) + 1, backend="aot_eager")
    assert torch.equal(compiled(x, found), expected + 1)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("ask", [lambda x: x.retains_grad, lambda x: x.output_nr, lambda x: x.storage_type()])
def test_what_autograd_has_made_outside(ask):
    """No fake tensor of an input has these from the tensor."""
    leaf = torch.ones(2, 3, requires_grad=True)
    kept = leaf * 1
    kept.retain_grad()
    compiled = torchmux.compile(lambda x: (x * 2, ask(x)), backend="eager")
    for x in (leaf[0], leaf * 1, kept, kept, leaf.unbind(0)[1], leaf):
        assert compiled(x)[1] == ask(x)
