"""The original of a compiled callable."""

from __future__ import annotations

import logging
import types
from typing import Any

import torch

from torchmux import torch_internals as ti

# (attribute with the original, attribute with the id of the wrapper it belongs to).  ``functools.wraps`` copies a
# function's attributes to any wrapper in the program, so the first attribute alone proves nothing.
_OURS = ("_torchmux_original", "_torchmux_wrapper_id")
_REGION = "__marked_compile_region_fn__"
_TORCHS = ("_torchdynamo_orig_callable", "_torchdynamo_wrapper_id")


log = logging.getLogger("torchmux")


def without_torch_compile(obj: Any) -> Any:
    """The argument of ``torch.compile``, if ``obj`` is its result; only the argument can be captured."""
    found: Any = obj
    if isinstance(obj, ti.optimized_module_class()):
        found = found._orig_mod
    elif not isinstance(obj, (type, torch.nn.Module, types.MethodType)):
        found = _unwrapped(obj, _TORCHS, obj)
    if found is not obj:
        log.warning(
            "torchmux.compile() received a result of torch.compile(). It compiles the original function or module with "
            "the backend of this call; torch.compile() and its backend are not used."
        )
    elif isinstance(obj, torch.nn.Module) and obj.__dict__.get("_compiled_call_impl") is not None:
        log.warning(
            "%s was compiled in place by its method compile() and runs that code: torchmux.compile() does not capture "
            "it.",
            type(obj).__name__,
        )
    return found


def original_of(obj: Any) -> Any:
    """The function or module passed to ``compile``, if ``obj`` is its result; else ``obj``."""
    if isinstance(obj, torch.nn.Module):
        return getattr(type(obj), _OURS[0], obj)
    if isinstance(obj, types.MethodType):
        function = _unwrapped(obj.__func__, _OURS, None)
        return obj if function is None else types.MethodType(function, obj.__self__)
    return _unwrapped(obj, _OURS, obj)


def compiled_here(function: Any) -> tuple[str, Any] | None:
    """The attribute that holds the original of a function compiled by torchmux, and the original."""
    found = _unwrapped(function, _OURS, None)
    return None if found is None else (_OURS[0], found)


def compiled_elsewhere(function: Any) -> tuple[str, Any] | None:
    """The same for a function that torch's own frontend compiles or inlines as a region."""
    found = _unwrapped(function, _TORCHS, None)
    if found is not None:
        return _TORCHS[0], found
    if _REGION in function.__dict__ and function.__code__.co_filename.endswith("invoke_subgraph.py"):
        return _REGION, function.__dict__[_REGION]
    return None


def _unwrapped(obj: Any, names: tuple[str, str], default: Any) -> Any:
    attributes = getattr(obj, "__dict__", None) or {}
    return attributes[names[0]] if names[0] in attributes and attributes.get(names[1]) == id(obj) else default
