"""Functions whose sizes and numbers change: eager's results, with no more compilations than are declared."""

import subprocess
import sys

import pytest
import torch

import torchmux

from ..snippets.corpus import assert_same
from .corpus import load

CASES = load()


@pytest.fixture(autouse=True)
def fresh():
    torchmux.reset()


def _run(function, arguments):
    torch.manual_seed(0)
    return function(*arguments)


@pytest.mark.parametrize("name", CASES)
def test_every_call_does_what_eager_does(name):
    case = CASES[name]
    compiled = torchmux.compile(case.function, backend="eager", fullgraph=case.whole, dynamic=case.dynamic)
    counts = []
    for _ in range(2):
        for number, (arguments, again) in enumerate(zip(case.calls(), case.calls(), strict=True)):
            assert_same(_run(case.function, arguments), _run(compiled, again), f"call {number}: ")
            assert_same(arguments, again, f"arguments of call {number}: ")
        counts.append(torchmux.report(compiled).graph_count)
    report = torchmux.report(compiled)
    assert counts[0] <= case.compiles, report.recompiles
    assert counts[1] == counts[0], f"known calls were compiled again: {report.recompiles[counts[0] - 1 :]}"
    assert not case.whole or not report.breaks


_BESIDE_DYNAMO = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import torch, torch._dynamo
from frontend.sizes.corpus import load
logging.disable(logging.CRITICAL)
counts = {}
for name, case in load().items():
    torch._dynamo.reset()
    graphs = []
    def backend(gm, inputs):
        graphs.append(gm)
        return gm
    compiled = torch.compile(case.function, backend=backend, fullgraph=case.whole, dynamic=case.dynamic)
    try:
        for arguments in case.calls():
            compiled(*arguments)
        counts[name] = len(graphs)
    except Exception:
        counts[name] = None
print(json.dumps(counts))
"""

# Cases of more compilations than torch's own Dynamo, and why.
MORE_THAN_DYNAMO = {
    "size_in_loop_with_break": "Dynamo leaves a frame with a break in a loop to eager, all of it",
    "recurrent_layers_of_any_length": "Dynamo leaves a frame with a recurrent layer to eager, all of it",
    "float_not_a_number": "infinity is a constant here: arithmetic on symbols takes numbers for finite",
    "beyond_64_bits": "an integer that no backend can take is a constant here",
}


@pytest.mark.slow
def test_no_more_compilations_than_dynamo():
    import json
    import pathlib

    tests = pathlib.Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _BESIDE_DYNAMO, str(tests)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    more = {}
    for name, case in CASES.items():
        torchmux.reset()
        compiled = torchmux.compile(case.function, backend="eager", fullgraph=case.whole, dynamic=case.dynamic)
        for arguments in case.calls():
            compiled(*arguments)
        ours = torchmux.report(compiled).graph_count
        if theirs[name] is not None and ours > theirs[name]:
            more[name] = (ours, theirs[name])
    assert set(more) == set(MORE_THAN_DYNAMO), more
