"""The check that runs before compiled code is reused.

All guards of a trace are printed into one Python function that loads every path once, checks arguments first, and
passes all tensors to one C++ call.  If no compiled code matches, the same guards are evaluated one at a time to say in
words which of them failed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from torchmux import torch_internals as ti

from ..hook.interrupts import from_its_first_instruction, keep
from .guards import GuardSet, ShapeCondition, TensorFacts, TensorGuard
from .kinds.guard import Guard
from .loader import Loader, Names
from .sources import Argument, Source
from .ways_out import Failure
from .write_watch import Watch, reading


class Apart(NamedTuple):
    """These must be other objects than those with these ids."""

    sources: list[Source]
    ids: frozenset[int]


class CompiledGuards:
    """The check of one compiled entry.  It keeps no tensor alive.

    ``check(frame_locals)`` is the generated function, ``text`` its source.
    """

    def __init__(self, guards: GuardSet, state: Any = None) -> None:
        self.conditions: list[Guard] = list(guards.guards)
        self.tensors = [_in_words(tensor) for tensor in guards.tensors.values()]
        self.facts = [TensorFacts.of(tensor) for tensor in guards.tensors.values()]
        self.distinct = guards.distinct
        self.inputs = guards.inputs
        self.global_state = guards.global_state
        self.devices = guards.devices
        self.state = ti.GlobalStateGuard() if state is None else state
        # the arguments first, because they change between calls; the common check also detects that two became one
        tensors = sorted(guards.tensors.values(), key=lambda t: not isinstance(t.source, Argument))
        own = [t for t in tensors if isinstance(t.source, Argument)]
        self.tensor_checks = [
            tensor_checker([(t.source, t.tensor, t.sizes, t.strides) for t in group])
            for group in ([own] if len(own) == len(tensors) else [own, tensors])
        ]
        self.shape_conditions = guards.shape_conditions
        self.shape_roots = guards.shape_roots
        self._shape_namespace = guards.shape_namespace
        self.check, self.text = self.write(self.conditions, self.distinct, _loader)

    def words(self) -> list[str]:
        """Every guard as a person would read it."""
        return [f"{guard.source.words()} {guard.words()}".strip() for guard in self.conditions] + self.tensors

    # --- the function ----------------------------------------------------------------------------------------------

    def write(
        self,
        conditions: list[Guard],
        distinct: list[list[Source]],
        make_loader: Callable,
        *,
        takes: str = "L",
        watch: Watch | None = None,
        others: tuple[list[Any], Apart] | None = None,
        apart: Sequence[Apart] = (),
        answers: tuple[str, str] = ("False", "True"),
    ) -> tuple[Callable[..., Any], str]:
        """A check of these conditions and groups, and of everything else; the function and its text.

        That of a snapshot is handed values, and asks ``watch`` whether they are still right; if not, it returns None.
        ``others`` is then what is checked of tensors besides the arguments, and which tensors must be none of which;
        ``apart`` tells that of other objects.
        """
        names = Names()
        lines: list[str] = []
        loader = make_loader(names, lines)
        if self.global_state:
            self._emit_global_state(names, lines)
        self._emit_tensors(self.tensor_checks[0], loader, names, lines)
        place = len(lines)
        # the model's structure hardly ever changes
        arguments = [g for g in conditions if isinstance(g.source, Argument)]
        rest = [g for g in conditions if not isinstance(g.source, Argument)]
        for guard in (*arguments, *rest):
            condition = guard.text(loader)  # loading may add lines, so before the append
            lines.append(f"if not ({condition}): return False")
        checkers, tensors_apart = (self.tensor_checks[1:], []) if others is None else (others[0], [others[1]])
        for checker in checkers:
            self._emit_tensors(checker, loader, names, lines)
        for sources, others_ids in (*tensors_apart, *apart):
            if sources:
                ids = ", ".join(f"id({loader.load(source)})" for source in sources)
                lines.append(f"if not {names.const(others_ids)}.isdisjoint(({ids},)): return False")
        for sources in distinct:
            variables = ", ".join(f"id({loader.load(source)})" for source in sources)
            lines.append(f"if len({{{variables}}}) != {len(sources)}: return False")
        for variable, source in self.shape_roots.items():
            lines.append(f"{variable} = {loader.load(source)}")
        lines.extend(_shape_checks(self.shape_conditions, names))
        if watch is not None:  # which knows by now of all that is loaded
            lines[place:place] = _comparing(watch, names)
        no, yes = answers
        every = [line.removesuffix("False") + no if line.endswith(": return False") else line for line in lines]
        body = "\n".join("        " + line for line in ([*loader.prologue(), *every] or ["pass"]))
        text = (
            f"def guard({takes}):\n    try:\n{body}\n"
            "    except (KeyError, AttributeError, IndexError, TypeError, ValueError, ArithmeticError):\n"
            f"        return {no}  # a path that the trace followed is gone\n"
            "    except BaseException as error:\n"
            "        return keep(error)\n"
            f"    return {yes}\n"
        )
        namespace = {**names.namespace, **self._shape_namespace, "keep": keep}
        exec(compile(text, "<torchmux guard>", "exec"), namespace)
        # the function goes as soon as nobody holds it: its namespace does not
        return from_its_first_instruction(namespace.pop("guard")), text

    def of_arguments(self, names: Sequence[str]) -> Callable[..., Any]:
        """The check as a function of a tuple: the values of these locals, in their order."""

        def loader(namespace: Names, lines: list[str]) -> Loader:
            lines.append(unpacking(names))
            return Loader(namespace, lines, by_position(names))

        return self.write(self.conditions, self.distinct, loader, takes="values")[0]

    def choosing(self, names: Sequence[str], known: dict[str, Any], condition: str) -> Callable[..., Any]:
        """The check as a link of :mod:`~torchmux.frontend.hook.links`, which is ``known`` to hold under a condition."""

        def loader(namespace: Names, lines: list[str]) -> Loader:
            namespace.namespace.update(known)
            lines.append(f"if not ({condition}): return False")
            return Loader(namespace, lines, by_position(names))

        takes = ", ".join(["space", "closure", *(f"arg{index}" for index in range(len(names)))])
        answers = "missed()", "known if space is home else found(space, closure)"
        return self.write(self.conditions, self.distinct, loader, takes=takes, answers=answers)[0]

    def _emit_global_state(self, names: Names, lines: list[str]) -> None:
        lines.append(f"if not {names.const(self.state, 'global_state_')}.check(): return False")
        dispatch_modes, function_modes = names.const(ti.count_dispatch_modes), names.const(ti.count_function_modes)
        lines.append(f"if {dispatch_modes}() or {function_modes}() != {len(self.devices)}: return False")
        if self.devices:
            lines.append(f"if {names.const(ti.default_devices)}() != {names.const(self.devices)}: return False")

    @staticmethod
    def _emit_tensors(checker: tuple[Any, list[Source]], loader: Loader, names: Names, lines: list[str]) -> None:
        check, sources = checker
        if sources:
            variables = loader.load_all(sources)
            lines.append(f"if not {names.const(check, 'tensors_')}.check({variables}): return False")

    # --- the reason ------------------------------------------------------------------------------------------------

    def why_not(self, frame_locals: dict) -> Failure:
        """The first guard that fails for these locals."""
        if self.global_state and self._in_another_mode():  # it would see each question
            return Failure(self._failing_state(frame_locals), about="state", held=3)
        for guard in self.conditions:
            try:
                value, holds = evaluate(guard, frame_locals)
            except Exception as error:  # whatever goes wrong while reading the path is the answer
                return Failure(f"{guard.source.words()} can no longer be read ({type(error).__name__}: {error})", guard)
            if not holds:
                words = f"{guard.source.words()} {guard.words()} no longer holds (now {_describe(value)})"
                return Failure(words, guard, value)
        if words := self._failing_tensor(frame_locals):
            return Failure(words, about="tensor", held=1)
        if words := self._failing_shape(frame_locals):
            return Failure(words, about="shape", held=2)
        return Failure(self._failing_state(frame_locals), about="state", held=3)

    def _in_another_mode(self) -> bool:
        return bool(ti.count_dispatch_modes() or ti.count_function_modes() != len(self.devices))

    def _failing_state(self, frame_locals: dict) -> str:
        """What is different of torch itself, or which inputs became one."""
        found: list[str] = []
        if self.global_state:
            found += [] if self.state.check() else map(_setting_in_words, self.state.reason().split())
            if self._in_another_mode():
                found.append("a torch mode was entered or left")
            elif self.devices and ti.default_devices() != self.devices:
                found.append("the default device changed")
        for sources in self.distinct:
            with contextlib.suppress(Exception):  # what cannot be read is not the same
                if len({id(value) for value in read(sources, frame_locals)}) != len(sources):
                    found.append(f"some of {', '.join(source.words() for source in sources)} became the same object")
        return ", ".join(found) or "a setting of torch changed"

    def _failing_tensor(self, frame_locals: dict) -> str:
        for checker, sources in self.tensor_checks:
            words = [source.words() for source in sources]
            try:
                values = read(sources, frame_locals)
            except Exception as error:
                return f"one of {', '.join(words[:3])}... can no longer be read ({type(error).__name__}: {error})"
            verdict = checker.check_verbose(*values, tensor_check_names=words)
            if verdict is not True:
                return _in_plain_words(str(verdict))
        return ""

    def _failing_shape(self, frame_locals: dict) -> str:
        try:
            values = read(list(self.shape_roots.values()), frame_locals)
            scope = {**self._shape_namespace, **dict(zip(self.shape_roots, values, strict=True))}
            for condition in self.shape_conditions:
                if not eval(condition.text, scope):
                    return _shape_in_words(condition, scope)
        except Exception as error:
            return f"a shape can no longer be read ({type(error).__name__}: {error})"
        return ""


_KEYS = re.compile(
    r"(tensor '.*') dispatch key set mismatch\. expected DispatchKeySet\((.*)\), actual DispatchKeySet\((.*)\)"
)
_ALIAS = re.compile(r"Duplicate tensor found where not expected! (.*?) ?should not alias to anything, but is aliased")


def _in_plain_words(verdict: str) -> str:
    """What torch's check of tensors says, for those who do not know torch's dispatcher."""
    if (alias := _ALIAS.fullmatch(verdict)) is not None:
        return f"{alias[1]} and another input became the same tensor"
    if (keys := _KEYS.fullmatch(verdict)) is None:
        return verdict
    before, now = (set(keys[at].split(", ")) for at in (2, 3))
    changes = [f"now with {', '.join(sorted(now - before))}"] if now - before else []
    changes += [f"no longer with {', '.join(sorted(before - now))}"] if before - now else []
    return (
        f"{keys[1]} is dispatched otherwise ({', '.join(changes)}): autocast, inference mode, device and layout decide"
    )


def _setting_in_words(name: str) -> str:
    """What torch's own check calls a setting of the process, and how it is now."""
    words = f"{name.replace('_', ' ').replace('num threads', 'number of threads')} changed"
    if name == "grad_mode":
        return f"{words} (now {'enabled' if torch.is_grad_enabled() else 'disabled'})"
    return f"{words} (now {torch.get_num_threads()})" if name == "num_threads" else words


