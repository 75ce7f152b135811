"""Where data sets lie. Nothing is downloaded: the user names a directory, and each data set is looked for in it.

The directory is the `root` of a data set, as in torchvision, or else comes from the environment variable GOSSAMER_DATA,
which `--data` of the commands sets, so that an experiment file names no path of one machine. A data set is looked for
in its official folder inside the directory, and in the directory itself. What its files hold is checked before it is
used, and whatever is wrong is one sentence.
"""

import csv
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

VARIABLE = "GOSSAMER_DATA"
_WRONG = (OSError, EOFError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError, csv.Error, zlib.error)


class DataError(ValueError):
    """A data set that is missing or damaged; the message says what was looked for and where to get it."""


class Layout(NamedTuple):
    """One way in which a data set is published."""

    folder: str  # where the official archive puts it
    files: tuple[str, ...]  # names or patterns; each may be gzipped


class Found(NamedTuple):
    """A data set on this machine."""

    folder: Path
    layout: Layout

    def path(self, name: str) -> Path:
        """The file of this name, or the same gzipped."""
        found = _first(self.folder, name)
        assert found is not None, name
        return found

    def paths(self, pattern: str) -> list[Path]:
        """All files that match, in order."""
        return sorted(self.folder.glob(pattern))


@dataclass(frozen=True)
class Source:
    """A data set's official files."""

    title: str
    url: str  # where a person gets it; empty for the user's own
    layouts: tuple[Layout, ...]  # the first one found is taken
    md5: Mapping[str, str] = field(default_factory=dict)  # of official files, where they are known

    def find(self, root: str | None = None) -> Found:
        """The data set in this directory, or else in the one that GOSSAMER_DATA names."""
        found = self.look(self._directory(root))
        if isinstance(found, Found):
            return found
        raise DataError(f"{self.title} is not here: there is no {found}; {self._how_to_give_it}")

    @property
    def _how_to_give_it(self) -> str:
        get = f"get it from {self.url} and " if self.url else ""
        held = self.layouts[0].folder if self.url else self.title
        return f"{get}name the directory that holds {held} with --data or {VARIABLE}, or in Python with root"

    def _directory(self, root: str | None) -> Path:
        named = root or os.environ.get(VARIABLE, "")
        if not named:
            raise DataError(f"{self.title} is needed and no directory with data is named; {self._how_to_give_it}")
        path = Path(named).expanduser()
        if not path.is_dir():
            who = "root" if root else f"--data or {VARIABLE}"
            raise DataError(f"{who} names {named}, which is not a directory; name the one that holds the data sets")
        return path

    def look(self, root: Path) -> Found | Path:
        """The data set in this directory, or else the first file that is missing."""
        missing = []
        for layout in self.layouts:
            for folder in (root / layout.folder, root):
                lacking = [folder / name for name in layout.files if _first(folder, name) is None]
                if not lacking:
                    return Found(folder, layout)
                missing.append((len(lacking) - len(layout.files), lacking[0]))
        return min(missing, key=lambda one: one[0])[1]  # where most was found, the first such

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Whatever goes wrong inside is told as a damaged file."""
        try:
            yield
        except DataError:
            raise
        except _WRONG as error:
            what = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
            raise self.damage(path, what) from error

    def damage(self, path: Path, what: str) -> DataError:
        """The sentence for a file that is not what it should be."""
        again = f"; get it again from {self.url}" if self.url else ""
        return DataError(f"{path} cannot be read as {self.title}: {what}{again}")


def _first(folder: Path, name: str) -> Path | None:
    """The first file of this name or pattern, or the same gzipped."""
    if "*" in name:
        return min(folder.glob(name), default=None)
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def own(name: str, *files: str) -> Source:
    """The user's own folder, or file if no files are asked for, inside the directory with data."""
    if not name or name.startswith(("/", "~")) or re.search(r"^[A-Za-z]:|\\|(^|/)\.\.(/|$)", name):
        raise ValueError(f"{name!r} was given, and it must be a path inside the directory with data, such as birds")
    folder, _, file = name.rpartition("/")
    return Source(name, "", (Layout(name, files) if files else Layout(folder or ".", (file,)),))
