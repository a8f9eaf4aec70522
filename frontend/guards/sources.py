"""Where a value came from: one algebra with three faces.

A :class:`Source` is a path from something the traced frame can reach (an argument, a global, a constant known at
compile time) to a value.  The same path is printed as the expression that a guard evaluates, as the expression that
reloads the value when the compiled frame runs, and as words for a person.
"""

from __future__ import annotations

from typing import Any


class Source:
    """``template`` holds ``{0}`` for the parent's text and ``{1}``, ``{2}``, ... for ``consts``.

    Constants are real objects (a globals dict, a class, a dictionary key) that the generated code refers to by name.
    Two sources are equal when they print the same path.
    """

    __slots__ = ("_hash", "consts", "parent", "template", "words_template")

    def __init__(self, template: str, parent: Source | None = None, consts: tuple = (), words: str = "") -> None:
        self.template = template
        self.parent = parent
        self.consts = consts
        self.words_template = words
        self._hash = hash((template, parent, tuple(map(id, consts))))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Source)
            and self._hash == other._hash
            and self.template == other.template
            and self.parent == other.parent
            and len(self.consts) == len(other.consts)
            and all(a is b for a, b in zip(self.consts, other.consts, strict=True))
        )

    def words(self) -> str:
        """The path as a person would write it."""
        return self.words_template.format(self.parent.words() if self.parent else "")

    def depth(self) -> int:
        return 1 + (self.parent.depth() if self.parent else 0)

    def root(self) -> Source:
        return self.parent.root() if self.parent else self

    def __repr__(self) -> str:
        return f"<Source {self.words()}>"


class LocalSource(Source):
    """An argument of the traced frame, or a free variable's contents (``cell`` is then true)."""

    __slots__ = ("cell", "name")

    def __init__(self, name: str, cell: bool = False) -> None:
        super().__init__("<local>" + name, words=name)
        self.name = name
        self.cell = cell


class CellSource(Source):
    """A cell object of the traced frame itself, not its contents."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__("<cell>" + name, words=f"cell of {name}")
        self.name = name


def _key_text(key: Any) -> str | None:
    """The literal for a dictionary key that is safe to print, else None."""
    return repr(key) if type(key) in (str, int, bool, type(None)) else None


def const_source(obj: Any, words: str) -> Source:
    """An object that is the same whatever happens: a class, an imported module."""
    return Source("{1}", None, (obj,), words.replace("{", "{{").replace("}", "}}"))


def global_source(namespace: dict, name: str) -> Source:
    return Source(f"{{1}}[{name!r}]", None, (namespace,), f"global {name}")


def attr(parent: Source, name: str) -> Source:
    if name.isidentifier():
        return Source("{0}." + name, parent, (), "{0}." + name)
    return Source(f"getattr({{0}}, {name!r})".replace("{{", "{").replace("}}", "}"), parent, (), "{0}." + name)


def item(parent: Source, key: Any) -> Source:
    """Item of a list, tuple or plain dict."""
    text = _key_text(key)
    if text is None:
        return Source("{0}[{1}]", parent, (key,), "{0}[" + _escape(type(key).__name__) + "]")
    return Source("{0}[" + _escape(text) + "]", parent, (), "{0}[" + _escape(text) + "]")


def raw_item(parent: Source, base: type, key: Any) -> Source:
    """Item of a container whose class may override ``__getitem__``."""
    text = _key_text(key)
    if text is None:
        return Source("{2}.__getitem__({0}, {1})", parent, (key, base), "{0}[" + _escape(type(key).__name__) + "]")
    return Source("{1}.__getitem__({0}, " + _escape(text) + ")", parent, (base,), "{0}[" + _escape(text) + "]")


def call(parent: Source, template: str, words: str, consts: tuple = ()) -> Source:
    return Source(template, parent, consts, words)


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


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

    ``local`` and ``cell`` say how the two roots print in the generated function.
    """

    def __init__(self, names: Names, lines: list[str], local: Any, prefix: str = "v") -> None:
        self.names = names
        self.lines = lines
        self.local = local
        self.prefix = prefix
        self._loaded: dict[Source, str] = {}

    def load(self, source: Source) -> str:
        """The variable (or constant name) that holds the value of ``source``."""
        text = self._loaded.get(source)
        if text is None:
            text = self.expr(source)
            if not text.isidentifier():
                variable = f"{self.prefix}{len(self._loaded)}"
                self.lines.append(f"{variable} = {text}")
                text = variable
            self._loaded[source] = text
        return text

    def variables(self) -> dict[Source, str]:
        """The loaded sources that have a variable."""
        return {s: text for s, text in self._loaded.items() if text.startswith(self.prefix)}

    def prologue(self) -> list[str]:
        """Lines that have to stand ahead of all others."""
        return []

    def expr(self, source: Source) -> str:
        """The expression for ``source`` whose parent has been loaded."""
        if isinstance(source, (LocalSource, CellSource)):
            return self.local(source)
        parent = self.load(source.parent) if source.parent is not None else ""
        return source.template.format(parent, *(self.names.const(c) for c in source.consts))
