"""The warning at the limit names the guard, the values seen, and the way out for that kind of value."""

import logging

import numpy as np
import pytest
import torch

import torchmux

X = torch.ones(4)


def on_numbers(x, n):
    for _ in range(n):
        x = x + 1
    return x


@pytest.mark.parametrize(
    ("function", "values", "seen", "way_out"),
    [
        (lambda x, text: x * len(text), ["a", "bb", "ccc"], "text == 'a'", "A text needs code of its own"),
        (lambda x, xs: x + sum(xs), [[X], [X, X], [X, X, X]], "xs has length 1", "containers of one size"),
        (lambda x, table: x * len(table), [{"a": 1}, {"b": 1}, {"c": 1}], "table has", "containers of one size"),
        (lambda x, fn: x + fn(x), [torch.sin, torch.cos, torch.tan], ".sin", "make it once"),
        (on_numbers, [1, 2, 3], "n == 1", "Python reads this number"),
        (lambda x, n: x * hash(n), [np.int64(1), np.int64(2), np.int64(3)], "n == np.int64(1)", "keeps it as a"),
        (lambda x, y: x + y, [X, X.double(), X.int()], "dtype", "convert dtype"),
    ],
)  # fmt: skip
def test_the_way_out_fits_the_value(function, values, seen, way_out, caplog, monkeypatch):
    monkeypatch.setattr(torchmux.config, "recompile_limit", 2)
    compiled = torchmux.compile(function, backend="eager")
    with caplog.at_level(logging.WARNING, "torchmux"):
        for value in values:
            compiled(X, value)
    (record,) = caplog.records
    message = record.getMessage()
    assert "the guard that failed last: " in message
    assert seen in message, message
    assert way_out in message, message
    assert "mark_dynamic" not in message or isinstance(values[0], torch.Tensor)


def test_the_values_of_earlier_code_are_listed(caplog, monkeypatch):
    monkeypatch.setattr(torchmux.config, "recompile_limit", 3)
    compiled = torchmux.compile(lambda x, text: x * len(text), backend="eager")
    with caplog.at_level(logging.WARNING, "torchmux"):
        for text in ("a", "bb", "ccc", "dddd"):
            compiled(X, text)
    message = caplog.records[0].getMessage()
    assert "text == 'ccc' no longer holds (now 'dddd')" in message
    assert "Code for other values: text == 'bb'; text == 'a'." in message


def test_an_error_says_the_same(monkeypatch):
    monkeypatch.setattr(torchmux.config, "recompile_limit", 1)
    compiled = torchmux.compile(lambda x, text: x * len(text), backend="eager", fullgraph=True)
    compiled(X, "a")
    with pytest.raises(torchmux.Unsupported, match="A text needs code of its own") as raised:
        compiled(X, "bb")
    assert "New calls run in eager" not in str(raised.value)
