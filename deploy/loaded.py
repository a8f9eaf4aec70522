"""The callable that a file becomes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchmux.registry.errors import LoadRefused, Unsupported

from .entries import Entry
from .values import again


class Loaded:
    """A program from a file: call it as the compiled one was called.

    It takes calls that one of its ``entries`` was compiled for.  ``weights`` are its parameters and buffers by name;
    writing to one of them in place changes what it computes.

    Raises (when called):
        Unsupported: no entry takes the call; the message says what each was compiled for.

    Examples:
        >>> import tempfile, pathlib
        >>> compiled = torchmux.compile(torch.nn.Linear(4, 2), backend="aot_eager")
        >>> with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        ...     wanted = compiled(torch.ones(3, 4))
        ...     left_out = torchmux.save(compiled, pathlib.Path(folder, "linear.tmx"))
        ...     loaded = torchmux.load(pathlib.Path(folder, "linear.tmx"))
        ...     torch.equal(loaded(torch.ones(3, 4)), wanted)
        True
        >>> sorted(loaded.weights)
        ['bias', 'weight']
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Any],
        entries: Sequence[Entry],
        weights: Mapping[str, torch.Tensor],
        manifest: Mapping[str, Any],
    ) -> None:
        self.name = self.__name__ = name
        self.entries = tuple(entries)
        self.weights = dict(weights)
        self.manifest = dict(manifest)
        self._bind = _binder(name, parameters)
        self._first = self.entries[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = self._bind(*args, **kwargs)
        for entry in self.entries:
            if entry.check(arguments):
                return entry.run(arguments)
        raise self._refusal(arguments)

    def _refusal(self, arguments: dict[str, Any]) -> Unsupported:
        reasons = "; ".join(f"entry {at}: {entry.why_not(arguments)}" for at, entry in enumerate(self.entries))
        return Unsupported(
            f"The file of {self.name} has nothing for this call, and a file compiles nothing ({reasons}). Call the "
            "compiled program with such inputs, then save it again."
        )

    def __repr__(self) -> str:
        backends = ", ".join(sorted({entry.backend for entry in self.entries}))
        return f"<loaded {self.name}, {len(self.entries)} of {backends}>"


def _binder(name: str, parameters: Sequence[Any]) -> Callable[..., dict[str, Any]]:
    """A function with the parameters of the program that returns its arguments by name.

    Raises:
        LoadRefused: they are no parameters.
    """
    shown: list[str] = []
    passed: dict[str, str] = {}
    namespace: dict[str, Any] = {
        "__builtins__": {},
        "_torchmux_need": functools.partial(_need, name),
        "_torchmux_owner": _Untold("the object of the program"),
    }
    checks: list[str] = []
    last = -1
    for each, kind, default in parameters:
        if not each.isidentifier() or kind < last or kind not in range(5):
            raise LoadRefused(f"The file of {name} has no parameters of a function.")
        if last == 0 and kind > 0:
            shown.append("/")
        if kind == 3 and last < 2:
            shown.append("*")
        last = kind
        text = {2: f"*{each}", 4: f"**{each}"}.get(kind, each)
        passed[each] = each
        if kind == 2 and default is not None:  # the program finds its object there
            passed[each] = f"(_torchmux_owner, *{each})"
        elif default is not None:
            what, value = default
            namespace[f"_torchmux_default_{each}"] = again(value) if what == "value" else _Untold(value)
            text += f"=_torchmux_default_{each}"
            if what != "value":
                checks.append(f"    _torchmux_need({each!r}, {each}, _torchmux_default_{each})")
        shown.append(text)
    if last == 0:
        shown.append("/")
    items = ", ".join(f"{each!r}: {value}" for each, value in passed.items())
    body = "\n".join([f"def bind({', '.join(shown)}):", *checks, f"    return {{{items}}}"])
    exec(compile(body, "<torchmux file>", "exec"), namespace)
    bind: Callable[..., dict[str, Any]] = namespace["bind"]
    bind.__name__ = bind.__qualname__ = name
    return bind


class _Untold:
    """Stands for what a file cannot hold: a default, or the program's object among ``*args``."""

    def __init__(self, why: str) -> None:
        self.why = why


def _need(function: str, name: str, value: Any, default: _Untold) -> None:
    if value is default:
        raise TypeError(f"{function} needs {name} from a file: its default is {default.why}")
