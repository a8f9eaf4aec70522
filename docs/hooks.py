"""What the site has beyond the files in ``docs/``: a page for each backend, the API, the scoreboard; mkdocs calls it.

A page of a backend is its section of ``backends.md``, with types and defaults from the schema of its options and with
its published results.  Links that leave ``docs/`` become links to the copies of such files on the site, or plain code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

import torchmux
from torchmux.conformance import scores
from torchmux.registry.report import counts_in_words

DOCS = Path(__file__).parent
COPIES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_ROLE = re.compile(r":\w+:<code>~?([\w.]+)</code>")
_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+://)([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that no file has."""
    for source, content in _pages():
        files.append(File.generated(config, source, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave the sections that have pages of their own out of ``backends.md``, and mend links."""
    source = page.file.src_uri
    if source == "backends.md":
        markdown = _overview(markdown)
    origin = {copy: original for original, copy in COPIES.items()}.get(source)
    return _outside_of_code(markdown, lambda text: _LINK.sub(lambda match: _link(match, source, origin), text))


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Make links of the roles in docstrings, which mkdocstrings leaves as they stand."""
    return _ROLE.sub(lambda match: _role(match[1]), html) if page.file.src_uri == "reference.md" else html


def _pages() -> Iterator[tuple[str, str]]:
    sections = _sections((DOCS / "backends.md").read_text())
    for row in _rows():
        yield f"backends/{row.name}.md", _backend(row, sections[row.name])
    yield "scoreboard.md", _scoreboard()
    yield "reference.md", _reference()
    for original, copy in COPIES.items():
        yield copy, (DOCS.parent / original).read_text()


# --- backends ---------------------------------------------------------------------------------------------------------


def _rows() -> list[torchmux.BackendInfo]:
    rows = [row for row in torchmux.backends() if row.distribution == "torchmux"]
    return sorted(rows, key=lambda row: (row.retired, -row.priority, row.name))


def _sections(text: str) -> dict[str, str]:
    """The sections of ``backends.md`` that are about one backend."""
    return dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def _overview(text: str) -> str:
    intro, _, _ = text.partition("\n## ")
    constants = re.search(r"^## Constants\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    table = ["| backend | what it is | devices | trains | dynamic sizes |", "|---|---|---|---|---|"]
    for row in _rows():
        devices = "all" if "*" in row.devices else ", ".join(row.devices)
        facts = ("", "", "") if row.retired else (devices, _yes(row.training), _yes(row.dynamic_shapes))
        table.append(f"| [`{row.name}`](backends/{row.name}.md) | {row.summary} | {' | '.join(facts)} |")
    return "\n".join([intro, "", *table, "", constants[0] if constants else ""])


def _backend(row: torchmux.BackendInfo, section: str) -> str:
    section = section.replace("](#", "](../backends.md#").replace("](", "](../").replace("](../../", "](../")
    section = re.sub(r"\]\(\.\./(\w+://)", r"](\1", section)
    parts = [f"# `{row.name}`", "", _with_schema(row, section.strip())]
    if row.retired:
        return "\n".join(parts)
    if row.install:
        parts += ["", "## Install", "", f"    {row.install}", "", f"`python -m torchmux backends {row.name}` says what"]
        parts += ["is missing where it does not run."]
    dtypes = "all" if "*" in row.dtypes else ", ".join(row.dtypes)
    devices = "all" if "*" in row.devices else ", ".join(row.devices)
    parts += ["", "## What it claims", "", "| devices | dtypes | training | dynamic sizes |", "|---|---|---|---|"]
    parts += [f"| {devices} | {dtypes} | {_yes(row.training)} | {_yes(row.dynamic_shapes)} |"]
    if row.unverified:
        parts += ["", f"Unverified: {row.unverified}"]
    if (run := scores.score(row.name)) is not None:
        parts += ["", "## Results", "", f"{scores.words(run)[:1].upper()}{scores.words(run)[1:]}."]
        if run.get("kinds"):
            parts += ["", f"Operators of all cases: {counts_in_words(run['kinds'])}."]
        parts += ["", "[The scoreboard](../scoreboard.md) has the counts by group, and [the results of all"]
        parts += ["backends](../conformance.md#scoreboard) what fails."]
    return "\n".join(parts)


def _with_schema(row: torchmux.BackendInfo, section: str) -> str:
    """The section with types and defaults in its table of options, or with a table where it has none."""
    options = torchmux.list_options(row.name) if row.options else {}
    if not options:
        return section

    def cells(name: str) -> str:
        found = options[name]
        return f"{found.type} | `{found.default!r}`".replace("`''`", "empty")

    def complete(match: re.Match[str]) -> str:
        return re.sub(
            r"^\| `([\w.]+)` \| (.*) \|$",
            lambda line: f"| `{line[1]}` | {cells(line[1])} | {line[2]} |",
            match[0].replace("| option |", "| option | takes | default |").replace("|---|", "|---|---|---|", 1),
            flags=re.MULTILINE,
        )

    section, count = re.subn(r"^\| option \|.*\n\|---\|---\|\n(?:\|.*\n?)+", complete, section, flags=re.MULTILINE)
    if count == 0:
        table = ["| option | takes | default | what it does |", "|---|---|---|---|"]
        table += [f"| `{name}` | {cells(name)} | {found.help} |" for name, found in options.items()]
        section = "\n".join([section, "", "## Options", "", *table])
    return section


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# --- the scoreboard ---------------------------------------------------------------------------------------------------


def _scoreboard() -> str:
    present = [name for name in scores.OUTCOMES if any(run["totals"].get(name) for run in scores.published())]
    lines = ["| backend | level | group | " + " | ".join(present) + " |", "|---" * (3 + len(present)) + "|"]
    for run in scores.published():
        for group, counts in run["groups"].items():
            numbers = " | ".join(str(counts.get(name, "")) for name in present)
            lines.append(f"| `{run['backend']}` | {run['level']} | {group} | {numbers} |")
    return "\n".join(
        [
            "# Scoreboard",
            "",
            "The published results of the [conformance suite](conformance.md) by group of cases. Type words to see",
            "only the rows that have them, such as `native full operators`.",
            "",
            '<label for="filter">Show</label>',
            '<input id="filter" data-filters="scores" placeholder="native full operators">',
            "",
            '<div id="scores" markdown="1">',
            "",
            *lines,
            "",
            "</div>",
        ]
    )


# --- the API ----------------------------------------------------------------------------------------------------------

_GROUPS = {
    "Compile": ("compile", "disable", "set_stance", "reset", "set_default_backend", "get_default_backend"),
    "See what happened": ("report", "explain", "verify", "counters", "set_logs", "GraphReport", "Placement"),
    "Backends": ("list_backends", "list_options", "list_mode_options", "lookup_backend", "register_backend"),
    "Files": ("save", "load", "Loaded", "export", "Exported", "save_cache_artifacts", "load_cache_artifacts"),
    "Sizes": ("mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_unbacked"),
}


def _reference() -> str:
    """Every public function and class with its docstring, by subject; what no subject has comes after them."""
    names = {name for name in torchmux.__all__ if isinstance(getattr(torchmux, name), type) or _is_function(name)}
    errors = {name for name in names if _is_error(name)}
    grouped = {name for group in _GROUPS.values() for name in group}
    groups = {title: [name for name in group if name in names] for title, group in _GROUPS.items()}
    groups["Marks and other functions"] = sorted(names - errors - grouped, key=str.lower)
    groups["Errors"] = sorted(errors)
    lines = [
        "# API",
        "",
        "The docstrings of all public names. [Public names](api.md) has one line for each. Examples begin after",
        "`import torch` and `import torchmux`.",
        "",
    ]
    for title, group in groups.items():
        lines += [f"## {title}", ""]
        for name in group:
            lines += [f"::: {getattr(torchmux, name).__module__}.{getattr(torchmux, name).__name__}", ""]
    return "\n".join(lines)


def _is_function(name: str) -> bool:
    found = getattr(torchmux, name)
    return callable(found) and hasattr(found, "__name__") and not hasattr(found, "__path__")


def _is_error(name: str) -> bool:
    found = getattr(torchmux, name)
    return isinstance(found, type) and issubclass(found, Exception)


# --- links ------------------------------------------------------------------------------------------------------------


def _role(target: str) -> str:
    name = target.removeprefix("torchmux.")
    if name not in torchmux.__all__ or not (_is_function(name) or isinstance(getattr(torchmux, name), type)):
        return f"<code>{target.rpartition('.')[2]}</code>"
    found = getattr(torchmux, name)
    return f'<a href="#{found.__module__}.{found.__name__}"><code>{name}</code></a>'


def _outside_of_code(markdown: str, change: Any) -> str:
    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _link(match: re.Match[str], source: str, origin: str | None) -> str:
    words, target, anchor = match[1], match[2], match[3] or ""
    if not target:
        return match[0]
    # Where the link leads in the repository, seen from its top.
    start = os.path.dirname(origin if origin is not None else f"docs/{source}")
    path = os.path.normpath(os.path.join(start, target))
    here = os.path.dirname(source) or "."
    if path in COPIES:
        return f"[{words}]({os.path.relpath(COPIES[path], here)}{anchor})"
    if path == "docs/backends.md" and (name := anchor.removeprefix("#")) in {row.name for row in _rows()}:
        return f"[{words}]({os.path.relpath(f'backends/{name}.md', here)})"
    if path.startswith("docs/"):
        return f"[{words}]({os.path.relpath(path.removeprefix('docs/'), here)}{anchor})"
    return f"{words} (`{path}`)" if words.strip("`") != path else f"`{path}`"
