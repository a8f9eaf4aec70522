"""Telling a compiler's refusal from a bug of the adapter that drives it.

A third party's compiler says in exceptions of every kind that it does not take an operator, so an adapter catches all
of them, and refuses the operator.  A mistake of the adapter itself must not pass for that.
"""

from __future__ import annotations

import os
from pathlib import Path

from torchmux.config import config

_MISTAKES = (AttributeError, NameError, LookupError, AssertionError, ZeroDivisionError, RecursionError)
_OWN = str(Path(__file__).parents[2]) + os.sep


def raise_mistake(error: BaseException) -> None:
    """Raise ``error`` again if code of ours made it by mistake, and ``config.fail_on_compiler_errors`` is set.

    Without that setting the operator is refused like any other, and the report has the exception as the reason.
    """
    if config.fail_on_compiler_errors and isinstance(error, _MISTAKES) and _raised_here(error):
        raise error


def _raised_here(error: BaseException) -> bool:
    """Whether the innermost frame of the traceback is code of ``torchmux.backends``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN)
