"""Each snippet, compiled, does what it does eagerly: results, exceptions, inputs, globals, aliasing.

Two calls are made on the same inputs: the first captures, the second finds what was captured.
"""

import pytest

import torchmux

from .corpus import assert_alike, load
from .not_yet import NOT_YET

CASES = load()


@pytest.fixture(autouse=True)
def _fresh_caches():
    torchmux.reset()
    yield
    torchmux.reset()


@pytest.mark.parametrize("name", CASES)
def test_compiled_does_what_eager_does(name):
    case = CASES[name]
    compiled = torchmux.compile(case.function, backend="eager")
    assert_alike(case, compiled)
    internal = [entry.message() for entry in torchmux.report(compiled).breaks if entry.kind == "TM000"]
    assert not internal, internal[0]


ONE_GRAPH = [
    pytest.param(name, marks=pytest.mark.xfail(reason=NOT_YET[name], strict=True) if name in NOT_YET else ())
    for name, case in CASES.items()
    if case.one_graph
]


@pytest.mark.parametrize("name", ONE_GRAPH)
@pytest.mark.sampled(2)
def test_what_torch_captures_whole_is_one_graph_here(name):
    case = CASES[name]
    with torchmux.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):  # as fullgraph does
        assert torchmux.explain(case.function)(*case.inputs()).graph_break_count == 0
    torchmux.reset()
    assert_alike(case, torchmux.compile(case.function, backend="eager", fullgraph=True))
