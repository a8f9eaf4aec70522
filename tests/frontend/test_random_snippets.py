"""Random programs do compiled what they do plainly: results, exceptions, side effects, on several inputs.

Some have graph breaks at random statements, or calls of a disabled function in the middle of expressions.
"""

import random

import pytest
from hypothesis import HealthCheck, assume, given, note, settings, strategies as st

from .snippets.random_check import Skip, check
from .snippets.random_programs import Program

BREAKS = (0, 0, 0.1, 0.3)


def _run(choose, statements, dynamic=None, show=lambda source: None):
    source = Program(choose, statements=statements, breaks=choose.choice(BREAKS)).source
    show(source)
    try:
        compile(source, "<random program>", "exec")
    except SyntaxError:  # a walrus in a place where none may be
        return False
    try:
        check(source, dynamic=dynamic)
    except Skip:
        return False
    return True


@settings(
    max_examples=10, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
@given(st.randoms(use_true_random=False))
def test_random_programs(choose):
    assume(_run(choose, 6, show=note))


@pytest.mark.parametrize("dynamic", [None, True])
def test_programs_of_fixed_seeds(dynamic):
    ran = sum(_run(random.Random(seed), 9, dynamic) for seed in range(10))
    assert ran > 6


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_programs(block):
    """Seeds, not hypothesis, so that any failure is run again by its number."""
    for seed in range(1000 + 200 * block, 1200 + 200 * block):
        try:
            _run(random.Random(seed), 12, None if seed % 3 else True)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
