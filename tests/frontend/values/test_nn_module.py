"""nn.Module in full: containers, attributes, hooks, buffers, parametrizations, what is asked and made inside."""

import pytest
import torch
from torch import nn

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of


def with_module(make):
    return lambda: (tensor(), make())


def called(module):
    """The call of a module, as a function that can be compiled."""

    def run(x):
        return module(x)

    return run


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = 2.0

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


@feature(inputs=with_module(lambda: nn.Sequential(Block(), nn.GELU(), nn.Linear(4, 2))))
def sequential(x, m):
    return m(x), m[:2](x), m[-1].weight.sum(), len(m), [type(c).__name__ for c in m], m[0] in m


@feature(inputs=with_module(lambda: nn.ModuleList([Block(), Block(), nn.Linear(4, 4)])))
def module_list(x, ms):
    for i, m in enumerate(ms):
        x = m(x) + i
    for m in reversed(ms):
        x = m(x)
    for a, b in zip(ms[1:], ms[:-1], strict=True):
        x = a(x) + b(x)
    return x, len(ms), ms[-1](x), [m(x) for m in ms[::2]]


@feature(inputs=with_module(lambda: nn.ModuleDict({"a": Block(), "b": nn.Tanh()})))
def module_dict(x, ms):
    for name, m in ms.items():
        x = m(x) * len(name)
    return x, ms["a"](x), "c" in ms, list(ms), list(ms.keys()), [m(x) for m in ms.values()], len(ms)


@feature(inputs=with_module(lambda: nn.ParameterList([torch.ones(4), torch.zeros(4)])))
def parameter_list(x, ps):
    for p in ps:
        x = x + p
    return x * ps[0], len(ps), ps[-1] + 1, x + sum(ps)


@feature(inputs=with_module(lambda: nn.ParameterDict({"w": torch.ones(4), "b": torch.zeros(4)})))
def parameter_dict(x, ps):
    return x * ps["w"] + ps["b"], "w" in ps, list(ps.keys()), [p + 1 for _, p in ps.items()], ps.w + 1, len(ps)


@feature()
def modules_in_plain_containers():
    layers, table = [Block(), Block()], {"last": Block()}

    def run(x):
        for layer in layers:
            x = layer(x)
        return table["last"](x)

    yield run, (tensor(),)
    layers.append(Block())
    yield run, (tensor(),)
    table["last"] = nn.Identity()
    yield run, (tensor(),)


class Hidden(nn.Module):
    """Holds modules where nn.Module does not see them."""

    def __init__(self):
        super().__init__()
        self.blocks = (Block(), Block())
        self.by_name = {"one": Block()}

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.by_name["one"](x)


@feature()
def modules_in_attributes():
    module = Hidden()
    run = called(module)
    yield run, (tensor(),)
    module.by_name["one"].scale = 5.0
    yield run, (tensor(),)


@feature()
def training_flag():
    module = nn.Sequential(Block(), nn.Dropout(0.5))
    run = called(module)
    yield run, (tensor(),)
    module.eval()
    yield run, (tensor(),)
    module[1].train()
    yield run, (tensor(),)


@feature(close=1e-6)
def mode_is_changed_inside():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))

    def run(x):
        module.eval()
        y = module(x)
        module.train()
        return y + module(x)

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def submodule_is_replaced():
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    run = called(module)
    yield run, (tensor(),)
    module[1] = nn.Tanh()
    yield run, (tensor(),)
    module[0] = nn.Linear(4, 2, bias=False)
    yield run, (tensor(),)
    module.append(nn.Linear(2, 3))
    yield run, (tensor(),)


@feature()
def parameter_is_replaced():
    module = nn.Linear(4, 4)
    run = called(module)
    yield run, (tensor(),)
    module.weight = nn.Parameter(torch.ones(4, 4))
    yield run, (tensor(),)
    module.bias = None
    yield run, (tensor(),)
    module.weight.data = torch.zeros(4, 4)
    yield run, (tensor(),)
    module.weight.requires_grad_(False)
    yield run, (tensor(),)


@feature()
def attribute_is_changed():
    module = Block()
    run = called(module)
    yield run, (tensor(),)
    module.scale = 3.0
    yield run, (tensor(),)
    module.forward = lambda x: x + 1
    yield run, (tensor(),)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


@feature()
def tied_weights():
    module, tokens = Shared(), torch.tensor([[0, 1], [4, 2]])
    run = called(module)
    yield run, (tokens,)
    module.head.weight = nn.Parameter(module.head.weight.detach() * 2)
    yield run, (tokens,)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("missing", None)
        self.plain = torch.zeros(4)

    def forward(self, x):
        self.count += 1
        self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        self.plain.add_(1)
        if self.missing is None:
            x = x + 1
        return x - self.mean + self.plain, self.count


@feature()
def buffers_are_changed():
    module = Statistics()
    run = called(module)
    for _ in range(3):
        yield run, (tensor(),)
    yield module.state_dict()


