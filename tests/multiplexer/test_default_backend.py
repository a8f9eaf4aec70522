"""``auto`` as the default of the process."""

from __future__ import annotations

import torch

import torchmux


def test_auto_measures_what_names_no_backend() -> None:
    """``allow`` leaves eager alone in the race, so that this takes one process."""
    x = torch.randn(8)
    with torchmux.config.patch(default_backend="auto"):
        compiled = torchmux.compile(torch.sin, options={"wait": True, "allow": [], "budget_s": 120.0})
    assert torch.equal(compiled(x), x.sin())
    (entry,) = torchmux.report(compiled).graphs
    assert entry.report.chosen == "auto is the default here: torchmux.config.default_backend names it"
    assert any("auto chose eager" in note for note in entry.report.notes)
