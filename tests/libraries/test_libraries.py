"""Other libraries' models: no more graphs than ``torch.compile``, and eager's results and gradients.

Each runs in a process of its own.  Left out of the default run: ``tox -e libraries``.
"""

from __future__ import annotations

import pytest

from . import measure

pytestmark = pytest.mark.libraries


@pytest.mark.parametrize("name", list(measure.PROGRAMS))
def test_a_program_of_a_library(name):
    if (need := measure.missing(name)) == measure.PROGRAMS[name].needs[0]:
        pytest.skip(f"{need} is not installed")
    assert need is None, f"{need} is not installed, or no longer needed"
    row = measure.in_own_process(name)
    assert "failed" not in row, row["failed"]
    for backend in ("eager", "native"):
        assert row.get(f"{backend}_failed") is None
        assert row[f"{backend}_error"] <= row["tolerance"], row
    if isinstance(row["torch_graphs"], int) and not row["more"]:
        assert row["graphs"] <= row["torch_graphs"], row["breaks"]


def test_what_takes_more_graphs_says_why():
    for name, entry in measure.PROGRAMS.items():
        assert entry.more == "" or len(entry.more) > 20, name