def tensor_checker(group: Sequence[tuple[Source, Any, Sequence, Sequence]]) -> tuple[Any, list[Source]]:
    """The check of these tensors, of which some sizes and strides may be any (None), and its arguments."""
    sources, tensors, sizes, strides = map(list, zip(*group, strict=True)) if group else ([], [], [], [])
    return ti.TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides), sources


def unpacking(names: Sequence[str]) -> str:
    """The line that begins a check that takes the values of these locals: others than so many are not right."""
    return f"({''.join(f'arg{index}, ' for index in range(len(names)))}) = values"


def by_position(names: Sequence[str]) -> Callable[[Any], str]:
    """What loads a local in a check that takes the values of these."""
    return lambda source: f"arg{names.index(source.name)}"


def by_name(source: Any) -> str:
    """What loads a local in a check that takes all of them as a dictionary."""
    return f"L[{source.name!r}]"


def _loader(names: Names, lines: list[str]) -> Loader:
    return Loader(names, lines, by_name)


def read(sources: Sequence[Source], frame_locals: dict) -> list[Any]:
    """The objects that these paths lead to now."""
    names = Names()
    lines: list[str] = []
    loader = _loader(names, lines)
    variables = [loader.load(source) for source in sources]
    scope = {**names.namespace, "L": frame_locals}
    exec("\n".join([*lines, f"_values = [{', '.join(variables)}]"]), scope)
    return scope["_values"]


