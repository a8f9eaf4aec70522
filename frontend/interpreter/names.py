"""Locals, cells, globals, attributes, imports, and stack manipulation."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

from ..breaks import INSTRUCTION, OPERATION, GraphBreak
from ..bytecode.normalize import MovedCell
from ..guards.kinds.objects import NotInDict
from ..guards.sources import Const, Item
from ..values.base import NULL, Raised
from ..values.cells import CellValue
from ..values.facets.supers import make_super
from ..values.local_classes import BuildClassValue
from .frame import Frame, op

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


def _unbound(frame: Frame, name: str) -> Raised:
    message = f"cannot access local variable '{name}' where it is not associated with a value"
    return Raised(frame.tr.make_exception(UnboundLocalError, message))


@op("LOAD_CONST")
def load_const(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.lift_constant(ins.arg))


@op("LOAD_FAST")
def load_fast(frame: Frame, ins: Any) -> None:
    value = frame.locals.get(ins.arg)
    if value is None:
        if frame.is_root and (value := frame.tr.load_argument(ins.arg)) is not None:
            frame.locals[ins.arg] = value
        else:
            raise _unbound(frame, ins.arg)
    frame.stack.append(value)


@op("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, ins: Any) -> None:
    value = frame.locals.pop(ins.arg, None)
    if value is None and frame.is_root:
        value = frame.tr.load_argument(ins.arg)
        frame.tr.forget_argument(ins.arg)
    frame.push(value or NULL)


@op("STORE_FAST")
def store_fast(frame: Frame, ins: Any) -> None:
    value = frame.stack.pop()
    if value is NULL:
        frame.locals.pop(ins.arg, None)
    else:
        frame.locals[ins.arg] = value


@op("DELETE_FAST")
def delete_fast(frame: Frame, ins: Any) -> None:
    bound = frame.locals.pop(ins.arg, None) is not None
    if frame.is_root:
        bound |= frame.tr.has_argument(ins.arg)
        frame.tr.forget_argument(ins.arg)
    if not bound:
        raise _unbound(frame, ins.arg)


@op("LOAD_CELL")
def load_cell(frame: Frame, ins: Any) -> None:
    frame.push(frame.cells[ins.arg])


@op("LOAD_DEREF")
def load_deref(frame: Frame, ins: Any) -> None:
    value = frame.cells[ins.arg].read(frame.tr)
    if value is None:
        if ins.arg in frame.code.co_freevars:
            message = (
                f"cannot access free variable '{ins.arg}' where it is not associated with a value in enclosing scope"
            )
            raise Raised(frame.tr.make_exception(NameError, message))
        raise _unbound(frame, ins.arg)
    frame.push(value)


@op("STORE_DEREF")
def store_deref(frame: Frame, ins: Any) -> None:
    frame.cells[ins.arg].write(frame.tr, frame.pop())


@op("DELETE_DEREF")
def delete_deref(frame: Frame, ins: Any) -> None:
    cell = frame.cells[ins.arg]
    if cell.read(frame.tr) is None:
        raise _unbound(frame, ins.arg)
    cell.write(frame.tr, None)


@op("LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
def load_classderef(frame: Frame, ins: Any) -> None:
    raise GraphBreak(INSTRUCTION, "a class statement")


@op("LOAD_GLOBAL", "LOAD_NAME")
def load_global(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.load_global(frame, ins.arg))


@op("STORE_GLOBAL", "STORE_NAME")
def store_global(frame: Frame, ins: Any) -> None:
    frame.tr.store_global(frame.namespace, ins.arg, frame.pop())


@op("DELETE_GLOBAL", "DELETE_NAME")
def delete_global(frame: Frame, ins: Any) -> None:
    raise GraphBreak(INSTRUCTION, f"deleting global {ins.arg}")


@op("LOAD_ATTR")
def load_attr(frame: Frame, ins: Any) -> None:
    frame.push(frame.pop().getattr(frame.tr, ins.arg))


@op("STORE_ATTR")
def store_attr(frame: Frame, ins: Any) -> None:
    owner, value = frame.pop(), frame.pop()
    owner.setattr(frame.tr, ins.arg, value)


@op("DELETE_ATTR")
def delete_attr(frame: Frame, ins: Any) -> None:
    frame.pop().delattr(frame.tr, ins.arg)


@op("LOAD_SUPER_ATTR")
def load_super_attr(frame: Frame, ins: Any) -> None:
    name = ins.arg[0]
    owner, cls, function = frame.pop(), frame.pop(), frame.pop()
    if function.real() is not super:
        frame.push(function.call(frame.tr, [cls, owner] if ins.arg[1] else [], {}).getattr(frame.tr, name))
        return
    frame.push(make_super(frame.tr, cls.real(), owner).getattr(frame.tr, name))


@op("IMPORT_NAME")
def import_name(frame: Frame, ins: Any) -> None:
    from_list, level = frame.pop(), frame.pop()
    tr = frame.tr
    package = frame.namespace.get("__package__") or frame.namespace.get("__name__", "").rpartition(".")[0]
    try:
        module = importlib.__import__(
            ins.arg, {"__package__": package, "__name__": package}, None, from_list.const(tr) or (), level.const(tr)
        )
    except ImportError as error:
        _guard_imported(tr, _absolute(ins.arg, level.const(tr), package))
        raise Raised(tr.exception(error)) from None
    if not isinstance(module, types.ModuleType):
        raise GraphBreak(OPERATION, f"importing {ins.arg}, in whose place there is another object")
    full = _absolute(ins.arg, level.const(tr), package)
    _guard_imported(tr, full)
    _guard_imported(tr, module.__name__)
    frame.push(tr.wrap(module, None))


def _absolute(name: str, level: int, package: str) -> str:
    return importlib.util.resolve_name("." * level + name, package) if level else name


def _guard_imported(tr: Tracer, name: str) -> None:
    """An import statement goes on finding what is in ``sys.modules`` under a name, or nothing."""
    modules = Const(sys.modules, "sys.modules")
    if name in sys.modules:
        tr.guards.is_object(Item(modules, name), sys.modules[name])
    else:
        tr.guards.add(NotInDict(modules, name, "module "))


@op("IMPORT_FROM")
def import_from(frame: Frame, ins: Any) -> None:
    module = frame.stack[-1]
    try:
        frame.push(module.getattr(frame.tr, ins.arg))
    except Raised:
        full = f"{module.real().__name__}.{ins.arg}"
        try:
            found = importlib.import_module(full)
            _guard_imported(frame.tr, full)
            frame.push(frame.tr.wrap(found, None))
        except ImportError:
            message = f"cannot import name {ins.arg!r} from {module.real().__name__!r}"
            raise Raised(frame.tr.make_exception(ImportError, message)) from None


@op("PUSH_NULL")
def push_null(frame: Frame, ins: Any) -> None:
    frame.stack.append(NULL)


@op("POP_TOP")
def pop_top(frame: Frame, ins: Any) -> None:
    frame.stack.pop()


@op("END_FOR")
def end_for(frame: Frame, ins: Any) -> None:
    frame.popn(ins.arg)


@op("COPY")
def copy(frame: Frame, ins: Any) -> None:
    frame.stack.append(frame.stack[-ins.arg])


@op("SWAP")
def swap(frame: Frame, ins: Any) -> None:
    stack, depth = frame.stack, ins.arg
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@op("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, ins: Any) -> None:
    if not frame.tr.may_put_off:
        raise GraphBreak(INSTRUCTION, "a class statement")
    frame.tr.put_off += 1
    frame.push(BuildClassValue())


@op("LOAD_LOCALS", "SETUP_ANNOTATIONS")
def load_locals(frame: Frame, ins: Any) -> None:
    raise GraphBreak(INSTRUCTION, ins.name)


@op("UNSUPPORTED")
def unsupported(frame: Frame, ins: Any) -> None:
    if not isinstance(ins.arg, MovedCell) or not _of_inlined_comprehension(frame, str(ins.arg), ins.arg.name):
        raise GraphBreak(INSTRUCTION, str(ins.arg))


def _of_inlined_comprehension(frame: Frame, opcode: str, name: str) -> bool:
    """Give a comprehension that is part of its function a cell of its own, and the function its cell back after it.

    A frame that is resumed in between does not know what is in the slot; so a graph ends ahead of the comprehension.
    """
    if opcode == "LOAD_FAST_AND_CLEAR" and name not in frame.moved:
        frame.push(frame.cells[name])
        frame.moved[name] = frame.tr.step
        return True
    if name not in frame.moved:
        # only a frame that runs from its beginning is sure to have its own cell there; in others it is a free variable
        if opcode not in ("LOAD_FAST", "LOAD_CLOSURE") or name not in frame.code.co_cellvars:
            return False
        frame.push(frame.cells[name])
        return True
    if opcode == "MAKE_CELL":
        frame.cells[name] = CellValue()
    elif opcode in ("LOAD_FAST", "LOAD_CLOSURE"):
        frame.push(frame.cells[name])
    elif opcode == "STORE_FAST" and isinstance(cell := frame.stack[-1], CellValue):
        frame.pop()
        frame.cells[name] = cell
        del frame.moved[name]
    else:
        return False
    return True
