"""The settings and their patches."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchmux
from torchmux.config import Config, config


def test_one_object():
    assert torchmux.config is config
    assert isinstance(config, Config)


@pytest.mark.parametrize(("changes", "more"), [((), {"recompile_limit": 1}), (({"recompile_limit": 1},), {})])
def test_patch_as_context_manager(changes, more):
    before = config.recompile_limit
    with config.patch(*changes, **more) as patched:
        assert patched is config
        assert config.recompile_limit == 1 != before
        with config.patch(recompile_limit=2, suppress_errors=True):
            assert (config.recompile_limit, config.suppress_errors) == (2, True)
        assert (config.recompile_limit, config.suppress_errors) == (1, False)
    assert config.recompile_limit == before


def test_patch_as_decorator_holds_for_every_call():
    @config.patch(recompile_limit=1)
    def inside():
        return config.recompile_limit

    before = config.recompile_limit
    assert [inside(), config.recompile_limit, inside(), config.recompile_limit] == [1, before, 1, before]


def test_patch_is_undone_by_an_exception():
    before = config.to_dict()
    with pytest.raises(ZeroDivisionError), config.patch(recompile_limit=1):
        raise ZeroDivisionError
    assert config.to_dict() == before


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"recompile_limt": 1}, AttributeError, "no setting 'recompile_limt'. Did you mean 'recompile_limit'"),
        ({"suppress_errors": True, "zzz": 1}, AttributeError, "The settings are: recompile_limit, "),
        ({"suppress_errors": True, "recompile_limit": "8"}, TypeError, r"recompile_limit is int, not '8' \(str\)"),
        ({"suppress_errors": 1}, TypeError, "suppress_errors is bool, not 1"),
        ({"recompile_limit": True}, TypeError, "recompile_limit is int, not True"),
        ({"disable": True, "recompile_limit": -1}, ValueError, "recompile_limit is at least 0, not -1"),
        ({"disable": True, "cache_dir": 3}, TypeError, r"cache_dir must be str or Path, not 3 \(int\)"),
        ({"disable": True, 1: 2}, TypeError, r"name of a setting must be str, not 1 \(int\)"),
        (3, TypeError, r"first argument must be str or Mapping or None, not 3 \(int\)"),
        (["verbose"], TypeError, "first argument must be"),
    ],
)
def test_a_wrong_patch_changes_nothing(changes, kind, message):
    before = config.to_dict()
    with pytest.raises(kind, match=message), config.patch(changes):
        pytest.fail("must not be entered")
    assert config.to_dict() == before


def test_setting_an_unknown_name():
    with pytest.raises(AttributeError, match="Did you mean 'cache_dir'"):
        config.cache_dri = "x"
    assert not hasattr(config, "cache_dri")


def test_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHMUX_CACHE_DIR", str(tmp_path / "own"))
    assert Config().cache_dir == tmp_path / "own"
    monkeypatch.delenv("TORCHMUX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Config().cache_dir == tmp_path / "torchmux"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Config().cache_dir == tmp_path / ".cache" / "torchmux"
    with config.patch(cache_dir="~/here"):
        assert config.cache_dir == Path(tmp_path / "here")


def test_patch_of_one_name():
    with config.patch("recompile_limit", 3):
        assert config.recompile_limit == 3


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("Off", False), ("0", False)])
def test_the_environment_sets_what_the_process_begins_with(monkeypatch, text, value):
    monkeypatch.setenv("TORCHMUX_SUPPRESS_ERRORS", text)
    monkeypatch.setenv("TORCHMUX_RECOMPILE_LIMIT", "3")
    made = Config()
    assert made.suppress_errors is value
    assert made.recompile_limit == 3
    assert made.verify_correctness is False


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("TORCHMUX_RECOMPILE_LIMIT", "many", "TORCHMUX_RECOMPILE_LIMIT is ignored: 'many' is not a whole number"),
        ("TORCHMUX_RECOMPILE_LIMIT", "-8", "TORCHMUX_RECOMPILE_LIMIT is ignored: .* at least 0, not -8"),
        ("TORCHMUX_RECOMPILE_LIMIT", "1e2", "TORCHMUX_RECOMPILE_LIMIT is ignored: '1e2' is not a whole number"),
        (
            "TORCHMUX_RECOMPILE_LIMIT",
            "9" * 5000,
            "TORCHMUX_RECOMPILE_LIMIT is ignored: '9+...9+' is not a whole number",
        ),
        ("TORCHMUX_VERBOSE", "maybe", "TORCHMUX_VERBOSE is ignored: 'maybe' is not one of 1, true"),
        ("TORCHMUX_SUPRESS_ERRORS", "1", "Did you mean TORCHMUX_SUPPRESS_ERRORS"),
    ],
)
def test_the_environment_is_checked(monkeypatch, variable, text, message):
    monkeypatch.setenv(variable, text)
    with pytest.warns(UserWarning, match=message):
        made = Config()
    assert made.recompile_limit == 8
    assert made.verbose is made.suppress_errors is False


def test_other_variables_are_none_of_our_business(monkeypatch, recwarn):
    monkeypatch.setenv("TORCHMUX_LOGS", "graph")
    monkeypatch.setenv("TORCHMUX_PLUGIN_COLOUR", "blue")
    Config()
    assert not recwarn.list


@pytest.mark.parametrize("name", Config().to_dict())
@pytest.mark.parametrize(
    "value", [None, 2.5, b"x", [], {}, object(), "x" * 1_000_000, ...], ids=lambda v: type(v).__name__
)
def test_every_setting_refuses_other_types(name, value):
    if name in ("cache", "cache_dir", "decisions", "default_backend", "trace") and isinstance(value, str):
        pytest.skip("any text may be a folder, or a name")
    before = config.to_dict()
    with pytest.raises(TypeError, match=f"config.{name}") as raised:
        setattr(config, name, value)
    assert len(str(raised.value)) < 300
    assert config.to_dict() == before
