"""What a run is held to: backends, chains, and options from the command line."""

from __future__ import annotations

import pytest

import torchmux
from torchmux.cli.claims import options_of
from torchmux.cli.main import main
from torchmux.conformance.case import Case
from torchmux.conformance.judging import judge
from torchmux.conformance.outcome import Outcome, Result
from torchmux.conformance.requirements import Expected, Requirements, requirements_from
from torchmux.registry.resolve import known_spec, usable_spec

KNOWN = Case("semantics/numbers/nan_in_pooling", lambda trial: None)


def test_a_chain_has_the_known_failures_of_its_members_and_need_not_show_them():
    alone, chain = requirements_from("", "onnxrt"), requirements_from("", "onnxrt+native")
    assert alone.expectation(KNOWN) is not None
    expected = chain.expectation(KNOWN)
    assert expected is not None
    assert expected.sometimes
    assert chain.name == chain.spec.name == "onnxrt+native"
    assert not chain.own_kernels
    assert requirements_from("", "onnxrt+openvino").own_kernels
    passed = Result(KNOWN.id, Outcome.PASS)
    assert judge.as_expected(passed, expected).outcome is Outcome.PASS
    assert judge.as_expected(passed, alone.expectation(KNOWN)).outcome is Outcome.XPASS
    assert judge.as_expected(Result(KNOWN.id, Outcome.MISMATCH), expected).outcome is Outcome.XFAIL


def test_only_the_expected_differences_are_expected():
    requirements = Requirements("eager")
    requirements.expected = [Expected(KNOWN.id, "why", only=r"\[2\]: |call", device="cpu")]
    for differences, outcome in (
        (["[2]: off", "call[0]"], Outcome.XFAIL),
        (["[2]: off", "[1]: off"], Outcome.MISMATCH),
        (["it changes: [2]: "], Outcome.MISMATCH),
    ):
        result = Result(KNOWN.id, Outcome.MISMATCH, differences[0], details={"differences": differences})
        assert judge.as_expected(result, requirements.expectation(KNOWN)).outcome is outcome
    died = Result(KNOWN.id, Outcome.CRASH, "its process was killed")
    assert judge.as_expected(died, requirements.expectation(KNOWN)).outcome is Outcome.CRASH
    requirements.device = "cuda:1"
    assert requirements.expectation(KNOWN) is None
    requirements.expected = [Expected(KNOWN.id, "why", device="cuda")]
    assert requirements.expectation(KNOWN) is not None


def test_a_class_may_name_the_members():
    class Mine(Requirements):
        backend = ("eager", "aot_eager")
        expected = (Expected("a/*", "so it is"),)

    assert Mine().name == "eager+aot_eager"


def test_options_are_added_to_those_of_the_requirements():
    assert requirements_from("", "inductor", {"a": 1}).options == {"fallback_random": True, "a": 1}
    chain = requirements_from("", "inductor+native", {"native": {"fusion": False}, "inductor": {"a": 1}})
    assert chain.options == {"inductor": {"fallback_random": True, "a": 1}, "native": {"fusion": False}}


def test_options_in_words():
    assert options_of(["freeze=True", "what=x y", "n=3"], "onnxrt") == {"freeze": True, "what": "x y", "n": 3}
    assert options_of(["Native.fusion=False"], "onnxrt+native") == {"native": {"fusion": False}}
    for words, backend in (("freeze", "onnxrt"), ("fusion=1", "onnxrt+native"), ("tvm.x=1", "onnxrt+native")):
        with pytest.raises(ValueError, match="--option takes"):
            options_of([words], backend)


def test_one_name_for_a_chain_everywhere():
    compiled = torchmux.compile(lambda x: x.sin(), backend="eager+aot_eager")
    assert compiled is not None
    assert usable_spec(["eager", "aot_eager"]).name == known_spec("Eager + aot-eager").name == "eager+aot_eager"
    with pytest.raises(torchmux.UnknownBackend):
        known_spec("eager+no_such_backend")
    with pytest.raises(torchmux.InvalidSpec, match="twice"):
        known_spec("eager+eager")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["aot_eager+eager", "--list", "--case", "semantics/aliasing/*"], 0, "view_of_an_input"),
        (["eager+no_such_backend"], 1, "no_such_backend"),
        (["native", "--option", "fusion"], 2, "NAME=VALUE"),
        (["native", "--option", "no_such_option=1"], 1, "no_such_option"),
    ],
)
def test_the_command(words, status, said, capsys):
    assert main(["conformance", *words]) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
