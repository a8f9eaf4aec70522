"""A report at the end of a notebook's cell shows its page."""

from __future__ import annotations

import html
import os

import pytest

CELL = """
import torch, torchmux
compiled = torchmux.compile(torch.nn.Linear(4, 2), backend="aot_eager")
with torch.no_grad():
    compiled(torch.ones(3, 4))
torchmux.report(compiled)
"""


@pytest.mark.slow
def test_a_notebook_runs(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": os.fspath(tmp_path)}})
    client.execute()
    (output,) = (each for each in notebook.cells[0].outputs if each.output_type == "execute_result")
    assert output.data["text/plain"].startswith("1 call: 1 graph") or "Report" in output.data["text/plain"]
    page = output.data["text/html"]
    assert page.startswith("<iframe sandbox")
    assert "<!DOCTYPE html>" in html.unescape(page)
