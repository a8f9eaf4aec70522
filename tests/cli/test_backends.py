"""``torchmux backends``: complete and readable at every width, plain in pipes, JSON on request."""

from __future__ import annotations

import json
import re

import pytest

import torchmux
from torchmux.cli import screen
from torchmux.cli.main import main


@pytest.fixture
def terminal(monkeypatch):
    """``terminal(width)`` makes the commands believe that they print to a terminal of that width."""

    def pretend(width: int) -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")

    return pretend


@pytest.fixture
def odd_backends(own_catalog):
    """One that lacks something, one that is broken, one that nobody tried."""
    torchmux.register_backend(
        torchmux.BackendSpec(
            name="lacking",
            summary="lacks something",
            load="nowhere:compile",
            requires=("no-such-distribution>=7",),
            install='python -m pip install "torchmux[lacking]"',
        )
    )
    torchmux.register_backend(
        torchmux.BackendSpec(name="untried", summary="nobody tried it", load="nowhere:compile", unverified="no machine")
    )


def printed(capsys, *arguments: str) -> str:
    assert main(["backends", *arguments]) == 0
    return capsys.readouterr().out


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_every_backend_is_listed(capsys):
    lines = printed(capsys).splitlines()
    assert lines[0].split() == ["backend", "runs", "here", "version", "devices", "trains", "dynamic", "about"]
    assert [line.split()[0] for line in lines[1:]] == [row.name for row in torchmux.backends()]


def test_pipes_get_whole_lines(capsys, odd_backends):
    text = printed(capsys)
    (line,) = [line for line in text.splitlines() if line.startswith("lacking ")]
    assert "needs no-such-distribution>=7, which is not installed" in line
    assert line.endswith('install: python -m pip install "torchmux[lacking]"')
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "unverified: no machine" in text


def test_states(capsys):
    words = {line.split()[0]: line for line in printed(capsys).splitlines()}
    assert words["eager"].split()[1] == "yes"
    assert words["ipex"].split()[1] == "retired"
    assert "Use backend='inductor' instead." in words["ipex"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_nothing_is_lost_at_any_width(capsys, terminal, odd_backends, width):
    terminal(width)
    assert screen.console().width == width
    text = without_colours(printed(capsys))
    assert all(len(line) <= width for line in text.splitlines())
    joined = "".join(text.split())
    for row in torchmux.backends():
        assert row.name in text
        if not row.available:
            assert "".join((row.error or row.reason).split()) in joined or width >= 100  # a table interleaves columns
    assert "no-such-distribution" in joined


def test_json(capsys, odd_backends):
    rows = json.loads(printed(capsys, "--json"))
    assert [row["name"] for row in rows] == [row.name for row in torchmux.backends()]
    by_name = {row["name"]: row for row in rows}
    assert by_name["eager"]["available"] is True
    assert by_name["lacking"]["install"] == 'python -m pip install "torchmux[lacking]"'


def test_json_of_some(capsys):
    assert [row["name"] for row in json.loads(printed(capsys, "--json", "onnxrt", "EAGER"))] == ["onnxrt", "eager"]


def test_details(capsys):
    text = printed(capsys, "onnxrt", "inductor", "ipex")
    for name, option in torchmux.list_options("onnxrt").items():
        assert f"option {name}: {option.type}" in text
        assert option.help in text
    assert "mode 'max-autotune': max_autotune=True" in text
    assert "retired" in text


def test_details_of_every_backend(capsys):
    for row in torchmux.backends():
        assert row.name in printed(capsys, row.name)


def test_unknown_name(capsys):
    assert main(["backends", "onxrt"]) == 1
    assert "Did you mean 'onnxrt'?" in capsys.readouterr().err


def test_listing_imports_no_compiler(run_python):
    code = (
        "import sys\nfrom torchmux.cli.main import main\nassert main(['backends']) == 0\n"
        "print([m for m in ('torch', 'onnxruntime', 'openvino', 'tvm', 'transformers') if m in sys.modules])"
    )
    assert run_python(code).splitlines()[-1] == "[]"
