"""Names that are not UTF-8: the hook in C would end the process."""

from __future__ import annotations

import pytest

PROGRAM = """
import torch, torchmux

def f(x):
    return x + 1

def outer(x):
    return f(x).sin()

changed = {names!r}
f.__code__ = f.__code__.replace(**changed)
x = torch.ones(2)
compiled = torchmux.compile(f, backend="eager")
assert torch.equal(compiled(x), x + 1)
assert torch.equal(compiled(x), x + 1)
if "co_name" in changed:
    assert "its name is not UTF-8" in str(torchmux.report(compiled)), str(torchmux.report(compiled))
assert torch.equal(torchmux.compile(outer, backend="eager")(x), (x + 1).sin())
print("fine")
"""


@pytest.mark.parametrize("field", ["co_name", "co_qualname", "co_filename"])
def test_a_name_that_is_not_utf8(run_python, field):
    assert run_python(PROGRAM.replace("{names!r}", repr({field: "\udc80"}))) == "fine\n"
