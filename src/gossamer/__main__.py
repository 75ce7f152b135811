"""python -m gossamer, and the command `gossamer`."""

import sys


def main() -> None:
    """The command line, which takes a moment to import: Ctrl-C then is no error either."""
    try:
        from gossamer.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
