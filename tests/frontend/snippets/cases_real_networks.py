"""Pieces of real networks and of what surrounds them: routing, caches, scans, graphs, detection, optimizers."""

import abc
import collections
import dataclasses
import functools
import inspect
import math
import operator
import re
import types
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import nn

from .corpus import case, tensor

# --- mixtures of experts ---------------------------------------------------------------------------------------------


# --- decoding --------------------------------------------------------------------------------------------------------


class Beam(NamedTuple):
    score: torch.Tensor
    tokens: tuple


@case(one_graph=True)
def case_beam_search_of_fixed_length(x, width=2):
    logits = x.log_softmax(-1)
    beams = [Beam(torch.zeros(()), ())]
    for step in range(x.shape[0]):
        scores = torch.stack([beam.score + logits[step] for beam in beams]).flatten()
        best, index = scores.topk(width)
        parents = index // x.shape[1]
        beams = [Beam(best[k], (*beams[min(k, len(beams) - 1)].tokens, index[k] % x.shape[1])) for k in range(width)]
    return [(beam.score, torch.stack(beam.tokens)) for beam in beams], parents


@case()
def case_greedy_until_end(x, end=3):
    tokens, state = [], x.sum(0)
    for _ in range(6):
        state = (state * 1.5).roll(1) + x[0]
        token = state.argmax().item()
        tokens.append(token)
        if token == end:
            break
    return tokens, state


@case(one_graph=True)
def case_filtered_logits(x, top_k=3, top_p=0.8, penalty=1.2):
    seen = torch.tensor([[0, 1], [1, 1], [2, 3]])
    picked = x.gather(1, seen)
    x = x.scatter(1, seen, torch.where(picked < 0, picked * penalty, picked / penalty))
    x = x.masked_fill(x < x.topk(top_k)[0][..., -1, None], -math.inf)
    ordered, order = x.sort(descending=True)
    remove = ordered.softmax(-1).cumsum(-1) > top_p
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return x.masked_fill(remove.scatter(1, order, remove), -math.inf)


@case(one_graph=True)
def case_sliding_window_mask(x, window=2):
    rows = torch.arange(x.shape[0])
    mask = (rows[:, None] >= rows) & (rows[:, None] - rows < window)
    return F.scaled_dot_product_attention(x[None], x[None], x[None], attn_mask=mask), mask


# --- positions -------------------------------------------------------------------------------------------------------

ROPE_KINDS = {}


def rope(name):
    def register(function):
        ROPE_KINDS[name] = function
        return function

    return register


@rope("default")
def _plain(frequencies, **_):
    return frequencies, 1.0


@rope("linear")
def _linear(frequencies, *, factor=1.0, **_):
    return frequencies / factor, 1.0


@rope("yarn")
def _yarn(frequencies, *, factor=1.0, low=1, high=3, **_):
    ramp = ((torch.arange(len(frequencies)).float() - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies / factor * ramp + frequencies * (1 - ramp), 0.1 * math.log(factor) + 1.0


@case(one_graph=True)
def case_rope_scaling(x, kinds=("default", "linear", "yarn")):
    outputs = {}
    for kind in kinds:
        settings = {"factor": 4.0} | ({"high": 2} if kind == "yarn" else {})
        frequencies, scale = ROPE_KINDS[kind](1.0 / 10000.0 ** (torch.arange(0, 4, 2) / 4), **settings)
        angles = torch.outer(torch.arange(x.shape[0]).float(), frequencies)
        cos, sin = (torch.cat([f(angles)] * 2, -1) * scale for f in (torch.cos, torch.sin))
        left, right = x.chunk(2, -1)
        outputs[kind] = x * cos + torch.cat((-right, left), -1) * sin
    return outputs


@case(one_graph=True)
def case_alibi_slopes(x, heads=3):
    closest = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-(2 ** -(math.log2(closest) - 3)) * (i + 1)) for i in range(closest)]
    if closest != heads:
        slopes += [s * 0.5 for s in slopes[: heads - closest]]
    distance = torch.arange(4)[None] - torch.arange(4)[:, None]
    return x[:, None, :] + torch.tensor(slopes)[:, None, None] * distance[None].abs()[:, :1]


