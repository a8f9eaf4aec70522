"""From a ``backend=`` to compiled graphs: keys, errors, refusals and reports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
import torch

from torchmux.registry import (
    Availability,
    BackendSpec,
    BackendUnavailable,
    CompilationFailed,
    FallbackRefused,
    GraphRefused,
    GraphReport,
    InvalidOption,
    InvalidSpec,
    lookup_backend,
    register_backend,
    resolve,
)


def compiler(gm, example_inputs, **options):
    return gm.forward


def other(gm, example_inputs, **options):
    return gm.forward


@dataclass
class Options:
    fast: bool = False
    sizes: tuple[int, ...] = ()


SPEC = BackendSpec("sample", "for tests", compiler, training=True, options=Options, modes={"quick": {"fast": True}})


def graph():
    class Sample(torch.nn.Module):
        def forward(self, x):
            return (torch.relu(x).view(-1) * 2,)

    return torch.fx.symbolic_trace(Sample())


def compile_(backend, *inputs, training=False, **keywords):
    return resolve(backend, **keywords).compile(graph(), list(inputs or [torch.ones(2)]), training=training)


# Keys


def test_equal_calls_have_equal_keys():
    def key(**keywords):
        return resolve(dataclasses.replace(SPEC), **keywords).key

    assert key() == key()
    assert hash(key()) == hash(key())
    assert key(options={"sizes": [1, 2]}) == key(options={"sizes": (1, 2)})
    different = [key(), key(options={"fast": True}), key(mode="quick"), key(strict=True), key(options={"sizes": [1]})]
    assert len(set(different)) == len(different)


def test_functions_are_their_identity():
    assert resolve(compiler).key == resolve(compiler).key
    assert resolve(compiler).key != resolve(other).key
    assert resolve(compiler, options={"a": [1]}).key == resolve(compiler, options={"a": [1]}).key
    assert resolve(compiler, options={"a": 1}).key != resolve(compiler, options={"a": True}).key


def test_a_bound_method_is_the_same_at_every_access():
    class Holder:
        def compile_it(self, gm, example_inputs):
            return gm.forward

    first, second = Holder(), Holder()
    assert resolve(first.compile_it).key == resolve(first.compile_it).key
    assert resolve(first.compile_it).key != resolve(second.compile_it).key


def test_objects_that_compare_equal_are_still_two_backends():
    class Equal:
        def __call__(self, gm, example_inputs):
            return gm.forward

        def __eq__(self, other):
            return True

        __hash__ = None

    one, two = Equal(), Equal()
    assert resolve(one).key == resolve(one).key != resolve(two).key


# Compiling with plain functions


def test_report_places_every_operation():
    compiled = compile_(SPEC)
    assert compiled(torch.tensor([-1.0, 1.0]))[0].tolist() == [0.0, 2.0]
    assert [(p.op, p.placed_on) for p in compiled.report.placements] == [
        ("torch.relu", "sample"),
        ("Tensor.view", "sample"),
        ("operator.mul", "sample"),
    ]
    assert (compiled.report.share, compiled.report.phase, compiled.report.fallbacks) == (1.0, "inference", [])
    assert compile_(SPEC, training=True).report.phase == "training"


def test_report_points_at_the_users_line():
    gm = graph()
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = '  File "lib.py", line 3, in outer\n  File "user.py", line 7, in f\n    y()\n'
    placements = resolve(SPEC).compile(gm, [torch.ones(1)], training=False).report.placements
    assert {p.where for p in placements} == {"user.py:7"}


def test_a_backends_own_report_is_kept():
    class Own:
        report = GraphReport("sample", notes=["mine"])

        def __call__(self, *inputs):
            return inputs

    assert compile_(dataclasses.replace(SPEC, load=lambda gm, inputs, **o: Own())).report.notes == ["mine"]


@pytest.mark.parametrize(
    ("changes", "inputs", "training", "reason"),
    [
        ({"training": False}, [torch.ones(2)], True, "sample does not support training"),
        ({}, [torch.ones(2, dtype=torch.float64)], False, "sample does not compute in float64"),
        ({}, [torch.ones(2, device="meta")], False, "sample does not run on meta"),
    ],
)
def test_what_the_description_excludes_runs_in_eager_and_says_so(changes, inputs, training, reason):
    spec = dataclasses.replace(SPEC, load=lambda *a, **k: pytest.fail("was asked"), **changes)
    report = compile_(spec, *inputs, training=training).report
    assert {(p.placed_on, p.reason) for p in report.placements} == {("eager", reason)}
    assert report.share == 0.0
    with pytest.raises(FallbackRefused, match=reason):
        compile_(spec, *inputs, training=training, strict=True)


def test_a_graph_that_the_function_refuses_runs_in_eager_and_says_so(caplog):
    def picky(gm, inputs, **options):
        raise GraphRefused("no views")

    spec = dataclasses.replace(SPEC, load=lambda *a, **k: picky(*a, **k))
    compiled = compile_(spec)
    assert {(p.placed_on, p.reason) for p in compiled.report.placements} == {("eager", "no views")}
    assert torch.equal(compiled(torch.ones(2))[0], torch.full((2,), 2.0))
    assert [r.getMessage() for r in caplog.records if r.name == "torchmux.fallback"] == [
        "sample: torch runs a whole graph of 3 operators: no views"
    ]
    with pytest.raises(FallbackRefused, match="no views"):
        compile_(spec, strict=True)


def test_symbolic_sizes_are_refused_where_not_taken():
    sizes = []

    def probe(gm, inputs, **options):
        sizes.extend(value for value in inputs if isinstance(value, torch.SymInt))
        return gm.forward

    register = dataclasses.replace(SPEC, load=probe, dynamic_shapes=False)

    def through_torch(gm, inputs):
        return resolve(register).compile(gm, inputs, training=False)

    reports = []
    function = torch.compile(
        lambda x: x + x.shape[0], backend=lambda g, i: reports.append(through_torch(g, i)) or g, dynamic=True
    )
    function(torch.ones(5))
    assert not sizes
    assert {p.reason for p in reports[0].report.placements} == {"sample does not support symbolic sizes"}


def test_index_inputs_do_not_count_as_a_dtype():
    assert compile_(SPEC, torch.ones(2, dtype=torch.int64)).report.share == 1.0


def test_a_backend_that_raises_is_named_and_its_error_chained():
    def broken(gm, example_inputs):
        raise ZeroDivisionError("inside")

    with pytest.raises(CompilationFailed, match="broken raised ZeroDivisionError .* 3 operations: inside") as caught:
        compile_(broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, FallbackRefused])
def test_errors_that_are_not_failures_pass_through(raised):
    def stops(gm, example_inputs):
        raise raised("stop")

    with pytest.raises(raised, match="^stop"):
        compile_(stops)


def test_a_backend_must_return_something_to_call():
    with pytest.raises(CompilationFailed, match=r"returned None \(NoneType\) for a graph"):
        compile_(lambda gm, example_inputs: None)


# What cannot be resolved


def test_requirements_are_named_with_the_install_command():
    spec = dataclasses.replace(SPEC, requires=("no-such-package>=1.20",), install="python -m pip install it")
    with pytest.raises(BackendUnavailable) as caught:
        resolve(spec)
    assert str(caught.value) == (
        "sample needs no-such-package>=1.20, which is not installed. Install it with: python -m pip install it"
    )


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        (("no-such>=1", "nor-this"), "sample needs no-such>=1 and nor-this, which are not installed"),
        (("torch>=99",), rf"sample needs torch>=99, but torch {torch.__version__.split('+')[0]}\S* is installed"),
        (("no-such>=1", "torch>=99"), r"no-such>=1, which is not installed; and torch>=99, but torch .* is installed"),
        (("no-such>=1 | torch>=99",), r"sample needs no-such>=1, but torch \S+ is installed"),
    ],
)
def test_reasons(requires, reason):
    with pytest.raises(BackendUnavailable, match=reason):
        resolve(dataclasses.replace(SPEC, requires=requires))


@pytest.mark.parametrize(
    "requires", [("torch>=2",), ("no-such>=1 | torch>=2",), ("no-such; sys_platform == 'win32'",), ("torch",)]
)
def test_met_requirements(requires):
    assert resolve(dataclasses.replace(SPEC, requires=requires)).name == "sample"


def refusing():
    return Availability(False, "there is no GPU")


def raising():
    raise OSError("no driver")


def test_probe():
    with pytest.raises(BackendUnavailable, match=r"^sample cannot run here: there is no GPU\."):
        resolve(dataclasses.replace(SPEC, probe=refusing))
    with pytest.raises(BackendUnavailable, match="its probe raised OSError: no driver"):
        resolve(dataclasses.replace(SPEC, probe=raising))
    with pytest.raises(BackendUnavailable, match="its probe returned True, which is not an Availability"):
        resolve(dataclasses.replace(SPEC, probe=lambda: True))


def test_hardware_that_is_missing_is_told_before_the_installation():
    with pytest.raises(BackendUnavailable, match="no-such, which is not installed; also, there is no GPU"):
        resolve(dataclasses.replace(SPEC, requires=("no-such",), probe=refusing))
    with pytest.raises(BackendUnavailable, match=r"^sample needs no-such, which is not installed\."):
        resolve(dataclasses.replace(SPEC, requires=("no-such",), probe=raising))


def test_probe_is_asked_once(own_catalog):
    asked = []
    spec = dataclasses.replace(SPEC, probe=lambda: asked.append(1) or Availability(True))
    for _ in range(3):
        resolve(spec)
    assert len(asked) == 1
    own_catalog.refresh()
    resolve(spec)
    assert len(asked) == 2


@pytest.mark.parametrize("backend", [3, {"eager"}, dict, object()])
def test_what_is_no_backend(backend):
    with pytest.raises(InvalidSpec, match="backend must be a name, a BackendSpec, a function"):
        resolve(backend)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "a b"}, "its name may contain"),
        ({"load": 3}, "load must be"),
        ({"load": "no_colon"}, "must have the form 'module:attribute'"),
        ({"graph": "fx"}, "graph must be"),
        ({"requires": "numpy"}, "requires must be a tuple of strings"),
        ({"requires": ("not a requirement!",)}, "not a PEP 508 requirement"),
        ({"devices": "cpu"}, "devices must be"),
        ({"options": dict}, "options must be a dataclass"),
        ({"options": Options()}, "options must be a dataclass"),
        ({"modes": {"quick": {"fats": True}}}, "Did you mean 'fast'"),
        ({"modes": ["quick"]}, "modes must map"),
        ({"probe": True}, "probe and fingerprint must be functions"),
        ({"api": 99}, "version 99 of the contract, but this torchmux supports version 1"),
    ],
)
def test_malformed_descriptions(changes, problem):
    with pytest.raises(InvalidSpec, match=problem):
        resolve(dataclasses.replace(SPEC, **changes))


def test_load_errors():
    with pytest.raises(BackendUnavailable, match=r"importing no_such_module raised ModuleNotFoundError.*pip install x"):
        compile_(dataclasses.replace(SPEC, load="no_such_module:f", install="pip install x"))
    with pytest.raises(InvalidSpec, match="json has no 'nothing'"):
        compile_(dataclasses.replace(SPEC, load="json:nothing"))
    with pytest.raises(InvalidSpec, match="neither a function"):
        compile_(dataclasses.replace(SPEC, load="string:digits"))


def test_none_is_the_best_that_can_run(own_catalog):
    register_backend(dataclasses.replace(SPEC, name="best", priority=10_000))
    register_backend(dataclasses.replace(SPEC, name="better", priority=20_000, requires=("no-such",)))
    assert resolve(None).name == "best"


def test_request_carries_what_was_asked():
    request = resolve(SPEC, mode="quick", dynamic=True, strict=True).request(static_inputs=(1,))
    assert (request.backend, request.mode, request.dynamic, request.strict) == ("sample", "quick", True, True)
    assert (request.options, request.static_inputs, request.phase) == (Options(fast=True), (1,), "inference")


def test_lookup_gives_a_compiler_function(own_catalog):
    seen = []

    @register_backend(name="looked", options=Options)
    def looked(gm, example_inputs, **options):
        seen.append(options)
        return gm.forward

    function = lookup_backend("looked")
    wants_gradient = torch.ones(2, requires_grad=True)
    assert function(graph(), [torch.ones(2)]).report.phase == "inference"
    assert function(graph(), [wants_gradient], options={"fast": True}).report.phase == "training"
    with torch.no_grad():
        assert function(graph(), [wants_gradient]).report.phase == "inference"
    assert [o["fast"] for o in seen] == [False, True, False]
    with pytest.raises(InvalidOption):
        function(graph(), [torch.ones(2)], options={"fats": True})
