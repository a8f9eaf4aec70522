"""``torchmux.save(format="so")``: what native has compiled as a shared object that runs without Python and torch."""

from __future__ import annotations

import ast
import json
import keyword
import os
import re
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from torchmux.frontend.guards.guards import ShapeCondition, ShapePart, TensorFacts
from torchmux.frontend.guards.sources import Local, Size, Source
from torchmux.registry.errors import SaveRefused

from . import container
from .c_interface import Alternative, Input, Stored, header, source
from .entries import Outdated, World, guards_told
from .frames import frame_told
from .paths import Writer, paths_in, sources_in
from .state import State
from .values import NotTold

if TYPE_CHECKING:
    from torchmux.frontend.capture.captured import Captured

    from .saving import Compiled

_OF_PYTHON = ("TypeIs", "NoOwnAttribute")  # guards on tensors that hold for any tensor of C
_STRUCTURAL = ("TypeIs", "HasKey", "Keys", "Length")  # guards on what holds arguments, which C does not have


def save_shared_object(
    taken: Compiled,
    world: World,
    order: Sequence[str],
    captures: Sequence[Captured],
    path: str | os.PathLike[str],
    *,
    weights: bool,
) -> list[str]:
    """Write the object, its header beside it and, unless ``weights`` go inside, a file with these.

    ``order`` are the names of the program's arguments.

    Returns:
        What is not in the object, in words.

    Raises:
        SaveRefused: it needs torch; the message names the operators.
        BackendUnavailable: there is no C++ compiler.
        CompilationFailed: it failed.
    """
    from torchmux.backends.native.targets.standalone.build import shared_object
    from torchmux.backends.native.targets.standalone.graphs import Refused

    final = Path(path)
    name = name_of(final)
    state = State(taken.owner if isinstance(taken.owner, torch.nn.Module) else None)
    entries: list[Alternative] = []
    left_out: list[str] = []
    for captured in reversed(captures):  # the last one takes the most
        where = f"{captured.qualname} ({captured.frame.place})"
        try:
            entry = _Reader(captured, world, order, state).alternative(f"entry{len(entries)}")
        except Outdated as why:
            left_out.append(f"{captured.qualname}: {why}")
            continue
        except NotTold as why:
            raise SaveRefused(f"{taken.name} cannot be saved as a shared object: {where} has {why}.") from why
        except Refused as why:
            raise SaveRefused(
                f"{taken.name} cannot be saved as a shared object: {where} has what only torch computes:\n  "
                + "\n  ".join(why.reasons)
                + "\nReplace these operators, or save it without format='so'."
            ) from why
        if entries and _form(entry) != _form(entries[0]):
            left_out.append(f"{captured.qualname}: an entry for other inputs than the last one")
            continue
        # C has none of these arguments: the sizes of the tensors alone would choose among their values.
        if entries and set(entry.fixed) != set(entries[0].fixed):
            these = "; ".join(entry.fixed) or "any"
            left_out.append(f"{captured.qualname}: an entry for other arguments than the last one ({these})")
            continue
        entries.append(entry)
    if not entries:
        raise SaveRefused(
            f"{taken.name} cannot be saved: none of what was compiled fits the program as it is now. {left_out[0]}. "
            "Call it once more, then save it."
        )
    stored = _stored(state)
    entries.reverse()
    text = source(name, entries, stored, inside=weights)
    code = shared_object(text, stored.content if weights else None)
    if not weights:
        _write(final.with_name(f"{name}.safetensors"), stored.content)
    _write(final.with_name(f"{name}.h"), header(name, entries, inside=weights).encode())
    _write(final, code)
    return left_out


def name_of(path: Path) -> str:
    """What the functions of the object begin with: ``encoder`` for ``build/libencoder.so``.

    Raises:
        ValueError: the file has no name that C takes.
    """
    name = path.name.split(".")[0].removeprefix("lib")
    if path.suffix != ".so" or not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or keyword.iskeyword(name):
        raise ValueError(
            f"{path.name!r} gives the functions no name. Name the file NAME.so or libNAME.so, where NAME consists of "
            "letters, digits and underscores, and begins with a letter."
        )
    return name


