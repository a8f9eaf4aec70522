"""``torchmux explain``: what is captured of a function, where its graph breaks, and how to fix that."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from typing import Any

from rich.table import Table
from rich.text import Text

import torchmux
from torchmux.wording import counted

from .files import check_writable
from .screen import in_a_line, one_line, show
from .target import load, target

_DESCRIPTION = """\
Capture a function or a module, run it once with a backend, and show the captured graphs and what broke them.

TARGET is FILE.py:NAME or MODULE:NAME. NAME may have dots; an nn.Module class is instantiated without arguments.
Each --input is one positional argument: SHAPE or SHAPE:DTYPE, as in 2x3, 1x16:int64 or scalar:float64. Floating-point
tensors are random; integers are 0 or 1, which every embedding has.
"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "explain",
        help="show the graphs of a function and what breaks them",
        description=_DESCRIPTION,
    )
    parser.add_argument("target", type=target, metavar="TARGET", help="FILE.py:NAME or MODULE:NAME")
    parser.add_argument(
        "--input", dest="inputs", action="append", default=[], type=_input, metavar="SHAPE[:DTYPE]", help="repeatable"
    )
    parser.add_argument("--code", action="store_true", help="print the graphs as Python")
    parser.add_argument(
        "--guards", action="store_true", help="print the checks that run before captured code is reused"
    )
    parser.add_argument(
        "--backend", default="eager", metavar="NAME", help="the backend that compiles the graphs; default: eager"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: all that the page of --html has")
    parser.add_argument(
        "--html", metavar="FILE", help="also write a page for browsers: source, graphs, code, guards and times"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain the target; the exit status is 1 if it raises on these inputs, and 2 if it does not exist."""
    import torch

    module, name = arguments.target
    try:
        check_writable(arguments.html)
    except OSError as error:
        print(f"torchmux: {error}", file=sys.stderr)
        return 2
    try:
        function = _load(module, name)
    except (Exception, SystemExit) as error:  # importing a program runs it
        print(f"torchmux: cannot load {module}:{name}: {in_a_line(error)}", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    inputs = [_tensor(shape, dtype) for shape, dtype in arguments.inputs]
    try:
        explanation = torchmux.explain(function, backend=arguments.backend)(*inputs)
    except torchmux.TorchmuxError:
        raise
    except Exception as error:
        told = f"{one_line(error)}{_hint(error, inputs)}"
        print(f"torchmux: {name} raised {type(error).__name__} on these inputs: {told}", file=sys.stderr)
        return 1
    if arguments.html:
        explanation.to_html(arguments.html)
    if arguments.json:
        print(json.dumps(explanation.to_dict(), indent=2))
        return 0
    show(_summary(explanation), "", _graphs(explanation))
    for record in explanation.break_reasons:
        show("", record.message())
    if arguments.code:
        for number, graph in enumerate(explanation.graphs, 1):
            show("", f"graph {number}:", graph.print_readable(print_output=False))
    if arguments.guards:
        show("", "guards:", *(f"  {guard}" for guard in explanation.out_guards))
    if arguments.html:
        show("", f"The page is in {arguments.html}.")
    return 0


def _hint(error: Exception, inputs: list[Any]) -> str:
    """The way out for a call with too few inputs."""
    if isinstance(error, TypeError) and re.search(r"missing \d+ required", str(error)):
        return f". The call had {counted(len(inputs), 'input')}; give one --input SHAPE for each, such as --input 2x3."
    return ""


def _input(text: str) -> tuple[tuple[int, ...], str]:
    shape, _, dtype = text.partition(":")
    if shape != "scalar" and not re.fullmatch(r"\d+(x\d+)*", shape):
        raise argparse.ArgumentTypeError(f"{text!r} is not SHAPE or SHAPE:DTYPE, such as 2x3 or 1x16:int64")
    import torch

    dtype = dtype or "float32"
    if not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise argparse.ArgumentTypeError(f"torch has no dtype {dtype!r}")
    return () if shape == "scalar" else tuple(map(int, shape.split("x"))), dtype


def _tensor(shape: tuple[int, ...], dtype: str) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(shape, dtype=torch.float32).to(kind)
    return torch.randint(0, 2, shape).to(kind)


def _load(module: str, name: str) -> Any:
    """The callable that a target names; the classes of modules are instantiated."""
    found = load(module, name)
    import torch

    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        found = found().eval()
    if not callable(found):
        raise TypeError(f"it is {found!r} ({type(found).__name__}), which cannot be called")
    return found


def _summary(explanation: Any) -> Text:
    breaks = explanation.graph_break_count
    return Text(
        f"{counted(explanation.graph_count, 'graph')}, {counted(breaks, 'graph break')}, "
        f"{counted(explanation.op_count, 'operator')}",
        style="bold yellow" if breaks else "bold green",
    )


def _graphs(explanation: Any) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("graph", justify="right")
    table.add_column("operators", justify="right")
    table.add_column("most frequent", overflow="fold")
    for number, operators in enumerate(explanation.ops_per_graph, 1):
        frequent = Counter(_name(op) for op in operators).most_common(6)
        table.add_row(str(number), str(len(operators)), ", ".join(f"{name} {times}" for name, times in frequent))
    return table


def _name(operator: Any) -> str:
    return operator if isinstance(operator, str) else getattr(operator, "__name__", str(operator))