def evaluate(guard: Guard, frame_locals: dict) -> tuple[Any, bool]:
    """The object that the guard is about, and whether the guard holds."""
    names = Names()
    lines: list[str] = []
    loader = _loader(names, lines)
    variable, condition = loader.load(guard.source), guard.text(loader)
    scope = {**names.namespace, "L": frame_locals}
    exec("\n".join([*lines, f"_value, _holds = {variable}, bool({condition})"]), scope)
    return scope["_value"], scope["_holds"]


def _comparing(watch: Watch, names: Names) -> list[str]:
    """The lines of ``watch.unchanged()``; nothing else is noted from here on."""
    watch.seal()
    return [
        f"if {names.const(expected)} != {names.const(reading(at))}({names.const(at)}): return None"
        for at, expected in watch.comparisons
    ]


_FEW = 4  # conditions that are checked in less time than it takes to look their numbers up
_KNOWN = 64


def _shape_checks(conditions: Sequence[ShapeCondition], names: Names) -> list[str]:
    """The lines that check these conditions.

    Each number is read once, where several conditions are about it.  What conditions say follows from sizes, strides
    and numbers alone, so where there are many, those for which all of them held are remembered.
    """
    parts = dict.fromkeys(part for condition in conditions for part in condition.parts())
    named = {part: f"{part.variable}_{part.method}_{part.index}" for part in parts if part.method}
    roots = {(part.variable, part.method): f"{part.variable}.{part.method}()" for part in named}
    reads = [f"{variable}_{method} = {call}" for (variable, method), call in roots.items()]
    lines = []
    for part, name in named.items():
        at = "" if part.index is None else f"[{part.index}]"
        lines.append(f"{name} = {part.variable}_{part.method}{at}")
    for condition in conditions:
        pieces = (piece if isinstance(piece, str) else named.get(piece, piece.text) for piece in condition.pieces)
        lines.append(f"if not ({''.join(pieces)}): return False")
    if len(conditions) <= _FEW:
        return [*reads, *lines]
    numbers = [f"{variable}_{method}" for variable, method in roots] + [p.text for p in parts if not p.method]
    held = names.const(set(), "held_")
    return [
        *reads,
        f"shapes = ({', '.join(numbers)},)",
        f"if shapes not in {held}:",
        *(f"    {line}" for line in lines),
        f"    if len({held}) >= {_KNOWN}: {held}.clear()",
        f"    {held}.add(shapes)",
    ]


