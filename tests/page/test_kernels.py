"""The time of each kernel, in the report and on its page."""

from __future__ import annotations

import headless_browser
import pytest
import torch

import torchmux


@pytest.fixture
def timed():
    def f(x, weight):
        return torch.softmax(x @ weight, -1).sin()

    torchmux.set_logs(kernel_times=True)
    try:
        compiled = torchmux.compile(f, backend="native")
        with torch.no_grad():
            compiled(torch.randn(8, 16), torch.randn(16, 32))
            compiled(torch.randn(8, 16), torch.randn(16, 32))
    finally:
        torchmux.set_logs()
    return torchmux.report(compiled)


def test_each_kernel_has_its_seconds(timed, tmp_path):
    (graph,) = timed.to_dict()["graphs"]
    (part,) = graph["kernel_seconds"]
    assert len(part) >= 2, "the product and the loop"
    assert all(isinstance(step, str) and step and 0 <= seconds < 10 for step, seconds in part)
    assert part == sorted(part, key=lambda each: -each[1]), "the longest first"
    if (program := headless_browser.find()) is None:
        pytest.skip("needs Chromium")
    page = tmp_path / "page.html"
    timed.to_html(page)
    browser = headless_browser.Browser(program, tmp_path / "profile")
    try:
        browser.open(page)
        said = browser.evaluate("document.getElementById('kernels').innerText")
    finally:
        browser.close()
    assert "step of the last call" in said
    for step, _ in part:
        assert " ".join(step.split()) in " ".join(said.split())


def test_not_taken():
    compiled = torchmux.compile(torch.sin, backend="native")
    compiled(torch.ones(4))
    (graph,) = torchmux.report(compiled).to_dict()["graphs"]
    assert graph["kernel_seconds"] == []
