"""``PERF_COUNT``: how long the layers of a compiled model took, in the report and as a table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchmux.registry.report import GraphReport
from torchmux.registry.spec import ToolFile

_MOST = 5
"""Types of layers that the report names, slowest first."""


class Counts:
    """The time of all calls so far, by layer; the report gets a note that each call brings up to date."""

    def __init__(self) -> None:
        self._report: GraphReport | None = None
        self.calls = 0
        self._seconds: Counter[tuple[str, str, str]] = Counter()  # by name, type, and how it was executed
        self._note = ""
        self._lock = threading.Lock()

    def begin(self, report: GraphReport) -> None:
        """Forget what was counted while the model was checked, and tell ``report`` from now on."""
        with self._lock:
            self._report, self.calls = report, 0
            self._seconds.clear()

    def add(self, layers: Sequence[Any]) -> None:
        """Add what OpenVINO's ``InferRequest.profiling_info`` tells of a call."""
        with self._lock:
            self.calls += 1
            for layer in layers:
                if (spent := layer.real_time.total_seconds()) > 0:
                    self._seconds[layer.node_name, layer.node_type, layer.exec_type] += spent
            if self._report is not None:
                notes, note = self._report.notes, self.words()
                if self._note in notes:
                    notes[notes.index(self._note)] = note
                else:
                    notes.append(note)
                self._note = note

    def words(self) -> str:
        """The time of a call by types of layers, in a sentence."""
        types: Counter[str] = Counter()
        for (_, kind, _), spent in self._seconds.items():
            types[kind] += spent
        each = ", ".join(f"{kind} {1e6 * spent / self.calls:.0f}" for kind, spent in types.most_common(_MOST))
        whole = 1e6 * types.total() / self.calls
        return f"OpenVINO's layers took {whole:.0f} µs in each of {self.calls} calls, of which the slowest: {each}"

    def text(self) -> str:
        """A line for each layer, separated by tabs: microseconds of a call, name, type, how it was executed."""
        with self._lock:
            rows = [
                f"{1e6 * spent / max(1, self.calls):.1f}\t" + "\t".join(of) for of, spent in self._seconds.most_common()
            ]
        return "\n".join(["microseconds\tname\ttype\texecuted as", *rows, ""])

    def file(self) -> ToolFile:
        return ToolFile("openvino-counts", ".tsv", self._write, self.text)

    def _write(self, path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]) -> list[Path]:
        path.write_text(self.text(), encoding="utf-8")
        return [path]
