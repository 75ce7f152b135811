"""A small disk of its own for a test, which can be filled and freed."""

import os
import subprocess
from pathlib import Path


class SmallDisk:
    """A file system in memory; OSError where it may not be mounted."""

    def __init__(self, at: Path, num_bytes: int):
        self.path = at
        at.mkdir()
        options = ["-o", f"size={num_bytes}", "none", str(at)]
        try:
            subprocess.run(["mount", "-t", "tmpfs", *options], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise OSError("mounting is not permitted") from error

    def fill(self, free_bytes: int = 0) -> None:
        """Leave only so much, in whole pages."""
        room = os.statvfs(self.path)
        with (self.path / "filler").open("ab") as file:
            file.write(bytes(max(0, room.f_bavail * room.f_frsize - free_bytes)))

    def free(self) -> None:
        (self.path / "filler").unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)
