"""A loop captured for operators whose output size depends on data, with a compiler that fails at such graphs."""

from __future__ import annotations

import logging

import pytest
import torch

import torchmux
from torchmux.registry.errors import CompilationFailed, FallbackRefused

X, GROUPS = torch.randn(6, 4), torch.tensor([0, 2, 1, 2, 0, 2])


def routed(x, groups):
    made = torch.zeros_like(x)
    for group in range(3):
        (rows,) = torch.where(groups == group)
        made.index_add_(0, rows, x[rows] * group)
    return made


def picky(gm, example_inputs):
    if any("nonzero" in str(node.target) or "where" in str(node.target) for node in gm.graph.nodes):
        raise KeyError("no sizes of data")
    return gm.forward


def refuses(gm, example_inputs):
    if any("where" in str(node.target) for node in gm.graph.nodes):
        raise FallbackRefused("only with fixed sizes")
    return gm.forward


@pytest.mark.usefixtures("compiler_errors_fall_back")
def test_the_report_and_the_log_name_the_error(caplog):
    compiled = torchmux.compile(routed, backend=picky)
    with caplog.at_level(logging.WARNING, "torchmux"):
        assert torch.equal(compiled(X, GROUPS), routed(X, GROUPS))
    assert "routed" in caplog.text and "no sizes of data" in caplog.text
    report = torchmux.report(compiled)
    assert any("it did not compile: CompilationFailed" in str(each.reason) for each in report.breaks)
    assert "no sizes of data" in str(report)
    assert report.share == 0.0


@pytest.mark.parametrize(("backend", "error"), [(picky, CompilationFailed), (refuses, FallbackRefused)])
@pytest.mark.usefixtures("compiler_errors_fall_back")
def test_strict_forbids_it(backend, error):
    with pytest.raises(error, match="sizes"):
        torchmux.compile(routed, backend=backend, strict=True)(X, GROUPS)


def test_tests_see_it():
    with pytest.raises(CompilationFailed, match="no sizes of data"):
        torchmux.compile(routed, backend=picky)(X, GROUPS)


def test_an_error_of_a_backend_that_refuses_is_no_reason_to_leave_the_loop():
    with pytest.raises(FallbackRefused, match="only with fixed sizes"):
        torchmux.compile(routed, backend=refuses)(X, GROUPS)
