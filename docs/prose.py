"""The prose of the documents: plain words, and sentences that can be read once.

``python docs/prose.py`` checks it, and with proselint and codespell, which ``tox -e docs`` installs, checks clichés and
spelling too.  Code, tables and quoted names are left out; everything else keeps its line.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# docs/conformance.md is generated: it quotes the messages of compilers.
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "conformance.md"),
]

LONGEST = 45
"""Words of a sentence."""

PLAIN = {
    r"\bfor ever\b": "forever",
    r"\bin vain\b": "without success",
    r"\bhere below\b": "below",
    r"\bthereof\b|\bwhereof\b|\bherein\b|\bwherein\b": "of it, of which, in it, in which",
    r"\bdecisions? falls?\b": "is made",
    r"\bin the place of\b": "instead of",
    r"\bas far as (it|they|this) goes?\b": "nothing",
    r"\bbrings? (\S+ ){0,6}along\b": "installs, or includes",
    r"\bhas no use for\b": "ignores",
    r"\bin one look\b": "in one step",
    r"\bwho is new\b": "newcomers",
    r"\bsays of each\b": "says for each",
    r"\bcosts? the others nothing\b": "does not affect the others",
    r"\bsome more\b": "more",
    r"\bbesides of\b": "besides",
    r"\bby far not\b": "not nearly",
    r"\bthe same is true for\b": "also",
    r"\beventual(ly)? (be|the)\b": "possibly, or at the end",
    r"\bactual(ly)? version\b": "current version",
    r"\bin the meantime\b": "meanwhile",
    r"\bit lies in\b": "it is in",
    r"\bhow (it|this|that) looks like\b": "what it looks like",
    r"\ball what\b": "all that",
    r"\bsimply\b|\bjust call\b|\bof course\b|\bobviously\b": "nothing",
    r"\butili[sz]e\b": "use",
    r"\bin order to\b": "to",
}
"""What the documents do not say -> what they say instead."""

SPELLING = ("neighbour", "honour", "colour", "behaviour", "licence", "favour")
"""British, where the documents are American."""

UNSUITED = re.compile(r": (dates_times|lexical_illusions|misc|typography)\.?")
"""Checks of proselint that stumble over code and numbers, or want signs that no keyboard has."""

_NAMED = "\N{CURRENCY SIGN}"  # stands for code within a sentence
_NAME = re.compile(r"``?[^`\n]+(?:\n[^`\n]+)?``?|\]\([^)]*\)")
_END = re.compile(r"(?<=[.?!:;])[)\"*]*\s+|\n\s*\n|\n\s*(?:\*|\d+\.) ")


def prose(text: str) -> str:
    """The text without code, tables and headings, line by line."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    text = re.sub(r"^( *)```.*?^ *```$", blank, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:    |\||#|!\[|<!--).*$", "", text, flags=re.MULTILINE)
    return _NAME.sub(lambda match: f"{_NAMED}{blank(match)}", text)


def problems(text: str) -> Iterator[tuple[int, str]]:
    """The line and the words of each problem."""
    text = prose(text)
    for pattern, instead in PLAIN.items():
        for match in re.finditer(pattern.replace(" ", r"\s+"), text, re.IGNORECASE):
            yield _line(text, match.start()), f"{' '.join(match[0].split())!r}: say {instead}"
    for word in SPELLING:
        for match in re.finditer(word, text, re.IGNORECASE):
            yield _line(text, match.start()), f"{match[0]!r} is British"
    at = 0
    for match in [*_END.finditer(text), None]:
        end = len(text) if match is None else match.start()
        words = len(re.findall(r"[A-Za-z][\w'-]*", text[at:end]))  # numbers are read at a glance
        if words > LONGEST:
            yield _line(text, at), f"a sentence of {words} words: {' '.join(text[at:end].split())[:60]}..."
        at = end if match is None else match.end()


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def linted() -> Iterator[str]:
    """What proselint and codespell find, where they are installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for page in PAGES:
            (folder / page.name).write_text(prose(page.read_text()))
        files = [str(folder / page.name) for page in PAGES]
        commands = {
            "proselint": ["-m", "proselint", "check", *files],
            "codespell_lib": ["-m", "codespell_lib", "--builtin", "clear,rare,en-GB_to_en-US,informal,usage", *files],
        }
        for module, command in commands.items():
            if importlib.util.find_spec(module) is None:
                print(f"{module} is not installed: not checked", file=sys.stderr)
                continue
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
            found = [line for line in done.stdout.splitlines() if ".md:" in line and not UNSUITED.search(line)]
            yield from (line.replace(f"{folder}/", "") for line in found)
            if done.returncode and not done.stdout:
                yield f"{module} failed: {done.stderr.strip()}"


def main() -> int:
    """Print what is found; the exit status is 1 if there is anything."""
    found = [f"{page.name}:{line}: {words}" for page in PAGES for line, words in problems(page.read_text())]
    found += linted()
    print("\n".join(found) or "no problems")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
