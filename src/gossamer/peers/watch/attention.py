"""What is said of peers in words: what each is doing, and what somebody should look at."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low

from gossamer.peers.watch.scrape import Reading
from gossamer.peers.watch.watched import ENDED, Status
from gossamer.runs.report.text import duration

LONG_SECONDS = 5.0  # a wait that is worth a word
STUCK_SECONDS, STUCK_FACTOR = 60.0, 10.0  # local steps are, after so long and so many times the last round
BEHIND_ROUNDS, BEHIND_SHARE = 3, 0.05  # whichever is more
CERTIFICATE_DAYS = 3
CLOCK_SECONDS = 60.0
DAY_SECONDS = 86400.0

STATES = {
    "": "running",
    "starting": "waits for the start",
    "training": "training",
    "exchanging": "exchanging",
    "settling": "settling",
    "evaluating": "evaluating",
    "pausing": "pausing",
    "catching-up": "catching up",
    "finishing": "done, there for others",
    "done": "done",
    "left": "has left",
    "failed": "failed",
}


def labels_of(statuses: Sequence[Status]) -> list[str]:
    """What each is called: the name that its page tells, or the address; both, if others have the name too."""
    names = [status.reading.name if status.reading else "" for status in statuses]
    times = Counter(names)
    return [
        status.address if not name else name if times[name] == 1 else f"{name} ({status.address})"
        for name, status in zip(names, statuses, strict=True)
    ]


def state(status: Status) -> str:
    """What a peer is doing."""
    reading = status.reading
    if reading is None:
        return "not answering" if status.trouble != "not asked yet" else "asking"
    if status.has_ended and reading.phase not in ENDED:
        return STATES["done"]
    if status.has_ended or status.answers:
        told = STATES[reading.phase]
        if reading.phase in ("exchanging", "settling", "finishing") and waited(reading) >= 1:
            told = f"waits for {listed(reading.waiting)}, {seconds(waited(reading))}"
        return told
    return f"not answering since {clock(status.at)}"


def attention(statuses: Sequence[Status]) -> list[str]:
    """Sentences, the most urgent first; none if all is well."""
    named = list(zip(labels_of(statuses), statuses, strict=True))
    now = [(label, status.reading) for label, status in named if status.reading and status.answers]
    return [
        *_silent(named),
        *_ended(named),
        *_away([reading for _, reading in now], [label for label, _ in now]),
        *_waits(now),
        *_slow(now),
        *_strange(named),
        *_troubles(now),
    ]


def _silent(named: Sequence[tuple[str, Status]]) -> Iterator[str]:
    for label, status in named:
        if status.answers or status.has_ended or status.trouble == "not asked yet":
            continue
        if status.reading is None:
            yield f"{label} has not answered yet: {status.trouble}"
        else:
            yield f"{label} has not answered since {clock(status.at)}: {status.trouble}"


def _ended(named: Sequence[tuple[str, Status]]) -> Iterator[str]:
    for label, status in named:
        if status.reading and status.reading.phase == "failed":
            yield f"{label} failed in round {whole(status.reading['round'] + 1)}; its log says why"
        elif status.reading and status.reading.phase == "left":
            yield f"{label} was asked to leave, and did after round {whole(status.reading['round'])}"


def _away(readings: Sequence[Reading], labels: Sequence[str]) -> Iterator[str]:
    """Neighbours that peers do not reach, of one at a time."""
    seen_by: dict[str, list[str]] = {}
    for label, reading in zip(labels, readings, strict=True):
        if reading.phase in ("", "starting", "finishing", "done", "left", "failed"):
            continue
        for neighbour, is_up in reading.neighbours.items():
            if not is_up:
                seen_by.setdefault(neighbour, []).append(label)
    for neighbour, by in list(seen_by.items())[:20]:
        yield f"{neighbour} is down, as {listed(by)} {'see' if len(by) > 1 else 'sees'} it"


def _waits(now: Sequence[tuple[str, Reading]]) -> Iterator[str]:
    """Those that wait for the same ones are told of together."""
    together: dict[tuple[str, tuple[str, ...]], list[tuple[str, Reading]]] = {}
    for label, reading in now:
        if waited(reading) >= LONG_SECONDS:
            kind = reading.phase if reading.phase in ("starting", "finishing") else "exchanging"
            together.setdefault((kind, tuple(sorted(reading.waiting))), []).append((label, reading))
    for (kind, awaited), waiting in together.items():
        who, whom = listed(label for label, _ in waiting), listed(awaited)
        longest = max(waited(reading) for _, reading in waiting)
        have = "have waited up to" if len(waiting) > 1 else "has waited"
        limit = max(reading["deadline_seconds"] for _, reading in waiting)
        if kind == "starting":
            yield f"{who} {have} {seconds(longest)} for {whom} to start"
        elif kind == "finishing":
            yield f"{who} {have} {seconds(longest)} for {whom} to be done, too"
        else:
            until = f", and will for {seconds(limit)}" if limit > longest else ""
            yield f"{who} {have} {seconds(longest)} for {whom}{until}"


def _slow(now: Sequence[tuple[str, Reading]]) -> Iterator[str]:
    rounds = [reading["round"] for _, reading in now if reading["round"] >= 0]
    most = median_low(rounds) if rounds else 0.0
    for label, reading in now:
        behind = most - reading["round"]
        if behind > max(BEHIND_ROUNDS, BEHIND_SHARE * reading["rounds"]):
            yield f"{label} is in round {whole(reading['round'] + 1)}, most are in round {whole(most + 1)}"
        long, last = reading["phase_seconds"], reading["round_seconds"]
        if reading.phase in ("training", "evaluating") and long > max(STUCK_SECONDS, STUCK_FACTOR * last):
            yield f"{label} has been {reading.phase} for {seconds(long)}; its last round took {seconds(last)}"


def _strange(named: Sequence[tuple[str, Status]]) -> Iterator[str]:
    """Pages that do not belong together."""
    readings = [status.reading for _, status in named if status.reading]
    for name, times in Counter(reading.name for reading in readings if reading.name).items():
        if times > 1:
            yield f"{times} pages say that they are {name}; is one address given twice?"
    for what in ("experiment", "run"):
        told = Counter(getattr(reading, what) for reading in readings if getattr(reading, what))
        if len(told) > 1:
            yield f"these peers are of {len(told)} {what}s: {listed(told)}"


def _troubles(now: Sequence[tuple[str, Reading]]) -> Iterator[str]:
    for label, reading in now:
        if (failed := reading["checkpoints_failed"]) > 0:
            yield f"{label} could not save its state ({times(failed)}); is its disk full?"
        if 0 <= (left := reading["certificate_seconds"]) < CERTIFICATE_DAYS * DAY_SECONDS:
            yield f"{label}'s certificate ends in {seconds(left)}; gossamer join --renew gets a new one"
        if (skew := reading["clock_skew_seconds"]) > CLOCK_SECONDS:
            yield f"{label}'s clock and a neighbour's differ by {seconds(skew)}"
        if (bad := reading["bad_frames"]) > 0:
            yield f"{label} was sent what is no message of this run ({times(bad)})"
        if (refused := reading["refused"]) > 0:
            yield f"{label} turned callers away that are not in its group ({times(refused)})"


def waited(reading: Reading) -> float:
    return max(reading.waiting.values(), default=0.0)


def listed(names: Iterable[str], most: int = 3) -> str:
    """ "a", "a and b", "a, b and 4 more"."""
    names = list(names)
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def seconds(value: float) -> str:
    """A duration, without parts of a second; days if it is long."""
    if not value >= 0:
        return "–"
    if value >= 2 * DAY_SECONDS:
        return f"{value / DAY_SECONDS:,.0f} days"
    return f"{value:.0f} s" if value < 120 else duration(value)


def whole(value: float) -> str:
    return f"{value:,.0f}" if value == value else "–"


def times(value: float) -> str:
    return "once" if value == 1 else f"{value:,.0f} times"


def clock(at: float) -> str:
    """A time of today, or the day, too."""
    then = time.localtime(at)
    return time.strftime("%H:%M:%S" if then[:3] == time.localtime()[:3] else "%Y-%m-%d %H:%M", then)
