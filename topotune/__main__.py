"""``python -m topotune`` and the ``topotune`` command."""

import atexit
import gc
import sys
from typing import Final

_INTERRUPTED: Final = 130
"""As `topotune.cli.app.INTERRUPTED`, which may not have been imported yet."""


def main() -> None:
    """Run the command line."""
    try:
        from topotune.cli import main as run

        # An interpreter that ends looks through all objects once more: 0.3 s where torch has been imported.
        atexit.register(gc.freeze)
        run()
    except KeyboardInterrupt:
        # While the command line was being imported, or was on its way out: else it says so itself.
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
