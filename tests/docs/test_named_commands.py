"""Each command that a document or a message names exists, and takes the options that it is shown with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from torchmux.cli.main import parser

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
PACKAGES = ("torchmux", "registry", "frontend", "multiplexer", "backends", "deploy", "conformance", "zoo")
SHOWN = re.compile(r"(?:`|^ *|&& )(?:python -m )?torchmux ([a-z][^`\n|&>]*)", re.MULTILINE)
COMMANDS = set(parser()._subparsers._group_actions[0].choices)


def problem(words: list[str], capsys) -> str:
    """Why a command line is refused, if not for what it leaves out."""
    try:
        parser().parse_args(words)
    except SystemExit as end:
        told = capsys.readouterr().err
        return told if end.code and "required" not in told and "expected" not in told else ""
    return ""


def test_commands_in_documents(capsys):
    found, wrong = 0, []
    for document in DOCUMENTS:
        text = re.sub(r"^```(?:python|cpp)\n.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
        for line in SHOWN.findall(text):
            try:
                words = shlex.split(line.replace("...", ""), comments=True)
            except ValueError:  # a sentence with an apostrophe
                continue
            if f"python -m torchmux {words[0]}" in text and words[0] not in COMMANDS:
                wrong.append(f"{document.name}: there is no command {words[0]}")
            elif words[0] in COMMANDS and words != ["decisions", "2"]:  # the name of a format; others begin sentences
                found += 1
                if why := problem(words, capsys):
                    wrong.append(f"{document.name}: torchmux {line}: {why}")
    assert wrong == []
    assert found > 60


@pytest.mark.parametrize("package", PACKAGES)
def test_commands_in_messages(package):
    for path in (ROOT / package).rglob("*.py"):
        for name in re.findall(r"python -m torchmux ([a-z][\w-]*)", path.read_text()):
            assert name in COMMANDS, f"{path}: python -m torchmux {name}"
