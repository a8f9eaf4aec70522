"""Each public name has an example in its docstring, and the examples run."""

from __future__ import annotations

import inspect

import torchmux

NAMES = [name for name in torchmux.__all__ if name != "__version__"]

PROGRAM = """
import doctest, inspect
import torch, torchmux

flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
examples = 0
for name in [name for name in torchmux.__all__ if name != "__version__"]:
    text = inspect.getdoc(getattr(torchmux, name))
    names = {"torch": torch, "torchmux": torchmux, "__name__": "example"}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    examples += len(test.examples)
    runner.run(test)
failed, tried = runner.summarize()
print("examples:", examples, "failed:", failed, "tried:", tried)
"""


def test_each_public_name_has_an_example():
    without = [name for name in NAMES if "Examples:\n    >>> " not in (inspect.getdoc(getattr(torchmux, name)) or "")]
    assert without == []


def test_the_examples_run(run_python):
    printed = run_python(PROGRAM)
    words = printed.splitlines()[-1].split()
    assert words[2:4] == ["failed:", "0"], printed
    assert words[1] == words[5] and int(words[1]) > 150
