"""``python -m eqfuse``."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working folder: its modules should not be imported, here or in the processes that are started

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
