"""``python -m torchmux``, and the command ``torchmux``."""

import sys

from torchmux.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
