"""Which of a test's parameters belong to the default run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """``values`` for ``parametrize``, all of them in the slow tier except ``quick``."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
