"""Each snippet once more, with a graph break ahead of every statement: capture, rebuilding and resuming must agree.

Generators inside snippets are left alone, as they cannot be resumed.
"""

import ast
import dataclasses
import inspect
import textwrap
import zlib
from typing import Any

import pytest
from tiers import slow_but

import torchmux

from .corpus import assert_alike, load

CASES = load()
BREAK = "torchmux.graph_break()"
_NO_BREAK_AHEAD = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)


class _Breaks(ast.NodeTransformer):
    """Puts a graph break ahead of every statement of a function and of the functions inside it."""

    def visit_FunctionDef(self, node):
        yields = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(node))
        return node if yields and node.name != self.outermost else self._with_breaks(node)

    def __init__(self, outermost):
        self.outermost = outermost

    def visit_ClassDef(self, node):
        return node

    def generic_visit(self, node):
        return self._with_breaks(node)

    def _with_breaks(self, node):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
                setattr(node, field, [new for old in statements for new in self._both(old)])
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._with_breaks(part)
        return node

    def _both(self, statement):
        changed = self.visit(statement)
        return [changed] if isinstance(statement, _NO_BREAK_AHEAD) else [ast.parse(BREAK).body[0], changed]


def broken(function):
    """The function with a graph break ahead of every statement."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    tree.body[0].decorator_list = []
    tree = ast.fix_missing_locations(_Breaks(function.__name__).visit(tree.body[0]))
    namespace = {}
    globals_ = function.__globals__
    globals_.setdefault("torchmux", torchmux)
    exec(compile(ast.Module([tree], []), inspect.getfile(function), "exec"), globals_, namespace)
    return namespace[function.__name__]


@pytest.fixture(autouse=True)
def _fresh_caches():
    torchmux.reset()
    yield
    torchmux.reset()


def _every_fourth(of: int) -> list[Any]:
    """The default run has every second case, each in one of the two tests."""
    return slow_but(CASES, *(name for name in CASES if zlib.crc32(name.encode()) % 4 == of))


@pytest.mark.parametrize("name", _every_fourth(0))
def test_broken_everywhere_does_what_eager_does(name):
    function = broken(CASES[name].function)
    compiled = torchmux.compile(function, backend="eager")
    assert_alike(dataclasses.replace(CASES[name], function=function), compiled)
    internal = [entry.message() for entry in torchmux.report(compiled).breaks if entry.kind == "TM000"]
    assert not internal, internal[0]


@pytest.mark.parametrize("name", _every_fourth(1))
def test_symbolic_sizes_do_what_eager_does(name):
    case = CASES[name]
    compiled = torchmux.compile(case.function, backend="eager", dynamic=True)
    assert_alike(case, compiled)
    internal = [entry.message() for entry in torchmux.report(compiled).breaks if entry.kind == "TM000"]
    assert not internal, internal[0]
