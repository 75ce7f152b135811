"""Kernels compile wherever they run, and nobody else can write the place where they are kept."""

import os
from pathlib import Path

import pytest

from foreign_user import USER, ForeignUser
from gossamer.core.kernels import is_private

USE_A_KERNEL = """
from gossamer.core import kernels, rng
print(rng.words(0, "test", [0], [0], 1)[0, 0])
print(kernels.cache_directory(rng.fill_words))
"""


@pytest.mark.slow
def test_a_user_without_a_home_keeps_kernels_of_a_read_only_package_in_a_private_directory(
    foreign_user: ForeignUser,
) -> None:
    runs = [foreign_user.python(USE_A_KERNEL) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    kept = foreign_user.temporary / f"gossamer-kernels-{USER}"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert all(run.stdout.splitlines()[1].startswith(str(kept)) for run in runs)
    assert "compiling kernels, once" in runs[0].stderr
    assert runs[1].stderr == ""  # from the cache


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["directory", "link", "writable by others"])
def test_a_directory_that_others_could_write_is_not_used(foreign_user: ForeignUser, planted: str) -> None:
    path = foreign_user.temporary / f"gossamer-kernels-{USER}"
    elsewhere = foreign_user.directory("elsewhere")
    if planted == "link":
        path.symlink_to(elsewhere)
    else:
        path.mkdir(mode=0o777)
        path.chmod(0o777)
        os.chown(path, 54321 if planted == "directory" else USER, -1)
    run = foreign_user.python(USE_A_KERNEL)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1] == "None"
    assert "cannot be kept" in run.stderr
    assert [*path.iterdir(), *elsewhere.iterdir()] == []


def test_a_cache_directory_that_the_user_names_is_used(foreign_user: ForeignUser) -> None:
    named = foreign_user.directory("named")
    run = foreign_user.python(USE_A_KERNEL, NUMBA_CACHE_DIR=str(named))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[1].startswith(str(named))
    assert not (foreign_user.temporary / f"gossamer-kernels-{USER}").exists()


@pytest.mark.slow
def test_a_named_cache_directory_that_cannot_be_written_hinders_nobody(foreign_user: ForeignUser) -> None:
    run = foreign_user.python(USE_A_KERNEL, NUMBA_CACHE_DIR="/proc/nothing")
    assert run.returncode == 0, run.stderr
    assert f"gossamer-kernels-{USER}" in run.stdout


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has other permissions")
def test_private_is_what_no_other_user_can_write_or_replace(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    assert is_private(own)
    link = tmp_path / "link"
    link.symlink_to(own)
    assert not is_private(link)
    tmp_path.chmod(0o777)
    assert not is_private(own)  # anyone can rename it
    tmp_path.chmod(0o1777)
    assert is_private(own)
    own.chmod(0o750)
    assert not is_private(own)
