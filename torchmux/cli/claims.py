"""What the commands that hold a backend against eager share: which backend, with which options and requirements."""

from __future__ import annotations

import argparse
import ast
import sys
from typing import TYPE_CHECKING, Any

import torchmux
from torchmux.registry.names import listed, members_of, normalize
from torchmux.registry.resolve import usable_spec
from torchmux.wording import shown

from .screen import in_a_line

if TYPE_CHECKING:
    from torchmux.conformance.requirements import Requirements


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that :func:`requirements_of` reads besides ``backend``."""
    parser.add_argument("--requirements", metavar="MODULE:CLASS", default="", help="the backend's Requirements")
    parser.add_argument(
        "--option", dest="options", action="append", default=[], metavar="NAME=VALUE",
        help="an option of the backend, such as freeze=True; of a chain's member, native.fusion=False (repeatable)",
    )  # fmt: skip


def requirements_of(arguments: argparse.Namespace, how: str) -> Requirements | None:
    """The requirements that a command was asked for; None if the message on stderr says what is wrong with the words.

    ``how`` is how a backend is given, for that message.

    Raises:
        TorchmuxError: the backend is unknown or cannot run here, or a member of the chain, or it has not such options.
    """
    if not arguments.backend and not arguments.requirements:
        _misused(f"no backend given; pass {how}, or --requirements MODULE:CLASS")
        return None
    from torchmux.conformance.requirements import requirements_from

    try:
        options = options_of(arguments.options, arguments.backend or "")
    except ValueError as error:
        _misused(str(error))
        return None
    try:
        found = requirements_from(arguments.requirements, arguments.backend, options)
    except torchmux.TorchmuxError:
        raise
    except (Exception, SystemExit) as error:  # importing a program runs it
        _misused(f"cannot load {arguments.requirements or arguments.backend}: {in_a_line(error)}")
        return None
    usable_spec(found.name)
    if options:
        torchmux.registry.resolve(found.name, options=found.options)
    return found


def options_of(texts: list[str], backend: str) -> dict[str, Any]:
    """The options in words such as ``freeze=True``, and by member if ``backend`` is a chain.

    A value is a Python literal, or else a text.

    Raises:
        ValueError: a text is not NAME=VALUE, or not MEMBER.NAME=VALUE for a chain.
    """
    members = [normalize(member) for member in members_of(backend) or ()]
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ValueError(f"--option takes NAME=VALUE, such as freeze=True, not {shown(text)}")
        home = found
        if members:
            member, dot, name = name.partition(".")
            if not (dot and name) or normalize(member) not in members:
                raise ValueError(
                    f"--option takes MEMBER.NAME=VALUE with a member of {listed(members)}, not {shown(text)}"
                )
            home = found.setdefault(normalize(member), {})
        home[name] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _misused(words: str) -> None:
    print(f"torchmux: {words}", file=sys.stderr)
