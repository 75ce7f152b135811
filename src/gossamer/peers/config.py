"""What a peer is told when it starts. The defaults of the commands and of `run_peer` are these."""

from dataclasses import dataclass
from pathlib import Path

CERTIFICATE_DAYS = 30
METRICS = "127.0.0.1:0"  # on loopback, on a free port; the log tells which


@dataclass
class PeerConfig:
    """Where a peer finds what it needs, and where it leaves what it makes. Paths may be given as text."""

    name: str  # in the group and in the certificate
    peers: Path  # the group's file, peers.toml
    certificates: Path  # the directory with NAME.pem, NAME.key and ca.pem
    out: Path  # state, metrics and results; a peer that finds its checkpoint here goes on from it
    data: Path | None = None  # the directory with this peer's own files; None: its share of the task's data
    bind: str | None = None  # host:port to listen on, if it is not the address in the group's file
    metrics: str | None = METRICS  # host:port of the Prometheus page; None: there is none
    checkpoint_every: int = 10  # rounds
    round_seconds: float = 0.0  # a round takes at least so long
    with_parent: bool = False  # leave when the process that started this one is gone
    seeded_noise: bool = False  # draw the noise of privacy from the seed, as a simulation does: it protects nobody
    own_data: bool = False  # the task's data are this peer's own, as a program has read them: train on all of them

    def __post_init__(self) -> None:
        self.peers, self.certificates, self.out = Path(self.peers), Path(self.certificates), Path(self.out)
        self.data = None if self.data is None else Path(self.data)
        if self.checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, {self.checkpoint_every} was given")
        if not 0 <= self.round_seconds < 1e6:
            raise ValueError(f"round_seconds must be at least 0 and under a million, {self.round_seconds} was given")


@dataclass(frozen=True)
class Timeouts:
    """How patient a peer is, and how much it keeps."""

    deadline_seconds: float = 30.0  # how long a round waits for messages
    adaptive: bool = False  # wait a multiple of what recent rounds took, at most deadline_seconds
    start_seconds: float = 120.0  # how long to wait for the others at the start
    dead_seconds: float = 8.0  # a neighbour that does not answer for so long is down
    heartbeat_seconds: float = 0.5  # how often neighbours are asked whether they are there
    late_rounds: int = 3  # a message so many rounds late is still used
    ahead_rounds: int = 1  # a message so many rounds early is kept; an earlier one waits at its sender
    away_rounds: int = 10  # a peer so far behind takes a neighbour's state instead of running the rounds it missed

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "start_seconds", "dead_seconds", "heartbeat_seconds"):
            if not 0 < getattr(self, name) < 1e6:
                raise ValueError(f"{name} must be above 0 and under a million, {getattr(self, name)} was given")
