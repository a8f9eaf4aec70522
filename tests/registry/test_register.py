"""Backends of this process: registering, unregistering, and the names that are taken."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import torchmux
from torchmux.registry import (
    BackendConflict,
    BackendSpec,
    InvalidSpec,
    Tombstone,
    UnknownBackend,
    list_backends,
    register_backend,
    resolve,
    unregister_backend,
)

pytestmark = pytest.mark.usefixtures("own_catalog")


def compiler(gm, example_inputs, **options):
    """Runs it as it is."""
    return gm.forward


def test_forms():
    @dataclass
    class Options:
        fast: bool = False

    assert register_backend(compiler) is compiler
    assert register_backend(compiler, name="second-name") is compiler
    assert register_backend(name="third", options=Options, priority=3)(compiler) is compiler
    spec = BackendSpec("fourth", "", compiler)
    assert register_backend(spec) is spec
    assert {"compiler", "second_name", "third", "fourth"} <= set(list_backends())
    assert resolve("third", options={"fast": True}).options == Options(True)
    assert resolve("Second-Name").spec.summary == "Runs it as it is."
    assert resolve("fourth").spec is spec


def test_decorators():
    @torchmux.register_backend
    def bare(gm, example_inputs):
        return gm.forward

    @torchmux.register_backend(name="made", summary="made up")
    class Full:
        made = 0

        def __init__(self):
            type(self).made += 1

        def supports(self, node):
            return True

        def compile(self, gm, example_inputs, request):
            return gm.forward

    assert resolve("bare").spec.load is bare
    assert (resolve("made").spec.graph, resolve("made").spec.summary) == ("aten", "made up")
    assert Full.made == 0
    from torchmux.registry.loading import load_implementation

    implementation = load_implementation(resolve("made").spec)
    assert load_implementation(resolve("made").spec) is implementation
    assert isinstance(implementation, Full)
    assert Full.made == 1


@pytest.mark.parametrize(
    ("arguments", "fields", "problem"),
    [
        ((3,), {}, r"3 \(int\) cannot be registered"),
        ((dict,), {}, "cannot be registered"),
        ((compiler,), {"summry": ""}, "no field 'summry'. Did you mean 'summary'"),
        ((compiler,), {"name": "a/b"}, "its name may contain"),
        ((BackendSpec("x", "", compiler),), {"name": "y"}, "is complete"),
        ((BackendSpec("x", "", compiler, api=2),), {}, "version 2 of the contract"),
    ],
)
def test_refused(arguments, fields, problem):
    with pytest.raises(InvalidSpec, match=problem):
        register_backend(*arguments, **fields)


LONG = "x" * 1_000_000
NO_WORDS = ("", " ", "two words", "a/b", "../a", "a\nb", "a\0b", "\u00fc", "\udc80", "-", "*", LONG)
WRONG_FIELDS = {
    "name": (*NO_WORDS, None, 1, str, b"name"),
    "dtypes": ("float32", (), *((word,) for word in NO_WORDS if word != "*"), (torch.float32,), (str,), (None,),
               ("torch.float32",), ("float31",), ("FLOAT32",), ("float32", "float32"), ("*", "float32"), None, 3,
               tuple(f"float{i}" for i in range(100_000))),
    "devices": ("cpu", (), *((word,) for word in NO_WORDS if word != "*"), (torch.device("cpu"),), (str,),
                ("cpu:0",), ("CPU",), ("cpu", "cpu"), ("*", "cpu"), None),
    "requires": ("torch", (1,), ("",), ("no requirement !",), ("torch", "torch"), None),
    "summary": (None, 1, str, "two\nlines", "\udc80", LONG),
    "install": (None, 1, str, "two\nlines", LONG),
    "library": (None, 1, str, "two\nlines", LONG),
    "unverified": (None, 1, str, "two\nlines", LONG),
    "modes": (None, [], {1: {}}, {"a": 1}, {"a": {"none": 1}}, *({word: {}} for word in NO_WORDS)),
    "load": (None, "", "module", "a:b:c", "a:", ":b", 1, str, LONG),
    "graph": (None, "", "Aten", str, LONG),
    "training": (None, 1, "yes"),
    "options": (1, str, dict, "options"),
    "priority": (None, 1.5, True, "1"),
    "probe": (None, "yes"),
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG_FIELDS)
def test_every_field_is_checked(field, own_catalog):
    for value in WRONG_FIELDS[field]:
        with pytest.raises(InvalidSpec) as refused:
            register_backend(BackendSpec(**{"name": "x", "summary": "", "load": compiler, field: value}))
        assert len(str(refused.value)) < 1000
        assert "\n" not in str(refused.value)


def test_a_taken_name():
    register_backend(compiler, name="mine")
    with pytest.raises(BackendConflict, match=r"'mine' is taken by register_backend\(\) in this process"):
        register_backend(compiler, name="mine")
    with pytest.raises(BackendConflict, match=r"'eager' is taken by torchmux 0"):
        register_backend(compiler, name="eager")


def test_unregister():
    register_backend(compiler, name="mine")
    unregister_backend("Mine")
    with pytest.raises(UnknownBackend):
        resolve("mine")
    with pytest.raises(UnknownBackend):
        unregister_backend("mine")
    register_backend(compiler, name="mine")
    assert resolve("mine").spec.load is compiler


def test_unregister_what_is_installed(own_catalog):
    assert "eager" in list_backends()
    with pytest.raises(UnknownBackend, match="'nobody' registers no backend 'eager'; it comes from 'torchmux'"):
        unregister_backend("eager", distribution="nobody")
    unregister_backend("eager")
    assert "eager" not in [row.name for row in torchmux.backends()]
    own_catalog.refresh()
    assert "eager" not in list_backends()
    register_backend(compiler, name="eager")
    assert resolve("eager").spec.load is compiler


def test_compiled_code_outlives_its_name():
    register_backend(compiler, name="mine")
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    compiled = resolve("mine").compile(graph, [torch.ones(1)], training=False)
    unregister_backend("mine")
    assert compiled(torch.ones(1))[0].item() == 2


def test_a_retired_name():
    register_backend(Tombstone("old", "nobody wants it", "the newer one"))
    with pytest.raises(
        torchmux.BackendUnavailable, match="'old' is retired: nobody wants it. Use the newer one instead"
    ):
        resolve("old")
    register_backend(compiler, name="old")
    assert resolve("old").spec.load is compiler


def test_unknown_names_get_the_nearest():
    register_backend(compiler, name="turbine")
    with pytest.raises(UnknownBackend, match="There is no backend 'turbin'. Did you mean 'turbine'"):
        resolve("turbin")
    with pytest.raises(UnknownBackend) as caught:
        resolve("qqq")
    assert "Did you mean" not in str(caught.value)
    assert "'turbine'" in str(caught.value)
