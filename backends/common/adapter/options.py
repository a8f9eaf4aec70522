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
