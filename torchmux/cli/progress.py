"""What a command that takes long is doing: a line with a clock on terminals, nothing elsewhere."""

from __future__ import annotations

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from torchmux import progress

from .screen import console


class Steps:
    """Call it with what goes on, inside of a ``with`` block; ``program`` is said before each step."""

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
