"""``python -m topotune`` and the ``topotune`` command."""

import atexit
import gc


def main() -> None:
    """Run the command line."""
    from topotune.cli import main as run

    # An interpreter that ends looks through all objects once more: 0.3 s where torch has been imported.
    atexit.register(gc.freeze)
    run()


if __name__ == "__main__":
    main()
