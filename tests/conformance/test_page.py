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
    after = [Result(FAILING.id, Outcome.PASS), *before[1:], Result("operators/sub/float32-forward", Outcome.SLOW, "9")]
    return [
        report.to_json("loopback_wrong_value", "quick", "1", before),
        report.to_json("loopback_mended", "quick", "2", after),
        {**report.to_json("loopback_mended", "quick", "2", after), "date": "2020-01-02"},
    ]


def test_it_holds_the_runs_and_loads_nothing():
    text = page.html(runs())
    assert not re.findall(r"""<[^>]*\s(?:src|href)=|@import|url\(|https?://""", text)
    assert text.count("</script>") == 2, "a result's text ends the data"
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    (first, second, _) = json.loads(data[1])
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
    said = opened.evaluate("document.getElementById('changed').textContent")
    assert said == "1 of 4 common cases differ, 1 are in one run only"
    words = opened.evaluate("[...document.querySelectorAll('#changes tbody td')].map(cell => cell.textContent)")
    assert words[:3] == [FAILING.id, "mismatch", "pass"]
    opened.evaluate("document.querySelector('input[value=timeout]').click()")
    assert "models/training" not in opened.evaluate(CELLS)
    opened.evaluate("document.querySelector('input[value=timeout]').click()")
    assert "models/training" in opened.evaluate(CELLS)
    assert {"not in this run", "operators/sub/float32-forward"} < set(words)
    heads = opened.evaluate("[...document.querySelectorAll('#matrix thead th')].map(cell => cell.textContent)")
    assert heads[1] == "loopback_wrong_value"
    assert heads[3] == "loopback_mended (2020-01-02)", "two runs of one backend are not told apart"
    label = opened.evaluate("document.querySelector('#before option').textContent")
    assert report.environment()["processor"] in label and f"torch {torch.__version__}" in label
    opened.evaluate("{ const rows = document.getElementById('rows'); rows.value = 'subject'; "
                    "rows.dispatchEvent(new Event('change')); }")  # fmt: skip
    assert {"operators/add", "operators/linalg.norm", "operators/sub"} < set(opened.evaluate(CELLS))


# What eyes without receptors for red or green see, in linear RGB (Viénot, Brettel and Mollon, 1999).
SEEN = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.1124, 0.8876, 0), (0.1124, 0.8876, 0), (0.004, -0.004, 1)),
    "no green": ((0.2928, 0.7072, 0), (0.2928, 0.7072, 0), (-0.0223, 0.0223, 1)),
}


def linear(colour):
    return torch.tensor([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)], dtype=torch.float64) ** 2.2


def lab(light):
    """Coordinates in which equal distances look equally large."""
    to_xyz = torch.tensor([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]).double()
    x, y, z = ((to_xyz @ light.clamp(0, 1)) / torch.tensor([0.9505, 1, 1.089]).double()).pow(1 / 3)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_outcomes_differ_for_everyone(scheme):
    text = page.html(runs())
    styles = text.split("@media (prefers-color-scheme: dark)")[scheme == "dark"].split("</style>")[0]
    colours = {name: linear(c) for name, c in re.findall(r"\.(\w+) { --sign: (#[0-9a-f]{6}); }", styles)}
    signs = dict(re.findall(r'(\w+): "(.)"', text.split("const SIGNS = {")[1].split("};")[0]))
    assert set(colours) == set(signs) == {outcome.value for outcome in Outcome}
    assert len(set(signs.values())) == len(signs), "two outcomes have one sign"
    back = torch.tensor(0.01 if scheme == "dark" else 1.0)
    for name, colour in colours.items():
        light = colour @ torch.tensor([0.2126, 0.7152, 0.0722]).double()
        assert (max(light, back) + 0.05) / (min(light, back) + 0.05) >= 3, f"{name} is hard to read"
    right = ("pass", "slow", "fallback", "unsupported", "skipped")
    for eyes, matrix in SEEN.items():
        seen = {name: lab(torch.tensor(matrix).double() @ colour) for name, colour in colours.items()}
        near = [(a, b) for a in right for b in seen if b not in right and (seen[a] - seen[b]).norm() < 15]
        assert not near, f"{near} look alike to {eyes}"
