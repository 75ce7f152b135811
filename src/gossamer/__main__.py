"""python -m gossamer."""

from gossamer.cli.main import main

main()
