"""The page for browsers: it stands alone, and in a real browser it filters, opens cases, and compares runs."""

from __future__ import annotations

import json
import re

import headless_browser
import pytest
import torch

from torchmux.conformance import page, report, reproducer, semantics
from torchmux.conformance.loopback import Loopback
from torchmux.conformance.outcome import Outcome, Result

NAMED = "torchmux.conformance.loopback:requirements_wrong_value"
FAILING = next(case for case in semantics.cases() if case.id == "semantics/structure/a_small_network")


def runs():
    """Two small runs whose texts try to break out of the page."""
    script = reproducer.script(FAILING, Loopback("wrong_value"), NAMED)
    before = [
        Result(FAILING.id, Outcome.MISMATCH, "off </script><b>by</b>", details={"reproducer": script, "sample": 2}),
        Result("operators/linalg.norm/float32-forward", Outcome.PASS),
        Result("operators/add/float32-forward", Outcome.FALLBACK, "add: not here", 0.25),
        Result("models/bert/training", Outcome.TIMEOUT, "not finished"),
    ]
    after = [Result(FAILING.id, Outcome.PASS), *before[1:]]
    return [
        report.to_json("loopback_wrong_value", "quick", "1", before),
        report.to_json("loopback_mended", "quick", "2", after),
    ]


def test_it_holds_the_runs_and_loads_nothing():
    text = page.html(runs())
    assert not re.findall(r"""<[^>]*\s(?:src|href)=|@import|url\(|https?://""", text)
    assert text.count("</script>") == 2, "a result's text ends the data"
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    (first, second) = json.loads(data[1])
    assert [first["backend"], second["backend"]] == ["loopback_wrong_value", "loopback_mended"]
    assert first["environment"]["torch"] == torch.__version__
    assert first["results"][0]["reason"] == "off </script><b>by</b>"
    assert [result["group"] for result in first["results"]] == [
        "semantics/structure", "operators/linalg", "operators/torch", "models/training",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="at least one run"):
        page.html([])


@pytest.fixture
def opened(tmp_path):
    program = headless_browser.find()
    if program is None:
        pytest.skip("no Chromium here")
    (tmp_path / "page.html").write_text(page.html(runs()))
    driven = headless_browser.Browser(program, tmp_path / "profile")
    try:
        driven.open(tmp_path / "page.html")
        yield driven
        assert driven.errors == []
        assert all(url.startswith(("file:", "blob:")) for url in driven.requests), driven.requests
    finally:
        driven.close()


CELLS = "[...document.querySelectorAll('#matrix tbody th')].map(cell => cell.textContent)"
SHOWN = "[...document.querySelectorAll('#list .case')].map(button => button.textContent)"
FOCUS = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"


@pytest.mark.slow
def test_in_a_browser_with_the_keyboard_alone(opened, tmp_path, run_python):
    assert opened.evaluate(CELLS) == ["models/training", "operators/linalg", "operators/torch", "semantics/structure"]
    opened.press("/")
    assert opened.evaluate("document.activeElement.id") == "filter"
    opened.write("network")
    assert opened.evaluate(CELLS) == ["semantics/structure"]
    while not str(opened.evaluate(FOCUS)).startswith("loopback_wrong_value, semantics/structure"):
        opened.press("Tab")
    opened.press("ArrowRight")
    assert opened.evaluate(FOCUS) == "loopback_mended, semantics/structure: 1 pass"
    opened.press("ArrowLeft")
    opened.press("Enter")
    assert opened.evaluate(SHOWN) == [FAILING.id]
    assert opened.evaluate(FOCUS).startswith("loopback_wrong_value"), "the focus is lost"
    while opened.evaluate(FOCUS) != FAILING.id:
        opened.press("Tab")
    opened.press("Enter")
    assert opened.evaluate("document.querySelector('.detail p').textContent") == "off </script><b>by</b>"
    assert opened.evaluate("document.querySelectorAll('.detail b').length") == 0
    script = opened.evaluate("document.querySelector('.reproducer').textContent")
    program = tmp_path / "shown.py"
    program.write_text(script)
    run_python(
        "import runpy\n"
        f"try:\n    runpy.run_path({str(program)!r}, run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 1"
    )
    opened.press("Escape")
    assert opened.evaluate(SHOWN) == [] or opened.evaluate("document.getElementById('cases').hidden")


@pytest.mark.slow
def test_outcomes_and_comparison_in_a_browser(opened):
    assert opened.evaluate("document.getElementById('changed').textContent") == "1 of 4 common cases differ"
    words = opened.evaluate("[...document.querySelectorAll('#changes tbody td')].map(cell => cell.textContent)")
    assert words[:3] == [FAILING.id, "mismatch", "pass"]
    opened.evaluate("document.querySelector('input[value=timeout]').click()")
    assert "models/training" not in opened.evaluate(CELLS)
    opened.evaluate("document.querySelector('input[value=timeout]').click()")
    assert "models/training" in opened.evaluate(CELLS)
