"""A process that runs tests for Triton's interpreter, which must be asked for before Triton is imported.

It reads the ids of tests, one a line, and answers each with a line of JSON: whether it passed, and what pytest printed.
:class:`Worker` is the other end.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

VARIABLE = "TORCHMUX_TESTS_INTERPRET"
"""Set in this process; there is a test of it in ``conftest.py``."""


class Worker:
    """The process, started when the first test is to run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process: subprocess.Popen[str] | None = None

    def run(self, test: str) -> tuple[bool, str]:
        """Run the test of this id there."""
        if self.process is None or self.process.poll() is not None:
            environment = {**os.environ, "TRITON_INTERPRET": "1", VARIABLE: "1"}
            environment.pop("PYTEST_XDIST_WORKER", None)
            self.process = subprocess.Popen(
                [sys.executable, __file__],
                cwd=self.root,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(test + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            return False, f"the process ended with {self.process.wait()}"
        passed, printed = json.loads(answer)
        return passed, printed

    def stop(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


def main() -> None:
    import pytest

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints is no answer
    for line in sys.stdin:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", line.strip()])
        answers.write(json.dumps([code == 0, printed.getvalue()]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
