"""What each option and mode does, and that the results stay right."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import torchmux
from torchmux.backends.common.pipeline import aot
from torchmux.backends.native import tuning
from torchmux.backends.native.options import MODES, NativeOptions
from torchmux.config import config
from torchmux.registry import InvalidOption, list_mode_options, list_options, resolve


def network(x, w):
    y = F.gelu(x * 2) @ w
    return F.layer_norm(y, (y.shape[-1],)) + 1


INPUTS = torch.randn(6, 40), torch.randn(40, 72)


def code(report) -> str:
    return report.output_code[0]


def test_options_are_told_by_their_names() -> None:
    table = list_options("native")
    for name in ("epilogue_fusion", "max_autotune", "fallback_random", "shape_padding", "freeze", "precision"):
        assert table[name].help
    assert table["trace.enabled"].help
    assert table["trace.graph_diagram"].default is False
    assert resolve("native", options={"trace.enabled": True}).options == NativeOptions(trace_enabled=True)
    assert resolve("native", options=NativeOptions(trace_enabled=True)).options == NativeOptions(trace_enabled=True)
    with pytest.raises(InvalidOption, match="no option 'trace_enabled'.*Did you mean 'trace.enabled'"):
        resolve("native", options={"trace_enabled": True})
    with pytest.raises(InvalidOption, match="no option 'epilog_fusion'.*Did you mean 'epilogue_fusion'"):
        resolve("native", options={"epilog_fusion": True})


def test_the_page_has_all_of_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "backends.md").read_text()
    section = page[page.index("## `native`") :].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert sorted(rows) == sorted([*list_options("native"), "default", *MODES])


def test_modes_have_torchs_names() -> None:
    assert set(MODES) == {"reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"}
    expected = {"max_autotune": True, "keep_scratch": True, "cudagraphs": True}
    assert list_mode_options("max-autotune", "native") == expected
    for mode in MODES:
        assert resolve("native", mode=mode).mode == mode
    with pytest.raises(InvalidOption, match="no mode 'max-autotun'.*Did you mean 'max-autotune'"):
        resolve("native", mode="max-autotun")


def test_epilogues_of_their_own(check) -> None:
    def f(x):
        return (x - x.mean(-1, keepdim=True)).relu()

    x = torch.randn(64, 100)
    joined, apart = (code(check(f, x, options={"epilogue_fusion": on})) for on in (True, False))
    assert joined.count("static void kernel") == 1
    assert apart.count("static void kernel") == 2


def test_rows_of_matrices_are_padded(check) -> None:
    plain, padded = (code(check(network, *INPUTS, options={"shape_padding": on})) for on in (False, True))
    assert re.search(r"product\(\w+, \w+, 40l, false", plain)
    assert re.search(r"product\(\w+, \w+, 48l, false", padded)
    wide = torch.randn(3, 1024), torch.randn(1024, 20)
    assert re.search(r"product\(\w+, \w+, 1040l, false", code(check(network, *wide, options={"shape_padding": True})))


def test_bfloat16_products(capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        captured = capture(network, *INPUTS)
        compiled = captured.compile("native", strict=True, options={"precision": "bf16"})
        got = captured.run(compiled, *INPUTS)
    wanted = F.layer_norm((F.gelu(INPUTS[0] * 2).bfloat16() @ INPUTS[1].bfloat16()).float(), (72,)) + 1
    assert got.dtype is torch.float32
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    assert float((got - network(*INPUTS)).abs().max()) > 1e-4


def test_gradients_of_bfloat16_products(tmp_path) -> None:
    x, w = (t.clone().requires_grad_() for t in INPUTS)
    with config.patch(cache_dir=tmp_path):
        compiled = torchmux.compile(lambda x, w: (x @ w).sin(), backend="native", options={"precision": "bf16"})
        compiled(x, w).sum().backward()
    a, b = (t.clone().requires_grad_() for t in INPUTS)
    (a @ b).sin().sum().backward()
    for mine, exact in ((x.grad, a.grad), (w.grad, b.grad)):
        error = float((mine - exact).norm() / exact.norm())
        assert 1e-4 < error < 0.05


def test_random_numbers_are_eagers(capture) -> None:
    x = torch.randn(30, 40)
    for asked in (True, False):
        captured = capture(lambda x: F.dropout(x, 0.5, True), x)
        compiled = captured.compile("native", options={"fallback_random": asked})
        torch.manual_seed(1)
        got = captured.run(compiled, x)
        torch.manual_seed(1)
        torch.testing.assert_close(got, F.dropout(x, 0.5, True))


def test_scratch_memory_is_kept(check, capture) -> None:
    from torchmux.backends.native import runtime

    kept = runtime.KeptScratch()
    first = kept(100)
    assert kept(50) is first
    assert kept(200).numel() == 200
    x = torch.randn(5, 40)
    check(network, *INPUTS, options={"keep_scratch": True})
    captured = capture(lambda x, w: network(x, w) @ w.t(), *INPUTS)
    compiled = captured.compile("native", options={"keep_scratch": True})
    one = captured.run(compiled, *INPUTS)
    before = one.clone()
    captured.run(compiled, INPUTS[0] * 3, INPUTS[1])
    assert torch.equal(one, before)
    assert x.shape == (5, 40)


def test_the_fastest_way_is_kept(capture, monkeypatch, tmp_path) -> None:
    """As measured: here by made-up times, which single out one way."""
    monkeypatch.setattr(tuning, "_least_times", lambda runs, inputs, target: [0.3, 0.2, *([0.4] * (len(runs) - 2))])
    with config.patch(cache_dir=tmp_path):
        captured = capture(network, *INPUTS)
        compiled = captured.compile("native", strict=True, options={"max_autotune": True})
        torch.testing.assert_close(captured.run(compiled, *INPUTS), network(*INPUTS))
        [note] = [n for n in compiled.report.notes if "several ways" in n]
        assert "the defaults 300.000 ms; optimize='O3' 200.000 ms (kept)" in note


def test_ways_are_timed_without_drawing_the_programs_numbers(capture, tmp_path) -> None:
    def f(x, rows):
        return F.dropout(x[rows] * 2, 0.5, True).softmax(-1)

    args = torch.randn(5, 7), torch.tensor([4, 0, 3])
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with config.patch(cache_dir=tmp_path):
        captured = capture(f, *args)
        compiled = captured.compile("native", options={"max_autotune": True})
    assert torch.equal(torch.get_rng_state(), state)
    got = captured.run(compiled, *args)
    torch.set_rng_state(state)
    torch.testing.assert_close(got, f(*args))
    assert any("several ways" in n for n in compiled.report.notes)


def test_a_trace_is_written_each_time(capture, monkeypatch, tmp_path) -> None:
    options = {"trace.enabled": True, "trace.graph_diagram": True, "trace.debug_dir": tmp_path / "traces"}
    with config.patch(cache_dir=tmp_path / "cache"):
        for _ in range(2):
            captured = capture(network, *INPUTS)
            compiled = captured.compile("native", strict=True, options=options)
            [note] = [n for n in compiled.report.notes if "wrote a trace to" in n]
            [folder] = (tmp_path / "traces").iterdir()
            assert note.endswith(str(folder))
            files = {p.name: p.read_text() for p in folder.iterdir()}
            for path in folder.iterdir():
                path.unlink()
            assert set(files) == {"graph.py", "program.txt", "fusion.txt", "code.cpp", "call.py", "graph.svg"}
            assert files["code.cpp"] == code(compiled.report)
            assert "aten.gelu" in files["graph.py"]
            assert "are one kernel." in files["fusion.txt"]
            monkeypatch.setattr(aot, "trace_inference", None)  # the second time there is nothing to trace


def test_the_drawing_shows_every_step(capture, tmp_path) -> None:
    def f(x, w):
        return torch.linalg.qr(network(x, w))[1].exp()

    with config.patch(cache_dir=tmp_path):
        compiled = capture(f, *INPUTS).compile("native", options={"trace.graph_diagram": True})
    [path] = tmp_path.rglob("graph.svg")
    svg = ET.fromstring(path.read_text())
    space = "{http://www.w3.org/2000/svg}"
    kinds = [group.get("class") for group in svg.iter(f"{space}g")]
    assert kinds.count("input") == 2
    assert kinds.count("product") == 1
    assert kinds.count("kernel") == code(compiled.report).count("  kernel")
    assert kinds.count("output") >= 1
    texts = [text.text for text in svg.iter(f"{space}text")]
    assert "layer_norm" in str(texts) or any("mean" in text for text in texts)
    rectangles = [tuple(float(r.get(name)) for name in ("x", "y", "width", "height")) for r in svg.iter(f"{space}rect")]
    for n, (x, y, w, h) in enumerate(rectangles):
        assert x + w <= float(svg.get("width"))
        assert y + h <= float(svg.get("height"))
        for other_x, other_y, other_w, other_h in rectangles[n + 1 :]:
            assert x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y


def test_why_two_kernels_are_two(capture, capfd, tmp_path) -> None:
    torchmux.set_logs(fusion=True, perf_hints=True)
    try:
        with config.patch(cache_dir=tmp_path):
            for _ in range(2):  # the second time out of the cache
                captured = capture(lambda x: (x.softmax(0) + 1).cumsum(1).sort()[0], torch.randn(30, 40))
                captured.compile("native")
                told = capfd.readouterr().err
                assert re.search(r"b\d+ \(aten\..* at .*test_options.py:\d+\) are one kernel\.", told)
                assert re.search(r"torch's kernel runs aten\.sort\.\w+ at .*test_options.py:\d+", told)
            network_with_weights = torch.nn.Linear(40, 30)
            capture(network_with_weights, torch.randn(16, 40)).compile("native")
            assert "1 matrix products read weights as torch keeps them" in capfd.readouterr().err
            capture(network_with_weights, torch.randn(16, 40)).compile("native", options={"freeze": True})
            assert "matrix products read weights" not in capfd.readouterr().err
    finally:
        torchmux.set_logs()


def test_generated_code_names_lines_of_the_program(capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        report = capture(network, *INPUTS).compile("native").report
    line = network.__code__.co_firstlineno
    assert f"test_options.py:{line + 1}" in code(report)
    assert f"test_options.py:{line + 2}" in code(report)