def _form(entry: Alternative) -> Any:
    return [(i.name, len(i.sizes)) for i in entry.inputs], entry.outputs


def _stored(state: State) -> Stored:
    content = container.safetensors(state.tensors, 0)
    (length,) = struct.unpack_from("<Q", content)
    told = json.loads(content[8 : 8 + length])
    offsets = tuple(8 + length + told[name]["data_offsets"][0] for name in state.tensors)
    return Stored(content, offsets, 8 + length)


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            file.write(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


class _Reader:
    """One captured frame, whose tensors among the arguments are the inputs."""

    def __init__(self, captured: Captured, world: World, order: Sequence[str], state: State) -> None:
        assert captured.guards is not None and captured.parts is not None
        self.captured, self.world, self.state = captured, world, state
        self.guards, self.parts = captured.guards, captured.parts
        given = [facts for facts in self.guards.facts if world.is_given(facts.source)]
        self.facts: list[TensorFacts] = sorted(given, key=lambda facts: order.index(_root(facts.source)))
        self.at = {facts.source: at for at, facts in enumerate(self.facts)}

    def alternative(self, name: str) -> Alternative:
        """This frame in C++.

        Raises:
            NotTold, Outdated: as for other files.
            Refused: some of its graph needs torch.
        """
        from torchmux.backends.native.targets.standalone.graphs import print_graph
        from torchmux.backends.native.targets.standalone.host import DTYPES, MOST_DIMENSIONS

        captured = self.captured
        paths = Writer()
        guards_told(self.guards, self.world, paths)
        if captured.is_training:
            raise NotTold(
                "gradients: it was called with tensors that require them. Call it under torch.no_grad() first"
            )
        frame_told(self.parts, self.world, State(None), paths.source)
        backend = captured.compiled.report.backend if captured.compiled is not None else "none"
        if not isinstance(captured.graph, GraphModule) or backend != "native":
            raise NotTold(f"a graph of {backend}; shared objects are made of graphs that native compiles")
        for facts in self.facts:
            if facts.dtype not in DTYPES or facts.device.type != "cpu" or len(facts.sizes) > MOST_DIMENSIONS:
                raise NotTold(f"an input of {facts.dtype} on {facts.device} with {len(facts.sizes)} dimensions")
            if any(t == 0 and (s is None or s > 1) for s, t in zip(facts.sizes, facts.strides, strict=True)):
                raise NotTold(f"an expanded input, {facts.source.words()}. Call it with a contiguous tensor")
        inputs = tuple(Input(self._name(f.source), f.dtype, f.sizes) for f in self.facts)
        expressions = [self._expression(text) for text in self.parts.inputs]
        code = print_graph(captured.graph, name, expressions, self._held)
        result = "; ".join([*self.parts.after, f"return {self.parts.result}"])
        return Alternative(name, inputs, self.parts.outputs, self._conditions(), code, result, self._fixed())

    def _name(self, path: Source) -> str:
        words = path.words()
        return re.sub(r"^(kwargs|args)?\[?['\"]?([^\]'\"]+)['\"]?\]?$", r"\2", words)

    def _expression(self, text: str) -> str:
        """An input of the graph in C++."""
        path = {**self.parts.parameters, **self.parts.loads}.get(text)
        if path is None:
            raise NotTold(f"an input that is computed, {text}")
        if path in self.at:
            return f"in[{self.at[path]}].data"
        if isinstance(path, Size) and path.parent in self.at:
            return f"in[{self.at[path.parent]}].sizes[{path.dim}]"
        if self.world.is_given(path):
            raise NotTold(f"a number among its arguments that changes, {path.words()}. Pass a constant")
        value = self.world.read(path)
        if isinstance(value, torch.Tensor):
            return self._held(value)
        if type(value) in (int, bool):
            return f"{int(value)}l"
        raise NotTold(f"an input that is no tensor, {path.words()}")

    def _held(self, tensor: torch.Tensor) -> str:
        if not tensor.is_contiguous():
            raise NotTold(f"a weight with strides {tensor.stride()}. Call .contiguous() on it")
        name = self.state.add(tensor)
        return f"(weights + AT[{list(self.state.tensors).index(name)}])"

    def _conditions(self) -> tuple[tuple[str, str], ...]:
        found = []
        for condition in self.guards.shape_conditions:
            if any(not self.world.is_given(part.source) for part in condition.parts()):
                raise NotTold(f"a condition on the size of what is no argument, {condition.words()}")
            text = self._in_cpp(condition)
            if text is not None:
                found.append((text, condition.words()))
        return tuple(found)

    def _in_cpp(self, condition: ShapeCondition) -> str | None:
        values: dict[str, str] = {}
        pieces = []
        for piece in condition.pieces:
            if not isinstance(piece, ShapePart):
                pieces.append(piece)
                continue
            name = f"part{len(values)}"
            values[name] = self._number(piece)
            pieces.append(name)
        return _in_cpp(ast.parse("".join(pieces).strip(), mode="eval").body, values)

    def _number(self, part: ShapePart) -> str:
        path, dim, method = part.source, part.index, part.method
        if isinstance(part.source, Size):
            path, dim, method = part.source.parent, part.source.dim, "size"
        if path not in self.at:
            raise NotTold(f"a number among its arguments that changes, {part.source.words()}. Pass a constant")
        tensor = f"in[{self.at[path]}]"
        if method == "size":
            return f"{tensor}.sizes[{dim}]"
        return f"stride_of({tensor}, {dim})" if method == "stride" else "0l"

    def _fixed(self) -> tuple[str, ...]:
        """The conditions on arguments that are no tensors, in words: C has none of these arguments."""
        found = []
        for guard in self.guards.conditions:
            given = [path for path in sources_in(guard) if self.world.is_given(path)]
            kind = type(guard).__name__
            if any(path in self.at for path in given):
                if kind in _OF_PYTHON:
                    continue
                raise NotTold(f"a condition on an input that a shared object does not check: {guard!r:.200}")
            if given and kind not in _STRUCTURAL:
                found.append(f"{guard.source.words()} {guard.words()}")
        return tuple(found)


def _root(path: Source) -> str:
    roots = (each.root() for each in paths_in(path))
    return next(root.name for root in roots if isinstance(root, Local))


_OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def _in_cpp(node: ast.AST, values: dict[str, str]) -> str:
    """Python about sizes, which are not negative, in C++.

    Raises:
        NotTold: it has what is not known to mean the same there.
    """
    match node:
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Constant(value=int(value)):
            return f"{int(value)}l"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"!({_in_cpp(operand, values)})"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-({_in_cpp(operand, values)})"
        case ast.BoolOp(op=op, values=parts):
            return f" {'&&' if isinstance(op, ast.And) else '||'} ".join(f"({_in_cpp(p, values)})" for p in parts)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            if isinstance(op, (ast.FloorDiv, ast.Mod)) and "-" in ast.unparse(node):
                raise NotTold(f"a condition on sizes that C++ would round otherwise, {ast.unparse(node)}")
            return f"({_in_cpp(left, values)} {_OPERATORS[type(op)]} {_in_cpp(right, values)})"
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _OPERATORS for op in ops):
            operands = [left, *comparators]
            pairs = zip(operands, ops, comparators, strict=False)
            return " && ".join(
                f"({_in_cpp(a, values)} {_OPERATORS[type(op)]} {_in_cpp(b, values)})" for a, op, b in pairs
            )
        case _:
            raise NotTold(f"a condition on sizes that has no form in C++, {ast.unparse(node)}")
