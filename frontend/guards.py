"""Guards: what a trace took for granted, checked before its code is used again.

A guard is one condition on one source.  All of them are printed into one Python function that loads every path once,
checks arguments first, and hands all tensors to one C++ call.  When no compiled code fits, the same guards are
evaluated one at a time to say in words which of them failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchmux import torch_internals as ti

from .sources import Loader, LocalSource, Names, Source


@dataclass(frozen=True)
class Guard:
    """``condition`` holds ``{0}`` for the loaded source and ``{1}``... for ``consts``; it must be true."""

    source: Source
    condition: str
    consts: tuple = ()
    words: str = ""
    other: Source | None = None  # a second source that ``condition`` calls ``{other}``

    def key(self) -> tuple:
        return (self.source, self.condition, tuple(map(id, self.consts)), self.other)

    def text(self, loader: Loader, names: Names) -> str:
        """The condition over loaded variables."""
        value = loader.load(self.source)
        other = loader.load(self.other) if self.other is not None else ""
        return self.condition.format(value, *(names.const(c) for c in self.consts), other=other)


@dataclass
class TensorGuard:
    """A tensor input must look like ``tensor``, except where a size or stride of its ``fake`` twin is symbolic.

    That is read when the check is made, at the end of the trace: a size that the trace turned into a constant on the
    way is one that the check must hold to.
    """

    source: Source
    tensor: Any
    fake: Any

    @property
    def sizes(self) -> list:
        return [_constant(s) for s in self.fake.shape]

    @property
    def strides(self) -> list:
        return [_constant(s) for s in self.fake.stride()]


def _constant(size: Any) -> int | None:
    """The number, or None for a symbol that is still open."""
    node = getattr(size, "node", None)
    if node is None:
        return size
    return int(node.expr) if node.expr.is_number else None


@dataclass
class GuardSet:
    """All guards of one trace, in the order in which they were read."""

    guards: dict[tuple, Guard] = field(default_factory=dict)
    tensors: dict[Source, TensorGuard] = field(default_factory=dict)
    devices: tuple = ()  # the default devices in force, see torch_internals.default_devices
    distinct: list[list[Source]] = field(default_factory=list)  # groups of objects no two of which may be one
    shape_conditions: list[str] = field(default_factory=list)  # over the names that `shape_roots` gives
    shape_roots: dict[str, Source] = field(default_factory=dict)
    shape_namespace: dict[str, Any] = field(default_factory=dict)

    def add(self, source: Source, condition: str, consts: tuple = (), words: str = "") -> None:
        guard = Guard(source, condition, consts, words)
        self.guards.setdefault(guard.key(), guard)

    def same(self, source: Source, other: Source) -> None:
        """Two paths lead to one object."""
        guard = Guard(source, "{0} is {other}", (), f"is {other.words()}", other)
        self.guards.setdefault(guard.key(), guard)

    def contains(self, source: Source, base: type, key: Source, present: bool, words: str) -> None:
        """Whether a dictionary has the object that ``key`` leads to as a key."""
        guard = Guard(source, f"{{1}}.__contains__({{0}}, {{other}}) is {present}", (base,), words, key)
        self.guards.setdefault(guard.key(), guard)

    def type_is(self, source: Source, cls: type) -> None:
        self.add(source, "type({0}) is {1}", (cls,), f"has type {cls.__name__}")

    def is_object(self, source: Source, obj: Any) -> None:
        self.add(source, "{0} is {1}", (obj,), f"is {_short(obj)}")

    def equals(self, source: Source, value: Any) -> None:
        """Same type and equal; the type is part of it because ``1 == True == 1.0``."""
        if value is None or value is True or value is False or value is Ellipsis:
            self.add(source, f"{{0}} is {value!r}" if value is not Ellipsis else "{0} is ...", (), f"is {value!r}")
        elif type(value) is float and value != value:
            self.add(source, "type({0}) is float and {0} != {0}", (), "is nan")
        elif type(value) in (int, str) and len(repr(value)) < 60:
            text = repr(value).replace("{", "{{").replace("}", "}}")
            self.add(source, f"{{0}} == {text} and type({{0}}) is {type(value).__name__}", (), f"== {text}")
        elif type(value) is complex:
            text = f"({{0}}.real.hex(), {{0}}.imag.hex()) == {(value.real.hex(), value.imag.hex())!r}"
            self.add(source, "type({0}) is complex and " + text, (), f"== {value!r}")
        elif type(value) is float:
            # 0.0 == -0.0, and a compiled graph may tell them apart
            self.add(source, "type({0}) is float and {0}.hex() == " + repr(value.hex()), (), f"== {value!r}")
        else:
            self.add(source, "type({0}) is {1} and {0} == {2}", (type(value), value), f"== {_short(value)}")


def _short(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None) or repr(obj)
    return str(name)[:80].replace("{", "{{").replace("}", "}}")


class CompiledGuards:
    """The check of one compiled entry: call it with the frame's locals."""

    def __init__(self, guards: GuardSet) -> None:
        self._set = guards
        self._names = Names()
        self.text = ""
        self.check: Callable[[dict], bool] = self._build()
        self._reasons: Callable[[dict], Sequence[str]] | None = None

    def _tensor_checker(self, tensors: list[TensorGuard]) -> Any:
        return ti.TensorGuards(
            *(t.tensor for t in tensors),
            dynamic_dims_sizes=[t.sizes for t in tensors],
            dynamic_dims_strides=[t.strides for t in tensors],
        )

    def _build(self) -> Callable[[dict], bool]:
        names: Names = self._names
        lines: list[str] = []
        loader = Loader(names, lines, lambda s: f"L[{s.name!r}]")
        namespace = names.namespace
        global_state = names.const(ti.GlobalStateGuard(), "global_state_")
        lines.append(f"if not {global_state}.check(): return False")
        dispatch_modes, function_modes = names.const(ti.count_dispatch_modes), names.const(ti.count_function_modes)
        lines.append(f"if {dispatch_modes}() or {function_modes}() != {len(self._set.devices)}: return False")
        if self._set.devices:
            lines.append(f"if {names.const(ti.default_devices)}() != {names.const(self._set.devices)}: return False")

        tensors = list(self._set.tensors.values())
        own = [t for t in tensors if isinstance(t.source, LocalSource)]

        def emit_tensors(group: list[TensorGuard]) -> None:
            if group:
                checker = names.const(self._tensor_checker(group), "tensors_")
                lines.append(f"if not {checker}.check({', '.join(loader.load(t.source) for t in group)}): return False")

        # the arguments change from call to call, the model's structure hardly ever does
        ordered = sorted(self._set.guards.values(), key=lambda g: g.source.parent is not None or not isinstance(g.source, LocalSource))
        arguments = [g for g in ordered if isinstance(g.source, LocalSource)]
        emit_tensors(own)
        for guard in arguments:
            self._emit(guard, loader, names, lines)
        for guard in ordered[len(arguments) :]:
            self._emit(guard, loader, names, lines)
        if len(tensors) > len(own):
            emit_tensors(tensors)  # the arguments again: one call also tells that all tensors are different ones
        for sources in self._set.distinct:
            variables = ", ".join(f"id({loader.load(source)})" for source in sources)
            lines.append(f"if len({{{variables}}}) != {len(sources)}: return False")
        for variable, source in self._set.shape_roots.items():
            lines.append(f"{variable} = {loader.load(source)}")
        namespace.update(self._set.shape_namespace)
        lines.extend(f"if not ({condition}): return False" for condition in self._set.shape_conditions)
        body = "\n".join("        " + line for line in lines)
        self.text = (
            f"def guard(L):\n    try:\n{body}\n"
            "    except (KeyError, AttributeError, IndexError, TypeError, ValueError):\n"
            "        return False  # a path that the trace followed is gone\n"
            "    return True\n"
        )
        exec(compile(self.text, "<torchmux guard>", "exec"), namespace)
        return namespace["guard"]

    @staticmethod
    def _emit(guard: Guard, loader: Loader, names: Names, lines: list[str]) -> None:
        condition = guard.text(loader, names)  # loading may add lines, so before the append
        lines.append(f"if not ({condition}): return False")

    def why_not(self, frame_locals: dict) -> str:
        """The first guard that fails for these locals, in words; empty if none does."""
        for guard in self._set.guards.values():
            names = Names()
            lines: list[str] = []
            loader = Loader(names, lines, lambda s: f"L[{s.name!r}]")
            try:
                value = loader.load(guard.source)
                text = guard.text(loader, names)
                scope = {**names.namespace, "L": frame_locals}
                exec("\n".join([*lines, f"_ok = bool({text})"]), scope)
                if scope["_ok"]:
                    continue
                actual = scope.get(value, frame_locals.get(getattr(guard.source, "name", ""), None))
                return f"{guard.source.words()} {guard.words} no longer holds (now {_describe(actual)})"
            except Exception as error:  # whatever goes wrong while reading the path is the answer
                return f"{guard.source.words()} can no longer be read ({type(error).__name__}: {error})"
        return self._why_not_tensors(frame_locals)

    def _why_not_tensors(self, frame_locals: dict) -> str:
        scope: dict[str, Any] = {"L": frame_locals}
        for tensor in self._set.tensors.values():
            names = Names()
            lines: list[str] = []
            loader = Loader(names, lines, lambda s: f"L[{s.name!r}]")
            try:
                variable = loader.load(tensor.source)
                if not lines:
                    lines.append(f"{(variable := 'value')} = {loader.expr(tensor.source)}")
                inner = {**names.namespace, "L": frame_locals}
                exec("\n".join(lines), inner)
                value = inner.get(variable, inner.get("value"))
                verdict = self._tensor_checker([tensor]).check_verbose(value, tensor_check_names=[tensor.source.words()])
                if verdict is not True:
                    return str(verdict)
            except Exception as error:
                return f"{tensor.source.words()} can no longer be read ({type(error).__name__}: {error})"
        try:
            loader_lines: list[str] = []
            names = Names()
            loader = Loader(names, loader_lines, lambda s: f"L[{s.name!r}]")
            for variable, source in self._set.shape_roots.items():
                loader_lines.append(f"{variable} = {loader.load(source)}")
            scope = {**names.namespace, **self._set.shape_namespace, "L": frame_locals}
            exec("\n".join(loader_lines) or "pass", scope)
            for condition in self._set.shape_conditions:
                if not eval(condition, scope):
                    for variable, source in self._set.shape_roots.items():
                        condition = re.sub(rf"\b{variable}\b", source.words(), condition)
                    return f"shape condition {condition} no longer holds"
        except Exception as error:
            return f"a shape can no longer be read ({type(error).__name__}: {error})"
        return "global state (grad mode, torch modes, autocast, default dtype, determinism or thread count) changed, or two inputs became one object"

    @property
    def guards(self) -> list[Guard]:
        return list(self._set.guards.values())


def _describe(value: Any) -> str:
    text = repr(value) if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__
    return text[:80]
