"""Loops that NumPy and PyTorch have no fast words for, compiled by numba and kept on disk.

numba compiles a kernel again when its own file has changed, but not when only a kernel that it calls has, in another
file. So whatever was kept before the newest change of any of them is dropped here.
"""

from contextlib import suppress
from pathlib import Path


def _drop_outdated() -> None:
    folder = Path(__file__).parent
    newest = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for index in folder.glob("__pycache__/*.nbi"):
        with suppress(OSError):  # gone already, or not ours to remove
            if index.stat().st_mtime < newest:
                index.unlink()


_drop_outdated()
