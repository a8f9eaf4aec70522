"""Our backends for ``torch.compile``: ``torch.compile(model, backend="torchmux_onnxrt")``.

The entry points of torch's group ``torch_dynamo_backends`` name attributes of this module, which are created on
access.  A third party publishes its backend the same way: ``torchmux_mine = torchmux.registry.published:mine``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lookup import compiler_function


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The name is looked up at the first compile: torch imports every entry point that is requested, and a backend
    # that cannot run here must say so only then.
    function = compiler_function(name)
    globals()[name] = function  # torch compares backends by identity
    return function
