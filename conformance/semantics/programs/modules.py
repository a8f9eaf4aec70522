"""Layers with memory, and what happens to modules between calls."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from ..arguments.windows import with_gradients

case = Collection("semantics/modules")


@case("training")
def embeddings(trial: Trial) -> Any:
    """Words for padding, gradients by frequency, norms that are limited in place, and bags with offsets and weights."""
    torch.manual_seed(0)
    words, offsets = (
        torch.tensor([1, 2, 2, 0, 9, 1], device=trial.device),
        torch.tensor([0, 2, 2, 4], device=trial.device),
    )
    tables = [trial.module(torch.nn.Embedding(10, 4, **more)) for more in (
        {"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True}, {"max_norm": 0.7}, {"max_norm": 0.5,
        "norm_type": 1.0},
    )]  # fmt: skip
    bags = [trial.module(torch.nn.EmbeddingBag(10, 4, **more)) for more in (
        {"mode": "mean"}, {"mode": "max"}, {"mode": "sum", "include_last_offset": True}, {"mode": "mean",
        "padding_idx": 2},
    )]  # fmt: skip
    weights, found = trial.tensor(6), []
    for table in tables:
        compiled = trial.compile(table)
        for _ in range(2):
            result = compiled(words.view(2, 3))
            (result * result.new_tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
            found.append(result.detach())
    for bag in bags:
        # The last offset closes the last bag where the layer includes it. Torch's backward reads uninitialized
        # memory for words after it, so it is the number of words.
        ends = torch.tensor([0, 2, 2, 6], device=trial.device) if bag.include_last_offset else offsets
        result = trial.run(bag, words, ends)
        (result * result.new_tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
        found.append(result.detach())
    weighted = trial.run(
        lambda w: F.embedding_bag(words, bags[0].weight, offsets, mode="sum", per_sample_weights=w), weights
    )
    return (
        found,
        weighted.detach(),
        [each.weight.grad for each in (*tables, *bags)],
        [t.weight.detach() for t in tables],
    )


@case("training", terms=32)
def recurrent(trial: Trial) -> Any:
    """Recurrent layers of each kind, of two layers or in both directions, with a given state, batch first or not."""
    torch.manual_seed(0)
    layers = [
        torch.nn.LSTM(3, 4, bidirectional=True), torch.nn.GRU(3, 4, 2, bias=False, batch_first=True),
        torch.nn.RNN(3, 4, nonlinearity="relu"), torch.nn.LSTM(3, 4, proj_size=2),
    ]  # fmt: skip
    x, found = trial.tensor(3, 2, 3), []
    for layer in map(trial.module, layers):
        given = x.detach().requires_grad_()
        results, state = trial.run(layer, given)
        results.square().sum().backward()
        # On a GPU, eager's gradients of all weights lie in one piece of memory.
        gradients = [None if p.grad is None else p.grad.clone() for p in layer.parameters()]
        found.append((results.detach(), [s.detach() for s in state], given.grad, gradients))
    first = trial.module(torch.nn.GRU(3, 4))
    with torch.no_grad():
        found.append(trial.run(first, x, trial.tensor(1, 2, 4)))
    return found


@case("training", terms=32)
def attention(trial: Trial) -> Any:
    """Attention that returns its weights, averaged or not, with words left out, other keys, and a whole encoder."""
    torch.manual_seed(0)
    attend = trial.module(torch.nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True))
    other = trial.module(torch.nn.MultiheadAttention(8, 4, kdim=6, vdim=5, add_zero_attn=True))
    encoder = trial.module(torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True))
    decoder = trial.module(torch.nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True))
    x, key, value = trial.tensor(2, 5, 8), trial.tensor(4, 2, 6), trial.tensor(4, 2, 5)
    absent = torch.tensor([[False] * 4 + [True], [False, True, False, False, True]], device=trial.device)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(5, device=x.device, dtype=x.dtype)
        return [
            *attend(x, x, x, average_attn_weights=False), *other(x.transpose(0, 1), key, value), decoder(x, x[:, :3]),
            encoder(x, mask, is_causal=True), attend(x, x, x, attn_mask=mask, need_weights=False)[0],
        ]  # fmt: skip

    def g(x: torch.Tensor) -> list[torch.Tensor]:
        return [*attend(x, x, x, key_padding_mask=absent), encoder(x, src_key_padding_mask=absent)]

    results = [*trial.run(f, x), *trial.run(g, x)]
    sum(r.square().sum() for r in results).backward()
    encoder.eval()
    with torch.no_grad():
        evaluated = trial.run(encoder, x)
    return [r.detach() for r in results], evaluated, [p.grad for m in (attend, other, encoder) for p in m.parameters()]


@case("training")
def norms_in_their_modes(trial: Trial) -> Any:
    """Norms with statistics over images and instances, one after another; one row is too few for a norm in training."""
    torch.manual_seed(0)
    norms = torch.nn.ModuleList([
        torch.nn.BatchNorm2d(4), torch.nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        torch.nn.GroupNorm(2, 4),
        torch.nn.BatchNorm2d(4, momentum=None), torch.nn.LocalResponseNorm(2), torch.nn.BatchNorm2d(4, eps=0.1,
        momentum=0.9),
    ])  # fmt: skip
    trial.module(norms)
    compiled, x = [trial.compile(norm) for norm in norms], trial.tensor(3, 4, 2, 2, requires_grad=True)
    found: list[Any] = []
    for training in (True, True, False, True):
        norms.train(training)
        results = [norm(x * 3 + 1) for norm in compiled]
        sum(r.square().sum() for r in results).backward()
        found.append([r.detach() for r in results])
    single = trial.compile(trial.module(torch.nn.BatchNorm1d(4)))
    try:
        found.append(single(trial.tensor(1, 4)))
    except ValueError as error:
        found.append(type(error).__name__)
    return found, x.grad, dict(norms.named_buffers()), {n: p.grad for n, p in norms.named_parameters()}


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.act, self.scale, self.extra = torch.nn.ReLU(inplace=True), 2.0, None
        self.register_buffer("shift", torch.ones(4), persistent=False)
        self.register_buffer("absent", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.first(x)) * self.scale + self.shift
        return self.second(x) if self.extra is None else self.second(x) + self.extra


@case("training", cancels=True)
def between_calls(trial: Trial) -> Any:
    """Weights that are loaded, replaced, tied, frozen or written through ``.data``; buffers and numbers that change."""
    return [_after_steps(trial, part) for part in (0, 1)]


@case("training", cancels=True)
def replaced_between_calls(trial: Trial) -> Any:
    """Layers and attributes that are replaced, modes that are switched, and hooks that come."""
    return _after_steps(trial, 2)


@case("training", cancels=True)
def moved_between_calls(trial: Trial) -> Any:
    """Hooks that go, a layer that is left out, and a model that gets another dtype."""
    return _after_steps(trial, 3)


def _after_steps(trial: Trial, part: int) -> Any:
    """Results and gradients after each of some changes; few at a time, so that no limit of compilations is reached."""
    torch.manual_seed(0)
    net = trial.module(_Net())
    state = {name: value * 0.5 for name, value in net.state_dict().items()}
    compiled, x = trial.compile(lambda x: net(x)), trial.tensor(3, 4)
    found: list[Any] = [sorted(net.state_dict())]
    handles: list[Any] = []

    def replace() -> None:
        net.first.weight = torch.nn.Parameter(net.first.weight.detach() * 2)

    def double() -> None:
        net.double()
        nonlocal x
        x = x.double()

    steps = (
        lambda: None, lambda: net.load_state_dict(state), replace, lambda: setattr(net.second, "weight",
        net.first.weight),
        lambda: net.first.weight.data.mul_(0.5), lambda: net.first.requires_grad_(False),
        lambda: net.requires_grad_(True),
        lambda: net.shift.add_(1), lambda: setattr(net, "shift", net.shift * 3), lambda: setattr(net, "scale", 3.0),
        lambda: setattr(net, "extra", x[0] * 2), lambda: setattr(net, "act", torch.nn.Tanh()), lambda: net.eval(),
        lambda: handles.append(net.first.register_forward_hook(lambda m, given, result: result * 2)),
        lambda: handles.append(net.second.register_forward_pre_hook(lambda m, given: (given[0] + 1,))),
        lambda: [handle.remove() for handle in handles], lambda: setattr(net, "first", torch.nn.Identity()), double,
    )  # fmt: skip
    for step in (steps[0], *steps[5 * part : 5 * part + 5]):
        with torch.no_grad():
            step()
        net.zero_grad()
        result = compiled(x)
        result.square().sum().backward()
        found.append((result.detach(), {name: p.grad for name, p in net.named_parameters()}))
    return found


@case("training")
def reparametrized(trial: Trial) -> Any:
    """Weights that are computed from others before each call, and statistics that such a computation keeps."""
    torch.manual_seed(0)
    normed = trial.module(torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3)))
    spectral = trial.module(torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3)))
    compiled = trial.compile(lambda x: (normed(x), spectral(x)))
    x, found = trial.tensor(2, 4), []
    for _ in range(2):
        a, b = compiled(x)
        (a.square().sum() + b.sum()).backward()
        found.append((a.detach(), b.detach()))
    return found, [p.grad for m in (normed, spectral) for p in m.parameters()], dict(spectral.named_buffers())


@case("training", terms=32)
def attention_of_other_lengths(trial: Trial) -> Any:
    """Causal attention begins at the first key, also with more keys than queries or fewer, and masks may be added."""
    q, k, v = trial.tensor(2, 4, 3, 8), trial.tensor(2, 4, 6, 8), trial.tensor(2, 4, 6, 5)
    attend = F.scaled_dot_product_attention

    def f(*given: torch.Tensor) -> list[torch.Tensor]:
        q, k, v = given
        row = torch.arange(6, device=q.device) < 4
        return [
            attend(q, k, v, is_causal=True), attend(k, q, q, is_causal=True), attend(q, k, v, row[None, None, None]),
            attend(q, k, v, (row.to(q.dtype) - 1)[None] * 3), attend(q, k[:, :1], v[:, :1], enable_gqa=True),
            attend(q[0], k[0], v[0]), attend(q, k, v, (q @ k.mT)[:1] * 0.5),
            attend(q, k, v, torch.where(row, 0.0, -torch.inf).to(q.dtype)[None]), attend(q[:, :1], k[:, :1], v[:, :1],
            scale=2.0),
        ]  # fmt: skip

    return with_gradients(trial, f, q, k, v)


class _Alike(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x).tanh()) * 2) + self.a.bias


@case("training", cancels=True)
def weights_change_places(trial: Trial) -> Any:
    """Weights of one shape that change places, whole, by their memory or by their numbers; that are tied and untied."""
    torch.manual_seed(0)
    found: list[Any] = []

    def swap_parameters(net: Any) -> None:
        net.a.weight, net.b.weight = net.b.weight, net.a.weight

    def swap_layers(net: Any) -> None:
        net.a, net.b = net.b, net.a

    def swap_memory(net: Any) -> None:
        net.a.weight.data, net.c.weight.data = net.c.weight.data, net.a.weight.data

    def swap_numbers(net: Any) -> None:
        numbers = net.b.bias.detach().clone()
        net.b.bias.data.copy_(net.c.bias.detach())
        net.c.bias.data.copy_(numbers)

    def load(net: Any) -> None:
        state = net.state_dict()
        turned = {"a": "b", "b": "c", "c": "a"}
        net.load_state_dict({f"{turned[name[0]]}{name[1:]}": v.clone() for name, v in state.items()})

    def assign(net: Any) -> None:
        state = net.state_dict()
        net.load_state_dict({name.replace("a.", "b.") if "b." not in name else name.replace("b.", "a."): v.clone()
                             for name, v in state.items()}, assign=True)  # fmt: skip

    def tie(net: Any) -> None:
        net.a.weight = net.c.weight

    def untie(net: Any) -> None:
        net.a.weight = torch.nn.Parameter(net.c.weight.detach() * 2)

    for changes in ((swap_parameters, swap_memory, load), (swap_layers, swap_numbers), (assign, tie, untie)):
        net, x = trial.module(_Alike()), trial.tensor(3, 4)
        compiled = trial.compile(net)
        for change in (lambda net: None, *changes):
            change(net)
            net.zero_grad()
            result = compiled(x)
            result.square().sum().backward()
            found.append((result.detach(), {name: p.grad for name, p in net.named_parameters()}))
            with torch.no_grad():
                found.append(compiled(x + 1))
    return found
