"""Calls that OpenVINO's code does not take are in the report, with the reason and their number."""

from __future__ import annotations

import pytest
import torch

import torchmux

pytest.importorskip("openvino")


def test_the_report_counts_them():
    compiled = torchmux.compile(lambda x, n: (x * n, n - x), backend="openvino", dynamic=True)
    for n in (3, 5, 2**40):
        torch.testing.assert_close(compiled(torch.ones(3), n), (torch.ones(3) * n, n - torch.ones(3)))
    report = torchmux.report(compiled)
    (graph,) = report.graphs
    assert [each.count for each in graph.report.calls_in_torch if each.count] == [1]
    assert "but for 1 call of a part that torch ran" in str(report)
    assert "torch ran 1 call of a part: an integer input may not fit" in str(report)
    assert list(report.to_dict()["graphs"][0]["calls_in_torch"].values()) == [1]
