"""One style for all commands: help with an example, JSON, widths, completion."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess

import pytest

from torchmux.cli import screen, style
from torchmux.cli.main import main, parser

COMMANDS = style.parsers_of(parser())


@pytest.mark.parametrize("columns", [60, 140])
def test_help_fits_and_has_an_example(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for words, each in COMMANDS.items():
        text = each.format_help()
        assert "Example: torchmux " in text, words
        # An option with all its choices cannot be broken and may stand out; paragraphs may not.
        lines = [line for line in text.splitlines() if len(line) > columns]
        wide = [line for line in lines if " " in line.strip() and not line.lstrip().startswith(("[-", "-"))]
        assert wide == [], words


def test_each_example_is_understood():
    assert set(style.EXAMPLES) == set(COMMANDS)
    for words, example in style.EXAMPLES.items():
        if ">" in example:
            example = example.partition(" > ")[0]
        given = shlex.split(example)
        assert given[0] == "torchmux"
        assert " ".join(given[1:]).startswith(words)
        parser().parse_args(given[1:])


def test_each_command_has_json():
    without = [
        words
        for words, each in COMMANDS.items()
        if "--json" not in each.format_help() and words not in ("cache", "decisions", "completion")
    ]
    assert without == []


@pytest.mark.parametrize(
    "command", [["breaks", "TM003"], ["backends", "eager"], ["doctor"], ["explain", "math:floor"], ["cache", "info"]]
)
def test_json_is_json(command, capsys):
    main([*command, "--json"])
    out = capsys.readouterr().out
    if command[0] != "explain":  # which says on stderr that it cannot explain this
        json.loads(out)


@pytest.mark.parametrize("width", [60, 80, 140, 200])
def test_tables_are_no_wider_than_the_terminal(width, monkeypatch, capsys):
    made = screen.Console
    monkeypatch.setattr(
        screen, "Console", lambda **given: made(**{**given, "force_terminal": True, "width": width, "no_color": True})
    )
    for command in (["backends"], ["backends", "native"], ["doctor"], ["breaks"], ["bench", "--list"]):
        main(command)
        lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
        assert lines
        assert [line for line in lines if len(line.rstrip()) > width] == [], command


def test_lines_in_a_pipe_are_not_endless(capsys):
    main(["backends"])
    assert max(map(len, capsys.readouterr().out.splitlines())) < 300


@pytest.mark.skipif(importlib.util.find_spec("shtab") is None, reason="needs shtab")
def test_completion(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    ask = f"source {script}; COMP_WORDS=(torchmux bis); COMP_CWORD=1; _shtab_torchmux; echo ${{COMPREPLY[@]}}"
    said = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    assert "bisect" in said.stdout, said.stderr
