"""`python -m pipit` runs the command."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Replaces this process with the command, with the same arguments."""
    command = Path(__file__).parent / "bin" / "pipit"
    try:
        os.execv(command, ["pipit", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"pipit: {command}: {error.strerror}; this build of the package has no command (PIPIT_APPS=OFF)")


if __name__ == "__main__":
    main()
