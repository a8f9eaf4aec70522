"""docs/commands.md: each command is in its table, and exits as the table says, with one line on stderr."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchmux.cli.main import main, parser

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")


def test_the_table_has_each_command() -> None:
    (actions,) = (action for action in parser()._actions if action.metavar == "COMMAND")
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(actions.choices)


STATUSES = [
    (0, ["backends", "eager", "--json"]),
    (1, ["backends", "eagre"]),
    (0, ["breaks", "TM001"]),
    (2, ["breaks", "TM999"]),
    (0, ["explain", "{good}:f", "--input", "3"]),
    (1, ["explain", "{good}:fails", "--input", "3"]),
    (2, ["explain", "{good}:g"]),
    (2, ["explain", "{syntax}:f"]),
    (2, ["explain", "{raises}:f"]),
    (2, ["explain", "{exits}:f"]),
    (2, ["explain", "no_such_module:f"]),
    (1, ["demo", "--backends", "eagre"]),
    (1, ["conformance", "eagre"]),
    (2, ["conformance"]),
    (2, ["conformance", "eager", "--case", "nothing"]),
    (2, ["conformance", "eager", "--shard", "x"]),
    (2, ["conformance", "eager", "--json", "/no/such/folder/file"]),
    (2, ["conformance", "--requirements", "{raises}:Own"]),
    (1, ["minify", "semantics/training/one_step", "--backend", "eagre"]),
    (2, ["minify", "nothing", "--backend", "eager"]),
    (2, ["minify", "{syntax}:f", "--backend", "eager"]),
    (2, ["minify", "no_such_module:f", "--backend", "eager", "--inputs", "absent"]),
    (2, ["minify", "nothing", "--backend", "eager", "--output", "/"]),
    (1, ["bisect", "{good}:f", "--backend", "eagre"]),
    (2, ["bisect", "{good}:f", "--backend", "eager"]),
    (2, ["bisect", "{good}:f", "--backend", "eager", "--output", "/"]),
    (2, ["cache", "import", "absent"]),
    (1, ["cache", "import", "{good}"]),
    (2, ["cache", "export", "/no/such/folder/file"]),
    (0, ["decisions", "list"]),
    (1, ["decisions", "show", "no-such-key"]),
    (1, ["decisions", "import", "{good}"]),
    (2, ["decisions", "import", "absent"]),
    (2, ["tune", "{syntax}:f"]),
    (2, ["tune", "{good}:f"]),
    (2, ["tune", "no_such_module:f"]),
    (2, ["precompile", "no_such_module:f"]),
]


@pytest.fixture
def programs(tmp_path) -> dict[str, Path]:
    texts = {
        "good": "def f(x):\n    return x + 1\ndef fails(x):\n    raise ValueError('a\\nb')\n",
        "syntax": "def f(:\n",
        "raises": "1 / 0\n",
        "exits": "raise SystemExit(7)\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}_program.py").write_text(text)
    return {name: tmp_path / f"{name}_program.py" for name in texts}


@pytest.mark.parametrize(("status", "arguments"), STATUSES)
def test_each_exits_as_the_table_says(status, arguments, programs, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([argument.format(**programs) for argument in arguments]) == status
    said = capsys.readouterr().err
    assert said.startswith("torchmux: ") if status else not said
    assert said.count("\n") == bool(status)
