"""``python -m topotune`` and the ``topotune`` command."""

import sys
from typing import Final

_INTERRUPTED: Final = 130
"""As `topotune.cli.app.INTERRUPTED`, which may not have been imported yet."""


def main() -> None:
    """Run the command line."""
    try:
        from topotune.cli import main as run

        run()
    except KeyboardInterrupt:
        # While the command line was being imported, or was on its way out: else it says so itself.
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
