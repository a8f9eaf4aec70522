"""Prints sources into the code of a generated function: each path is loaded once, constants have names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .sources import Source


class Names:
    """The global namespace of a generated function: names for constants, one per object."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._by_id: dict[int, str] = {}

    def const(self, obj: Any, hint: str = "c") -> str:
        name = self._by_id.get(id(obj))
        if name is None:
            name = f"_{hint}{len(self._by_id)}"
            self._by_id[id(obj)] = name
            self.namespace[name] = obj
        return name


class Loader:
    """Emits the lines that load sources, each path once (common prefixes are shared).

    ``local`` says how what the frame itself holds prints in the generated function.
    """

    def __init__(self, names: Names, lines: list[str], local: Callable[[Any], str], prefix: str = "v") -> None:
        self.names = names
        self.const = names.const
        self.lines = lines
        self.local = local
        self.prefix = prefix
        self.variables: dict[Source, str] = {}  # the sources that have a variable
        self._loaded: dict[Source, str] = {}

    def load(self, source: Source) -> str:
        """The variable (or constant name) that holds the value of ``source``."""
        text = self._loaded.get(source)
        if text is None:
            text = source.expression(self)
            if not text.isidentifier():
                variable = f"{self.prefix}{len(self._loaded)}"
                self.lines.append(f"{variable} = {text}")
                self.variables[source] = text = variable
            self._loaded[source] = text
        return text

    def load_all(self, sources: list[Source]) -> str:
        """The arguments of a call that gets the values of ``sources``."""
        return ", ".join(map(self.load, sources))

    def prologue(self) -> list[str]:
        """Lines that have to stand ahead of all others."""
        return []
