"""One page for each compile: what it holds, what it never runs, and how it behaves in a real browser."""

from __future__ import annotations

import html.parser
import importlib.util
import json

import headless_browser
import pytest
import torch

import torchmux
from torchmux.page import frame, sources

PROGRAM = """
import torch

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x * self.weight).relu()

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Scale(), Scale()

    def forward(self, x):
        x = self.first(x)
        if x.sum() > 0:
            x = x + 1
        # </script><script>window.hacked = "comment"</script><img src=x onerror="window.hacked = 'image'">
        return self.second(x).sin()
"""


def load(path, text):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("the_program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A model whose graph breaks, called with two sizes, by a backend that leaves an operator to torch."""

    class NoSin:
        def supports(self, node):
            return "</script><b>no sin</b>" if node.target is torch.ops.aten.sin.default else True

        def compile(self, gm, example_inputs, request):
            return gm.forward

    name = "<img src=x onerror=alert(1)>.py"
    model = load(tmp_path_factory.mktemp("programs") / name, PROGRAM).Model().eval()
    torchmux.register_backend(name="no_sin", graph="aten")(NoSin)
    try:
        made = torchmux.compile(
            model, backend="no_sin", dynamic=False, name="</title><script>window.hacked = 1</script>"
        )
        with torch.no_grad():
            made(torch.ones(2, 4))
            made(torch.ones(3, 4))
    finally:
        torchmux.unregister_backend("no_sin")
    return made


def test_to_dict_is_json_and_agrees_with_the_report(compiled):
    report = torchmux.report(compiled)
    told = json.loads(json.dumps(report.to_dict()))
    assert told["runs"] == 2 and told["share"] == report.share and told["kinds"] == report.kinds
    assert [graph["name"] for graph in told["graphs"]] == [entry.name for entry in report.graphs]
    first, rest, again, *_ = told["graphs"]
    assert first["reason"] == "" and "expected 2, actual 3" in again["reason"]
    assert [node["modules"] for node in first["nodes"] if node["calls"] == "Tensor.relu"] == [["self.first"]]
    (sin,) = [p for p in rest["placements"] if p["kind"] == "torch"]
    assert rest["nodes"][sin["origin"]]["calls"] == "Tensor.sin" and sin["reason"] == "</script><b>no sin</b>"
    assert first["guards"] and told["breaks"][0]["kind"] == "TM001"
    for entry in report.graphs:
        assert sum(entry.seconds.values()) == pytest.approx(
            sum(s.end - s.begin for s in entry.spans if s.depth == 0), rel=0.01, abs=1e-3
        )
        assert all(
            1 << 26 < bytes < 1 << 40 for span in entry.spans for bytes in span.resident
        )  # torch alone is larger


def test_the_source_says_who_ran_each_line_and_where_it_broke(compiled):
    pieces = sources.sources(torchmux.report(compiled).to_dict())
    lines = {line["text"].strip(): line for piece in pieces for line in piece["lines"]}
    assert lines["if x.sum() > 0:"]["breaks"] == [0]
    assert {(backend, kind) for _, backend, kind, _ in lines["return self.second(x).sin()"]["ran"]} == {
        ("torch", "torch")
    }
    assert {backend for _, backend, *_ in lines["return (x * self.weight).relu()"]["ran"]} == {"no_sin"}


class _Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


def test_nothing_of_the_program_becomes_html(compiled, tmp_path):
    empty, page = _Tags(), _Tags()
    report = torchmux.report(compiled)
    empty.feed(torchmux.report(torchmux.compile(lambda x: x)).to_html())
    text = report.to_html(tmp_path / "page.html")
    page.feed(text)
    without = [(tag, a) for tag, a in page.tags if a.get("http-equiv") is None]
    assert without == [(tag, a) for tag, a in empty.tags if a.get("http-equiv") is None]
    assert (tmp_path / "page.html").read_text() == text
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "'unsafe-inline'; script-src 'sha256-" in policy
    assert all(a.get("href", "#").startswith("#") and "src" not in a for _, a in page.tags)
    assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "document.write" not in text


def test_notebooks_show_it_in_a_frame_of_its_own(compiled):
    tags = _Tags()
    tags.feed(torchmux.report(compiled)._repr_html_())
    ((tag, attributes),) = tags.tags
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"].startswith("<!DOCTYPE html>")
    assert frame(torchmux.report(compiled).to_dict()).count("<") == 2


def test_a_page_of_nothing(tmp_path):
    report = torchmux.report(torchmux.compile(lambda x: x))
    assert report.to_dict()["graphs"] == [] and report.to_dict()["share"] is None
    with pytest.raises(OSError):
        report.to_html(tmp_path / "no" / "folder.html")


CLIPPED = """[...document.querySelectorAll('.node')].filter(node => [...node.querySelectorAll('text')].some(
    text => text.getComputedTextLength() + 14 > node.querySelector('rect').getBBox().width)).length"""
OVERLAPS = """(boxes => boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom)).length)([...document.querySelectorAll('.node')].map(
    node => node.getBoundingClientRect()))"""
LABELS = "[...document.querySelectorAll('.node')].map(node => node.getAttribute('aria-label'))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = headless_browser.find()
    if program is None:
        pytest.skip("no Chromium here")
    driven = headless_browser.Browser(program, tmp_path_factory.mktemp("browser"))
    yield driven
    driven.close()


def click(browser, selector):
    """A click where the browser shows something, so that what lies above it would get it."""
    x, y = browser.evaluate(
        f"(e => (e.scrollIntoView({{block: 'center'}}), (r => [r.x + r.width / 2, r.y + r.height / 2])"
        f"(e.getBoundingClientRect())))(document.querySelector({json.dumps(selector)}))"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@pytest.mark.parametrize("width", [1280, 1920])
def test_in_a_browser(compiled, browser, tmp_path, width):
    torchmux.report(compiled).to_html(tmp_path / "page.html")
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("window.hacked") is None and browser.errors == []
    assert browser.evaluate("document.querySelectorAll('img, b script, main script').length") == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    click(browser, "#close")
    closed = browser.evaluate(LABELS)
    assert any(label.startswith("▸ self.first") for label in closed)
    click(browser, ".node.group")
    assert "Tensor.relu" in " ".join(browser.evaluate(LABELS))
    assert browser.evaluate(CLIPPED) == 0 and browser.evaluate(OVERLAPS) == 0
    browser.press("Escape")
    assert browser.evaluate(LABELS) == closed
    browser.press("ArrowDown")
    browser.press("Enter")
    assert browser.evaluate("document.activeElement.closest('#canvas') !== null")
    browser.evaluate(
        "(w => { w.value = '1'; w.dispatchEvent(new Event('change')); })(document.querySelector('#which'))"
    )
    click(browser, "#open")
    click(browser, ".node.torch")
    assert "</script><b>no sin</b>" in browser.evaluate("document.querySelector('#details').textContent")
    click(browser, "#to-code")
    assert browser.evaluate("document.activeElement.closest('details').open") is True
    assert browser.evaluate("[...document.querySelectorAll('#events .again')].length") >= 1
    cut = "[...document.querySelectorAll('.flame button')].filter(bar => bar.scrollWidth > bar.clientWidth + 1)"
    assert browser.evaluate(f"{cut}.map(bar => bar.textContent)") == []
    graphs = len(torchmux.report(compiled).graphs)
    assert browser.evaluate("document.querySelectorAll('#time .memory polyline').length") == graphs
    assert browser.evaluate("document.querySelector('.memory').getAttribute('aria-label')").startswith("Memory of")
    assert browser.errors == [] and all(url.startswith("file:") for url in browser.requests)
