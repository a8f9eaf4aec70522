"""What is compared: backends with a mode or options, and chains of them, as the command line writes them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchmux.multiplexer.candidates import sendable
from torchmux.registry.errors import BackendUnavailable, InvalidOption
from torchmux.registry.lookup import backends
from torchmux.registry.resolve import known_spec, resolve

EAGER = "eager"
"""The baseline: the program as it is, not compiled."""

# They are no compilers of their own: one is eager with more steps, the other chooses among the rest.
_NOT_BY_DEFAULT = (EAGER, "aot_eager", "auto")

FORMS = (
    "NAME, NAME:MODE or NAME:OPTION=VALUE:..., joined by + for a chain; such as "
    "native,inductor:max-autotune,openvino:freeze=True+native"
)


@dataclass(frozen=True)
class Side:
    """One of the things that are compared: the arguments of ``torchmux.compile``.

    ``label`` is how the user wrote it.  ``backend`` is a name, or a list of names for a chain, whose ``options`` are by
    member.
    """

    label: str
    backend: str | list[str]
    mode: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_baseline(self) -> bool:
        return self.backend == EAGER

    @property
    def names(self) -> list[str]:
        """The backend, or the members of the chain."""
        return [self.backend] if isinstance(self.backend, str) else list(self.backend)

    def own_specs(self) -> list[str]:
        """The backends that only this process knows, as text for another.

        Raises:
            BackendUnavailable: one of them cannot be sent.
        """
        rows = {row.name: row for row in backends()}
        found = []
        for name in self.names:
            if name in rows and rows[name].distribution is None and not rows[name].foreign:
                text = sendable(known_spec(name))
                if text is None:
                    raise BackendUnavailable(
                        f"{name} cannot be measured: only this process knows it, and it cannot be pickled for another."
                    )
                found.append(text)
        return found

    def check(self) -> None:
        """Raise what ``torchmux.compile`` would raise: UnknownBackend, BackendUnavailable, InvalidOption."""
        resolve(self.backend, mode=self.mode, options=self.options or None)

    @classmethod
    def parse(cls, text: str) -> Side:
        """A side as the command line writes it; see :data:`FORMS`.

        Raises:
            InvalidOption: it cannot be read.
        """
        if "+" not in text:
            name, mode, options = _member(text)
            return cls(text, name, mode, options)
        names, by_member = [], {}
        for member in text.split("+"):
            name, mode, options = _member(member)
            if mode is not None:
                raise InvalidOption(f"{text}: the members of a chain have options (NAME:OPTION=VALUE), not modes.")
            names.append(name)
            if options:
                by_member[name] = options
        return cls(text, names, None, by_member)


def sides(texts: Sequence[str]) -> list[Side]:
    """Parsed and checked sides, eager first, each once; errors as :meth:`Side.parse` and :meth:`Side.check`."""
    found = {EAGER: Side(EAGER, EAGER)}
    for text in texts:
        side = Side.parse(text)
        side.check()
        found.setdefault(text, side)
    return list(found.values())


def available_sides(device: str, training: bool) -> tuple[list[Side], dict[str, str]]:
    """Eager and every backend that can run here and claims the device; and why others are left out.

    ``auto`` and ``aot_eager`` are measured only where they are named.
    """
    found, excluded = [Side(EAGER, EAGER)], {}
    for row in backends():
        if row.name in _NOT_BY_DEFAULT or row.retired or row.foreign:
            continue
        if not row.available:
            excluded[row.name] = row.error or row.reason or "whether it can run here is not known"
        elif device not in row.devices and "*" not in row.devices:
            excluded[row.name] = f"it does not run on {device}"
        elif training and not row.training:
            excluded[row.name] = "it does not support training"
        else:
            found.append(Side(row.name, row.name))
    return found, excluded


def _member(text: str) -> tuple[str, str | None, dict[str, Any]]:
    name, *more = text.strip().split(":")
    mode, options = None, {}
    for each in more:
        key, equals, value = each.partition("=")
        if equals and key:
            options[key] = _value(value)
        elif each and mode is None:
            mode = each
        else:
            raise InvalidOption(f"{text!r} is not {FORMS}.")
    if not name:
        raise InvalidOption(f"{text!r} is not {FORMS}.")
    if mode is not None and options:
        raise InvalidOption(f"{text!r} has a mode and options; compile() takes only one of the two.")
    return name, mode, options


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