@feature()
def batch_norm_statistics():
    module = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.ReLU())
    run = called(module)
    for _ in range(3):
        yield run, (torch.randn(2, 2, 3, 3),)
    yield module.state_dict()
    module.eval()
    yield run, (torch.randn(2, 2, 3, 3),)


@feature(inputs=with_module(lambda: nn.Sequential(nn.InstanceNorm1d(3, track_running_stats=True), nn.LayerNorm(4))))
def other_norms(x, m):
    return m(x[None].repeat(2, 1, 1)), nn.functional.group_norm(x[None], 3)


@feature(again="a hook that is removed is noticed")
def forward_hooks():
    module, seen = Block(), []

    def double(module, args, result):
        seen.append(len(args))
        return result * 2

    def shift(module, args):
        return (args[0] + 1,)

    handles = [module.register_forward_hook(double), module.linear.register_forward_pre_hook(shift)]
    run = called(module)
    yield run, (tensor(),)
    handles[0].remove()
    yield run, (tensor(),)
    handles[1].remove()
    yield run, (tensor(),)
    module.register_forward_hook(lambda m, a, k, r: r + k.get("none", 1), with_kwargs=True)
    yield run, (tensor(),)
    yield seen


@feature()
def backward_hooks():
    module = Block()
    module.register_full_backward_hook(lambda m, into, out: (into[0] * 2,))
    run = called(module)
    yield run, (tensor().requires_grad_(),)


@feature(again="a global hook is noticed")
def global_hooks():
    module = Block()
    run = called(module)
    yield run, (tensor(),)
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, r: r + 1)
    try:
        yield run, (tensor(),)
    finally:
        handle.remove()
    yield run, (tensor(),)


@feature()
def hook_registered_inside():
    module = Block()

    def run(x):
        handle = module.register_forward_hook(lambda m, a, r: r * 3)
        y = module(x)
        handle.remove()
        return y + module(x)

    yield run, (tensor(),)


@feature(inputs=with_module(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))))
def weight_norm(x, m):
    return m(x), m.weight


@feature(inputs=with_module(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))))
def spectral_norm(x, m):
    return m(x)


@feature(inputs=with_module(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))))
def orthogonal(x, m):
    return m(x)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


def parametrized():
    module = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(module, "weight", Symmetric())
    return module


@feature(inputs=with_module(parametrized))
def own_parametrization(x, m):
    with nn.utils.parametrize.cached():
        y = m(x) + m(x)
    return m(x), m.weight, y


@feature(inputs=with_module(lambda: nn.LazyLinear(3)))
def lazy_linear(x, m):
    return m(x)


