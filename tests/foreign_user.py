"""The package as a service finds it: read-only, and run by a user who has no home and owns nothing."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import gossamer

USER = 12345


@dataclass
class ForeignUser:
    """Runs programs with a copy of the package that only root can write. `temporary` is shared by all users."""

    root: Path

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    def run(self, *command: str | Path, seconds: float = 500.0, **environment: str) -> subprocess.CompletedProcess[str]:
        """In an environment with nothing else in it. The user may read what an interpreter in root's home needs."""
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--no-new-privs"]
        packages = [path for path in sys.path if "site-packages" in path]
        known = {
            "PYTHONPATH": os.pathsep.join([str(self.root / "package"), *packages]),
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
        }
        words = [*become, *map(str, command)]
        return subprocess.run(
            words, env=known | environment, cwd="/", umask=0o077, capture_output=True, text=True, timeout=seconds
        )

    def python(self, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-c", text, **environment)

    def directory(self, name: str) -> Path:
        """A new one that belongs to the user."""
        path = self.root / name
        path.mkdir(mode=0o700)
        os.chown(path, USER, USER)
        return path


@pytest.fixture
def foreign_user() -> Iterator[ForeignUser]:
    if not hasattr(os, "getuid") or os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user")
    root = Path(tempfile.mkdtemp(prefix="gossamer-test-"))
    try:
        root.chmod(0o755)
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(gossamer.__file__).parent, root / "package" / "gossamer", ignore=without)
        for path in [root / "package", *(root / "package").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        yield ForeignUser(root)
    finally:
        shutil.rmtree(root)
