"""Constants of a program as JSON: plain values as they are, classes, functions and modules by name.

What is found by name is imported when a file is loaded, and must be the same kind of thing; a function's code must be
what it was.  Nothing is pickled.
"""

from __future__ import annotations

import base64
import enum
import functools
import hashlib
import importlib
import sys
import types
from typing import Any

import torch

from torchmux.frontend.regions import regions
from torchmux.registry.errors import LoadRefused

_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_NAMED = (types.FunctionType, types.BuiltinFunctionType)
_DESCRIPTORS = (
    types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip
_AROUND = {property: "fget", staticmethod: "__func__", classmethod: "__func__"}  # where they have their function
_CONTAINERS = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset, "size": torch.Size}


class NotTold(Exception):
    """A value that a file cannot hold; the message says what it is."""


def told(value: Any) -> Any:
    """``value`` for JSON: plain ones unchanged, all others as a list that begins with the kind.

    Raises:
        NotTold: it is something else, or cannot be found by its name.
    """
    cls = type(value)
    if value is None or cls in (bool, int, str):
        return value
    if cls is float:
        return ["float", value.hex()]
    if cls is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if cls is bytes:
        return ["bytes", base64.b64encode(value).decode()]
    if value is Ellipsis:
        return ["ellipsis"]
    for name, kind in _CONTAINERS.items():
        if cls is kind:
            items = sorted(map(told, value), key=repr) if cls in (set, frozenset) else list(map(told, value))
            return [name, items]
    if cls is dict:
        return ["dict", [[told(k), told(v)] for k, v in value.items()]] if not _is_namespace(value) else _names(value)
    if cls in (slice, range):
        return [cls.__name__, told(value.start), told(value.stop), told(value.step)]
    if isinstance(value, _TORCH):
        return ["torch", cls.__name__, str(value)]
    if isinstance(value, enum.Enum):
        return _checked(["member", told(cls), value.name], value)
    if isinstance(value, types.ModuleType):
        return _checked(["module", value.__name__], value)
    if isinstance(value, type):
        return _checked(["class", *_place_of(value)], value)
    if isinstance(value, _NAMED):
        return _function(value)
    if isinstance(value, types.CodeType):
        from .broken.names import code_told  # it needs this module

        return code_told(value)
    if cls in _AROUND and isinstance(function := getattr(value, _AROUND[cls]), types.FunctionType):
        where, _, short = function.__qualname__.rpartition(".")
        place = [function.__module__, where, short, code_digest(function.__code__)]
        return _checked(["around", *place], value)
    if isinstance(value, _DESCRIPTORS):
        holder = getattr(value, "__objclass__", None)
        return _checked(["descriptor", told(holder), value.__name__], value)
    if value is regions:  # which a guard asks once a process has made a region
        return ["regions"]
    raise NotTold(f"an object of {cls.__module__}.{cls.__qualname__}")


def is_found_again(value: Any) -> bool:
    """Whether what :func:`told` says of a value leads back to this very object."""
    try:
        return again(told(value)) is value
    except (NotTold, LoadRefused):
        return False


def _place_of(cls: type) -> tuple[str, str]:
    """The module and the name of a class; those of the interpreter are not where they say."""
    for name in types.__all__ if cls.__module__ == "builtins" else ():
        if getattr(types, name) is cls:
            return "types", name
    return cls.__module__, cls.__qualname__


def _is_namespace(value: dict[Any, Any]) -> bool:
    name = value.get("__name__")
    return isinstance(name, str) and getattr(sys.modules.get(name), "__dict__", None) is value


def _names(namespace: dict[Any, Any]) -> Any:
    return ["globals", namespace["__name__"]]


def _function(value: Any) -> Any:
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):
        return _checked(["method", told(owner), value.__name__], value)
    module, name = getattr(value, "__module__", None), value.__qualname__
    if module is None and isinstance(owner, types.ModuleType):
        module = owner.__name__
    short = name.rpartition(".")[2]
    if getattr(torch, short, None) is value:
        module, name = "torch", short  # the full names of some lead to a class that torch keeps to itself
    digest = code_digest(value.__code__) if isinstance(value, types.FunctionType) else ""
    return _checked(["function", module, name, digest], value)


