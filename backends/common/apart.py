"""Running torch's operators while something is traced, as if nothing were."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch


def apart(run: Callable[[], Any]) -> Any:
    """What ``run`` returns in a thread of its own, where no mode of a trace is active."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def keep() -> None:
        try:
            with torch.no_grad():
                found.append(run())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]
