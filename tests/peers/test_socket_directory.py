"""Directories for local sockets: those of killed processes go, those of living ones stay."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gossamer.peers.grpc.socket_directory import LEAST_AGE_SECONDS, PREFIX, SocketDirectory

HOLD = (
    "from gossamer.peers.grpc.socket_directory import SocketDirectory as S; d = S(); print(d.path, flush=True); input()"
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(path: Path) -> None:
    then = time.time() - 2 * LEAST_AGE_SECONDS
    os.utime(path, (then, then))


def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(temporary: Path) -> None:
    environment = os.environ | {"TMPDIR": str(temporary)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, "-c", HOLD], **pipes) as other:  # type: ignore[call-overload]
        held = Path(other.stdout.readline().strip())
        (held / "s").touch()
        make_old(held)
        others = temporary / f"{PREFIX}link", temporary / "gossamer-other"
        others[0].symlink_to(temporary)
        others[1].mkdir()
        new = temporary / f"{PREFIX}new"
        new.mkdir()
        SocketDirectory().close()
        assert held.exists(), "its process lives"
        other.kill()
        other.wait()
        make_old(held)
        own = SocketDirectory()
        assert not held.exists()
        assert own.path.stat().st_mode & 0o777 == 0o700
        assert new.exists(), "it may just have been made"
        assert all(path.exists() for path in others)
        own.close()
        own.close()
        assert not own.path.exists()
