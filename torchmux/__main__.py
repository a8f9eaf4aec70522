"""Runs the command line as ``python -m torchmux`` and as the command ``torchmux``."""

import sys

from torchmux.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
