"""Options and modes: what is accepted, what is refused and with which words, and that nothing leaks."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import torch

import torchmux
from torchmux.registry import BackendSpec, InvalidOption, list_mode_options, list_options, register_backend, resolve
from torchmux.registry.options import describe_type


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Options:
    precision: Literal["f32", "bf16"] = field(default="f32", metadata={"help": "what to compute in"})
    threads: int | None = None
    fast: bool = False
    ratio: float = 0.5
    level: Level = Level.LOW
    names: list[str] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    pair: tuple[int, str] = (0, "")
    folder: Path = Path(".")
    dtype: torch.dtype = torch.float32

    def __post_init__(self):
        if self.threads == 0:
            raise ValueError("threads must not be 0")


def compiler(gm, example_inputs, **options):
    return gm.forward


SPEC = BackendSpec(
    "tuned", "for tests", compiler, options=Options, modes={"quick": {"fast": True, "names": ["a"]}}, training=True
)


def values(**options):
    return resolve(SPEC, options=options).options


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("precision", "bf16", "bf16"),
        ("threads", 3, 3),
        ("threads", None, None),
        ("fast", True, True),
        ("ratio", 1, 1.0),
        ("level", "high", Level.HIGH),
        ("level", Level.HIGH, Level.HIGH),
        ("names", ("a", "b"), ["a", "b"]),
        ("limits", {"a": 1}, {"a": 1}),
        ("shape", [1, 2, 3], (1, 2, 3)),
        ("pair", [1, "x"], (1, "x")),
        ("folder", "there", Path("there")),
        ("dtype", torch.float16, torch.float16),
    ],
)
def test_accepted(name, value, kept):
    result = getattr(values(**{name: value}), name)
    assert result == kept
    assert type(result) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("precision", "f64", "'f32' or 'bf16'"),
        ("precision", 1, "'f32' or 'bf16'"),
        ("threads", "3", "an int or None"),
        ("threads", True, "an int or None"),
        ("fast", 1, "a bool"),
        ("ratio", True, "a float"),
        ("ratio", "1", "a float"),
        ("level", "middle", "'low' or 'high'"),
        ("names", "ab", r"a list\[str\]"),
        ("names", ["a", 1], r"a list\[str\]"),
        ("limits", {"a": "b"}, r"a dict\[str, int\]"),
        ("shape", (1, "2"), r"a tuple\[int, \.\.\.\]"),
        ("pair", (1,), r"a tuple\[int, str\]"),
        ("folder", 3, "a Path"),
        ("dtype", "float16", "a dtype"),
    ],
)
def test_refused_values_name_option_type_and_value(name, value, takes):
    with pytest.raises(InvalidOption, match=f"option '{name}' of tuned takes {takes}, not .*{type(value).__name__}"):
        values(**{name: value})


def test_literals_tell_one_from_true():
    @dataclass
    class Choice:
        level: Literal[0, 1] = 0

    spec = BackendSpec("choice", "for tests", compiler, options=Choice)
    assert resolve(spec, options={"level": 1}).options.level == 1
    with pytest.raises(InvalidOption, match="takes 0 or 1, not True"):
        resolve(spec, options={"level": True})


def test_misspelt_name_gets_the_nearest_one():
    with pytest.raises(InvalidOption, match="tuned has no option 'precison'. Did you mean 'precision'"):
        values(precison=1)


def test_name_far_from_all_gets_the_list():
    with pytest.raises(InvalidOption) as caught:
        values(zzz=1)
    assert "Did you mean" not in str(caught.value)
    assert "'precision', 'threads', 'fast'" in str(caught.value)


def test_the_dataclass_has_the_last_word():
    with pytest.raises(InvalidOption, match="tuned does not take these options: threads must not be 0"):
        values(threads=0)


def test_options_may_be_an_instance_and_are_checked_then_too():
    assert resolve(SPEC, options=Options(threads=2)).options.threads == 2
    with pytest.raises(InvalidOption, match="option 'ratio'"):
        resolve(SPEC, options=Options(ratio="much"))


def test_options_must_be_a_mapping():
    with pytest.raises(InvalidOption, match=r"must be a dict .* not \['fast'\] \(list\)"):
        resolve(SPEC, options=["fast"])


def test_a_backend_without_options_takes_none():
    spec = dataclasses.replace(SPEC, options=None, modes={})
    assert resolve(spec, options={}).options is None
    with pytest.raises(InvalidOption, match="tuned takes no options, but was given 'fast'"):
        resolve(spec, options={"fast": True})


def test_mode_and_options_together_are_torchs_error():
    with pytest.raises(RuntimeError) as theirs:
        torch.compile(torch.nn.ReLU(), mode="default", options={"x": 1})
    with pytest.raises(InvalidOption) as ours:
        resolve(SPEC, mode="default", options={"fast": True})
    assert str(theirs.value).rstrip(".") in str(ours.value)


def test_modes():
    assert resolve(SPEC, mode="quick").options.fast is True
    assert resolve(SPEC, mode="default").options == resolve(SPEC).options == Options()
    with pytest.raises(
        InvalidOption, match="no mode 'quik'. Did you mean 'quick'. Its modes are 'default' and 'quick'"
    ):
        resolve(SPEC, mode="quik")
    with pytest.raises(InvalidOption, match="Its only mode is 'default'"):
        resolve(dataclasses.replace(SPEC, modes={}), mode="quick")


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("backend", ["schema", "none", "free", "torch"])
def test_a_mode_of_torch_without_a_use_is_noted(mode, backend, caplog):
    seen = []

    def free(gm, inputs, **given):
        seen.append(given)
        return gm.forward

    def torchs(gm, inputs, *, options=None):
        return free(gm, inputs)

    function = torchs if backend == "torch" else free
    spec = function if backend in ("free", "torch") else dataclasses.replace(SPEC, load=free, modes={}, graph="torch")
    if backend == "none":
        spec = dataclasses.replace(spec, options=None)
    with caplog.at_level("DEBUG", "torchmux.options"):
        resolved = resolve(spec, mode=mode)
    assert [record.getMessage() for record in caplog.records] == [
        f"mode={mode!r} changes nothing: {resolved.name} has no use for it"
    ]
    compiled = resolved.compile(torch.fx.symbolic_trace(torch.nn.ReLU()), [torch.ones(1)], training=False)
    assert compiled.report.notes == [record.getMessage() for record in caplog.records]
    assert "mode" not in seen[0]
    with pytest.raises(InvalidOption, match=r"no modes?\b"):
        resolve(spec, mode="max-autotun")
    if backend != "torch":
        with pytest.raises(InvalidOption, match="Did you mean 'max-autotune'"):
            resolve(spec, mode="max-autotun")


def test_the_options_of_a_mode_without_a_use(own_catalog):
    assert torchmux.list_mode_options("reduce-overhead", "eager") == {}
    with pytest.raises(InvalidOption, match="Did you mean 'reduce-overhead'"):
        torchmux.list_mode_options("reduce-overhed", "eager")


def test_what_the_caller_changes_later_does_not_reach_the_backend():
    mine = {"names": ["a"]}
    resolved = resolve(SPEC, options=mine)
    mine["names"].append("b")
    assert resolved.options.names == ["a"]


def test_what_a_backend_changes_does_not_reach_the_next_compile():
    seen = []

    def greedy(gm, example_inputs, *, names, **options):
        seen.append(list(names))
        names.append("leak")
        return gm.forward

    resolved = resolve(dataclasses.replace(SPEC, load=greedy), mode="quick")
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    for _ in range(2):
        resolved.compile(graph, [torch.ones(1)], training=False)
        resolved.request().options.names.append("leak")
    assert seen == [["a"], ["a"]]
    assert SPEC.modes["quick"]["names"] == ["a"]


def test_function_options_come_from_its_signature():
    def mine(gm, example_inputs, *, level=1):
        return gm.forward

    assert resolve(mine, options={"level": 2}).options == {"level": 2}
    with pytest.raises(InvalidOption, match="mine has no option 'lvel'. Did you mean 'level'"):
        resolve(mine, options={"lvel": 2})
    with pytest.raises(InvalidOption, match="Its only mode is 'default'"):
        resolve(mine, mode="fast")


def test_function_that_names_options_is_called_as_torch_does():
    calls = []

    def torch_style(gm, example_inputs, *, mode=None, options=None):
        calls.append((mode, options))
        return gm.forward

    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    for keywords in ({}, {"mode": "default"}, {"mode": "fast"}, {"options": {"a": 1}}):
        resolve(torch_style, **keywords).compile(graph, [torch.ones(1)], training=False)
    assert calls == [(None, None), (None, None), ("fast", None), (None, {"a": 1})]


def test_function_that_takes_options_but_no_mode():
    def no_mode(gm, example_inputs, options=None):
        return gm.forward

    with pytest.raises(InvalidOption, match="no keyword 'mode'"):
        resolve(no_mode, mode="fast")


def test_listing(own_catalog):
    register_backend(SPEC)
    listed = list_options("tuned")
    assert listed["precision"].help == "what to compute in"
    assert (listed["precision"].default, listed["precision"].type) == ("f32", "'f32' or 'bf16'")
    assert list(listed) == [f.name for f in dataclasses.fields(Options)]
    assert list_mode_options(backend="tuned") == {"default": {}, "quick": {"fast": True, "names": ["a"]}}
    assert list_mode_options("quick", "tuned") == {"fast": True, "names": ["a"]}
    with pytest.raises(InvalidOption, match="Did you mean 'quick'"):
        list_mode_options("quic", "tuned")
    list_mode_options("quick", "tuned")["names"].append("leak")
    assert list_mode_options("quick", "tuned")["names"] == ["a"]


@pytest.mark.parametrize(
    ("hint", "words"),
    [(int | None, "an int or None"), (Literal["a"], "'a'"), (list[int], "a list[int]"), (str, "a str")],
)
def test_types_in_words(hint, words):
    assert describe_type(hint) == words
