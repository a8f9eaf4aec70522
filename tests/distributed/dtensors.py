"""Programs on DTensors, compiled and in eager: results, their placements, gradients, and what the report says."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import torchmux

CAPTURED = {}  # name -> what makes a function and its inputs: one graph, without a break
LEFT = {}  # the same, and part of what the report says of what torch runs


def captured(make):
    CAPTURED[make.__name__] = make
    return make


def left(words):
    def mark(make):
        LEFT[make.__name__] = make, words
        return make

    return mark


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def numbers(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def leaf(*sizes, seed=0):
    return numbers(*sizes, seed=seed).requires_grad_()


def placed(placement, *sizes, seed=0, grad=True):
    return distribute_tensor(numbers(*sizes, seed=seed), mesh(), [placement]).detach().requires_grad_(grad)


def parallel(plan, *layers):
    torch.manual_seed(0)
    net = nn.Sequential(*layers)
    return parallelize_module(net, mesh(), plan)


@captured
def products():
    def run(x, w):
        return (x @ w).redistribute(placements=[Replicate()]).sin(), (w * 2).full_tensor()

    return run, lambda: [placed(Replicate(), 4, 6), placed(Shard(1), 6, 8, seed=1)]


@captured
def partial_sums():
    return lambda x, w: (x @ w).sum(), lambda: [placed(Shard(1), 4, 6), placed(Shard(0), 6, 8, seed=1)]


@captured
def to_local():
    def run(x):
        return (x.to_local(grad_placements=[Partial()]) * 2).sin(), x.to_local()

    return run, lambda: [placed(Replicate(), 4, 6)]


@captured
def from_local():
    where = mesh()

    def run(x, w):
        sharded = DTensor.from_local(x, where, [Shard(0)], run_check=False)
        partial = DTensor.from_local(x, where, [Partial()], run_check=False)
        return (sharded * w).to_local(), partial.redistribute(placements=[Shard(0)]).to_local().sin()

    return run, lambda: [leaf(4, 6, seed=dist.get_rank()), placed(Replicate(), 6, seed=1)]


@captured
def uneven():
    def run(x, w, v):
        return (x @ w).redistribute(placements=[Replicate()]).to_local().sin(), v.sin().full_tensor()

    return run, lambda: [placed(Replicate(), 5, 6), placed(Shard(1), 6, 7, seed=1), placed(Shard(0), 3, 2)]


@captured
def questions():
    def run(x):
        known = x.placements == (Shard(0),) and isinstance(x.placements[0], Shard) and x.device_mesh.ndim == 1
        return x.redistribute(placements=[Replicate()]) * x.device_mesh.size() if known else x * 5

    return run, lambda: [placed(Shard(0), 4, 6)]


@captured
def layers():
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallel(plan, nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4)), lambda: [leaf(5, 6)]


@captured
def sequences():
    plan = {"0": SequenceParallel(), "1": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
            "2": RowwiseParallel(output_layouts=Shard(1), use_local_output=False)}  # fmt: skip
    return parallel(plan, nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6)), lambda: [leaf(2, 4, 6)]


@captured
def prepared():
    ways = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),), "use_local_output": True}
    return parallel({"0": PrepareModuleInput(**ways)}, nn.Linear(6, 8)), lambda: [leaf(2, 4, 6)]


@captured
def embedding():
    plan = {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel()}
    return parallel(plan, nn.Embedding(10, 6), nn.Linear(6, 8)), lambda: [torch.tensor([[1, 9, 3], [7, 0, 5]])]


@captured
def frozen():
    net, make = layers()
    return net.requires_grad_(False), make


@captured
def inference():
    return layers()[0].requires_grad_(False), lambda: [numbers(5, 6)]


@captured
def checkpointed():
    def run(x, w):
        def inner(a):
            return (a @ w).redistribute(placements=[Replicate()]).sin()

        return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)

    return run, lambda: [placed(Replicate(), 4, 6), placed(Shard(1), 6, 8, seed=1)]


@captured
def in_place():
    def run(x):
        y = x * 2
        y.add_(1)
        return y.relu_()

    return run, lambda: [placed(Shard(0), 4, 6)]


@captured
def one_twice():
    def make():
        x = placed(Shard(0), 4, 6)
        return [x, x]

    return lambda x, y: x * y, make


@captured
def without_gradients_in_part():
    def run(x, w):
        with torch.no_grad():
            total = (x * 2).full_tensor().sum()
        return x * w * 3, total

    return run, lambda: [placed(Shard(0), 4, 6), placed(Shard(0), 4, 6, seed=2)]


@captured
def not_waited_for():
    """An argument whose communication may not have ended."""
    where = mesh()
    return lambda x, w: x * w, lambda: [functional.all_reduce(numbers(4, 6), "sum", where), leaf(4, 6)]


@captured
def two_dimensions():
    grid = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data", "model"))

    def place(*placements, seed):
        return distribute_tensor(numbers(6, 6, seed=seed), grid, placements).detach().requires_grad_()

    def run(x, w):
        return (x @ w).redistribute(placements=[Replicate(), Replicate()]).to_local()

    return run, lambda: [place(Shard(0), Replicate(), seed=0), place(Replicate(), Shard(1), seed=1)]


@left("writes to DTensor w")
def written():
    def run(x, w):
        w.mul_(2)
        return x + w

    return run, lambda: [placed(Shard(0), 4, 6), placed(Shard(0), 4, 6, seed=2, grad=False)]


@left("is a view of an input")
def view():
    return lambda x: (x.t(), x * 2, x), lambda: [placed(Shard(0), 4, 6)]


@left("distribute_tensor communicates")
def distributed_inside():
    where = mesh()
    return lambda x: distribute_tensor(x, where, [Shard(0)]) * 2, lambda: [numbers(4, 6)]


def plain(value):
    """What must be equal of a value."""
    if isinstance(value, DTensor):
        return [value.placements, value.shape, value.requires_grad, plain(value._local_tensor)]
    if isinstance(value, functional.AsyncCollectiveTensor):
        return plain(value.trigger_wait())
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return list(map(plain, value)) if isinstance(value, (tuple, list)) else value


def flat(value):
    return [each for item in value for each in flat(item)] if isinstance(value, (tuple, list)) else [value]


def weighted(result):
    whole = result.full_tensor() if isinstance(result, DTensor) else result
    return (whole * torch.arange(whole.numel()).reshape(whole.shape) * 0.1).sum()


def outcome(run, make, module, use=lambda results: results):
    inputs = make()
    results = flat(run(*inputs))
    weights = [weighted(r) for r in use(results) if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [v for v in dict.fromkeys((*inputs, *getattr(module, "parameters", list)())) if v.requires_grad]
    found = torch.autograd.grad(sum(weights), leaves, allow_unused=True) if weights else []
    return [plain(results), plain(inputs), plain(found)]


def assert_same(ours, eager):
    if isinstance(eager, torch.Tensor):
        torch.testing.assert_close(ours, eager, rtol=2e-5, atol=1e-6)
    elif isinstance(eager, list):
        assert len(ours) == len(eager)
        for one, other in zip(ours, eager, strict=True):
            assert_same(one, other)
    else:
        assert ours == eager


def told(report):
    breaks = [record.reason for record in report.breaks]
    return breaks + [placement.reason for entry in report.graphs for placement in entry.report.fallbacks]


def compare(name, backend, make, words=None):
    torchmux.reset()
    run, inputs = make()
    compiled = torchmux.compile(run, backend=backend)
    try:
        for _ in range(2):
            assert_same(outcome(compiled, inputs, run), outcome(run, inputs, run))
        report = torchmux.report(compiled)
        reasons = [why for why in told(report) if "_c10d_functional" not in why]
        if words is None:
            assert report.graph_count == 1 and not reasons, reasons
        elif backend != "eager" or report.breaks:
            assert any(words in why for why in reasons), reasons
    except Exception as error:
        raise AssertionError(f"{name} under {backend}: {error}") from error
    dist.barrier()


def check(backend):
    for name, make in CAPTURED.items():
        compare(name, backend, make)
    for name, (make, words) in LEFT.items():
        compare(name, backend, make, words)
    for each in (loss, one_of_two, changed_placement, other_sizes, derived_twice, order):
        torchmux.reset()
        each(backend)
        dist.barrier()


def loss(backend):
    """``loss_parallel`` around the whole step."""
    net = parallel({"0": ColwiseParallel(use_local_output=False)}, nn.Linear(6, 8))

    def run(x, y):
        return nn.functional.cross_entropy(net(x), y)

    def make():
        return [leaf(5, 6), torch.tensor([1, 7, 3, 0, 5])]

    compiled = torchmux.compile(run, backend=backend)
    with loss_parallel():
        for _ in range(2):
            assert_same(outcome(compiled, make, net), outcome(run, make, net))
    assert not torchmux.report(compiled).breaks


def one_of_two(backend):
    """Only one of two results gets a gradient: autograd's zeros for the other one are no DTensor."""

    def make():
        return [placed(Shard(0), 4, 6), placed(Shard(0), 4, 6, seed=2)]

    def run(x, w):
        return x * 2, w.sin()

    compiled = torchmux.compile(run, backend=backend)
    if backend == "inductor":  # says that it cannot
        try:
            outcome(compiled, make, run, lambda results: results[:1])
        except torchmux.DerivativeUnavailable as error:
            assert "consists of others" in str(error)
            return
        raise AssertionError("a gradient that inductor cannot compute")
    for use in (lambda results: results, lambda results: results[:1], lambda results: results[1:]):
        ours, eager = outcome(compiled, make, run, use), outcome(run, make, run, use)
        assert_same(ours, eager)
    if backend in ("aot_eager", "native"):
        (entry,) = torchmux.report(compiled).graphs
        assert [calls.count for calls in entry.report.calls_in_torch if "another class" in calls.why] == [2]


