"""Inductor gets from our frontend what it gets from torch's own, so that it generates the same code."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.mutation_guard import GenerationTracker

import torchmux


class Net(torch.nn.Module):
    """Parameters, a buffer that training writes to, and one that nothing registers as either."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu())


class Seen(Exception):
    """Ends a compilation: what Inductor is asked for is known."""


@pytest.fixture
def asked(monkeypatch) -> Iterator[list[dict]]:
    """What each compilation of an ATen graph is told besides the graph; none is finished."""
    from torch._inductor import compile_fx, config

    found: list[dict] = []

    def note(gm, example_inputs, **told):
        found.append({"inputs": len(example_inputs), **told})
        raise Seen

    monkeypatch.setattr(compile_fx, "_compile_fx_inner", note)
    with config.patch(force_disable_caches=True):
        yield found


def _ask(f, *args, **options) -> None:
    with pytest.raises(torchmux.CompilationFailed, match="Seen"):
        torchmux.compile(f, backend="inductor", **options)(*args)


def test_parameters_and_buffers_stay_where_they_are(asked) -> None:
    _ask(Net(), torch.randn(3, 8))
    (told,) = asked
    assert told["inputs"] == 1 + 2 + 5 + 2
    others = set(range(told["inputs"])) - set(told["static_input_idxs"])
    assert len(others) == 1  # x


def test_what_the_program_marks_stays_where_it_is(asked) -> None:
    x, cache = torch.randn(4), torch.randn(4)
    torch._dynamo.mark_static_address(cache)
    _ask(lambda x, cache: x + cache, x, cache)
    assert [(told["inputs"], list(told["static_input_idxs"])) for told in asked] == [(2, [1])]


def test_symbolic_inputs_that_share_memory_are_not_left_to_another_frontend(asked) -> None:
    memory = torch.randn(32)
    _ask(lambda x, y: x.add_(1) + y, memory[:8], memory[8:16], dynamic=True)
    assert [list(told["static_input_idxs"]) for told in asked] == [[]]


def test_opposites_by_a_flag_are_left_to_torch() -> None:
    """Inductor reads what is in their memory."""
    x = torch._neg_view(torch.arange(4.0))
    compiled = torchmux.compile(lambda x: x * 2 + 1, backend="inductor")
    assert compiled(x).tolist() == [1.0, -1.0, -3.0, -5.0]
    assert "negative by a flag" in torchmux.report(compiled).fallbacks[0].reason


def test_freezing_leaves_no_parameters_among_the_inputs(asked) -> None:
    with torch.no_grad():
        _ask(Net().eval(), torch.randn(3, 8), options={"freezing": True})
    assert [told["inputs"] for told in asked] == [1]


def test_code_for_floats_of_calls_is_not_cached(monkeypatch) -> None:
    from torch._inductor import compile_fx

    given = []
    monkeypatch.setattr(
        compile_fx, "compile_fx", lambda gm, inputs, config_patches: given.append(config_patches) or gm.forward
    )
    compiled = torchmux.compile(lambda x, by: torch.full_like(x, by), backend="inductor", options={"freezing": False})
    for number in (2, 0.5, 0.75, 3):
        torch.testing.assert_close(compiled(torch.ones(2), number), torch.full((2,), float(number)))
    kept = [patches.get("fx_graph_cache", True) for patches in given]
    assert kept == [True, False, True]  # the second code is also for 0.75, and the third for integers


def test_a_call_begins_a_step_of_cuda_graphs(monkeypatch) -> None:
    """However many graphs it runs, and whatever compiled code it calls; without CUDA graphs it does not."""
    from torchmux import torch_internals
    from torchmux.torch_internals import torch_compile

    class Peer:
        def compile_fx(self, gm, inputs, config_patches=None):
            return gm

    monkeypatch.setattr(torch_internals, "inductor_compile_fx", Peer)
    assert torch_internals.begin_cudagraph_step is torch_compile.begin_cudagraph_step

    def broken(x):
        x = x + 1
        print(end="")
        return inner(x) * 2

    inner = torchmux.compile(torch.sin, backend="inductor", mode="reduce-overhead")
    outer = torchmux.compile(broken, backend="inductor", mode="reduce-overhead")
    plain = torchmux.compile(lambda x: x + 1, backend="inductor")
    for f, steps in ((outer, 1), (outer, 1), (inner, 1), (plain, 0)):
        before = GenerationTracker.generation
        f(torch.zeros(2))
        assert GenerationTracker.generation - before == steps


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_the_kernels_are_what_torchs_frontend_gets(training: bool) -> None:
    from torch._inductor.graph import GraphLowering

    def kernels(frontend) -> list[tuple[str, list[str]]]:
        """The generated kernels, and the names of torch's that are called; inputs may come in another order."""
        torch._dynamo.reset()
        torch.manual_seed(0)
        net, found = Net().train(training), []
        with pytest.MonkeyPatch.context() as patch, torch._inductor.config.patch(force_disable_caches=True):
            patch.setattr(GraphLowering, "save_output_code", staticmethod(found.append))
            out = frontend.compile(net, backend="inductor")(torch.randn(3, 8))
            if training:
                out.sum().backward()
        texts = [re.sub(r"#.*", "", text) for text in found]
        return [(t.partition("async_compile.wait")[0], re.findall(r"extern_kernels\.\w+", t)) for t in texts]

    ours, theirs = kernels(torchmux), kernels(torch)
    assert len(ours) == 1 + training  # backward is compiled when it is first run
    assert ours == theirs


@pytest.mark.slow
def test_frozen_parameters_may_change() -> None:
    net, x = Net().eval(), torch.randn(3, 8)
    compiled = torchmux.compile(net, backend="inductor", options={"freezing": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), net(x))
        net.last.weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x))
        net.train()  # writes to a buffer in each call
        twin = Net()
        twin.load_state_dict(net.state_dict())
        for _ in range(2):
            torch.testing.assert_close(compiled(x), twin(x))
        torch.testing.assert_close(net.norm.running_mean, twin.norm.running_mean)
