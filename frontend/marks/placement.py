"""``compile(model, placement={"encoder.*": "onnxrt"})``: submodules pinned to backends by their paths."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch

from torchmux.registry.errors import InvalidOption
from torchmux.registry.names import class_with_article, did_you_mean
from torchmux.wording import kind, shown

from ..regions import checked


class Placement:
    """Patterns of paths in a model, in the order in which they are tried, and the backends that they stand for.

    A module without a match goes where the module around it goes.

    Raises:
        InvalidOption: there is no such mapping, the model is none, or nothing in it has a matching path.
        UnknownBackend: there is no backend of a name.
    """

    def __init__(self, given: Any, model: Any) -> None:
        if not isinstance(given, Mapping):
            raise InvalidOption(f"placement must be a dict of module paths to names of backends, not {kind(given)}.")
        self._names: dict[str, str] = {}
        if not given:
            return
        if not isinstance(model, torch.nn.Module):
            raise InvalidOption(
                f"placement= takes the paths of modules in an nn.Module, not in {class_with_article(model)}. In a "
                "function, use `with torchmux.use_backend(...)`."
            )
        self._model = weakref.ref(model)
        paths = [path for path, _ in model.named_modules(remove_duplicate=False)]
        for pattern, name in given.items():
            if not isinstance(pattern, str) or not isinstance(name, str):
                raise InvalidOption(f"placement maps paths to names of backends, not {kind(pattern)} to {kind(name)}.")
            if not any(fnmatchcase(path, pattern) for path in paths):
                raise InvalidOption(
                    f"placement: no module has the path {shown(pattern)}.{did_you_mean(pattern, paths)}"
                )
            self._names[pattern] = checked(name)

    @property
    def key(self) -> Hashable:
        """Equal for placements that are the same."""
        return tuple(self._names.items())

    def __call__(self) -> Mapping[int, str]:
        """The backends of the modules that the model has now, by id."""
        found: dict[int, str] = {}
        model = self._model() if self._names else None
        if model is not None:
            for path, module in model.named_modules(remove_duplicate=False):
                for pattern, name in self._names.items():
                    if fnmatchcase(path, pattern):
                        found.setdefault(id(module), name)
                        break
        return found