@case(one_graph=True)
def case_bucketed_distances(x, buckets=8, furthest=16):
    relative = torch.arange(4)[None] - torch.arange(4)[:, None]
    half = buckets // 2
    found = (relative > 0).long() * half
    distance = relative.abs()
    exact = half // 2
    large = exact + (torch.log(distance.float() / exact) / math.log(furthest / exact) * (half - exact)).long()
    found += torch.where(distance < exact, distance, torch.min(large, torch.full_like(large, half - 1)))
    return x @ torch.eye(4)[found.flatten()[:4] % 4], found


# --- scans -----------------------------------------------------------------------------------------------------------


@case(one_graph=True)
def case_selective_scan(x):
    state, outputs = x.new_zeros(4, 2), []
    decay = -torch.arange(1, 3).float()
    for row in x.unbind(0):
        step = F.softplus(row)[:, None]
        state = torch.exp(step * decay) * state + step * row[:, None]
        outputs.append((state * decay.sin()).sum(-1))
    return torch.stack(outputs), state


@case(one_graph=True)
def case_chunked_linear_attention(x, chunk=2):
    padded = F.pad(x, (0, 0, 0, -len(x) % chunk))
    memory, outputs = torch.zeros(4, 4), []
    for piece in padded.view(-1, chunk, 4):
        inner = torch.tril(piece @ piece.T) @ piece
        outputs.append(inner + piece @ memory)
        memory = memory + piece.T @ piece
    return torch.cat(outputs)[: len(x)], memory


# --- diffusion -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Schedule:
    steps: int = 4
    kind: str = "cosine"

    @functools.cached_property
    def alphas(self):
        t = torch.linspace(0, 1, self.steps + 1)
        match self.kind:
            case "cosine":
                return torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
            case "linear" | "lin":
                return 1 - t * 0.9
            case other:
                raise ValueError(f"no schedule {other!r}")


@case(one_graph=True)
def case_sampling_steps(x):
    outputs = []
    for kind in ("cosine", "linear"):
        alphas, sample = Schedule(kind=kind).alphas, x
        for now, after in zip(reversed(range(1, 5)), reversed(range(4)), strict=True):
            noise = sample.tanh()
            clean = (sample - (1 - alphas[now]).clamp(min=0).sqrt() * noise) / alphas[now].clamp(min=0.05).sqrt()
            sample = alphas[after].sqrt() * clean + (1 - alphas[after]).clamp(min=0).sqrt() * noise
        outputs.append(sample)
    return outputs


@case(one_graph=True)
def case_guidance_and_rescaling(x, scale=3.0):
    with_text, without = x, x.flip(0)
    guided = torch.lerp(without, with_text, scale)
    factor = with_text.std(dim=-1, keepdim=True) / guided.std(dim=-1, keepdim=True)
    return 0.7 * guided * factor + 0.3 * guided


# --- graphs of nodes -------------------------------------------------------------------------------------------------

EDGES = ((0, 0, 1, 2), (1, 2, 2, 0))


@case(one_graph=True)
def case_message_passing(x):
    source, target = map(torch.tensor, EDGES)
    degree = torch.zeros(3).index_add_(0, target, torch.ones(4)).clamp(min=1)
    for _ in range(2):
        messages = x[source] * degree[source].rsqrt()[:, None]
        x = x + torch.zeros_like(x).index_add(0, target, messages).relu()
    return x, degree


