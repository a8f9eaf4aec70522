"""``torchmux doctor``: its findings, and what each kind of trouble looks like."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil

import pytest

import torchmux
from torchmux.cli import doctor
from torchmux.cli.main import main


def found(about):
    return [finding for finding in doctor.examine() if finding.about == about]


def test_it_finds_this_machine_in_order(capsys):
    assert main(["doctor", "--json"]) == 0
    told = {each["about"]: each for each in json.loads(capsys.readouterr().out)}
    assert told["torch"]["state"] == "ok" and told["torch"]["found"] == importlib.metadata.version("torch")
    assert told["backend eager"]["state"] == "ok"
    assert not [name for name, each in told.items() if each["state"] == "problem"]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in told)


def test_a_compiler_that_is_missing(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (compiler,) = found("C++ compiler")
    assert compiler.state == "note" and "apt install g++" in compiler.advice


def test_a_compiler_that_does_not_run(monkeypatch, tmp_path):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (compiler,) = found("C++ compiler")
    assert compiler.state == "problem" and "does not run" in compiler.found


@pytest.mark.parametrize(("system", "machine", "state"), [("Darwin", "arm64", "problem"), ("Linux", "aarch64", "note")])
def test_another_system(monkeypatch, system, machine, state):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert found("system")[0].state == state


def test_a_version_outside_of_the_supported_ones_fails(monkeypatch, capsys):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0" if name == "torch" else real(name))
    assert main(["doctor"]) == 1
    assert "1.0, outside of the supported" in capsys.readouterr().out


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with torchmux.config.patch(cache_dir=tmp_path / "cache"):
        (cache,) = found("cache")
    assert cache.state == "problem" and "TORCHMUX_CACHE_DIR" in cache.advice


def test_a_check_that_fails_is_a_finding(monkeypatch):
    monkeypatch.setattr(torchmux, "backends", lambda: 1 / 0)
    assert "ZeroDivisionError" in found("backends")[0].found
