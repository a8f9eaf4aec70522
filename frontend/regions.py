"""Regions of a program that are pinned to backends: ``with torchmux.use_backend("native"):``.

A trace notes the pin on the nodes of its graph.  Outside of captured code a thread knows the regions that it is in.
"""

from __future__ import annotations

import contextlib
import threading

from torchmux.registry.catalog import CATALOG
from torchmux.registry.errors import BackendUnavailable
from torchmux.registry.names import normalize
from torchmux.wording import require


class Regions(threading.local):
    """The regions that a thread is in outside of captured code: after a graph break, or in eager."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @property
    def pin(self) -> str | None:
        """The backend of the innermost region."""
        return self.names[-1] if self.names else None


regions = Regions()


class use_backend(contextlib.ContextDecorator):
    """Let a backend compile what a block, or a function that this decorates, computes in compiled code.

    The rest of the program goes where ``torchmux.compile`` sends it.  The innermost region counts.  What the backend
    does not take, or all of it where the backend cannot run, goes where it would go without the region; the report has
    the reason, and ``strict`` raises an error.  ``"eager"`` keeps the block out of every compiler.

    Raises:
        UnknownBackend: there is no such backend; the message suggests the closest names.

    Examples:
        >>> def pinned(x):
        ...     with torchmux.use_backend("eager"):
        ...         x = torch.sin(x)
        ...     return x + 1
        >>> compiled = torchmux.compile(pinned, backend="aot_eager")
        >>> result = compiled(torch.ones(2))
        >>> sorted((each.op, each.placed_on) for each in torchmux.report(compiled).placements)
        [('aten.add.Tensor', 'aot_eager'), ('aten.sin.default', 'eager')]
    """

    used = False  # whether the process has made one: until then nothing asks for regions

    def __init__(self, name: str) -> None:
        require(name, (str,), "use_backend(): the backend")
        self.name = checked(name)
        use_backend.used = True

    def __enter__(self) -> None:
        regions.names.append(self.name)

    def __exit__(self, *_: object) -> None:
        regions.names.pop()


def checked(name: str) -> str:
    """The canonical name of a backend that a program names; it need not be able to run here.

    Raises:
        UnknownBackend: there is no such backend.
    """
    with contextlib.suppress(BackendUnavailable):
        CATALOG.find(name).describe()
    return normalize(name)
