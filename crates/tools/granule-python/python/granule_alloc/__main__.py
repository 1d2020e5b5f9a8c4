"""The command `granule`."""

from __future__ import annotations

import os
import signal
import sys

from ._native import command


def main() -> None:
    """Runs the command with this process's arguments, and ends it."""
    # Rust hears nothing of Python's handler; a signal then ends the command, as it does elsewhere.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    name = sys.argv[0] if os.path.basename(sys.argv[0]) != "__main__.py" else "granule"
    code = command([name, *sys.argv[1:]], [sys.executable, "-m", "granule_alloc"])
    # Nothing of Python is left to be done.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
