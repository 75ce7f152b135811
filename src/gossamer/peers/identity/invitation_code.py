"""The one-time code of an invitation: `NAME@HOST:PORT/`, and 56 letters and digits.

These are the secret, the fingerprint of the certificate that the inviter's port shows, and two checksums, one of what
stands before the `/` and one of what stands behind it: a slip of the pen is found before anything is sent, and in which
part it is.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from gossamer.experiments.experiment import ExperimentError
from gossamer.peers.identity.group import address_of, check_name

HALF = 16  # bytes of the secret, and of the fingerprint
_KEY = 52  # characters of both
_CHECK = 2  # characters of each checksum: one slip in a thousand is not seen, and ends at the inviter's port
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_FORM = "a code is NAME@HOST:PORT/ and 56 letters and digits, as gossamer invite prints it"


@dataclass(frozen=True)
class Code:
    """What the inviter tells, and the invited types."""

    name: str
    address: str
    secret: bytes
    fingerprint: bytes  # of the certificate that the inviter's port shows

    def __str__(self) -> str:
        place, key = f"{self.name}@{self.address}", _letters(self.secret + self.fingerprint)
        return f"{place}/{key}{_checksum(place)}{_checksum(key)}"

    @classmethod
    def read(cls, text: str) -> "Code":
        """ExperimentError says which part cannot be right, and nothing of the secret."""
        place, slash, typed = text.strip().removeprefix("gossamer join ").strip().rpartition("/")
        name, at, address = place.partition("@")
        if not slash or not at:
            raise ExperimentError(f"{_FORM}; what was given has no {'/' if not slash else '@ before the /'}")
        check_name(name)
        address_of(address)
        typed = re.sub(r"\s", "", typed).lower()
        if wrong := sorted(set(typed) - set(_ALPHABET)):
            raise ExperimentError(f"behind its / a code has letters and the digits 2 to 7 only, and not {wrong[0]!r}")
        if len(typed) != _KEY + 2 * _CHECK:
            what = "some are missing" if len(typed) < _KEY + 2 * _CHECK else "some are too many"
            raise ExperimentError(
                f"behind its / a code has {_KEY + 2 * _CHECK} letters and digits, and {len(typed)} were given: {what}"
            )
        key, of_place, of_key = typed[:_KEY], typed[_KEY:-_CHECK], typed[-_CHECK:]
        if _checksum(key) != of_key:
            raise ExperimentError("the code has a typing error behind its /; nothing was sent, so it is still good")
        if _checksum(place) != of_place:
            raise ExperimentError(
                f"the code has a typing error before its /, in {place}; nothing was sent, so it is still good"
            )
        both = base64.b32decode(key.upper() + "====")
        return cls(name, address, both[:HALF], both[HALF:])


def _checksum(text: str) -> str:
    return _letters(hashlib.sha256(text.encode()).digest())[:_CHECK]


def _letters(content: bytes) -> str:
    return base64.b32encode(content).decode().rstrip("=").lower()
