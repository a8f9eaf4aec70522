"""Weak references, the handles of hooks, and other small objects that exist for the sake of a larger one."""

import collections
import contextlib
import functools
import weakref

import pytest
import torch

import torchmux

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of


class Node:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)


@feature()
def references_to_new_objects(x):
    node = Node(x)
    holder = [Node({"inner": Node(x + 1)})]
    outer, inner = weakref.ref(node), weakref.ref(holder[0].value["inner"])
    return outer().value * 2, inner().value, outer is weakref.ref(node), outer is inner


def dropped(x):
    node = Node(x)
    reference = weakref.ref(node)
    torchmux.graph_break()
    kept = node.value * 2  # the last that the function reads of its object
    torchmux.graph_break()
    return kept, reference() is None


def without_its_object(x):
    reference = weakref.ref(Node(x))
    return x * 2, reference() is None


def with_a_callback(x, seen):
    node = Node(x)
    reference = weakref.ref(node, seen.append)
    y = x + 1
    return y, reference() is node, len(seen)


def of_what_has_none(x):
    try:
        weakref.ref(Slotted())
    except TypeError:
        return x * 2
    return x


@pytest.mark.parametrize("program", [dropped, without_its_object, of_what_has_none])
def test_an_object_lives_as_long_as_in_eager(program):
    compiled = torchmux.compile(program, backend="eager")
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


def test_callbacks_come_when_eager_calls_them():
    compiled, seen = torchmux.compile(with_a_callback, backend="eager"), []
    assert compiled(torch.ones(2), seen)[1:] == (True, 0)
    assert len(seen) == 1


@feature()
def hooks_for_one_call():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    @contextlib.contextmanager
    def recorded(module):
        found = []
        handle = module.register_forward_hook(lambda _, args, result: found.append(result))
        with handle:
            yield found

    def run(x):
        with recorded(model[0]) as found:
            y = model(x)
        return y, found, len(model[0]._forward_hooks)

    for _ in range(3):
        yield run, (tensor(),)


def test_hooks_that_stay():
    model, x = torch.nn.Linear(4, 4), tensor()[:, :4]

    def run(x):
        first = model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        second = model.register_forward_hook(lambda module, args, kwargs, result: result * 2, with_kwargs=True)
        return model(x), first, second

    result, first, second = torchmux.compile(run, backend="eager", fullgraph=True)(x)
    assert first.id + 1 == second.id == torch.utils.hooks.RemovableHandle.next_id - 1
    assert list(model._forward_hooks) == list(model._forward_hooks_with_kwargs) == [second.id]
    torch.testing.assert_close(model(x), result)
    first.remove()
    second.remove()
    assert not model._forward_hooks and not model._forward_pre_hooks and not model._forward_hooks_with_kwargs
    torch.testing.assert_close(model(x + 1) * 2, result)
    assert model.register_forward_hook(print).id == second.id + 1


@feature()
def hooks_of_all_modules():
    model = torch.nn.Linear(4, 4)

    def run(x):
        handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 2)
        try:
            return model(x)
        finally:
            handle.remove()

    yield run, (tensor(),)
    yield run, (tensor(),)
    yield model(tensor())


@feature()
def hooks_of_the_compiled_module():
    model = torch.nn.Linear(4, 4)
    model.register_forward_hook(lambda module, args, result: result * 2)
    yield model, (tensor(),)
    yield model, (tensor(),)


def test_hooks_are_registered_without_compiling_again():
    model = torch.nn.Linear(4, 4)

    def run(x):
        handle = model.register_forward_hook(lambda module, args, result: result * 2)
        y = model(x)
        handle.remove()
        return y

    compiled = torchmux.compile(run, backend="eager", fullgraph=True)
    for _ in range(4):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x), model(x) * 2)
    report = torchmux.report(compiled)
    assert report.graph_count == 1 and not report.recompiles


class Derived(property):
    def __init__(self, function, unit):
        super().__init__(function, doc="of the program")
        self.unit = unit


@feature()
def new_properties(x):
    plain = property(lambda node: node.value * 2)
    derived = Derived(lambda node: node.value * 3, "m")
    node = Node(x)
    return plain.fget(node), plain.__get__(node), derived.unit, derived.fset, derived.__get__(None, Node) is derived


@feature()
def properties_that_outlive_the_call():
    def run(x):
        return x * 2, Derived(lambda node: node.value + 1, "m")

    _, made = yield run, (tensor(),)
    yield made.unit, made.__doc__, made.fget(Node(tensor()))


@feature()
def contexts_of_a_stack(x, grad=False):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(grad))
        stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        stack.enter_context(contextlib.nullcontext())
        stack.enter_context(torch.profiler.record_function("part"))
        y = x @ x.T
        inside = torch.is_grad_enabled(), y.dtype
    return y, inside, torch.is_grad_enabled()


@feature()
def categories(x):
    distribution = torch.distributions.Categorical(logits=x)
    other = torch.distributions.Categorical(probs=x.exp())
    normal = torch.distributions.MultivariateNormal(x.mean(1), torch.eye(3))
    return (
        distribution.sample(),
        distribution.log_prob(torch.tensor([0, 1, 2])),
        distribution.probs,
        torch.distributions.kl_divergence(distribution, other),
        torch.distributions.kl_divergence(normal, torch.distributions.MultivariateNormal(x.mean(1), torch.eye(3) * 2)),
    )


@feature()
def counts_that_are_keys_of_few():
    milestones, seen = collections.Counter({2: 1, 40: 2}), {3}

    def run(x, step):
        return x * milestones[step] + (step in seen) + milestones.get(step, 0.5)

    for step in (0, 1, 5, 6, 2, 3, 9, 11, 40):
        yield functools.partial(run) if step < 0 else run, (tensor(), step)


def test_a_count_that_is_no_key_is_no_constant():
    milestones = {10: 0.1, 20: 0.01}
    compiled = torchmux.compile(lambda x, step: x * milestones.get(step, 1.0), backend="eager")
    for step in range(1, 25):
        torch.testing.assert_close(compiled(torch.ones(2), step), torch.ones(2) * milestones.get(step, 1.0))
    assert torchmux.report(compiled).graph_count <= 4


def test_another_generator_is_no_other_graph():
    compiled = torchmux.compile(lambda x, g: torch.bernoulli(x.sigmoid(), generator=g) + 1, backend="eager")
    x, graphs = torch.randn(5), []
    for seed in range(4):
        results = [
            f(x, torch.Generator().manual_seed(seed))
            for f in (compiled, lambda x, g: torch.bernoulli(x.sigmoid(), generator=g) + 1)
        ]
        torch.testing.assert_close(*results)
        graphs.append(torchmux.report(compiled).graph_count)
    assert graphs[0] == graphs[-1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_references_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_references_take_no_more_graphs(name):
    check_graphs(__name__, name)
