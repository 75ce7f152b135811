"""Peers that are killed and restarted for a long time: does everyone go on, is every round accounted for, is memory
flat?

    python benchmarks/soak.py --minutes 20 --out runs/soak [--bad-network]

Eight peers train the digits. Every ten seconds one of them, never the first, is killed with SIGKILL and started again
a little later. With --bad-network, 5 % of all pieces of data are lost and retransmitted by TCP, and every two hundredth
breaks its connection; two peers that are neighbours have no address, so that they open all connections themselves and
talk to each other through the first; and the last one runs for a fifth of the time only. At the end come one line of
JSON, the same in soak.json and as a table in soak.md of the directory, and exit code 0 if all of this holds:

- every peer's metrics have one row for every round, in order, but for rounds over which it took a neighbour's state,
  and its log tells of every one of these, from the very round to the very round;
- all peers end within a few rounds of each other, and none that was up was ever without a new round for longer than a
  round may wait and a restart may take;
- no peer ended by itself, and none waited longer for messages than its deadline;
- the memory of the first peer, which was never killed, ends at most a tenth above that of its second quarter, and so
  does that of the process that starts the peers.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "peers"))
from harness import Links, hide
from proxies import Proxies

from gossamer.experiments.experiment import Evaluation
from gossamer.experiments.recipes import jwins_digits
from gossamer.peers.config import Timeouts
from gossamer.peers.local.local_group import LocalGroup
from gossamer.runs.files import read_lines

DEADLINE_SECONDS, ROUND_SECONDS = 15.0, 0.2
SLACK_SECONDS = 5.0  # for a machine that is busy
START_SECONDS = 15.0  # that a restart may take
MOST_APART = 20  # rounds between the first and the last at the end: a peer that is 10 behind catches up
MOST_GROWTH = 0.1
LOSES, BREAKS = 0.05, 0.005  # probabilities per piece of data
RELAY, SLOW, PERIOD_SECONDS, RUNS_SECONDS = "peer-0", "peer-7", 0.5, 0.1
COUNTS = ("missing", "late_used", "late_dropped", "duplicates", "lost_out", "pulls_in", "bad_frames")


@dataclass
class Watch:
    """What is seen of the peers from outside while they run."""

    memory: dict[str, list[int]] = field(default_factory=dict)
    longest_stall: float = 0.0
    _since: dict[int, tuple[int, float]] = field(default_factory=dict)  # by process: its round, and since when

    def look(self, peers: LocalGroup, names: list[str]) -> None:
        first = peers.pids["peer-0"]
        for name, pid in (("peer-0", first), ("starter", _parent(first))):
            self.memory.setdefault(name, []).append(_resident_bytes(pid))
        now = time.monotonic()
        for name in names:
            pid, round = peers.pids[name], peers.last_round(name).get("round", 0)
            if pid not in self._since:
                self._since[pid] = round, now + START_SECONDS
            elif round != self._since[pid][0]:
                self._since[pid] = round, now
            self.longest_stall = max(self.longest_stall, now - self._since[pid][1])

    def growth(self, name: str) -> tuple[int, int, float]:
        """Bytes in the second and in the last quarter, and by what share the last is above."""
        seen = self.memory[name]
        quarter = len(seen) // 4
        early, late = median(seen[quarter : 2 * quarter]), median(seen[-quarter:])
        return int(early), int(late), round(late / early - 1, 4)


def main() -> None:
    arguments = _arguments()
    seconds = arguments.minutes * 60
    rounds = int(seconds / ROUND_SECONDS) * 2  # more than there is time for: they are asked to leave
    experiment = replace(jwins_digits(), nodes=arguments.peers, rounds=rounds, evaluation=Evaluation(every=50))
    timeouts = Timeouts(deadline_seconds=DEADLINE_SECONDS, dead_seconds=5)
    bad: dict[str, Any] = {}
    with (
        Proxies(arguments.seed) as proxies,
        LocalGroup(experiment, arguments.out, timeouts, round_seconds=ROUND_SECONDS) as peers,
    ):
        links = _spoil(peers, proxies) if arguments.bad_network else None
        peers.start()
        watch = Watch()
        with _slowed(peers, SLOW) if links else nullcontext():
            kills = _disturb(peers, watch, seconds, arguments.every, random.Random(arguments.seed))
        if links:
            bad["connections_broken"] = sum(weather.num_broken for weather in links.weather.values())
            for weather in links.weather.values():
                weather.break_probability = 0.0
        for name in peers.running:
            peers.send(name, signal.SIGTERM)
        peers.wait(60)
        if links:
            bad["relayed_bytes"] = [row for row in peers.log(RELAY) if row["event"] == "left"][-1]["relayed_bytes"]
        report = {"minutes": arguments.minutes, "peers": arguments.peers, "kills": kills} | bad | _report(peers, watch)
    report["broken"] = _broken(report)
    (arguments.out / "soak.json").write_text(json.dumps(report, indent=2) + "\n")
    (arguments.out / "soak.md").write_text(_table(report))
    print(json.dumps(report))
    sys.exit(1 if report["broken"] else 0)


def _spoil(peers: LocalGroup, proxies: Proxies) -> Links:
    """Two neighbours are hidden, and connections to the others break."""
    first = "peer-1"
    around = peers.experiment.delivery.neighbours(0, 1)[0]
    second = next(f"peer-{node}" for node in around if f"peer-{node}" not in (RELAY, SLOW))
    hide(peers, first, second, relay=RELAY)
    links = Links(proxies)
    for name in peers.names:
        shown = {
            other: replace(m, port=int(links.seen(name, m).split(":")[1])) if m.port and other != name else m
            for other, m in peers.group.members.items()
        }
        peers.write_group(name, replace(peers.group, members=shown))
    for weather in links.weather.values():
        weather.loss_probability, weather.break_probability = LOSES, BREAKS
    return links


@contextmanager
def _slowed(peers: LocalGroup, name: str) -> Iterator[None]:
    """This peer's process is stopped for most of the time."""
    over = threading.Event()

    def slow() -> None:
        while not over.wait(RUNS_SECONDS):
            for number, seconds in ((signal.SIGSTOP, PERIOD_SECONDS - RUNS_SECONDS), (signal.SIGCONT, 0.0)):
                with suppress(ProcessLookupError):
                    os.kill(peers.pids[name], number)
                time.sleep(seconds)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _disturb(peers: LocalGroup, watch: Watch, seconds: float, every: float, rng: random.Random) -> int:
    """Kill and restart until the time is over and all are back; the number of kills."""
    began = killed = time.monotonic()
    kills, down = 0, dict[str, float]()
    while time.monotonic() < began + seconds + START_SECONDS:
        time.sleep(0.25)
        watch.look(peers, [name for name in peers.names if name not in down])
        for name in [name for name, when in down.items() if time.monotonic() > when]:
            peers.start(name)
            del down[name]
        if time.monotonic() > killed + every and time.monotonic() < began + seconds:
            killed = time.monotonic()
            name = rng.choice([name for name in peers.names[1:] if name not in down])
            peers.send(name, signal.SIGKILL)
            down[name] = killed + rng.uniform(0.5, 8.0)
            kills += 1
        fallen = [name for name in peers.names if name not in down and name not in peers.running]
        if fallen:
            sys.exit(f"{', '.join(fallen)} ended by itself: {peers.log(fallen[0])[-1:]}")
    return kills


