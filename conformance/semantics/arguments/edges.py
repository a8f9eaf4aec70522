"""The ends of what functions are defined for, ties, and arguments that only matter for some numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/edges")


@case("training", terms=16, subnormals=False)
def losses_of_certainty(trial: Trial) -> Any:
    """Losses of probabilities that are zero or one, of logits far out, and of targets that are zero."""
    p, z = torch.tensor([0.0, 1.0, 1e-8, 0.5, 1 - 6e-8, 0.0]), torch.tensor([-200.0, 200.0, 95.0, -95.0, 0.0, 3.0])
    t = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.25, 1.0])
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.0, 0.8], [0.0, 0.5, 0.5]])

    def f(p: torch.Tensor, z: torch.Tensor, t: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        logs, sure = z.view(2, 3), rows.log()
        return [
            F.binary_cross_entropy(p, t, reduction="none"), F.binary_cross_entropy(p, p.detach(), reduction="none"),
            F.binary_cross_entropy_with_logits(z, t, reduction="none"),
            F.binary_cross_entropy_with_logits(z, t, pos_weight=t + 0.5, reduction="none"),
            F.kl_div(logs, rows[:2], reduction="none"), F.kl_div(logs, rows[:2] * 1e-7, reduction="batchmean"),
            F.kl_div(logs, logs.detach() / 8, reduction="none", log_target=True),
            F.kl_div(logs, logs.detach(), reduction="sum", log_target=True),
            F.cross_entropy(logs, rows[:2]), F.cross_entropy(logs, rows[:2], reduction="none", label_smoothing=0.1),
            F.soft_margin_loss(z, 2 * t.round() - 1, reduction="none"), F.smooth_l1_loss(z, t, beta=0.0),
            F.poisson_nll_loss(z / 4, t, reduction="none", full=True), F.huber_loss(z, t, delta=1e-3, reduction="none"),
            F.logsigmoid(z), z.log_softmax(0), z.softmax(0), z.sigmoid(), sure.exp().sum(),
        ]  # fmt: skip

    p, z, t, rows = trial.given((p, z, t, rows))
    compiled = trial.compile(f)
    return compiled(p, z, t, rows), with_gradients(trial, lambda p, z: f(p, z, t, rows), p.clamp(0.1, 0.9), z / 8)


@case("training")
def ignored_classes(trial: Trial) -> Any:
    """Any class may be the ignored one, or all; images have classes too; each reduction divides by its own count."""
    words = torch.tensor([1, 0, 2, 2, -100, 1], device=trial.device)
    image = torch.tensor([[[0, 2], [1, 1]], [[2, 2], [0, 1]]], device=trial.device)

    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, q: torch.Tensor) -> list[torch.Tensor]:
        logs, w = x.log_softmax(1), w.detach()
        found = []
        for reduction in ("mean", "sum", "none"):
            found += [
                F.cross_entropy(x, words.clamp(min=0), ignore_index=2, reduction=reduction),
                F.nll_loss(logs, words, w, reduction=reduction),
                F.nll_loss(logs, words.clamp(min=0), w, ignore_index=1, reduction=reduction),
                F.cross_entropy(y, image, w, ignore_index=2, reduction=reduction, label_smoothing=0.3),
                F.nll_loss(y.log_softmax(1), image, ignore_index=0, reduction=reduction),
                F.cross_entropy(y, q.softmax(1), w, reduction=reduction, label_smoothing=0.2),
                F.cross_entropy(x, words, w, reduction=reduction, label_smoothing=0.2),
                F.cross_entropy(x[0], words[0], reduction=reduction),
            ]  # fmt: skip
        return found

    def nothing(x: torch.Tensor) -> list[torch.Tensor]:
        none = torch.full((6,), -100, device=x.device)
        ways = ("mean", "sum", "none")
        return [F.cross_entropy(x, none, reduction=r) for r in ways] + [F.nll_loss(x, none, reduction=r) for r in ways]

    given = trial.tensor(6, 3), trial.tensor(2, 3, 2, 2), trial.tensor(3, low=0.2, high=3.0), trial.tensor(2, 3, 2, 2)
    return with_gradients(trial, f, *given), trial.run(nothing, given[0])


@case()
def places_among_equals(trial: Trial) -> Any:
    """On which side of equal numbers a number belongs, the bin at the end, and ways to interpolate between ranks."""
    edges, x = torch.tensor([-2.0, -1.0, -1.0, 0.5, 3.0]), torch.tensor([[-1.0, 0.5, 3.0], [-3.0, math.inf, 0.0]])
    numbers = torch.tensor([0.0, 1.0, 2.0, 2.0, 4.0, 5.0, -1.0, 6.0])
    order = torch.tensor([4, 0, 2, 1, 3], device=trial.device)

    def f(edges: torch.Tensor, x: torch.Tensor, numbers: torch.Tensor) -> list[torch.Tensor]:
        mixed = torch.empty_like(edges).index_copy(0, order, edges)
        whole = numbers.long()
        ways = ("linear", "lower", "higher", "nearest", "midpoint")
        return [
            torch.searchsorted(edges, x), torch.searchsorted(edges, x, right=True), torch.bucketize(x, edges),
            torch.searchsorted(edges, x, side="right"), torch.searchsorted(edges, x, side="left"),
            torch.bucketize(x, edges, right=True, out_int32=True), torch.searchsorted(mixed, x, sorter=mixed.argsort()),
            torch.searchsorted(edges.expand(2, 5).contiguous(), x, right=True), torch.bucketize(1, whole.sort().values),
            torch.histc(numbers, 5, 0.0, 5.0), torch.histc(numbers, 3), torch.histc(numbers, 4, 2.0, 6.0),
            *(numbers.quantile(0.3, interpolation=way) for way in ways),
            *(x.nan_to_num(posinf=math.nan).nanquantile(0.6, 1, True, interpolation=way) for way in ways),
            numbers.count_nonzero(), (numbers / 0).count_nonzero(), torch.full_like(x, 1e-30).count_nonzero(1),
            numbers.median(), numbers[:7].median(), numbers.view(2, 4).median(0).values, numbers.nanmedian(),
        ]  # fmt: skip

    return trial.run(f, *trial.given((edges, x, numbers)))


@case(terms=16)
def distances(trial: Trial) -> Any:
    """Distances between points that are near each other and far from nothing, by every order of norm."""
    x = 100 + trial.tensor(30, 4, low=-0.01, high=0.01)

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        small = y * 1e-12
        return [
            torch.cdist(x, x[1:] + 0.1, compute_mode="donot_use_mm_for_euclid_dist"), torch.cdist(x[:5], x[7:10]),
            *(torch.cdist(y, y[1:] + 0.3, p=p) for p in (0.5, 1.0, 3.0, math.inf)),
            *(torch.linalg.vector_norm(small, p, 1) for p in (0, 1, 3, math.inf, -math.inf, 0.5)),
            F.pdist(y), F.pdist(y, 3.0), torch.dist(y, y.flip(0), 0), torch.dist(y, y.flip(0), math.inf),
            F.pairwise_distance(y, y.flip(0), 3.0), F.cosine_similarity(small, y.flip(0)), F.normalize(small, dim=1),
            torch.renorm(y, 1.0, 0, 2.0), torch.renorm(y, math.inf, 1, 0.5), y.norm(p="nuc"), y.norm("fro", (0, 1)),
        ]  # fmt: skip

    return trial.run(f, x, trial.tensor(7, 4))


@case()
def factors_of_nothing(trial: Trial) -> Any:
    """What is multiplied by a factor of zero does not count in a product, nan and infinity neither; ends are exact."""
    far = torch.tensor([1e8, -3e7, 5.0, 1e-8])

    def f(x: torch.Tensor, a: torch.Tensor, far: torch.Tensor, near: torch.Tensor) -> list[torch.Tensor]:
        lost = torch.full_like(x, math.nan)
        lost[0] = math.inf
        whole = torch.ones_like(far)
        return [
            torch.addmm(lost, x, x, beta=0), torch.addmv(lost[0], x, x[0], beta=0),
            torch.baddbmm(lost.expand(2, 4, 4), a, a, beta=0), torch.addbmm(lost, a, a, beta=0, alpha=2),
            torch.addr(lost, x[0], x[1], beta=0), torch.addmm(x, x, x, alpha=3), torch.addmm(x, x, x, beta=0, alpha=-1),
            torch.lerp(far, near, 1.0), torch.lerp(far, near, whole), torch.lerp(far, near, 0.0),
            torch.lerp(near, far, 1.0), torch.lerp(near, far, whole * 0), torch.lerp(far, far, 0.3),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(4, 4), trial.tensor(2, 4, 4), *trial.given((far, torch.tensor([1.5, 0.1, 7, 3]))))


@case(subnormals=False)
def numbers_far_apart(trial: Trial) -> Any:
    """What exponentials are summed of is shifted first, in running sums too, also if all of it is infinite."""
    x = torch.tensor([[1e3, -1e3, 999.0, 0.0], [-1e4, -1e4, -1e4, -9999.0], [88.0, 5.0, -104.0, 6.0]])
    ends = torch.tensor([[-math.inf] * 4, [math.inf, 1.0, 2.0, 3.0], [math.inf, math.inf, -math.inf, 0.0]])

    def f(x: torch.Tensor, ends: torch.Tensor) -> list[torch.Tensor]:
        y = ends[:, :2]
        return [
            x.logcumsumexp(1), x.flip(1).logcumsumexp(1), x.logsumexp(1), x.softmax(1), x.log_softmax(1), x.softmax(0),
            F.softmin(x, 1), torch.logaddexp(x, x.flip(1)), torch.logaddexp2(x, x.flip(1)), F.logsigmoid(x),
            F.softplus(x), F.softplus(x, 0.1), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x),
            F.selu(x), F.celu(x), F.hardswish(x), F.hardsigmoid(x), F.tanhshrink(x), F.softsign(x), x.sigmoid(),
            x.tanh(), ends.logsumexp(1), ends.logsumexp((0, 1)), ends[:1].softmax(0), ends.log_softmax(1),
            F.softmin(ends, 1), torch.logaddexp(y, y.flip(1)),
            torch.logaddexp(y, y), ends.amax(1), ends.amin(0), ends.max(), ends.cummax(1).values, ends.cumsum(1),
            ends.sum(1), ends.prod(1), ends.mean(0), F.gelu(y, approximate="tanh"), F.silu(y[:1]), y.erf(), y.exp(),
            y.expm1(), y.atan(), F.relu6(y), F.hardtanh(y), F.leaky_relu(y, 0.1), F.threshold(y, 0.0, -1.0), y.floor(),
        ]  # fmt: skip

    return trial.run(f, *trial.given((x, ends)))


@case(elementwise=True)
def gelu_of_infinities(trial: Trial) -> Any:
    """GELU of the largest numbers is that number, of the most negative ones nothing, of infinities nan or these."""
    x = torch.tensor([math.inf, 3e38, 1e20, 50.0, 14.5, -14.5, -50.0, -1e20, -3e38, -math.inf, math.nan] * 3)
    return trial.run(lambda x: F.gelu(x[:-11]), trial.given(x))


@case("training")
def rows_without_keys(trial: Trial) -> Any:
    """Attention to nothing is nothing; scores far apart; more queries than keys, causally; heads in groups."""
    q, k, v = trial.tensor(2, 6, 5, 8), trial.tensor(2, 2, 3, 8), trial.tensor(2, 2, 3, 4)
    mask = torch.tensor([[True, False, True], [False] * 3, [True] * 3, [False, False, True], [False] * 3])

    def f(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        attend, few = F.scaled_dot_product_attention, q[:, :2]
        keep = mask.to(q.device)
        return [
            attend(few, k, v, keep), attend(q, k, v, keep, enable_gqa=True), attend(few, k, v, is_causal=True),
            attend(few * 1e3, k * 40, v, keep | ~keep.any(1, True)), attend(few, k, v, bias * 2e4),
            attend(k, few, few, is_causal=True), attend(few, k, v, keep.expand(2, 1, 5, 3), scale=2.0),
            attend(few[0, 0], k[0, 0], v[0, 0]), attend(few, k, v, bias.expand(2, 2, 5, 3)),
        ]  # fmt: skip

    return with_gradients(trial, f, q, k, v, trial.tensor(5, 3))


@case(reference=False)
def beyond_integers(trial: Trial) -> Any:
    """What nan, infinities and numbers out of range become as integers of each width is what this processor makes of
    them."""
    x = torch.tensor([math.nan, math.inf, -math.inf, 3e9, -3e9, 1e19, -1e19, 2.0**31, -(2.0**31), 2.0**63, 1.5, -1.5])
    x = x.repeat(3)[:-1]  # vectors, and what is beside them
    narrow = torch.tensor([-1.2, -0.5, 255.0, 256.0, -257.0, 70000.0, -70000.0, 3e9, -3e9, 1e10, -1e19, math.inf])

    def f(x: torch.Tensor, narrow: torch.Tensor) -> list[torch.Tensor]:
        types = (torch.uint8, torch.int8, torch.int16)
        return [
            x.int(), x.long(), x.double().int(), x.double().long(), x.bool(), (x * 2).long(), x.to(torch.int32) + 0,
            *(each.to(dtype) for each in (narrow, narrow.double(), narrow.half()) for dtype in types),
        ]  # fmt: skip

    return trial.run(f, trial.given(x), trial.given(narrow.repeat(4)[:-1]))


@case(elementwise=True)
def numbers_that_are_nearly_zero(trial: Trial) -> Any:
    """Subnormal results of functions and conversions are kept, and functions of subnormal numbers see them."""
    low = torch.cat([torch.linspace(-103.5, -87.0, 40), torch.tensor([-88.0, -90.5, -100.25])])
    tiny = torch.tensor([1e-40, -3e-39, 1.4e-45, 5e-41, -1e-44, 1.1e-38]).repeat(3)
    small = torch.tensor([6e-8, -3e-7, 1e-5, 5.9e-5, 6.2e-5, -4e-6, 9.1e-6]).repeat(3)

    def f(low: torch.Tensor, tiny: torch.Tensor, small: torch.Tensor) -> list[torch.Tensor]:
        both = torch.cat([tiny, low / 200])
        return [
            low.exp(), (low * 1.4426).exp2(), low.sigmoid(), F.silu(low), F.softplus(low), F.elu(low) + 1, tiny.sqrt(),
            tiny.abs().log(), tiny.abs().rsqrt(), both.sin(), both.tanh(), both.expm1(), both.log1p(), tiny / 3,
            tiny.relu(), tiny.clamp(min=0), tiny * 0.5 + tiny, tiny == 0, tiny > 0, tiny.sign(), tiny.bool(),
            tiny.neg(),
            tiny.double(), tiny.half() == 0, small.half(), small.half().float(), small.half() * 2, tiny.bfloat16(),
            tiny.bfloat16().float(), small.to(torch.float16).to(torch.float64), torch.maximum(tiny, tiny.flip(0)),
            torch.where(tiny > 0, tiny, 0.0), F.leaky_relu(tiny, 0.5), tiny.reciprocal(), tiny.floor(), tiny.ceil(),
        ]  # fmt: skip

    return trial.run(f, *trial.given((low, tiny, small)))


@case("training", terms=16)
def words_and_bags(trial: Trial) -> Any:
    """Bags by each mode, with weights, padding, nothing in them, or an end that is given; gradients that are sparse."""
    words = torch.tensor([3, 1, 1, 0, 4, 1, 2, 5], device=trial.device)
    begins, ends = (torch.tensor(n, device=trial.device) for n in ([0, 3, 3, 5], [0, 2, 6, 8]))

    def f(table: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [
            *(F.embedding_bag(words, table, begins, mode=mode) for mode in ("sum", "mean", "max")),
            *(F.embedding_bag(words, table, begins, mode=mode, padding_idx=1) for mode in ("sum", "mean", "max")),
            F.embedding_bag(words, table, ends, mode="mean", include_last_offset=True),
            F.embedding_bag(words, table, begins, mode="sum", per_sample_weights=w),
            F.embedding_bag(words.view(2, 4), table, mode="sum", per_sample_weights=w.view(2, 4)),
            F.embedding_bag(words.view(4, 2), table, mode="max"), F.embedding(words, table, -2),
            F.embedding(words, table, scale_grad_by_freq=True), F.embedding(words, table, 1, scale_grad_by_freq=True),
        ]  # fmt: skip

    def sparse(table: torch.Tensor) -> torch.Tensor:
        return F.embedding(words, table, sparse=True) * 2

    def shortened(table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.embedding(words[:4], table, max_norm=0.75), table.sum()

    table = trial.tensor(6, 3, requires_grad=True)
    trial.run(sparse, table).sum().backward()
    found = with_gradients(trial, f, trial.tensor(6, 3), trial.tensor(8, low=0.5, high=1.5))
    return found, table.grad.is_sparse, table.grad.to_dense(), trial.run(shortened, trial.tensor(6, 3))


@case("training", terms=648)
def usual_batches(trial: Trial) -> Any:
    """Norms in both modes, losses and pooling for a batch as large as batches are, not only for a few examples."""

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        mean, spread = b.detach() * 0.1, w.detach()
        m, v = mean.clone(), spread.clone()
        return [
            F.batch_norm(x, mean, spread, w, b, False, 0.2, 1e-3), F.batch_norm(x, m, v, w, b, True, 0.2, 1e-3), m, v,
            F.instance_norm(x, mean, spread, w, b, False), F.instance_norm(x, None, None, w, b),
            F.group_norm(x, 4, w, b), F.layer_norm(x, x.shape[1:]), F.cross_entropy(x.mean((2, 3)), labels),
            F.max_pool2d(x, 3, 2, 1).amax((2, 3)), F.adaptive_avg_pool2d(x, 1).flatten(1), F.avg_pool2d(x, 7).mean(),
            F.linear(x.flatten(1)[:, :129], x.flatten(1)[:65, :129]).mean(0),
        ]  # fmt: skip

    labels = torch.arange(72, device=trial.device) % 8
    given = trial.tensor(72, 8, 9, 9), trial.tensor(8, low=0.5, high=1.5), trial.tensor(8)
    return with_gradients(trial, f, *given)


@case(draws=1)
def between_pixels(trial: Trial) -> Any:
    """Places half-way between pixels, at the borders, far outside, and at nan; places that reflect several times."""
    at = torch.tensor(
        [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, -3.0, 7.5, 1e4, -2.0, 0.999, math.nan]
    )
    grid = torch.stack(torch.meshgrid(at, at[::3], indexing="ij"), -1)[None]

    def f(x: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.grid_sample(x, grid, mode=mode, padding_mode=pad, align_corners=corners)
            for mode in ("bilinear", "nearest") for pad in ("zeros", "border", "reflection") for corners in (True,
            False)
        ]  # fmt: skip

    return trial.run(f, trial.tensor(1, 2, 4, 8), trial.given(grid))
