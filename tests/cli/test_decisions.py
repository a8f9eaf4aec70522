"""``torchmux decisions``: what it says, what it does, how it ends."""

from __future__ import annotations

import json

import pytest
from decided import FINGERPRINT, decision

from torchmux.cli.main import main
from torchmux.config import config
from torchmux.multiplexer import decisions

KEY = FINGERPRINT.key
OTHER = decision(bucket="1..8")


@pytest.fixture(autouse=True)
def kept(tmp_path):
    with config.patch(cache_dir=tmp_path / "cache"):
        decisions.keep(FINGERPRINT, decision())
        decisions.keep(OTHER.fingerprint, decision(bucket="1..8"))
        yield


def said(capsys, *arguments: str) -> str:
    assert main(["decisions", *arguments]) == 0
    return capsys.readouterr().out


def test_list(capsys):
    lines = said(capsys, "list").splitlines()
    assert lines[0].split() == ["key", "choice", "ms", "phase", "threads", "inputs", "program"]
    row = next(line for line in lines if line.startswith(KEY[:12]))
    assert row.split() == [KEY[:12], "native", "1", "inference", "8", "float32[8]", "on", "cpu", "model.py:3"]
    told = json.loads(said(capsys, "list", "--json"))
    assert {each["key"] for each in told} == {KEY, OTHER.key}
    said(capsys, "forget", "--all")
    assert "There are no decisions" in said(capsys, "list")


def test_show(capsys):
    text = said(capsys, "show", KEY[:12])
    assert f"key         {KEY}" in text
    assert "native: it is the quickest beyond doubt" in text
    assert "capability AVX2, processor Abacus 5, threads 8" in text
    table = text[text.index("candidate  ") :].splitlines()
    assert table[1].split() == ["native", "0.50", "1", "1%", "1.0e-09", "256", "chosen"]
    assert table[4].split()[:3] == ["openvino", "wrong", "on"]
    (told,) = json.loads(said(capsys, "show", KEY, "--json"))
    assert decisions.Decision.from_data({k: v for k, v in told.items() if k != "key"}) == decisions.find(KEY)
    assert said(capsys, "show", KEY[:8]).count("quickest beyond doubt") == 2  # both are on the same graph


def test_pin_and_unpin(capsys):
    assert "is pinned to eager" in said(capsys, "pin", KEY[:14], "eager")
    assert "eager (pinned)" in said(capsys, "list")
    assert "eager: it is pinned; the measurement chose native" in said(capsys, "show", KEY)
    assert "followed as it was measured: native" in said(capsys, "unpin", KEY)
    assert "pinned" not in said(capsys, "list")


def test_export_and_import(capsys, tmp_path):
    file = str(tmp_path / "file.json")
    assert said(capsys, "export", file).startswith("2 decisions written")
    assert said(capsys, "export", "-", KEY) == decisions.export_decisions([decisions.find(KEY)])
    with config.patch(cache_dir=tmp_path / "there"):
        text = said(capsys, "import", file)
        assert f"{KEY[:12]}  inactive: it was measured on Abacus 5" in text
        assert text.splitlines()[-1] == "2 decisions: 2 inactive"
        assert len(list(decisions.entries())) == 2
    told = json.loads((tmp_path / "file.json").read_text())
    told["decisions"][KEY]["digest"] = ""
    (tmp_path / "file.json").write_text(json.dumps(told))
    assert main(["decisions", "import", file]) == 1
    assert f"{KEY[:12]}  refused: it is damaged" in capsys.readouterr().out


def test_forget(capsys):
    assert said(capsys, "forget", KEY) == "1 decision forgotten\n"
    assert [each.key for each in decisions.entries()] == [OTHER.key]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["show", "zz"], 1, "No decision has a key that begins with 'zz'. `torchmux decisions list`"),
        (["forget", "zz"], 1, "No decision has a key"),
        (["forget"], 2, "give the KEYs to forget, or --all"),
        (["pin", KEY[:8], "eager"], 1, "2 decisions have keys that begin with"),
        (["pin", KEY, "openvino"], 1, "openvino is wrong: on the inputs of the call"),
        (["import", "absent"], 2, "cannot import decisions"),
        (["import", __file__], 1, "This is no file of decisions"),
        (["export", "/no/such/folder/file"], 2, "there is no folder /no/such/folder"),
    ],
)
def test_errors(arguments, status, message, capsys):
    assert main(["decisions", *arguments]) == status
    assert message in capsys.readouterr().err


def test_without_a_cache(capsys):
    with config.patch(cache_enabled=False):
        assert main(["decisions", "list"]) == 1
    assert "config.cache_enabled is False" in capsys.readouterr().err


def test_it_needs_no_torch(run_python, tmp_path):
    code = (
        "import sys\nfrom torchmux.cli.main import main\nassert main(['decisions', 'list']) == 0\n"
        f"assert main(['decisions', 'export', {str(tmp_path / 'file')!r}]) == 0\n"
        "print('torch' in sys.modules)"
    )
    assert run_python(code).splitlines()[-1] == "False"