@feature()
def lazy_modules():
    module = nn.Sequential(nn.LazyConv1d(2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
    run = called(module)
    yield run, (torch.randn(2, 3, 4),)
    yield run, (torch.randn(2, 3, 4),)
    yield module.state_dict()


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return self.inner(x) + self.scale + self.linear.bias


@feature(inputs=with_module(lambda: Wrapper(Block())))
def own_getattr(x, m):
    return m(x), m.scale, hasattr(m, "nothing")


class Calling(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.calls = 0

    def __call__(self, x, *args):
        self.calls += 1
        return super().__call__(x, *args) * 2

    def forward(self, x, by=1):
        return x * self.weight * by


@feature(inputs=with_module(Calling))
def own_call(x, m):
    return m(x, 3), m.calls


class Setting(nn.Module):
    def __setattr__(self, name, value):
        if isinstance(value, float):
            value = value * 2
        super().__setattr__(name, value)

    def forward(self, x):
        self.last = 1.5
        return x * self.last


@feature(inputs=with_module(Setting))
def own_setattr(x, m):
    return m(x), m.last


@feature()
def modules_made_inside(x):
    torch.manual_seed(1)
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return m(x), nn.LayerNorm(4)(x), nn.Dropout(0.0)(x), nn.CrossEntropyLoss()(x, torch.tensor([0, 1, 2]))


@feature()
def stateless_modules_made_inside(x):
    return nn.ReLU()(x), nn.Softmax(dim=-1)(x), nn.MSELoss()(x, x * 2), nn.Flatten()(x), nn.Identity()(x)


@feature(inputs=with_module(lambda: nn.Sequential(Block(), Block())))
def questions_about_modules(x, m):
    total = x.sum()
    for name, p in m.named_parameters():
        total = total + p.sum() * len(name)
    names = [n for n, _ in m.named_modules()], [n for n, _ in m.named_children()], [n for n, _ in m.named_buffers()]
    counts = len(list(m.parameters())), sum(p.numel() for p in m.parameters()), len(list(m.modules()))
    return (
        total,
        names,
        counts,
        next(m.parameters()).dtype,
        m.get_submodule("0.linear")(x),
        m.get_parameter("1.linear.bias") + 1,
    )


@feature(inputs=with_module(lambda: nn.Sequential(Block(), Block())))
def children_and_apply(x, m):
    for child in m.children():
        x = child(x)

    def shrink(module):
        if isinstance(module, nn.Linear):
            with torch.no_grad():
                module.weight.mul_(0.5)

    m.apply(shrink)
    return m(x)


@feature(inputs=with_module(Block))
def state_dict_inside(x, m):
    state = m.state_dict()
    return {name: value * 2 for name, value in state.items()}, m(x)


@feature(inputs=with_module(Block))
def buffers_and_modules_added_inside(x, m):
    m.register_buffer("offset", torch.ones(4))
    m.add_module("extra", nn.Identity())
    m.tag = "seen"
    return m.extra(m(x)) + m.offset


@feature(inputs=with_module(Block))
def gradients_are_cleared(x, m):
    m.zero_grad()
    return m(x)


@feature(inputs=with_module(Block))
def requires_grad_of_a_module(x, m):
    m.requires_grad_(False)
    y = m(x)
    m.requires_grad_(True)
    return y, m(x)


@feature(inputs=with_module(Block), backends=("eager",))
def modules_are_converted(x, m):
    return m.double()(x.double())


@feature(inputs=lambda: (torch.randn(3, 2, 4), nn.RNN(4, 5)))
def rnn(x, m):
    return m(x)


@feature(close=1e-5, exact=("eager",), inputs=lambda: (torch.randn(2, 3, 4), nn.LSTM(4, 5, 2, True, True, 0, True)))
def lstm(x, m):
    y, (h, c) = m(x)
    return y, h, c, m(x, (h, c))[0]


@feature(inputs=lambda: (torch.randn(3, 2, 4), nn.GRU(4, 5), nn.GRUCell(4, 4), nn.LSTMCell(4, 4)))
def gru_and_cells(x, m, cell, long_cell):
    h = torch.zeros(2, 4)
    state = None
    for step in x:
        h = cell(step, h)
        state = long_cell(step, state)
    return m(x)[0], h, state


@feature(inputs=lambda: (torch.randn(3, 2, 4), nn.LSTM(4, 5), torch.tensor([3, 2])))
def packed_sequences(x, m, lengths):
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    y, _ = m(packed)
    return nn.utils.rnn.pad_packed_sequence(y)[0]


@feature()
def padded_sequences(x):
    return nn.utils.rnn.pad_sequence([x[0], x[1, :2], x[2, :3]], batch_first=True)


@feature(inputs=lambda: (torch.randn(2, 3, 8), nn.MultiheadAttention(8, 2, batch_first=True)))
def attention(x, m):
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    y, weights = m(x, x, x)
    return y, weights, m(x, x, x, need_weights=False)[0], m(x, x, x, attn_mask=mask, is_causal=True)[0]


@feature(
    inputs=lambda: (
        torch.randn(2, 3, 8),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2),
    )
)
def transformer_encoder(x, m):
    return m(x), m(x, src_key_padding_mask=torch.zeros(2, 3, dtype=torch.bool))


@feature()
def transformer_encoder_in_evaluation():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).eval()

    def run(x):
        with torch.no_grad():
            return module(x)

    yield run, (torch.randn(2, 3, 8),)


@feature(inputs=lambda: (torch.randn(2, 3, 8), nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)))
def transformer(x, m):
    return m(x, x)


@feature(inputs=lambda: (torch.tensor([0, 2, 1, 1]), nn.Embedding(3, 4, padding_idx=0), nn.EmbeddingBag(3, 4)))
def embeddings(tokens, e, bag):
    return e(tokens), bag(tokens, torch.tensor([0, 2])), e.weight[tokens]


@feature(
    inputs=lambda: (
        torch.randn(1, 2, 8, 8),
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)),
    )
)
def convolutions(x, m):
    return m(x), nn.functional.interpolate(x, scale_factor=2), nn.functional.pad(x, (1, 1)), nn.functional.unfold(x, 2)


@feature()
def functional_call():
    module = nn.Linear(4, 4)

    def run(x, weight):
        return torch.func.functional_call(module, {"weight": weight}, (x,))

    yield run, (tensor(), torch.ones(4, 4, requires_grad=True))
    yield run, (tensor(), torch.zeros(4, 4, requires_grad=True))


@feature()
def methods_of_compiled_modules():
    module = Block()
    yield module.forward, (tensor(),)
    yield module.linear, (tensor(),)


@feature(inputs=with_module(lambda: nn.ModuleList([Block()])))
def module_types_and_flags(x, m):
    kinds = (
        isinstance(m, nn.ModuleList),
        isinstance(m[0], nn.Module),
        m.training,
        type(m[0]) is Block,
        hasattr(m[0], "linear"),
    )
    return m[0](x), kinds, m[0].linear.in_features, repr(type(m)), m[0].__class__.__name__, m == m, m != m[0]


@feature(inputs=with_module(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))))
def initialized_inside(x, m):
    for layer in m:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return m(x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_modules_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_modules_take_no_more_graphs(name):
    check_graphs(__name__, name)
