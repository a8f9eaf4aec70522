"""``docs/graph-breaks.md`` is the catalogue of the code, and every message names the command that explains it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.cli.main import main
from torchmux.frontend.breaks import CATALOGUE, page

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    assert (ROOT / "docs" / "graph-breaks.md").read_text() == page(), (
        "run: python -m torchmux breaks --page > docs/graph-breaks.md"
    )


def test_the_command_prints_the_page(capsys):
    assert main(["breaks", "--page"]) == 0
    assert capsys.readouterr().out == page()


def test_the_command_prints_an_entry(capsys):
    assert main(["breaks", "tm005"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"TM005 {CATALOGUE['TM005'].what}\n")
    assert CATALOGUE["TM005"].why in out
    assert "TM004" not in out


def test_the_command_knows_near_numbers(capsys):
    assert main(["breaks", "TM0003"]) == 2
    assert "TM003" in capsys.readouterr().err


def test_numbers_are_in_order_and_each_entry_is_complete():
    assert list(CATALOGUE) == sorted(CATALOGUE)
    for kind in CATALOGUE.values():
        assert re.fullmatch(r"TM\d{3}", kind.id)
        assert kind.what
        assert kind.why.endswith(".")
        assert kind.fix
        assert not kind.fix.endswith(".")


def fn(x):
    torchmux.graph_break()
    return x + 1


def test_each_message_leads_to_its_entry(capsys):
    (record,) = torchmux.explain(fn)(torch.ones(2)).break_reasons
    messages = [record.message()]
    with pytest.raises(torchmux.Unsupported) as caught:
        torchmux.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    messages.append(str(caught.value))
    for message in messages:
        (command,) = re.findall(r"\(python -m torchmux ([^)]*)\)", message)
        assert main(command.split()) == 0
        assert capsys.readouterr().out.startswith(f"TM005 {CATALOGUE['TM005'].what}")
