"""Writes the Python function that runs in place of the captured part of a frame.

It loads the graph's inputs, calls the compiled graph, replays side effects and rebuilds the values that outlive
it.  As plain source text, it is the same for every CPython version and readable (``TORCHMUX_LOGS=bytecode``).
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchmux import torch_internals as ti

from ..breaks import NOT_REBUILDABLE, REGION, GraphBreak
from ..guards.loader import Loader, Names
from ..guards.sources import Cell, CellContents, Global, Local, Source
from ..guards.stable_objects import is_instance
from ..polyfills.tables import STANDS_FOR
from ..trace.overlap import guard_apart
from ..trace.tracer import FrameWriter, Tracer
from ..values.base import GraphValue, Value
from ..values.constants import ConstValue
from ..values.containers.generators import GeneratorValue
from ..values.containers.iterators import advance
from ..values.containers.sequences import ListValue
from ..values.objects import ObjectValue
from .assumed_branches import Check
from .attempts import HookedTensorOutlives
from .failures import FailureCheck

_BUILDING = "<building>"


@dataclass(frozen=True)
class FrameParts:
    """What a frame function is made of, for whoever writes it down (``torchmux.deploy``).

    ``loads`` has the variable of each path that is loaded, ``parameters`` that of each argument and cell.  ``inputs``
    are the expressions that the graph takes, ``outputs`` the number of its results: ``out0`` and so on.  ``after`` and
    ``result`` are the text of what follows the graph, and ``namespace`` has the constants in it.
    """

    loads: Mapping[str, Source]
    parameters: Mapping[str, Source]
    inputs: tuple[str, ...]
    outputs: int
    after: tuple[str, ...]
    result: str
    namespace: Mapping[str, Any]
    assumes_branches: bool


_FEW_INPUTS = 4  # are loaded as fast one by one


class Output(FrameWriter):
    """The function under construction: ``before`` runs before the graph, and ``after`` after it."""

    def __init__(self, tr: Tracer, resumes: bool = False) -> None:
        self.tr = tr
        self.resumes = resumes
        self.names = Names()
        self.before: list[str] = []
        self.after: list[str] = []
        self.late: list[str] = []  # after the side effects
        self.arguments: dict[tuple[str, str], str] = {}  # ("local" | "cell", name) -> parameter
        self.loader = Loader(self.names, self.before, self._root)
        self.graph_outputs: list[GraphValue] = []
        self.check: Check | FailureCheck | None = None  # the call may start again in eager
        self.direct: set[Value] = set()  # on the stack and nowhere else
        self.unseen: set[Value] = set()  # iterators of ours that the program cannot look at
        self._outputs: dict[GraphValue, str] = {}
        self._memo: dict[Value, str] = {}
        self._count = 0
        for source in tr.draws:  # ahead of all else, used or not
            self.load(source)

    # --- expressions -----------------------------------------------------------------------------------------------

    def _root(self, source: Local | CellContents | Cell) -> str:
        if isinstance(source, Cell):
            return self._parameter("cell", source.name)
        if isinstance(source, CellContents):
            return self._parameter("cell", source.name) + ".cell_contents"
        return self._parameter("local", source.name)

    def _parameter(self, kind: str, name: str) -> str:
        key = (kind, name)
        if key not in self.arguments:
            prefix = "cell" if kind == "cell" else "arg"
            # names of generated code need not be identifiers: ".0", and "@py_assert1" in what pytest has rewritten
            readable = f"{prefix}_{name}"
            self.arguments[key] = readable if readable.isidentifier() else f"{prefix}{len(self.arguments)}_"
        return self.arguments[key]

    def load(self, source: Source) -> str:
        return self.loader.load(source)

    def value(self, value: Value) -> str:
        """The expression for this value after the graph; one object stays one object."""
        known = self._memo.get(value)
        if known is _BUILDING:
            raise GraphBreak(NOT_REBUILDABLE, f"{value.describe()} contains itself")
        if known is not None:
            return known
        if isinstance(value, ConstValue):
            return value.rebuild(self)
        if value.source is not None:
            text = self.load(value.source)
        else:
            self._memo[value] = _BUILDING
            text = value.rebuild(self)
            if self._memo[value] is not _BUILDING:
                return self._memo[value]  # a shell that rebuild() made
            if not text.isidentifier():
                text = self.temporary(text)
        self._memo[value] = text
        return text

    def hide(self, stack: list[Value], visible: list[Value]) -> None:
        """Iterators of loops that continue after the graph may be torchmux's objects: only the loop holds them."""
        pending = [value for value in stack if value not in visible]
        self.direct.update(pending)
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            if value in seen:
                continue  # a list may contain itself
            seen.add(value)
            if isinstance(value, ObjectValue) and value.cls in STANDS_FOR and value not in self.unseen:
                self.unseen.add(value)
                pending.extend(v for v in value.attrs.values() if isinstance(v, Value))
            elif isinstance(value, ListValue) and value.source is None:
                pending.extend(value.unpack(self.tr))
            elif isinstance(value, GeneratorValue) and value.frame.code.co_name == "<genexpr>":
                pending.extend(v for v in value.made_by[1] if v not in visible)  # it has no name for its iterator

    def late_iterator(self, container: str, position: int) -> str:
        """A real iterator for the stack, made once the side effects have set the container right."""
        self._count += 1
        self.late.append(f"r{self._count} = iter({container})")
        if position:
            self.late.append(f"{self.names.const(advance)}(r{self._count}, {position}, False)")
        return f"r{self._count}"

    def container(self, opening: str, closing: str, items: list[Value]) -> str:
        if opening == "(" and not items:
            return "()"
        return opening + ", ".join([self.value(item) for item in items]) + closing  # a list hides no StopIteration

    def temporary(self, text: str) -> str:
        self._count += 1
        name = f"r{self._count}"
        self.line(f"{name} = {text}")
        return name

    def shell(self, value: Value, text: str) -> str:
        """Make the object first and fill it afterwards, so that what it contains may refer to it."""
        if value.source is not None:
            return self.load(value.source)
        name = self.temporary(text)
        self._memo[value] = name
        return name

    def line(self, text: str) -> None:
        self.after.append(text)

    def graph_output(self, value: GraphValue) -> str:
        """A tensor or symbolic number that the graph computes."""
        name = self._outputs.get(value)
        if name is None:
            if value.node.graph is not self.tr.main:
                raise GraphBreak(REGION, f"{value.describe()} outlives the region that created it")
            if value.node in self.tr.hooked:
                raise HookedTensorOutlives
            name = self._outputs[value] = f"out{len(self.graph_outputs)}"
            self.graph_outputs.append(value)
        return name

    # --- side effects ----------------------------------------------------------------------------------------------

    def replay_effects(self) -> None:
        """Write the final state of everything that changed outside the frame.

        First every new content is rebuilt, then it is written, so that no write is seen by a later read.
        """
        self.tr.guard_distinct()
        guard_apart(self.tr)
        writes: list[str] = []
        for value in self.tr.effects.changed_values:
            assert value.source is not None
            writes.extend(value.write_back(self, self.load(value.source)))
        for (_, name), (namespace, value) in self.tr.effects.globals.items():
            writes.append(f"{self.names.const(namespace)}[{name!r}] = {self.value(value)}")
        for (_, name), (cls, value) in self.tr.effects.classes.items():
            store = self.names.const(type.__setattr__)
            writes.append(f"{store}({self.names.const(cls)}, {name!r}, {self.value(value)})")
        self.after.extend([*writes, *self.late])

    def restore_state(self) -> None:
        """Enter for real the regions in which the graph ended."""
        tr = self.tr
        for context in tr.active_contexts:
            self.line(f"{self.value(context)}.__enter__()")
            previous = getattr(context, "previous", None)
            if previous is not None and context.source is None:
                self.line(f"{self.value(context)}.prev = {previous}")
        for setter, value in tr.switches.final.items():
            self.line(f"{self.names.const(setter)}({self.names.const(value)})")
        for line in tr.defaults.lines(self):
            self.line(line)
        if tr.final_grad != tr.initial_grad:
            self.line(f"{self.names.const(ti.set_grad_enabled)}({tr.final_grad})")

    # --- the function ----------------------------------------------------------------------------------------------

    def parts(self, result: str, has_graph: bool) -> FrameParts:
        """What :meth:`assemble` has made a function of."""
        inputs = tuple(self.inputs()) if has_graph else ()
        roots: dict[str, Source] = {
            text: Cell(name) if kind == "cell" else Local(name) for (kind, name), text in self.arguments.items()
        }
        return FrameParts(
            {variable: source for source, variable in self.loader.variables.items()},
            roots,
            inputs,
            len(self.graph_outputs),
            (*self._calls_first(), *self.after),
            result,
            self.names.namespace,
            bool(self.tr.expectations),
        )

    def inputs(self) -> list[str]:
        """The expressions for the graph's inputs; call after the graph is finished."""
        return [self.load(source) for _, source in self.tr.inputs]

    def _calls_first(self) -> list[str]:
        return [f"{self.names.const(function)}()" for function in self.tr.calls_first]

    def _loading(self, rest: str, arguments: list[str]) -> tuple[list[str], list[str]]:
        """The lines that load what is used: from the snapshot of the check that just passed, or path by path.

        Also those of the graph's ``arguments``, one behind the other, that they only load together, as ``more``: what
        the ``rest`` of the function does not use.
        """
        used = collections.Counter([*re.findall(r"\w+", rest), *arguments])
        wanted = {s: v for s, v in self.loader.variables.items() if v in used}
        direct = {s: wanted.pop(s) for s in list(wanted) if self._differs_in_each_call(s.root())}
        roots = tuple(dict.fromkeys(source.root() for source in wanted))
        if (
            self.tr.draws
            or len(wanted) < _FEW_INPUTS
            or not all(isinstance(root, Local | CellContents | Global) for root in roots)
        ):
            return self.before, []
        known = {variable: source for source, variable in wanted.items() if used[variable] == 1}
        runs = (list(run) for together, run in itertools.groupby(arguments, known.__contains__) if together)
        more = max(runs, key=len, default=[])
        more = more if len(more) >= _FEW_INPUTS else []
        alone = {s: v for s, v in wanted.items() if v not in more}
        inputs = self.tr.guards.inputs
        inputs.roots, inputs.sources, inputs.more = roots, tuple(alone), tuple(known[variable] for variable in more)
        # another thread may have made another snapshot since the check
        same = " and ".join(f"s.roots[{i}]() is {root.expression(self.loader)}" for i, root in enumerate(roots))
        lines: list[str] = []
        loader = Loader(self.names, lines, self._root, "w")
        lines += [f"{variable} = {loader.load(source)}" for source, variable in direct.items()]
        targets = f"({', '.join([*alone.values(), *(['more'] if more else [])])},)"
        loading = [
            f"s = {self.names.const(inputs, 'inputs_')}.latest()",
            f"if s is not None and s.inputs and {same}:",
            f"    {targets} = s.inputs",
            *(f"    {line}" for line in lines),
            "else:",
            *(f"    {line}" for line in self.before),
            *([f"    more = ({', '.join(more)},)"] if more else []),
        ]
        return loading, more

    def _differs_in_each_call(self, root: Source) -> bool:
        """Whether an argument or a global contains data: a tuple of arguments, say, but no model."""
        if isinstance(root, Global):
            return not is_instance(root.namespace.get(root.name))
        return isinstance(root, Local) and not is_instance(self.tr.frame_locals.get(root.name))

    def assemble(self, result: str, name: str, run_graph: Callable | None) -> tuple[Callable, str]:
        """Compile the function; the callable and its text."""
        lines, inputs, arguments = [], [], "()"
        if run_graph is not None:
            inputs = self.inputs()
            self.names.namespace["run_graph"] = run_graph
            targets = ", ".join(f"out{i}" for i in range(len(self.graph_outputs)))
            comma = "," if len(self.graph_outputs) == 1 else ""
            arguments = _tuple(inputs)
            call = f"run_graph({arguments})"
            call = f"{targets}{comma} = {call}" if targets else call
            lines += [call] if self.check is None else self.check.lines(self, call, arguments)
        goes_on = "False, " if self.resumes and self.check is not None else ""  # with the rest of the frame
        lines = [*lines, *self.after, f"return {goes_on}{result}"]
        loading, more = self._loading("\n".join(lines).replace(arguments, ""), inputs)
        if more:
            at = inputs.index(more[0])
            around = (inputs[:at], inputs[at + len(more) :])
            ahead, behind = (_tuple(texts) if texts else "" for texts in around)
            joined = " + ".join(filter(None, (ahead, "more", behind)))
            lines = [line.replace(arguments, joined) for line in lines]
        lines = [*self._calls_first(), *loading, *lines]
        parameters = ", ".join(self.arguments.values())
        text = f"def {name}({parameters}):\n" + "\n".join("    " + line for line in lines) + "\n"
        namespace = self.names.namespace
        exec(compile(text, f"<torchmux {name}>", "exec"), namespace)
        return namespace[name], text


def _tuple(texts: list[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
