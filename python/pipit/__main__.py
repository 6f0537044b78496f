"""`python -m pipit` runs the command."""

from __future__ import annotations

import signal
import sys

from pipit import _pipit
from pipit._errors import Error


def main() -> None:
    """Runs the command with the same arguments, and ends the process with its exit code."""
    for name in ("SIGINT", "SIGPIPE", "SIGXFSZ"):  # as in a program that is not Python's
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        sys.exit(_pipit.command(["pipit", *sys.argv[1:]]))
    except Error as error:
        sys.exit(f"pipit: {error}")


if __name__ == "__main__":
    main()