def unaccounted(rows: list[dict[str, Any]], log: list[dict[str, Any]]) -> list[list[int]]:
    """Pairs of rounds, one after the other in a peer's metrics, with something between them that no log explains."""
    jumps = {(row["from_round"], row["to_round"]) for row in log if row["event"] == "caught up"}
    rounds = [0, *(row["round"] for row in rows)]
    return [[a, b] for a, b in pairwise(rounds) if b != a + 1 and (b <= a or (a, b - 1) not in jumps)]


def _report(peers: LocalGroup, watch: Watch) -> dict[str, Any]:
    rows = {name: read_lines(peers.directory_of(name) / "metrics.jsonl") for name in peers.names}
    logs = {name: peers.log(name) for name in peers.names}
    lost = [[name, *pair] for name in peers.names for pair in unaccounted(rows[name], logs[name])]
    ended = [of[-1]["round"] for of in rows.values()]
    left = [[row for row in log if row["event"] == "left"][-1] for log in logs.values()]
    accuracy = [[row["accuracy"] for row in of if "accuracy" in row][-1] for of in rows.values()]
    return {
        "rounds": [min(ended), max(ended)],
        "rows": sum(len(of) for of in rows.values()),
        "unaccounted": lost,
        "rounds_jumped": sum(ended) - sum(len(of) for of in rows.values()),
        "resumed": sum(row["event"] == "resumed" for log in logs.values() for row in log),
        "longest_wait_seconds": max(row["waited_seconds"] for of in rows.values() for row in of),
        "longest_stall_seconds": round(watch.longest_stall, 1),
        "accuracy": [round(min(accuracy), 4), round(max(accuracy), 4)],
        "memory_bytes": {name: watch.growth(name)[:2] for name in watch.memory},
        "memory_growth": {name: watch.growth(name)[2] for name in watch.memory},
        **{key: sum(row[key] for row in left) for key in COUNTS},
    }


def _broken(report: dict[str, Any]) -> list[str]:
    """What does not hold."""
    holds = {
        "rounds are unaccounted for": not report["unaccounted"],
        "peers ended far apart": report["rounds"][1] - report["rounds"][0] <= MOST_APART,
        "a wait was longer than the deadline": report["longest_wait_seconds"] <= DEADLINE_SECONDS + SLACK_SECONDS,
        "a peer stood still": report["longest_stall_seconds"] <= DEADLINE_SECONDS + SLACK_SECONDS,
        "memory grew": max(report["memory_growth"].values()) <= MOST_GROWTH,
    }
    return [what for what, is_so in holds.items() if not is_so]


def _table(report: dict[str, Any]) -> str:
    def value(of: Any) -> str:
        if isinstance(of, dict):
            return "; ".join(f"{key} {value(each)}" for key, each in of.items())
        if isinstance(of, list | tuple):
            return " to ".join(value(each) for each in of) or "none"
        return f"{of:,}" if isinstance(of, int) else str(of)

    rows = "".join(f"| {key.replace('_', ' ')} | {value(of)} |\n" for key, of in report.items())
    return f"| what | value |\n| --- | --- |\n{rows}"


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--bad-network", action="store_true", help="broken connections, two hidden peers, a slow one")
    parser.add_argument("--every", type=float, default=10, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