def _shape_in_words(condition: ShapeCondition, scope: dict[str, Any]) -> str:
    """A condition on sizes that does not hold, with the current sizes and the line that needs it."""
    parts = sorted(condition.parts(), key=lambda part: part.text)
    now = [eval(part.text, scope) for part in parts]
    if condition.is_lower_bound:
        (part,), (size,) = parts, now
        return f"size {part.index} of {part.source.words()} is {size}; sizes 0 and 1 are compiled separately"
    where = f", which {condition.where} needs" if condition.where else ""
    values = ", ".join(f"{part.words()} is {value}" for part, value in zip(parts, now, strict=True))
    return f"shape condition {condition.words()} no longer holds{where} (now {values})"


def _in_words(tensor: TensorGuard) -> str:
    real = tensor.tensor
    shape = "x".join("?" if size is None else str(size) for size in tensor.sizes) or "scalar"
    grad = ", requires grad" if real.requires_grad else ""
    dtype = str(real.dtype).removeprefix("torch.")
    return f"{tensor.source.words()} is a {dtype} tensor of {shape} on {real.device}{grad}"


def _describe(value: Any) -> str:
    cls = type(value)  # of a class of the program's, none of its code runs for a message
    if cls in (int, float, str, bool, type(None)) or issubclass(cls, np.generic):
        return repr(value)[:80]
    if cls in (list, tuple, dict, set, frozenset):
        return f"{cls.__name__} of length {len(value)}"
    return type.__getattribute__(cls, "__name__")
