"""Guards of modules: attributes, submodules, parameters, buffers, hooks and modes."""

import pytest
import torch

from .guarding import case, cases_of, check, put, times_two, vector


class Net(torch.nn.Module):
    factor = 3

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.register_buffer("scale", torch.full((3,), 2.0))
        self.note = "plus"
        self.sizes = [1, 2]
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        x = self.inner(x) * self.scale * self.factor + sum(self.sizes)
        return x + 1 if self.note == "plus" else x - 1


def network():
    torch.manual_seed(0)
    return Net().eval()


# --- modules ------------------------------------------------------------------------------------------------------


@case
def module_attribute():
    net = network()
    yield net, (vector(),)
    net.note = "minus"
    yield (vector(),)
    net.sizes.append(5)
    yield (vector(),)
    net.factor = 7
    yield (vector(),)


class Wrapper(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) * self.note_of_wrapped


@case
def attribute_that_a_getattr_of_the_program_stood_in_for():
    net = Wrapper(network())
    net.inner.note_of_wrapped = 2
    yield net, (vector(),)
    net.inner.note_of_wrapped = 3
    yield (vector(),)
    net.note_of_wrapped = 4
    yield (vector(),)
    del net.note_of_wrapped
    put(Wrapper, "note_of_wrapped", 5)
    yield (vector(),)


@case
def module_class_attribute():
    net = network()
    yield net, (vector(),)
    put(Net, "factor", 7)
    yield (vector(),)


@case
def training_flag():
    net = network()
    yield lambda x: net.drop(x) * net.training, (vector(),)
    net.train()
    net.drop.eval()
    yield (vector(),)
    net.drop.p = 0.0
    net.drop.train()
    yield (vector(),)


@case
def batch_norm_changes_mode():
    norm = torch.nn.BatchNorm1d(3).eval()
    yield norm, (torch.ones(2, 3),)
    norm.train()
    yield (torch.arange(6.0).reshape(2, 3),)
    norm.eval()
    yield (torch.ones(2, 3),)


@case
def submodule_replaced():
    net = network()
    yield net, (vector(),)
    net.inner = torch.nn.Identity()
    yield (vector(),)
    net.layers[1] = torch.nn.Tanh()
    yield (vector(),)
    net.layers[1] = torch.nn.ReLU()
    net.layers.append(torch.nn.Sigmoid())
    yield (vector(),)
    del net.layers[0]
    yield (vector(),)


@case
def submodule_becomes_none():
    net = network()
    yield lambda x: x + 1 if net.inner is None else net.inner(x), (vector(),)
    net.inner = None
    yield (vector(),)


@case
def submodule_of_same_class_replaced():
    net = network()
    yield net, (vector(),)
    net.inner = torch.nn.Linear(3, 3, bias=False)
    yield (vector(),)


@case
def forward_replaced():
    net = network()
    yield lambda x: net(x), (vector(),)
    net.forward = times_two
    yield (vector(),)
    del net.forward
    put(Net, "forward", lambda self, x: x * 11)
    yield (vector(),)


@case
def hooks_are_added():
    net = network()
    yield lambda x: net(x), (vector(),)
    handle = net.register_forward_hook(lambda module, args, output: output * 2)
    yield (vector(),)
    handle.remove()
    yield (vector(),)
    net.inner.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    yield (vector(),)


@case
def hook_is_added_to_the_root():
    net = network()
    yield net, (vector(),)
    net.register_forward_hook(lambda module, args, output: output * 2)
    yield (vector(),)


@case
def global_hooks_are_added():
    net = network()
    yield lambda x: net(x), (vector(),)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)
    try:
        yield (vector(),)
    finally:
        handle.remove()
    yield (vector(),)


@case
def parameter_is_replaced():
    net = network()
    yield net, (vector(),)
    net.inner.weight = torch.nn.Parameter(torch.ones(3, 3))
    yield (vector(),)
    net.inner.bias = None
    yield (vector(),)


@case
def parameter_data_changes():
    net = network()
    yield net, (vector(),)
    with torch.no_grad():
        net.inner.weight.fill_(2)
    yield (vector(),)
    net.inner.weight.data = torch.ones(3, 3)
    yield (vector(),)


@case
def parameter_is_frozen():
    net = network()
    yield net, (vector(),)
    net.requires_grad_(False)
    yield (vector(),)
    net.inner.bias.requires_grad_(True)
    yield (vector(),)


@case
def parameter_dtype():
    net = network()
    yield net, (vector(),)
    net.double()
    yield (vector().double(),)


@case
def parameters_become_tied():
    net = network()
    yield net, (vector(),)
    net.layers[0].weight = net.inner.weight
    yield (vector(),)


@case
def buffer_is_replaced():
    net = network()
    yield net, (vector(),)
    net.scale = torch.full((1,), 5.0)
    yield (vector(),)
    net.scale.fill_(6)
    yield (vector(),)


@case
def module_attribute_appears():
    net = network()
    yield lambda x: x + 1 if hasattr(net, "extra") else x - 1, (vector(),)
    net.extra = 1
    yield (vector(),)
    del net.extra
    net.register_buffer("extra", torch.ones(1))
    yield (vector(),)


@case
def module_attribute_appears_on_the_class():
    net = network()
    yield lambda x: x + 1 if hasattr(net, "extra") else x - 1, (vector(),)
    put(Net, "extra", 1)
    yield (vector(),)


@case
def registered_name_moves_to_another_table():
    net = network()
    yield lambda x: x + net.scale, (vector(),)
    del net.scale
    net.scale = torch.nn.Parameter(torch.ones(3))
    yield (vector(),)


@case
def submodule_is_reordered():
    net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    yield net, (vector(),)
    net[0], net[1] = net[1], net[0]
    yield (vector(),)


@case
def module_dictionary():
    table = torch.nn.ModuleDict({"a": torch.nn.ReLU()})
    yield lambda x: sum(m(x) for m in table.values()), (vector(),)
    table["b"] = torch.nn.Tanh()
    yield (vector(),)
    del table["a"]
    yield (vector(),)


@pytest.mark.parametrize("name", cases_of(__name__))
def test_change_is_noticed(name):
    check(cases_of(__name__)[name])
