"""Options that several backends have."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def freeze_option(what_for: str) -> Any:
    """The dataclass field of ``freeze``: parameters become :mod:`.constants`."""
    return field(
        default=False,
        metadata={
            "help": f"in inference, take parameters and buffers for constants, {what_for}. Writes that torch counts "
            "(optimizers, load_state_dict) are noticed before the next call, which compiles anew; you promise that "
            "there are no others, as through .data or NumPy"
        },
    )
