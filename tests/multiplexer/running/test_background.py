"""Threads that compile off the program's calls."""

from __future__ import annotations

import contextlib
import threading

from torchmux.compile_lock import shared
from torchmux.multiplexer.running import background


def test_a_measurement_does_not_wait_for_who_waits_for_it(monkeypatch) -> None:
    """A capture that waits for its turn has the lock of captures, and the thread whose turn it is wants to compile."""
    monkeypatch.setattr(background, "_MOMENT_S", 0.1)
    setting, found = background.Setting.now(), []

    def lead() -> None:
        try:
            found.append(background.compile_here(setting, lambda: "compiled", wait=False))
        except background.NotNow:
            found.append("not now")

    for lock in (shared.lock, contextlib.nullcontext()):
        thread = threading.Thread(target=lead)
        with lock:
            thread.start()
            thread.join(30)
    assert found == ["not now", "compiled"]
