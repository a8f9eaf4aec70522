"""What is recorded of a script; each runs in a process of its own, since it becomes ``__main__`` there."""

from __future__ import annotations

import json

SCRIPT = """
import sys
import torch
import torchmux
from torchmux import compile as renamed

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(4, 4)

@torchmux.compile(backend="eager")
def scale(x):
    return x * factor()

def factor():
    return 3

def main():
    compiled = torchmux.compile(model)
    x = torch.ones(2, 4)
    with torch.no_grad():
        assert torch.equal(scale(x), 3 * x)
        x.add_(1)
        scale(x)
    compiled(x).sum().backward()
    compiled(x).sum().backward()
    print("the end")

if __name__ == "__main__":
    main()
"""

PROGRAM = """
import json, torch, torchmux
from pathlib import Path
from torchmux.bench.script import record
own = torchmux.compile
for enough in (0, 1):
    calls = record(Path({path!r}), ["7"], enough)
    assert torchmux.compile is own
    told = [[c.name, [list(a.shape) for a in c.args], float(c.args[0].sum()), c.grad, c.training] for c in calls]
    print(json.dumps(told))
print(calls[0].model(torch.ones(1)).item())
"""


def test_the_first_calls_with_their_arguments_as_they_were(run_python, tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    ended, calls, until_first, last = run_python(PROGRAM.format(path=str(path))).splitlines()
    assert ended == "the end"
    # The tensor was changed in place after the first call.
    assert json.loads(calls) == [["scale", [[2, 4]], 8.0, False, False], ["Linear", [[2, 4]], 16.0, True, True]]
    # Where enough was called, the script does not reach its end.
    assert json.loads(until_first) == [["scale", [[2, 4]], 8.0, False, False]]
    assert float(last) == 3.0
