"""The functions of the program that were captured, and what happened in which line of them."""

from __future__ import annotations

import ast
import linecache
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_MOST_LINES = 400  # of one function
_MOST_FUNCTIONS = 60
_AROUND = 2  # lines before and after one that is in no function


def sources(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Pieces of the program's files, in order, each with its lines and what is known of them.

    A line's ``ran`` are ``[graph, backend, kind, operators]``, with the graph's position in the report; ``breaks`` are
    positions in the report's list.  Files that cannot be read are left out.
    """
    ran: dict[tuple[str, int], Counter[tuple[int, str, str]]] = {}
    broke: dict[tuple[str, int], list[int]] = {}
    functions: dict[tuple[str, int], None] = {}
    for number, graph in enumerate(report["graphs"]):
        functions.setdefault(_place(graph["place"]))
        for placement in graph["placements"]:
            line = _place(placement["where"])
            backend = "torch" if placement["kind"] == "torch" else placement["placed_on"]
            ran.setdefault(line, Counter())[number, backend, placement["kind"]] += 1
            functions.setdefault(line)
    for number, record in enumerate(report["breaks"]):
        places = [(file, line) for file, line, _ in record["frames"] if not _is_torch(file)][:1]
        for line in places:
            broke.setdefault(line, []).append(number)
            functions.setdefault(line)
    return [
        {
            "file": file,
            "lines": [
                {
                    "number": line,
                    "text": linecache.getline(file, line).rstrip("\r\n"),
                    "ran": [[*of, times] for of, times in ran.get((file, line), Counter()).items()],
                    "breaks": broke.get((file, line), []),
                }
                for line in range(first, last + 1)
            ],
        }
        for file, first, last in _pieces(functions)
    ]


def _place(text: str | None) -> tuple[str, int]:
    """The file and the line in ``file:line``; a file may have colons in its name."""
    file, _, line = (text or "").rpartition(":")
    return (file, int(line)) if line.isdecimal() else ("", 0)


def _is_torch(file: str) -> bool:
    return f"{os.sep}torch{os.sep}" in file and "site-packages" in file


def _pieces(places: Iterable[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """File, first and last line of the functions around these lines."""
    found: dict[tuple[str, int, int], None] = {}
    known: dict[str, list[tuple[int, int]]] = {}
    for file, line in places:
        if not file or _is_torch(file) or not linecache.getline(file, line):
            continue
        if file not in known:
            known[file] = _functions(file)
        around = [span for span in known[file] if span[0] <= line <= span[1]]
        # the outermost one: a function inside of another is read together with it
        first, last = min(around) if around else (line - _AROUND, line + _AROUND)
        if last - first >= _MOST_LINES:
            first, last = max(first, line - _MOST_LINES // 2), min(last, line + _MOST_LINES // 2)
        if any(of == file and a <= line <= b for of, a, b in found):
            continue
        found.setdefault((file, max(first, 1), min(last, len(linecache.getlines(file)))))
    return list(found)[:_MOST_FUNCTIONS]


def _functions(file: str) -> list[tuple[int, int]]:
    """First and last line of each function of a file; none if it is not Python that can be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
