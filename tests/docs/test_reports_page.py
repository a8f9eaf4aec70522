"""``docs/reports.md`` says what every public field of a report means; its examples run with those of all documents."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from torchmux.frontend.explain import FunctionCalls, GraphEntry, Report
from torchmux.frontend.hook import calls
from torchmux.registry.report import KINDS, GraphReport, Placement
from torchmux.stages import STAGES

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text()


def public(cls):
    names = [field.name for field in dataclasses.fields(cls)]
    names += [name for name, value in vars(cls).items() if isinstance(value, property) or callable(value)]
    return sorted({name for name in names if not name.startswith("_")})


@pytest.mark.parametrize("cls", [Report, GraphEntry, FunctionCalls, GraphReport, Placement])
def test_every_field_is_on_the_page(cls):
    text = re.findall(r"`[^`\n]+`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE))
    named = {word for code in text for word in re.findall(r"\w+", code)}
    assert [name for name in public(cls) if name not in named] == []


def test_kinds_stages_and_reasons_are_on_the_page():
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []
    assert [stage for stage in STAGES if f"| `{stage}` |" not in PAGE] == []
    names = ("DISABLED", "GENERATOR", "LEFT_TO_EAGER", "LOOP", "OTHER_GLOBALS", "REST")
    reasons = [getattr(calls, name) for name in names]
    assert [reason for reason in reasons if f"`{reason}`" not in PAGE] == []
