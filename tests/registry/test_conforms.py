"""What is loaded and has not the shape of the contract is an error of one paragraph, before it gets a graph."""

from __future__ import annotations

import pytest

from torchmux.registry import BackendSpec, InvalidSpec, resolve
from torchmux.registry.loading import load_implementation


class Right:
    def supports(self, node):
        return True

    def compile(self, gm, example_inputs, request):
        return gm


class NoCompile:
    def supports(self, node):
        return True


class NoSupports:
    def compile(self, gm, example_inputs, request):
        return gm


class SupportsIsNoMethod(Right):
    supports = frozenset({"relu"})


class CompileTakesTwo(Right):
    def compile(self, gm, example_inputs):
        return gm


class SupportsTakesNone(Right):
    def supports(self):
        return True


class RestoreTakesOne(Right):
    def restore(self, artifact):
        return None


class RewriteTakesOne(Right):
    def rewrite(self, gm):
        return gm


class DecompositionsTakeAnArgument(Right):
    def decompositions(self, fingerprint):
        return {}


class WholeIsANumber(Right):
    keep_whole = 3


class NeedsAnArgument(Right):
    def __init__(self, device):
        self.device = device


def of_one_argument(gm):
    return gm


@pytest.mark.parametrize(
    ("implementation", "words"),
    [
        (NoCompile(), r"has supports, but no compile\(gm, example_inputs, request\)"),
        (NoSupports(), r"has compile, but no supports\(node\)"),
        (SupportsIsNoMethod, r"its supports is frozenset.*, not a method supports\(node\)"),
        (CompileTakesTwo, r"cannot be called as compile\(gm, example_inputs, request\): too many positional"),
        (SupportsTakesNone, r"cannot be called as supports\(node\): too many"),
        (RestoreTakesOne, r"cannot be called as restore\(artifact, constants\): too many"),
        (RewriteTakesOne, r"cannot be called as rewrite\(gm, request\): too many"),
        (DecompositionsTakeAnArgument, r"as decompositions\(\): missing a required argument: 'fingerprint'"),
        (WholeIsANumber, r"its keep_whole is 3, not a method keep_whole\(\) or a collection"),
        (NeedsAnArgument, r"the class NeedsAnArgument, of which no object can be made: missing a required argument"),
        (of_one_argument, r"cannot be called with \(gm, example_inputs\): too many positional"),
    ],
)
def test_a_wrong_shape_is_an_error(implementation, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words) as raised:
        load_implementation(BackendSpec("mine", "for tests", implementation, graph="aten"))
    assert str(raised.value).startswith("mine loads")
    assert "\n" not in str(raised.value)


class NothingExtra(Right):
    decompositions = keep_whole = rewrite = restore = None


class Values(Right):
    decompositions: dict = {}
    keep_whole = ()


@pytest.mark.parametrize("implementation", [Right, Right(), NothingExtra(), Values, lambda gm, inputs, **options: gm])
def test_what_has_the_shape_is_loaded(implementation) -> None:
    found = load_implementation(BackendSpec("mine", "for tests", implementation, graph="aten"))
    assert isinstance(found, Right) or found is implementation


def test_what_is_never_asked_is_not_looked_at() -> None:
    """A function for captured graphs may have attributes of these names that mean something else."""

    def function(gm, example_inputs):
        return gm

    function.restore = 3
    assert load_implementation(BackendSpec("mine", "for tests", function, graph="torch")) is function


def test_a_callable_with_a_method_of_the_name_compile_is_a_function() -> None:
    """An nn.Module has one."""

    class Module:
        def compile(self, *args):
            raise AssertionError("not ours")

        def __call__(self, gm, example_inputs):
            return gm

    made = Module()
    assert load_implementation(BackendSpec("mine", "for tests", made, graph="torch")) is made


def test_it_is_found_before_there_is_a_graph() -> None:
    with pytest.raises(InvalidSpec, match="too many positional"):
        resolve(BackendSpec("mine", "for tests", of_one_argument)).compile(None, [], training=False)
