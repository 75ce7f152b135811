"""How often a peer has let out something of its data, for the accountant of privacy.py.

It is not the number of rounds: a peer that was killed runs the rounds since its checkpoint again, with other noise, and
what it sent in them before is out. So every release is noted on the disk before it is made. Noise that was drawn from
the seed, in a trial, protects nobody: from the first such release on, there is no epsilon to report.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import files
from gossamer.training.block import NodeError
from gossamer.training.privacy import Privacy

NAME = "privacy.json"


class _Noted(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    releases: Annotated[int, msgspec.Meta(ge=0)]
    seeded: bool = False  # the noise of some of them was


class PrivacyLedger:
    """Those of a run that this directory is for, restarts included."""

    def __init__(self, privacy: Privacy, directory: Path, round: int, seeded: bool = False):
        """ExperimentError if the peer has done so many rounds, and what they released is not noted."""
        self._privacy, self._path = privacy, directory / NAME
        self._noted = _Noted(0)
        if not privacy.on:
            return
        try:
            if self._path.exists() or round > 0:
                self._noted = msgspec.json.decode(self._path.read_bytes(), type=_Noted)
        except FileNotFoundError:
            raise ExperimentError(
                f"{self._path} is missing, so nobody can tell how much privacy the first {round} rounds have spent; "
                "put it back, or begin a new run in another directory"
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            files.damaged(self._path, error)
        self._note(_Noted(self.number, self._noted.seeded or seeded))

    @property
    def number(self) -> int:
        return self._noted.releases

    def add(self) -> None:
        """Note one more, before it is made; NodeError if it cannot be noted, and then it must not be made."""
        if self._privacy.on:
            self._note(_Noted(self.number + 1, self._noted.seeded))

    def _note(self, noted: _Noted) -> None:
        try:
            files.replace(self._path, msgspec.json.encode(noted) + b"\n", private=True)
        except OSError as error:
            raise NodeError(
                f"{self._path} cannot be written: {error.strerror}; nothing may be sent that is not noted there: "
                "free some space, then start this peer again"
            ) from error
        self._noted = noted

    def report(self) -> dict[str, Any]:
        if not self._privacy.on:
            return {}
        if self._noted.seeded:
            return {"releases": self.number, "privacy": "none: noise from the seed (--seeded-noise) hides nothing"}
        return {"releases": self.number, **self._privacy.spent(self.number)}