def _checked(description: Any, value: Any) -> Any:
    """``description``, which must lead back to ``value``."""
    try:
        found = again(description)
    except Exception:
        found = NotTold
    same = found is value or (isinstance(value, _DESCRIPTORS + _NAMED) and found == value)
    if not same:
        raise NotTold(f"{getattr(value, '__qualname__', value)!s}, which cannot be found by its name")
    return description


def code_digest(code: types.CodeType) -> str:
    """What a function does, without where it stands."""
    digest = hashlib.sha256()
    parts = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, code.co_argcount)
    digest.update(repr(parts).encode())
    for constant in code.co_consts:
        is_code = isinstance(constant, types.CodeType)
        text = code_digest(constant) if is_code else f"{type(constant).__name__} {_stable(constant)}"
        digest.update(text.encode())
    return digest.hexdigest()


def _stable(constant: Any) -> str:
    """``repr`` in an order that does not depend on the process."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


# --- and back ---------------------------------------------------------------------------------------------------------


def again(description: Any) -> Any:
    """The value that :func:`told` has described.

    Raises:
        LoadRefused: a name leads nowhere, or to something else.
    """
    if not isinstance(description, list):
        return description
    kind, *rest = description
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](map(again, rest[0]))
    maker = _MAKERS.get(kind)
    if maker is None:
        raise LoadRefused(f"A file names a value of the unknown kind {kind!r}.")
    return maker(*rest)


def _named(module: str, qualname: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        return functools.reduce(getattr, qualname.split("."), found)
    except (ImportError, AttributeError) as error:
        raise LoadRefused(
            f"A saved file needs {module}.{qualname}, which is not here: {error}. Install the package that it comes "
            "from, in the version with which the file was saved."
        ) from error


def _class(module: str, qualname: str) -> type:
    found = _named(module, qualname)
    if not isinstance(found, type):
        raise LoadRefused(f"A saved file needs the class {module}.{qualname}, which is no class here.")
    return found


def _member(cls: Any, name: str) -> enum.Enum:
    owner = again(cls)
    if not (isinstance(owner, enum.EnumType) and name in owner.__members__):
        raise LoadRefused(
            f"A saved file needs {getattr(owner, '__qualname__', owner)}.{name}, which is no member of an enumeration "
            "here. Install the version of its package with which the file was saved."
        )
    return owner.__members__[name]


def _function_again(module: str, qualname: str, digest: str) -> Any:
    found = _named(module, qualname)
    if isinstance(found, (property, types.MethodType)):
        found = found.fget if isinstance(found, property) else found.__func__
    if isinstance(found, types.FunctionType) and code_digest(found.__code__) != digest:
        raise LoadRefused(
            f"{module}.{qualname} is not the function with which a file was saved. Install that version of {module}, "
            "or save the file again."
        )
    if not isinstance(found, _NAMED):
        raise LoadRefused(f"A saved file needs the function {module}.{qualname}, which is no function here.")
    return found


def _around(module: str, owner: str, name: str, digest: str) -> Any:
    """A property, a static method or a class method, as its class has it."""
    found = vars(_class(module, owner)).get(name)
    function = getattr(found, _AROUND.get(type(found), ""), None)
    if not isinstance(function, types.FunctionType) or code_digest(function.__code__) != digest:
        raise LoadRefused(
            f"{module}.{owner}.{name} is not what it was when a file was saved. Install that version of {module}, or "
            "save the file again."
        )
    return found


def _module(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LoadRefused(f"A saved file needs the module {name}, which is not here: {error}.") from error


def _code(module: str, qualname: str, digest: str) -> types.CodeType:
    from .broken.names import code_again

    return code_again(module, qualname, digest)


def _torch(kind: str, text: str) -> Any:
    if kind == "device":
        return torch.device(text)
    found = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(found, _TORCH):
        raise LoadRefused(f"A saved file names {text}, which torch {torch.__version__} does not have.")
    return found


_MAKERS: dict[str, Any] = {
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "bytes": base64.b64decode,
    "ellipsis": lambda: Ellipsis,
    "dict": lambda items: {again(k): again(v) for k, v in items},
    "slice": lambda *bounds: slice(*map(again, bounds)),
    "range": range,
    "torch": _torch,
    "module": _module,
    "globals": lambda name: vars(_module(name)),
    "class": _class,
    "member": _member,
    "around": _around,
    "code": _code,
    "function": _function_again,
    "method": lambda owner, name: getattr(again(owner), name),
    "descriptor": lambda owner, name: vars(again(owner))[name],
    "regions": lambda: regions,
}
