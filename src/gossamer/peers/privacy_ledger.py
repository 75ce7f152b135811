"""How often a peer has let out something of its data, for the accountant of privacy.py.

It is not the number of rounds: a peer that was killed runs the rounds since its checkpoint again, with other noise, and
what it sent in them before is out. So every release is noted on the disk before it is made.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gossamer.experiments.experiment import ExperimentError
from gossamer.runs import files
from gossamer.training.privacy import Privacy

NAME = "privacy.json"


class _Noted(msgspec.Struct, forbid_unknown_fields=True):
    releases: Annotated[int, msgspec.Meta(ge=0)]


class PrivacyLedger:
    """Those of a run that this directory is for, restarts included."""

    def __init__(self, privacy: Privacy, directory: Path, round: int):
        """ExperimentError if the peer has done so many rounds, and what they released is not noted."""
        self._privacy, self._path = privacy, directory / NAME
        self.number = 0
        if not privacy.on:
            return
        try:
            if self._path.exists() or round > 0:
                self.number = msgspec.json.decode(self._path.read_bytes(), type=_Noted).releases
            else:
                self._note(0)
        except FileNotFoundError:
            raise ExperimentError(
                f"{self._path} is missing, so nobody can tell how much privacy the first {round} rounds have spent; "
                "put it back, or begin a new run in another directory"
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            files.damaged(self._path, error)

    def add(self) -> None:
        """Note one more, before it is made; OSError if it cannot be noted, and then it must not be made."""
        if self._privacy.on:
            self._note(self.number + 1)

    def _note(self, number: int) -> None:
        files.replace(self._path, json.dumps({"releases": number}).encode() + b"\n")
        self.number = number

    def report(self) -> dict[str, Any]:
        return {"releases": self.number, **self._privacy.spent(self.number)} if self._privacy.on else {}
