"""Output: tables and progress for terminals, unwrapped lines for pipes and files."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from torchmux import progress

# Wider than any output line, so that nothing is cut or wrapped in a file.
_UNLIMITED = 4000
_LONGEST = 500


def console(*, stderr: bool = False) -> Console:
    """A console that wraps lines only at a terminal."""
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, soft_wrap=False, width=_UNLIMITED)
    return made


def in_a_line(error: BaseException) -> str:
    """The type and the message of an exception, in one line."""
    text = one_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(said: object, longest: int = _LONGEST) -> str:
    """A text without line breaks, cut to a few hundred characters."""
    text = " ".join(str(said).split())
    return text if len(text) <= longest else f"{text[:longest]} ..."


def show(*renderables: RenderableType) -> None:
    """Print to stdout; strings are taken literally, square brackets included."""
    out = console()
    for renderable in renderables:
        if isinstance(renderable, str):
            renderable = Text(renderable)
        if out.is_terminal:
            out.print(renderable)
            continue
        # Tables pad every cell; a file does not need trailing blanks.
        with out.capture() as captured:
            out.print(renderable)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


class Steps:
    """A line with a clock on terminals, which says what goes on, and nothing elsewhere.

    Call it with what goes on, inside of a ``with`` block; ``program`` is said before each step.
    """

    def __init__(self) -> None:
        screen = console(stderr=True)
        columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
        self._progress = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
        self._task = self._progress.add_task("", total=None)
        self._alone = progress.shown_elsewhere()
        self.program = ""

    def __enter__(self) -> Steps:
        self._alone.__enter__()
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
        self._alone.__exit__(None, None, None)

    def __call__(self, what: str) -> None:
        text = f"{self.program}: {what}" if self.program else what
        self._progress.update(self._task, description=text)