@case(one_graph=True)
def case_attention_over_edges(x):
    source, target = map(torch.tensor, EDGES)
    scores = F.leaky_relu((x[source] * x[target]).sum(-1), 0.2)
    top = torch.full((3,), -math.inf).scatter_reduce(0, target, scores, "amax")
    weights = (scores - top[target]).exp()
    weights = weights / torch.zeros(3).scatter_add(0, target, weights)[target]
    return torch.zeros(3, 4).index_add(0, target, weights[:, None] * x[source])


class Aggregator(Protocol):
    def __call__(self, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor: ...


AGGREGATORS: dict[str, Aggregator] = {
    name: functools.partial(
        lambda values, index, how: torch.zeros(3, 4).index_reduce(0, index, values, how, include_self=False), how=name
    )
    for name in ("mean", "amax", "amin")
}


@case(one_graph=True)
def case_aggregators_from_a_table(x):
    index = torch.tensor([0, 2, 2])
    return torch.cat([aggregate(x, index) for _, aggregate in sorted(AGGREGATORS.items())], -1)


# --- detection -------------------------------------------------------------------------------------------------------


def overlap(a, b):
    low, high = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = operator.methodcaller("prod", -1)
    return shared / (area(a[:, 2:] - a[:, :2])[:, None] + area(b[:, 2:] - b[:, :2]) - shared + 1e-6)


def boxes_of(x):
    return torch.cat([x[:, :2], x[:, :2] + x[:, 2:].abs() + 0.5], -1)


@case()
def case_suppression_loop(x, threshold=0.1):
    boxes = boxes_of(x)
    order, kept = x[:, 0].argsort(descending=True).tolist(), []
    while order:
        best = order.pop(0)
        kept.append(best)
        order = [i for i in order if overlap(boxes[best : best + 1], boxes[i : i + 1]).item() <= threshold]
    return kept, boxes[kept]


@case(one_graph=True)
def case_suppression_by_matrix(x, threshold=0.1):
    boxes = boxes_of(x)
    order = x[:, 0].argsort(descending=True)
    shared = torch.triu(overlap(boxes[order], boxes[order]), diagonal=1)
    keep = torch.ones(3, dtype=torch.bool)
    for i in range(3):
        keep = keep & ~((shared[i] > threshold) & keep[i])
    return order, keep


@case(one_graph=True)
def case_anchors_by_level(x):
    levels = collections.OrderedDict((f"p{i}", (2 * i, 8 // i)) for i in (1, 2))
    anchors = {}
    for name, (size, stride) in levels.items():
        ys, xs = torch.meshgrid(*[torch.arange(0, 8, stride)] * 2, indexing="ij")
        centres = torch.stack([xs, ys, xs, ys], -1).reshape(-1, 4).float()
        corners = torch.tensor([(-w, -h, w, h) for w, h in ((size, size), (size * 2, size))]) / 2
        anchors[name] = (centres[:, None] + corners).reshape(-1, 4)
    return torch.cat(list(anchors.values())) + x[0], {name: len(found) for name, found in anchors.items()}


@case(one_graph=True)
def case_focal_loss(x, alpha=0.25, gamma=2.0):
    target = F.one_hot(torch.tensor([0, 2, 3]), 4).float()
    probability = x.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    right = probability * target + (1 - probability) * (1 - target)
    return (entropy * (1 - right) ** gamma * (alpha * target + (1 - alpha) * (1 - target))).mean(1).sum()


# --- optimizers and averages -----------------------------------------------------------------------------------------


class Lion:
    def __init__(self, parameters, rate=0.1, betas=(0.9, 0.99)):
        self.groups = [{"params": list(parameters), "rate": rate, "betas": betas}]
        self.state = collections.defaultdict(dict)

    @torch.no_grad()
    def step(self):
        for group in self.groups:
            one, two = group["betas"]
            for number, parameter in enumerate(group["params"]):
                if parameter.grad is None:
                    continue
                state = self.state[number]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                parameter.add_((momentum * one + parameter.grad * (1 - one)).sign(), alpha=-group["rate"])
                momentum.lerp_(parameter.grad, 1 - two)
                state["step"] = state.get("step", 0) + 1


def with_gradients():
    weights = [torch.ones(3, 4, requires_grad=True), torch.full((4,), 2.0, requires_grad=True)]
    weights[0].grad = tensor()
    return tensor(), weights, Lion(weights)


@case(inputs=with_gradients)
def case_own_optimizer(x, weights, optimizer):
    optimizer.step()
    return x * weights[0].detach(), [dict(state) for state in optimizer.state.values()]


@case(one_graph=True)
def case_clipped_by_global_norm(x, limit=1.0):
    gradients = {"a": x, "b": x[0] * 2, "c": None}
    found = [g for g in gradients.values() if g is not None]
    total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, 2) for g in found]), 2)
    factor = torch.clamp(limit / (total + 1e-6), max=1.0)
    return {name: None if g is None else g * factor for name, g in gradients.items()}, total


