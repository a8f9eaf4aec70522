"""Results as data and as pictures."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from torchmux.bench import plot
from torchmux.bench.latency import Latency, Ratio
from torchmux.bench.results import Result, Row, from_json, machine_in_words, to_json


def row(side, milliseconds, verdict="right", **more):
    sample = [milliseconds * (1 + number / 500) / 1e3 for number in range(100)]
    speedup = Ratio(1 / milliseconds, 0.9 / milliseconds, 1.1 / milliseconds)
    return Row(side, verdict, latency=Latency.of(sample), speedup=speedup, sample=sample, turns=sample[:8], **more)


def result(**more):
    rows = [row("eager", 1.0), row("native", 0.25), row("a+b", 2.0, "unjudged"), Row("tvm", "lost", "it hangs")]
    source = {"kind": "zoo", "place": ["bert"], "batch": 8, "dtype": "bfloat16", "device": "cpu"}
    return Result("bert", source, 3, rows, training=True, **more)


def test_json_and_back():
    first = result()
    first.rows[0].speedup = Ratio(1.0, 0.0, math.inf)
    text = to_json([first])
    assert "Infinity" not in text and "NaN" not in text
    (again,) = from_json(text)
    assert again == first


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99, "programs": []}', "no"])
def test_text_of_another_format(text):
    with pytest.raises(ValueError):
        from_json(text)


def test_a_title():
    assert result().title == "bert, batch 8, bfloat16, training"
    assert machine_in_words(1).endswith(", 1 thread") and machine_in_words(2).endswith(", 2 threads")


def texts(file: Path) -> list[str]:
    found = xml.parse(file).getroot().iter("{http://www.w3.org/2000/svg}text")
    return ["".join(each.itertext()).strip() for each in found]


def test_a_drawing_has_the_rows_that_were_timed(tmp_path):
    pytest.importorskip("matplotlib")
    other = result()
    other.program = "gnn <&> $x_1$"
    plot.draw([result(), other], tmp_path / "found.svg")
    found = texts(tmp_path / "found.svg")
    for side in ("eager", "native", "a+b"):
        assert found.count(side) == 2
    assert "tvm" not in found
    for words in ("bert, batch 8, bfloat16, training", "gnn <&> $x_1$, batch 8, bfloat16, training", "4.00", "0.50"):
        assert words in found, found
    assert found.count(machine_in_words(3)) == 2
    assert found.count("milliseconds per call") == found.count("times as fast as eager") == 2
    # The row that nobody could judge is hatched, and told apart without colours.
    assert re.search("<pattern", (tmp_path / "found.svg").read_text())


def test_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    plot.draw([result()], tmp_path / "found.png")
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_one_call_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    one = Row("eager", "right", latency=Latency.of([0.1]), speedup=Ratio(1.0, 0.0, math.inf), sample=[0.1], turns=[0.1])
    plot.draw([Result("f", {}, 1, [one])], tmp_path / "found.svg")
    assert "eager" in texts(tmp_path / "found.svg")


def test_what_cannot_be_drawn(tmp_path, monkeypatch):
    with pytest.raises(plot.NoPlot, match="nothing was timed"):
        plot.draw([Result("f", {}, 1)], tmp_path / "found.svg")
    with pytest.raises(plot.NoPlot, match=r"neither .png nor .svg"):
        plot.check("found.pdf")
    monkeypatch.setattr(plot.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(plot.NoPlot, match=r"torchmux\[plots\]"):
        plot.check("found.svg")
