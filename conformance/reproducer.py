"""Scripts that reproduce one failure with only torchmux and the backend.

:func:`script` writes one for a case or for one of its samples.  The script calls :func:`check`, which judges as the
suite does, and exits with 1 as long as the failure exists.
"""

from __future__ import annotations

import ast
import faulthandler
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

import torchmux
from torchmux.quoting import quoted
from torchmux.registry.names import members_of

from . import literals
from .case import Case, Trial
from .judging import frontends
from .judging.judge import judge
from .outcome import Outcome, Result
from .requirements import Requirements, requirements_from


def script(case: Case, requirements: Requirements, named: str = "", sample: int | None = None) -> str:
    """A program that runs ``case``, or the sample with that number, and prints the result.

    ``named`` is where :func:`requirements_from` finds the requirements; it is empty if they are those of the backend.
    """
    which = case.id if sample is None else f"{case.id}, sample {sample}"
    try:
        body = case.source(sample) if case.source is not None else source_of(case.run)
    except (literals.NotWritable, OSError, TypeError):
        body = f"from torchmux.conformance.collect import case as named\n\ncase = named({case.id!r}).run"
    fields = {
        name: getattr(case, name)
        for name in ("reference", "elementwise", "strides", "signs", "subnormals", "terms", "cancels", "precision")
    }
    return program(f"{which}\n\n{case.text}", body, requirements, named, fields)


def program(
    title: str, body: str, requirements: Requirements, named: str = "", fields: Mapping[str, Any] | None = None
) -> str:
    """``body``, which defines ``case``, between a title and the call of :func:`check`.

    The script names the requirements only if they provide the backend.
    """
    installed = {row.name for row in torchmux.backends() if row.distribution is not None}
    named = "" if installed.issuperset(members_of(requirements.name) or [requirements.name]) else named
    given = [f"backend={requirements.name!r}"]
    if named:
        given.append(f"requirements={named!r}")
    if requirements.options:
        given.append(f"options={dict(requirements.options)!r}")
    if requirements.frontend != "torchmux":
        given.append(f"frontend={requirements.frontend!r}")
    if not named and requirements.device != "cpu":
        given.append(f"device={requirements.device!r}")
    defaults = Case.__dataclass_fields__
    given += [f"{field}={value!r}" for field, value in (fields or {}).items() if value != defaults[field].default]
    head = "\n".join(textwrap.fill(quoted(line, 2000), 118) for line in title.strip().splitlines())
    return (
        f'"""{head}\n\nExits with 1 while the backend fails.\n"""\n\n{body.strip()}\n\n\n'
        'if __name__ == "__main__":\n    from torchmux.conformance.reproducer import check\n\n'
        f"    check(case, {', '.join(given)})\n"
    )


def check(
    run: Callable[[Trial], Any],
    *,
    backend: str,
    requirements: str = "",
    options: dict[str, Any] | None = None,
    device: str = "cpu",
    frontend: frontends.Name = "torchmux",
    seconds: float | None = None,
    **fields: Any,
) -> None:
    """Judge ``run`` as a case, print the result, and exit with 1 if it is a failure.

    After ``seconds`` (default: those of the requirements) it prints where it hangs and exits with 1.
    """
    claims = _claims(backend, requirements, options, device)
    claims.frontend = frontend
    torchmux.config.leave_small_graphs = False  # as the suite's workers have it
    faulthandler.dump_traceback_later(claims.seconds if seconds is None else seconds, exit=True)
    result = judge(Case("script", run, **fields), claims, lenient=False)
    faulthandler.cancel_dump_traceback_later()
    print(in_words(result))
    sys.exit(int(result.outcome.is_failure))


def in_words(result: Result) -> str:
    """A result in words, with all differences."""
    lines = [f"{result.outcome.value}: {result.reason}" if result.reason else result.outcome.value]
    lines += [f"  {difference}" for difference in result.details.get("differences", ())[1:]]
    if result.outcome is Outcome.CRASH:
        lines.append(result.details.get("traceback") or result.details.get("stderr", ""))
    return "\n".join(lines).rstrip()


def _claims(backend: str, named: str, options: dict[str, Any] | None, device: str) -> Requirements:
    claims = requirements_from(named, backend)
    claims.options = options
    if not named:
        claims.device = device
    return claims


def source_of(run: Any) -> str:
    """The text of a case's function, renamed ``case``, after the imports and helpers of its module that it uses.

    Raises:
        TypeError, OSError: it has no source text, or a closure over something else than dtypes and plain functions.
    """
    if not isinstance(run, FunctionType):
        raise TypeError("not a function")
    imports: set[str] = set()
    helpers: dict[str, str] = {}
    text = _gathered(run, imports, helpers)
    text = re.sub(r"def \w+\(", "def case(", text, count=1)
    bound = [_bound(name, value, imports, helpers) for name, value in inspect.getclosurevars(run).nonlocals.items()]
    text = "\n\n\n".join(["\n".join(bound), text] if bound else [text])
    groups: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for line in sorted(imports, key=lambda line: (line.split()[1], line)):
        groups[2 if "torchmux" in line else 1 if "torch" in line else 0].append(line)
    head = ["from __future__ import annotations", *("\n".join(group) for group in groups.values() if group)]
    return "\n\n\n".join(["\n\n".join(head), *helpers.values(), text])


def _bound(name: str, value: Any, imports: set[str], helpers: dict[str, str]) -> str:
    """The line that gives a variable of a closure its value."""
    if isinstance(value, torch.dtype):
        imports.add("import torch")
        return f"{name} = {value}"
    if not isinstance(value, FunctionType) or value.__closure__:
        raise TypeError(f"{name} cannot be written")
    helpers[value.__name__] = _gathered(value, imports, helpers)
    return f"{name} = {value.__name__}"


def _gathered(function: Any, imports: set[str], helpers: dict[str, str]) -> str:
    """The text of ``function`` without its decorators; what it needs goes into the other two."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, (ast.FunctionDef, ast.ClassDef))
    definition.decorator_list = []
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    text = "\n".join(lines[definition.lineno - 1 :]).rstrip()
    scope = sys.modules[function.__module__].__dict__
    for name in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
        value = scope.get(name)
        if name not in scope or name in helpers or name.startswith("__"):
            continue
        home = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            imports.add(f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}")
        elif home == function.__module__ and inspect.isroutine(value):
            helpers[name] = ""  # it may call itself
            helpers[name] = _gathered(value, imports, helpers)
        elif isinstance(home, str) and (own := getattr(value, "__name__", None)):
            imports.add(f"from {home} import {own}")
        elif name == "Any":
            imports.add("from typing import Any")
        else:
            imports.add(f"from {function.__module__} import {name}")
    return text


def gradients_and_results(trial: Trial, module: torch.nn.Module, inputs: list[Any]) -> Any:
    """What a graph does with these inputs: results, gradients with fixed weights, and the inputs afterwards."""
    results = trial.compile(module)(*inputs)
    ends = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    gradients: Any = ()
    if ends and leaves:
        weights = [torch.linspace(0.5, 1.5, max(e.numel(), 1)).to(e)[: e.numel()].view(e.shape) for e in ends]
        gradients = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
    detached = tuple(r.detach() if isinstance(r, torch.Tensor) else r for r in results)
    return detached, gradients, [t.detach() if isinstance(t, torch.Tensor) else t for t in inputs]
