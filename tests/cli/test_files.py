"""Files that cannot be written, and programs that cannot be imported, are told before any work."""

from __future__ import annotations

import pytest

from torchmux.cli.main import main


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    from torchmux.conformance import minify, runner

    def work(*args, **more):
        pytest.fail("work has begun")

    monkeypatch.setattr(runner, "run", work)
    monkeypatch.setattr(minify, "minify", work)


@pytest.mark.parametrize("option", ["--json", "--junit", "--html", "--resume"])
@pytest.mark.parametrize("file", ["/no/such/folder/file", "/"])
def test_a_file_that_conformance_cannot_write(option, file, capsys):
    assert main(["conformance", "eager", "--case", "semantics/*", option, file]) == 2
    said = capsys.readouterr().err
    assert said.startswith("torchmux: ")
    assert said.count("\n") == 1


def test_a_file_that_conformance_cannot_read(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{")
    for file in (tmp_path / "run.json", tmp_path / "absent.json"):
        assert main(["conformance", "eager", "--html", str(tmp_path / "page"), "--compare", str(file)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_minify_cannot_write(capsys):
    assert main(["minify", "a:b", "--backend", "eager", "--output", "/no/such/folder/file"]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["conformance"], ["minify", "a:b"]])
@pytest.mark.parametrize("text", ["1 / 0", "def f(:", "raise SystemExit(3)", ""])
def test_requirements_that_cannot_be_imported(command, text, tmp_path, capsys):
    file = tmp_path / f"requirements_{abs(hash(text))}.py"
    file.write_text(text)
    assert main([*command, "--requirements", f"{file}:Own"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"torchmux: cannot load {file}:Own: ")
    assert said.count("\n") == 1
