"""Options that several backends have."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def freeze_option(what_for: str) -> Any:
    """The dataclass field of ``freeze``: parameters become :mod:`.constants`."""
    return field(
        default=False,
        metadata={
            "help": f"in inference, treat parameters and buffers as constants, {what_for}. The next call detects "
            f"writes that torch counts (optimizers, load_state_dict) and recompiles; you promise that there "
            "are no other writes, such as through .data or NumPy"
        },
    )


def check_option(compiled: str, otherwise: str) -> Any:
    """The dataclass field of ``check``: what is newly ``compiled`` is compared with torch (:mod:`.check`)."""
    return field(
        default=True,
        metadata={
            "help": f"before new {compiled} is used, compare it with torch once, on generated inputs; {otherwise}. "
            "What comes from the cache was compared when it was built"
        },
    )