@case(one_graph=True)
def case_warmup_then_cosine(x, steps=(0, 3, 10, 25)):
    def rate(step, *, warmup=5, total=20, floor=0.1):
        if step < warmup:
            return step / warmup
        progress = min(1.0, (step - warmup) / (total - warmup))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))

    return [x * rate(step) for step in steps], max(map(rate, steps))


# --- helpers, configurations, registries -----------------------------------------------------------------------------


def rearrange(x, pattern, **sizes):
    """A little of einops: names, and groups in parentheses."""
    left, right = (re.findall(r"\(([^)]*)\)|(\w+)", side) for side in pattern.split("->"))
    shape = []
    for size, (group, name) in zip(x.shape, left, strict=True):
        names = group.split() if group else [name]
        known = math.prod(sizes[n] for n in names if n in sizes)
        for n in names:
            sizes.setdefault(n, size // known)
        shape += [(n, sizes[n]) for n in names]
    order = [n for group, name in right for n in (group.split() if group else [name])]
    x = x.reshape([size for _, size in shape]).permute([[n for n, _ in shape].index(n) for n in order])
    return x.reshape([math.prod(sizes[n] for n in group.split()) if group else sizes[name] for group, name in right])


@case(one_graph=True)
def case_rearranged_by_pattern(x):
    heads = rearrange(x, "t (h d) -> h t d", h=2)
    return rearrange(heads, "h t d -> (t h) d"), heads


@dataclasses.dataclass
class Settings:
    width: int = 4
    dropout: float = 0.0
    activation: str = "gelu"
    layers: list = dataclasses.field(default_factory=lambda: [1, 2])

    def __post_init__(self):
        self.inner = self.width * max(self.layers)

    @classmethod
    def from_dict(cls, values):
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in values.items() if k in known})


ACTIVATIONS = types.MappingProxyType({"gelu": F.gelu, "swish": F.silu, "square": lambda x: x.relu().square()})


@case(one_graph=True)
def case_settings_from_a_dictionary(x):
    settings = Settings.from_dict({"width": 4, "activation": "square", "unknown": 1})
    changed = dataclasses.replace(settings, activation="swish", layers=[3])
    return [ACTIVATIONS[s.activation](x) * s.inner for s in (settings, changed)], dataclasses.asdict(changed)


class Plugin(abc.ABC):
    registry: dict = {}

    def __init_subclass__(cls, *, key, **kwargs):
        super().__init_subclass__(**kwargs)
        Plugin.registry[key] = cls

    @classmethod
    def make(cls, key, *args):
        try:
            return cls.registry[key](*args)
        except KeyError:
            raise LookupError(f"no plugin {key!r}, there are {sorted(cls.registry)}") from None

    @abc.abstractmethod
    def apply(self, x): ...

    def __call__(self, x):
        return self.apply(x)


class Scaled(Plugin, key="scaled"):
    def __init__(self, by=2):
        self.by = by

    def apply(self, x):
        return x * self.by


