"""python -m gossamer."""

from gossamer.cli import main

main()