def changed_placement(backend):
    """Another placement, mesh or size is another graph."""

    def run(x):
        return x.redistribute(placements=[Replicate()]).to_local() * (2 if x.placements[0] == Shard(0) else 3)

    compiled = torchmux.compile(run, backend=backend)
    for placement, sizes in ((Shard(0), (4, 6)), (Shard(1), (4, 6)), (Replicate(), (4, 6)), (Shard(0), (6, 6))) * 2:
        assert_same(*(outcome(each, lambda: [placed(placement, *sizes)], run) for each in (compiled, run)))  # noqa: B023
    assert torchmux.report(compiled).graph_count == 4


def other_sizes(backend):
    """Batches of other sizes, in no more than two graphs."""
    net, _ = layers()
    compiled = torchmux.compile(net, backend=backend)
    for rows in (3, 4, 5, 7):
        assert_same(*(outcome(each, lambda: [leaf(rows, 6)], net) for each in (compiled, net)))  # noqa: B023
    assert torchmux.report(compiled).graph_count <= 2


def derived_twice(backend):
    if backend == "inductor":  # says that it cannot
        return
    run = torchmux.compile(lambda x: (x * x * x).redistribute(placements=[Replicate()]).to_local(), backend=backend)
    x = placed(Shard(0), 4, 6)
    (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.full_tensor().sum(), x)
    torch.testing.assert_close(second.full_tensor(), 6 * numbers(4, 6))


def order(backend):
    """Where torch runs the collectives: one for several gradients of one input, without a copy."""
    if backend != "native":
        return
    torch.manual_seed(0)
    net = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
    for each in net:
        parallelize_module(each, mesh(), ColwiseParallel())
    compiled = torchmux.compile(lambda x: sum(each(x) for each in net), backend="native")
    x = leaf(8, 64)
    compiled(x).sum().backward()
    total = compiled(x).sum()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        total.backward()
    events = sorted(profile.events(), key=lambda event: event.time_range.start)
    names = [event.name for event in events if event.name.startswith("_c10d_functional::")]
    assert names == ["_c10d_functional::all_reduce_", "_c10d_functional::wait_tensor"], names
