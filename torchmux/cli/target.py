"""Programs on the command line: ``FILE.py:NAME`` or ``MODULE:NAME``, and the models that a function there returns.

``torchmux bench`` and ``torchmux tune`` take a function without arguments that returns what they are to run: a pair of
a model and its inputs, a list of such pairs, or a dict from names to pairs.  The inputs are one tensor, a tuple of
positional arguments, or a dict of keyword arguments.  Pairs of one model with inputs of several sizes are welcome.

Numbers and options, which several of these commands take, are checked here as well.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torchmux.registry.names import class_with_article, did_you_mean
from torchmux.wording import shown

FORMS = """\
TARGET is FILE.py:FUNCTION or MODULE:FUNCTION. The function takes no arguments and returns (model, inputs), a list of
such pairs, or a dict from names to such pairs. The model is a module or a function. The inputs are one tensor, a tuple
of positional arguments, or a dict of keyword arguments. Name the same model several times to give inputs of several
sizes."""
"""What a target is, for the description of a command."""


@dataclass(frozen=True)
class Program:
    """A callable with the arguments of one call."""

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    def call(self, model: Callable[..., Any] | None = None) -> Any:
        """What the model, or another one in its place, returns for these arguments."""
        return (self.model if model is None else model)(*self.args, **(self.kwargs or {}))


def target(text: str) -> tuple[str, str]:
    """The file or module, and the name in it; for ``add_argument(type=target)``."""
    module, colon, name = text.rpartition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE.py:NAME or MODULE:NAME")
    return module, name


def load(module: str, name: str) -> Any:
    """What a target names.  Importing runs the program, so any exception may come out, ``SystemExit`` too.

    Raises:
        ImportError, OSError, AttributeError: there is no such module, file or name.
    """
    found: Any = import_program(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise AttributeError(f"{error}.{did_you_mean(part, dir(found))}") from None
    return found


def load_programs(module: str, name: str) -> list[Program]:
    """The programs that the function of a target returns; their names are unique.

    Raises:
        TypeError: it is no function without arguments, or returns something else; the message says what.
        Exception: whatever the program raises, as :func:`load`.
    """
    function = load(module, name)
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"{name} is {shown(function)}, {class_with_article(function)}. It must be a function without arguments "
            "that returns (model, inputs)."
        )
    import torch

    if isinstance(function, torch.nn.Module):
        raise TypeError(f"{name} is a module. Write a function that returns ({name}, inputs).")
    return programs_of(function(), name)


def programs_of(returned: Any, name: str) -> list[Program]:
    """The programs in what a function of the name ``name`` returned; errors as :func:`load_programs`."""
    if isinstance(returned, Mapping):
        pairs = [(str(key), pair) for key, pair in returned.items()]
    elif isinstance(returned, list):
        pairs = [(f"{name}[{number}]", pair) for number, pair in enumerate(returned)]
    else:
        pairs = [(name, returned)]
    if not pairs:
        raise TypeError(f"{name}() returned nothing to run: {shown(returned)}")
    return [_program(name, label, pair) for label, pair in pairs]


def import_program(module: str) -> ModuleType:
    """Import a module by its name, or a file by its path; exceptions as :func:`load`."""
    if not module.endswith(".py"):
        # `python -m` does this, but an installed command does not.
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(module)
    path = Path(module).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {module}")
    sys.path.insert(0, str(path.parent))  # so that it can import its neighbours, as when it is run
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return loaded


def _program(function: str, label: str, pair: Any) -> Program:
    if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[0]):
        raise TypeError(
            f"{function}() must return (model, inputs), a list of such pairs, or a dict from names to such pairs; "
            f"{label} is {shown(pair)}."
        )
    import torch

    model, inputs = pair
    if isinstance(model, type):
        raise TypeError(f"{label}: {model.__name__} is a class; return an instance of it.")
    if isinstance(inputs, torch.Tensor):
        return Program(label, model, (inputs,))
    if isinstance(inputs, Mapping) and all(isinstance(key, str) for key in inputs):
        return Program(label, model, (), dict(inputs))
    if isinstance(inputs, tuple):
        return Program(label, model, tuple(inputs))
    raise TypeError(
        f"{label}: the inputs must be a tensor, a tuple of positional arguments or a dict of keyword arguments, not "
        f"{class_with_article(inputs)}. Write (model, (input,)) for one argument that is a list."
    )


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def options(text: str) -> dict[str, Any]:
    """The options of a backend, as a JSON object."""
    try:
        told = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(told, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object of options")
    return told
