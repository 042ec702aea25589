"""``python -m topotune`` and the ``topotune`` command."""


def main() -> None:
    """Run the command line."""
    from topotune.cli import main as run

    run()


if __name__ == "__main__":
    main()
