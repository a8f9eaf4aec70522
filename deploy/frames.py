"""The Python that follows a graph: it rebuilds results, and repeats what the program does to its arguments.

The frontend prints it.  A file has it as text, of which only what that printer makes is taken: assignments, displays,
and calls of what the file names.  It is read with ``ast``, and any other text is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchmux.frontend.guards.loader import Loader, Names
from torchmux.frontend.guards.sources import Cell, CellContents, Local, Source
from torchmux.registry.errors import LoadRefused

from .state import State
from .values import NotTold, again, told

if TYPE_CHECKING:
    from torchmux.frontend.capture.frame_writer import FrameParts

    from .entries import World

_NODES = (
    *(ast.Module, ast.Expression, ast.Expr, ast.Assign, ast.Name, ast.Load, ast.Store, ast.Tuple, ast.List, ast.Dict),
    *(ast.Set, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.UnaryOp, ast.USub, ast.Call, ast.Starred),
    ast.keyword,
)
_CONDITIONS = (
    *(ast.Compare, ast.BoolOp, ast.And, ast.Or, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div),
    *(ast.Mod, ast.Pow, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.IfExp, ast.UAdd),
)
_DUNDERS = (
    "__setitem__",
    "__getitem__",
    "__delitem__",
    "__new__",
    "__setattr__",
    "__iter__",
    "__init__",
    "__dict__",
    "_make",
)
_BUILTINS = {f.__name__: f for f in (iter, list, dict, set, tuple, frozenset, slice, range, len, zip, map, enumerate)}


def check(tree: ast.AST, *, conditions: bool = False) -> None:
    """Refuse text that the frontend does not print.

    Raises:
        NotTold: it has something else in it.
    """
    for node in ast.walk(tree):
        if not isinstance(node, _NODES) and not (conditions and isinstance(node, _CONDITIONS)):
            raise NotTold(f"Python that a file does not hold ({type(node).__name__})")
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr not in _DUNDERS:
            raise NotTold(f"Python that a file does not hold (.{node.attr})")
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            raise NotTold(f"Python that a file does not hold ({node.id})")


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


# --- written ----------------------------------------------------------------------------------------------------------


def frame_told(parts: FrameParts, world: World, state: State, number: Any) -> dict[str, Any]:
    """What is written of a frame function.

    Args:
        world: says what a path leads to now, if it does not begin at an argument of each call.
        state: takes the tensors that it reads besides.
        number: the number of a path in the file.

    Raises:
        NotTold: it changes something else than its arguments, or returns what a file cannot hold.
    """
    if parts.assumes_branches:
        raise NotTold("a branch that depends on data and only raises: such a call runs again in eager")
    variables = {**parts.parameters, **parts.loads}
    read, is_given = world.read, world.is_loaded
    statements = [
        line
        for line in parts.after
        if not _is_variable(ast.parse(line), variables, world.own_cells)
        and not _changes_nothing(ast.parse(line), variables, parts.namespace, read, is_given)
    ]
    body = ast.parse("\n".join([*statements, parts.result]))
    check(body)
    used = names_in(body) | {name for text in parts.inputs for name in names_in(ast.parse(text))}
    loads: list[Any] = []
    held: dict[str, Any] = {}
    for name in sorted(used):
        source = variables.get(name)
        if source is not None and is_given(source):
            loads.append([name, number(source)])
        elif isinstance(source, Cell) and source.name in world.own_cells:
            raise NotTold(f"a result or a change with a function that the program makes, which reads {source.name}")
        elif isinstance(source, Cell):
            raise NotTold(f"a change of {source.name}, a variable of the function around it. Use a tensor in place")
        elif source is not None:
            held[name] = _held(read(source), source.words(), state)
        elif name in parts.namespace:
            held[name] = _held(parts.namespace[name], f"the constant {parts.namespace[name]!r:.80}", state)
    return {
        "loads": loads,
        "held": held,
        "inputs": list(parts.inputs),
        "outputs": parts.outputs,
        "after": statements,
        "result": parts.result,
    }


def _held(value: Any, what: str, state: State) -> Any:
    if isinstance(value, torch.Tensor):
        return ["tensor", state.add(value)]
    try:
        return ["value", told(value)]
    except NotTold as why:
        raise NotTold(f"{what}, which the result or a change refers to: {why}") from None


def _is_variable(tree: ast.Module, variables: Mapping[str, Source], own_cells: Collection[str]) -> bool:
    """Whether a statement only sets a variable of the call itself, which ends with it."""
    (statement, *more) = tree.body
    if more or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Attribute):
        return False
    target = statement.targets[0].value
    cell = variables.get(target.id) if isinstance(target, ast.Name) else None
    return isinstance(cell, Cell) and cell.name in own_cells


def _changes_nothing(
    tree: ast.Module,
    variables: Mapping[str, Source],
    namespace: Mapping[str, Any],
    read: Callable[[Source], Any],
    is_given: Callable[[Source], bool],
) -> bool:
    """Whether a statement writes to an object of the program what is there already.

    Raises:
        NotTold: it writes something else to it, which would be lost in a file.
    """
    if len(tree.body) != 1:
        return False
    (statement,) = tree.body
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        target, key, new = statement.targets[0].value, statement.targets[0].slice, statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args:
        target, *rest = statement.value.args
        if len(rest) != 2:
            rest = [target, target]  # no constants
        key, new = rest
    else:
        return False
    if not isinstance(target, ast.Name):
        return False
    source = variables.get(target.id)
    if source is None and target.id not in namespace:
        return False  # an object that the frame has made
    if source is not None and is_given(source):
        return False
    owner = namespace[target.id] if source is None else read(source)
    words = source.words() if source is not None else f"{getattr(owner, '__name__', type(owner).__name__)}"
    if not isinstance(key, ast.Constant):
        raise NotTold(f"a change of {words}, which a file cannot repeat")
    items = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
    found = items.get(key.value, NotTold)
    if isinstance(new, ast.Name) and (origin := variables.get(new.id)) is not None and not is_given(origin):
        if read(origin) is found:
            return True  # such as self.steps += 1, whose tensor the graph changes in place
    if not isinstance(new, ast.Constant):
        raise NotTold(
            f"a change of {words}[{key.value!r}], which a file cannot repeat: it gets another object. Write to a "
            "tensor in place instead"
        )
    if type(found) is not type(new.value) or found != new.value:
        raise NotTold(f"a change of {words}[{key.value!r}], which a file cannot repeat")
    return True


def _given(source: Local | CellContents | Cell) -> str:
    """How a function finds what its frame has; cells are under names of their own."""
    if isinstance(source, Local):
        return f"L[{source.name!r}]"
    cell = f"L[{'cell ' + source.name!r}]"
    return cell if isinstance(source, Cell) else f"{cell}.cell_contents"


class _PathNames(Names):
    """Names for the constants of paths, which are none of those in the text."""

    def const(self, obj: Any, hint: str = "c") -> str:
        return super().const(obj, f"path_{hint}")


# --- and made again ---------------------------------------------------------------------------------------------------


def frame_again(
    description: Mapping[str, Any],
    sources: Sequence[Source],
    tensors: Mapping[str, torch.Tensor],
    run_graph: Callable[..., Any] | None,
) -> Callable[[dict[str, Any]], Any]:
    """The function: it takes the arguments of a call by name, and returns what the program would.

    Raises:
        LoadRefused: its text is none that torchmux writes, or a name in it leads nowhere.
    """
    names = _PathNames()
    before: list[str] = []
    # The variables of the text, such as v3 and out0, and those of its loader must not meet.
    loader = Loader(names, before, _given, prefix="_given")
    for name, at in description["loads"]:
        if not name.isidentifier():
            raise LoadRefused(f"A saved file names a variable {name!r}. torchmux.save() does not write that.")
        before.append(f"{name} = {loader.load(sources[at])}")
    namespace: dict[str, Any] = {}
    for name, (kind, value) in description["held"].items():
        namespace[name] = tensors[value] if kind == "tensor" else again(value)
    lines = [*before]
    if run_graph is not None:
        targets = "".join(f"out{at}, " for at in range(description["outputs"]))
        call = f"run_graph({', '.join(description['inputs'])})"
        lines.append(f"{targets}= {call}".lstrip("= ") if targets else call)
        namespace["run_graph"] = run_graph
    try:
        for text in (*description["inputs"], description["result"]):
            check(ast.parse(text, mode="eval"))
        for text in description["after"]:
            check(ast.parse(text))
    except (NotTold, SyntaxError) as error:
        raise LoadRefused(f"A saved file has {error}. torchmux.save() does not write that.") from None
    lines += [*description["after"], f"return {description['result']}"]
    text = "def frame(L):\n" + "".join(f"    {line}\n" for line in lines)
    scope = {**names.namespace, **namespace, "__builtins__": _BUILTINS}
    exec(compile(text, "<torchmux file>", "exec"), scope)
    function: Callable[[dict[str, Any]], Any] = scope["frame"]
    return function
