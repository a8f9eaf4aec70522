"""torch.nn modules: containers, hooks, buffers, training, shared weights, attributes, our own subclasses."""

import torch
from torch import nn

from .corpus import case, tensor


def with_module(make):
    def inputs():
        return tensor(), make()

    return inputs


class MLP(nn.Module):
    def __init__(self, width=4, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))
        self.scale = 0.5
        self.activation = torch.tanh

    def forward(self, x, return_all=False):
        seen = []
        for layer in self.layers:
            x = self.activation(layer(x)) * self.scale
            seen.append(x)
        y = self.head(x)
        return (y, seen) if return_all else y


@case(one_graph=True, inputs=with_module(lambda: nn.Linear(4, 2)))
def case_linear(x, module):
    return module(x), module.weight.shape, module.in_features


@case(one_graph=True, inputs=with_module(MLP))
def case_own_module(x, module):
    return module(x), module(x, return_all=True)[1]


@case(one_graph=True, inputs=with_module(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))))
def case_sequential(x, module):
    return module(x), module[0](x), len(module), [type(m).__name__ for m in module], module[-1].weight


@case(one_graph=True, inputs=with_module(lambda: nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Identity()})))
def case_module_dict(x, modules):
    for name, module in modules.items():
        x = module(x)
        if name == "a":
            x = x.relu()
    return x, "a" in modules, list(modules.keys())


@case(one_graph=True, inputs=with_module(lambda: nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])))
def case_module_list(x, modules):
    for i, module in enumerate(modules):
        x = module(x) + i
    return x, modules[-1](x), len(modules), [m.out_features for m in modules[:1]]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("calls", torch.tensor(0), persistent=False)
        self.steps = 0

    def forward(self, x):
        self.total += x.sum(0)
        self.calls = self.calls + 1
        self.steps += 1
        return x + self.total / self.calls + self.steps


@case(one_graph=True, inputs=with_module(Counting))
def case_buffers_are_updated(x, module):
    return module(x)


@case(one_graph=True, inputs=with_module(lambda: nn.BatchNorm1d(4)))
def case_batch_norm_training(x, module):
    return module(x), module.num_batches_tracked


@case(one_graph=True, inputs=with_module(lambda: nn.BatchNorm1d(4).eval()))
def case_batch_norm_evaluation(x, module):
    return module(x)