class Chained(Plugin, key="chained"):
    def __init__(self, *parts):
        self.parts = parts

    def apply(self, x):
        return functools.reduce(lambda value, part: part(value), self.parts, x)


@case(one_graph=True)
def case_plugins_by_key(x):
    chain = Plugin.make("chained", Plugin.make("scaled", 3), torch.tanh, Scaled())
    try:
        Plugin.make("missing")
    except LookupError as error:
        message = str(error)
    return chain(x), message, isinstance(chain, Plugin)


def checked(*dims):
    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            for (name, value), dim in zip(bound.arguments.items(), dims):
                if isinstance(value, torch.Tensor) and value.dim() != dim:
                    raise TypeError(f"{name} of {function.__name__} has {value.dim()} dimensions, not {dim}")
            return function(*bound.args, **bound.kwargs)

        return wrapper

    return decorate


@checked(2, 1)
def affine(x, bias, scale=2.0):
    return x * scale + bias


@case(one_graph=True)
def case_checked_dimensions(x):
    try:
        affine(x, x)
    except TypeError as error:
        message = str(error)
    return affine(x, x[0], scale=3.0), message, affine.__name__


@case(one_graph=True)
def case_quantized_by_hand(x, bits=4):
    high = 2 ** (bits - 1) - 1
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / high
    levels = (x / scale).round().clamp(-high - 1, high).to(torch.int8)
    packed = (levels[:, ::2] & 0xF) | (levels[:, 1::2] << 4)
    low, upper = (packed << 4) >> 4, packed >> 4
    return torch.stack([low, upper], -1).flatten(1) * scale, packed, x + (levels * scale - x).detach()


@case(one_graph=True)
def case_contrastive_loss(x, temperature=0.1):
    a, b = F.normalize(x, dim=-1), F.normalize(x.flip(-1), dim=-1)
    logits = a @ b.T / temperature
    labels = torch.arange(len(x))
    both = [F.cross_entropy(side, labels, label_smoothing=0.1) for side in (logits, logits.T)]
    return sum(both) / len(both), (logits.argmax(1) == labels).float().mean()


class Router:
    """Functions by the class of the first argument, and a fallback."""

    def __init__(self, fallback):
        self.fallback, self.table = fallback, {}

    def on(self, *classes):
        return lambda function: [self.table.__setitem__(cls, function) for cls in classes] and function

    def __call__(self, value, *args):
        found = next((self.table[cls] for cls in type(value).__mro__ if cls in self.table), self.fallback)
        return found(value, *args)


embed = Router(lambda value, x: x)


@embed.on(int, bool)
def _by_number(value, x):
    return x + value


@embed.on(str)
def _by_name(value, x):
    return x * len(value)


@embed.on(dict, list)
def _by_parts(value, x):
    return [embed(part, x) for part in (value.values() if isinstance(value, dict) else value)]


@case(one_graph=True)
def case_dispatch_by_class(x):
    return embed({"a": 1, "b": ["cd", True, None], "c": 2.5}, x)


@case(one_graph=True)
def case_pyramid_of_features(x):
    levels = [x.view(1, 1, 3, 4).repeat(1, 2, n, n) for n in (4, 2, 1)]
    merged = [levels[-1]]
    for finer in levels[-2::-1]:
        merged.insert(0, finer + F.interpolate(merged[0], size=finer.shape[-2:], mode="nearest"))
    sizes = {f"p{number}": tuple(level.shape[-2:]) for number, level in enumerate(merged, start=3)}
    return [F.adaptive_max_pool2d(level, 1).flatten() for level in merged], sizes


@case(one_graph=True)
def case_padded_batch_and_back(x):
    pieces = [x[0, :2], x[1], x[2, :1]]
    padded = nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=-1.0)
    lengths = torch.tensor([len(piece) for piece in pieces])
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    mean = (padded * mask).sum(1) / lengths
    return padded, mean, [row[: len(piece)] for row, piece in zip(padded, pieces, strict=True)]
