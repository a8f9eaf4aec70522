"""``docs/api.md``: every name of ours and of ``torch.compiler`` has its row, and what the rows say is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch._dynamo
import torch.compiler

import torchmux
from torchmux.config import config

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def rows(heading: str) -> dict[str, str]:
    """The names in the first column of a table -> its second column."""
    table = re.search(
        rf"^\| `{re.escape(heading)}` \| here \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    )
    assert table is not None
    found = {}
    for line in table[1].splitlines():
        first, second = line.split("|")[1:3]
        found.update(dict.fromkeys(re.findall(r"`([\w.]+)`", first), second.strip()))
    return found


COMPILER, DYNAMO = rows("torch.compiler"), rows("torch._dynamo")


def test_each_name_of_torch_compiler_has_a_row():
    assert set(torch.compiler.__all__) - set(COMPILER) == set()


def test_each_name_of_torch_dynamo_has_a_row():
    assert set(torch._dynamo.__all__) - set(DYNAMO) == set()


@pytest.mark.parametrize(("table", "name"), [(t, n) for t in (COMPILER, DYNAMO) for n in t])
def test_what_a_row_names_is_there(table, name):
    here = table[name]
    if here == "the same names":
        assert hasattr(torchmux, name)
    elif here == "torch's own":
        assert hasattr(torch.compiler, name)
        assert not hasattr(torchmux, name)
    elif here == "not provided":
        assert not hasattr(torchmux, name)
    else:
        owner = torchmux
        for part in re.fullmatch(r"`([\w.]+)`", here)[1].split("."):
            owner = getattr(owner, part)


def test_each_setting_has_a_row_with_its_default(monkeypatch):
    for name in ("CALLS_IN_CPP", "FAIL_ON_COMPILER_ERRORS", "LEAVE_SMALL_GRAPHS"):
        monkeypatch.delenv(f"TORCHMUX_{name}")
    settings = PAGE[PAGE.index("## Settings") :]
    for name, value in type(config)().to_dict().items():
        row = re.search(rf"^\| `{name}` \| ([^|]+) \|", settings, re.MULTILINE)
        assert row is not None, name
        if isinstance(value, bool):
            assert row[1] == ("yes" if value else "no"), name
        elif isinstance(value, int):
            assert row[1] == str(value), name
