"""The calls that a script compiles: it runs with ``torchmux.compile`` replaced by something that remembers.

What the script gives to ``torchmux.compile`` runs in eager, and the first call of each leaves its arguments here.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import torchmux
from torchmux import torch_internals as internals


class _Enough(BaseException):
    """Ends the script; no ``except Exception`` of the script may stop it."""


@dataclass
class Recorded:
    """The first call of something that the script compiles.  Tensors are as they were before the call.

    ``grad`` says whether gradients were enabled, ``training`` whether a backward pass can follow.
    """

    name: str
    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
    training: bool = False


class _Recorder:
    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.calls: list[Recorded] = []
        self.hooks: list[Any] = []

    def compile(self, model: Any = None, **settings: Any) -> Any:
        """In the place of ``torchmux.compile``."""
        if model is None:
            return functools.partial(self.compile, **settings)
        if settings.get("disable"):
            return model
        return self._module(model) if isinstance(model, torch.nn.Module) else self._function(model)

    def _module(self, model: torch.nn.Module) -> torch.nn.Module:
        """The same module, which remembers its first call."""
        found: list[Recorded] = []

        def before(module: Any, args: Any, kwargs: Any) -> None:
            if not found:
                found.append(Recorded(type(model).__name__, model, *_copied(args, kwargs), torch.is_grad_enabled()))

        def after(module: Any, args: Any, output: Any) -> None:
            for hook in hooks:
                hook.remove()
            found[0].training = model.training and _is_differentiable(output)
            self._done(found[0])

        hooks = [model.register_forward_pre_hook(before, with_kwargs=True), model.register_forward_hook(after)]
        self.hooks += hooks
        return model

    def _function(self, function: Any) -> Any:
        is_first = True

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal is_first
            if not is_first:
                return function(*args, **kwargs)
            is_first = False
            name = getattr(function, "__qualname__", "function")
            recorded = Recorded(name, function, *_copied(args, kwargs), torch.is_grad_enabled())
            output = function(*args, **kwargs)
            recorded.training = _is_differentiable(output)
            self._done(recorded)
            return output

        return call

    def _done(self, call: Recorded) -> None:
        self.calls.append(call)
        if len(self.calls) == self.enough:
            raise _Enough


def record(path: Path, arguments: Sequence[str], enough: int = 0) -> list[Recorded]:
    """Run a script as ``python PATH ARGUMENTS``, until ``enough`` compiled functions were called; 0 for its end.

    The script stays this process's ``__main__``, for functions that look up names there.

    Raises:
        OSError, SyntaxError: it cannot be read.
        Exception: whatever it raises.
    """
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    recorder = _Recorder(enough)
    own, torchmux.compile = torchmux.compile, recorder.compile
    try:
        exec(code, main.__dict__)
    except _Enough:
        pass
    except SystemExit as error:
        if error.code not in (None, 0):
            raise RuntimeError(f"{path} exits with {error.code}") from None
    finally:
        torchmux.compile = own
        for hook in recorder.hooks:
            hook.remove()
    return recorder.calls


def _copied(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def copy(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    copied: tuple[tuple[Any, ...], dict[str, Any]] = internals.pytree.tree_map_only(
        torch.Tensor, copy, (tuple(args), kwargs)
    )
    return copied


def _is_differentiable(output: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in internals.pytree.tree_leaves(output))