class Modal(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        if self.training:
            return self.dropout(x)
        return x * 2


@case(one_graph=True, inputs=with_module(Modal))
def case_training_flag(x, module):
    return module(x), module.training


@case(one_graph=True, inputs=with_module(lambda: Modal().eval()))
def case_evaluation_flag(x, module):
    return module(x), module.dropout.training


@case(one_graph=True, inputs=with_module(Modal))
def case_mode_changes_inside(x, module):
    module.eval()
    y = module(x)
    module.train()
    return y, module(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.out = nn.Linear(4, 6, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        tokens = torch.arange(x.size(0))
        return self.out(self.embed(tokens) + x), self.out.weight is self.embed.weight


@case(one_graph=True, inputs=with_module(Tied))
def case_tied_weights(x, module):
    return module(x)


def hooked():
    module = nn.Linear(4, 4)
    module.register_forward_hook(lambda m, args, output: output * 2)
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return module


@case(one_graph=True, inputs=with_module(hooked))
def case_forward_hooks(x, module):
    return module(x)


def logging_hook():
    module = MLP()
    module.seen = []
    module.head[2].register_forward_hook(lambda m, args, output: module.seen.append(output))
    return module


@case(one_graph=True, inputs=with_module(logging_hook))
def case_hook_with_effect(x, module):
    return module(x), len(module.seen)


@case(one_graph=False, inputs=with_module(MLP))
def case_hook_registered_inside(x, module):
    handle = module.layers[0].register_forward_hook(lambda m, args, output: output + 1)
    y = module(x)
    handle.remove()
    return y, module(x)


@case(one_graph=True, inputs=with_module(MLP))
def case_walk_parameters(x, module):
    total = sum(p.sum() for p in module.parameters())
    names = [name for name, _ in module.named_parameters()]
    return x + total, names, sum(p.numel() for p in module.parameters() if p.requires_grad)


@case(one_graph=True, inputs=with_module(MLP))
def case_walk_modules(x, module):
    kinds = [type(m).__name__ for m in module.modules()]
    return x, kinds, [name for name, _ in module.named_children()], isinstance(module.head[0], nn.LayerNorm)


@case(one_graph=True, inputs=with_module(MLP))
def case_state_dict_inside(x, module):
    state = module.state_dict()
    return x * state["layers.0.weight"].sum(), list(state)


@case(one_graph=True, inputs=with_module(MLP))
def case_method_of_submodule(x, module):
    return module.layers[0].forward(x), module.get_submodule("head.0")(x), module.extra_repr()


@case(one_graph=True, inputs=with_module(MLP))
def case_attribute_set_on_module(x, module):
    module.scale = module.scale * 2
    module.last = x + 1
    return module(x)


@case(one_graph=False, inputs=with_module(MLP))
def case_module_attribute_missing(x, module):
    return module.nothing(x)


class Gated(nn.Module):
    def __init__(self, inner=None):
        super().__init__()
        self.gate = nn.Parameter(torch.ones(4))
        self.inner = inner

    @property
    def opened(self):
        return self.gate.sigmoid()

    def forward(self, x):
        x = x * self.opened
        return x if self.inner is None else self.inner(x)


@case(one_graph=True, inputs=with_module(lambda: Gated(Gated())))
def case_optional_submodule(x, module):
    return module(x), module.inner.inner is None


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


@case(one_graph=True, inputs=with_module(lambda: Wrapper(nn.Linear(4, 3))))
def case_module_getattr_hook(x, module):
    return module(x) + module.bias, module.out_features


class Overridden(nn.Module):
    def __call__(self, x):
        return super().__call__(x) + 1

    def forward(self, x):
        return x * 2


@case(one_graph=True, inputs=with_module(Overridden))
def case_module_call_overridden(x, module):
    return module(x)


class Breaking(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.note = None

    def forward(self, x):
        x = self.a(x)
        self.note = "half"
        print(end="")
        x = self.b(x)
        self.note = "done"
        return x


@case(one_graph=False, inputs=with_module(Breaking))
def case_break_in_module(x, module):
    return module(x) * 2, module.note


@case(one_graph=True, inputs=with_module(lambda: nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])))
def case_parameter_list(x, parameters):
    for p in parameters:
        x = x * p
    return x, len(parameters)


@case(one_graph=False, inputs=with_module(lambda: nn.LSTM(4, 3, batch_first=True)))
def case_lstm(x, module):
    output, (h, c) = module(x.unsqueeze(0))
    return output, h, c


@case(one_graph=True, inputs=with_module(lambda: nn.MultiheadAttention(4, 2, batch_first=True)))
def case_attention_module(x, module):
    y, weights = module(x[None], x[None], x[None])
    return y, weights


@case(one_graph=True, inputs=with_module(lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)))
def case_transformer_layer(x, module):
    return module(x[None])


@case(
    one_graph=True,
    inputs=with_module(lambda: nn.Sequential(nn.Conv1d(3, 2, 3, padding=1), nn.MaxPool1d(2), nn.Flatten())),
)
def case_convolution(x, module):
    return module(x[None])


@case(one_graph=False, inputs=with_module(lambda: nn.Linear(4, 1)))
def case_loss_and_backward(x, module):
    loss = nn.functional.mse_loss(module(x), torch.ones(3, 1))
    loss.backward()
    return loss.detach(), module.weight.grad


@case(one_graph=False)
def case_module_made_inside(x):
    layer = nn.Linear(4, 2)
    return layer(x), layer.training


@case(one_graph=True)
def case_functional_activation_by_name(x):
    return getattr(nn.functional, "silu")(x), nn.ReLU()(x), nn.GELU()(x)  # noqa: B009


@case(one_graph=True, inputs=with_module(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))))
def case_parametrized(x, module):
    return module(x)


@case(one_graph=False, inputs=with_module(MLP))
def case_zero_grad_and_requires_grad(x, module):
    module.requires_grad_(False)
    y = module(x)
    module.zero_grad()
    return y, y.requires_grad


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = []
        self.table = {}

    def forward(self, x):
        self.keys.append(x)
        key = tuple(x.shape)
        if key not in self.table:
            self.table[key] = torch.zeros(x.size(-1))
        self.table[key] = self.table[key] + x.sum(0)
        return torch.cat(self.keys), self.table[key]


@case(one_graph=True, inputs=with_module(Cache))
def case_module_with_cache(x, module):
    return module(x)
