"""The names that come with torchmux, asked for as a user would; each error is one paragraph with the way out."""

from __future__ import annotations

import pytest
import torch

import torchmux
from torchmux.registry import availability, list_options, resolve


def message(kind: type[Exception], *arguments, **keywords) -> str:
    with pytest.raises(kind) as caught:
        torchmux.compile(torch.nn.Linear(2, 2), *arguments, **keywords)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def without(monkeypatch, own_catalog):
    """``without("x")`` makes the distribution ``x`` look as if it were not installed."""

    def hide(name: str) -> None:
        real = availability.installed_version
        monkeypatch.setattr(availability, "installed_version", lambda n: None if n == name else real(n))

    return hide


def test_onnxrt_without_onnxruntime(without):
    without("onnxruntime")
    text = message(torchmux.BackendUnavailable, backend="onnxrt")
    assert "onnxrt needs onnxruntime>=1.20" in text
    assert "not installed" in text
    assert 'Install it with: python -m pip install "onnxruntime' in text
    rows = {row.name: row for row in torchmux.backends()}
    assert rows["onnxrt"].available is False
    assert "onnxruntime" in rows["onnxrt"].reason
    assert "onnxrt" not in torchmux.list_backends()


def test_misspelt_name():
    text = message(torchmux.UnknownBackend, backend="onxrt")
    assert "There is no backend 'onxrt'. Did you mean 'onnxrt'" in text


def test_retired_name():
    text = message(torchmux.BackendUnavailable, backend="ipex")
    assert "'ipex' is retired" in text
    assert "Use " in text


def test_tensorrt_where_it_is_not_installed(without):
    without("torch-tensorrt")
    text = message(torchmux.BackendUnavailable, backend="tensorrt")
    assert "tensorrt needs torch-tensorrt" in text
    assert 'Install it with: python -m pip install "torch' in text


def test_misspelt_option():
    known = list(list_options("onnxrt"))
    text = message(torchmux.InvalidOption, backend="onnxrt", options={"precison": 1})
    assert "onnxrt has no option 'precison'." in text
    assert all(repr(name) in text for name in known)


def test_errors_come_when_compile_is_called_not_at_the_first_run():
    def never_run(x):
        raise AssertionError

    with pytest.raises(torchmux.UnknownBackend):
        torchmux.compile(never_run, backend="onxrt")
    with pytest.raises(torchmux.UnknownBackend):
        torchmux.compile(backend="onxrt")


def test_eager_is_always_there():
    assert "eager" in torchmux.list_backends()
    assert resolve("eager", strict=True).name == "eager"


def test_every_name_of_ours_is_in_order():
    ours = [row for row in torchmux.backends() if row.distribution == "torchmux"]
    assert {"eager", "aot_eager", "inductor", "onnxrt", "tensorrt", "ipex"} <= {row.name for row in ours}
    assert not [row.error for row in ours if row.error]
    for row in ours:
        assert row.summary
        assert row.available or row.reason
        assert row.available or row.retired or row.install.startswith("python -m pip install")
