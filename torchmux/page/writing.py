"""Puts a report, the program's source and the page together."""

from __future__ import annotations

import base64
import hashlib
import html as escaping
import importlib.resources
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from .sources import sources

_MOST_CODE = 400_000  # characters of one text of generated code
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def html(report: Mapping[str, Any]) -> str:
    """The page of a report, given as plain data (``Report.to_dict``)."""
    template = (importlib.resources.files(__package__) / "page.html").read_text(encoding="utf-8")
    scripts = _SCRIPT.findall(template)
    assert len(scripts) == 1
    # Only a script of just this text may run, whatever else might get into the page.
    allowed = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    shown = {**report, "graphs": [_slim(graph) for graph in report["graphs"]], "sources": sources(report)}
    # A text may contain "</script>", or a lone surrogate, which no file can hold: everything but ASCII is escaped.
    data = json.dumps(shown, separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("{{allowed}}", f"'sha256-{allowed}'").replace("{{report}}", data)


def write(report: Mapping[str, Any], path: str | os.PathLike[str]) -> str:
    """Write the page to a file, and return it.

    Raises:
        OSError: the file cannot be written.
    """
    text = html(report)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return text


def frame(report: Mapping[str, Any]) -> str:
    """The page inside of another one, a notebook's, whose scripts and style it neither sees nor touches."""
    inside = escaping.escape(html(report), quote=True)
    return (
        f'<iframe sandbox="allow-scripts" title="torchmux report" srcdoc="{inside}" '
        'style="width: 100%; height: 40rem; border: 1px solid #8884"></iframe>'
    )


def _slim(graph: Mapping[str, Any]) -> dict[str, Any]:
    return {**graph, "code": _cut(graph["code"]), "output_code": [_cut(text) for text in graph["output_code"]]}


def _cut(text: str) -> str:
    if len(text) <= _MOST_CODE:
        return text
    return f"{text[:_MOST_CODE]}\n... {len(text) - _MOST_CODE} more characters, which Report.to_dict() has"
