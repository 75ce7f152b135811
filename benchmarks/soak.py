"""Peers that are killed and restarted for a long time: does everyone go on, is every round accounted for, is memory
flat?

    python benchmarks/soak.py --minutes 20 --out runs/soak

Eight peers train the digits. Every ten seconds one of them, never the first, is killed with SIGKILL and started again
a little later. At the end come one line of JSON and exit code 0 if all of this holds:

- every peer's metrics are a row for every round, but for rounds over which it took a neighbour's state, which its log
  tells;
- no peer waited longer for messages than its deadline;
- the memory of the first peer, which was never killed, ends at most a tenth above that of its second quarter.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from gossamer.experiment import Evaluation
from gossamer.files import read_lines
from gossamer.peers.up import Fleet
from gossamer.recipes.digits import jwins_digits

DEADLINE_SECONDS, ROUND_SECONDS = 15.0, 0.2


def main() -> None:
    arguments = _arguments()
    seconds = arguments.minutes * 60
    rounds = int(seconds / ROUND_SECONDS) * 2  # more than there is time for: they are asked to leave
    experiment = replace(jwins_digits(), nodes=arguments.peers, rounds=rounds, evaluation=Evaluation(every=50))
    options = ["--round-seconds", str(ROUND_SECONDS), "--deadline", str(DEADLINE_SECONDS), "--dead-after", "5"]
    rng, kills, memory = random.Random(arguments.seed), 0, []
    with Fleet(experiment, arguments.out, options) as fleet:
        fleet.start()
        began = killed = time.monotonic()
        down: dict[str, float] = {}
        while time.monotonic() < began + seconds:
            time.sleep(0.25)
            memory.append(_resident_bytes(fleet.pids["peer-0"]))
            for name in [name for name, when in down.items() if time.monotonic() > when]:
                fleet.start(name)
                del down[name]
            if time.monotonic() > killed + arguments.every:
                killed = time.monotonic()
                name = rng.choice([name for name in fleet.names[1:] if name not in down])
                fleet.send(name, signal.SIGKILL)
                down[name] = killed + rng.uniform(0.5, 8.0)
                kills += 1
            fallen = [name for name in fleet.names if name not in down and name not in fleet.running]
            if fallen:
                sys.exit(f"{', '.join(fallen)} ended by itself: {fleet.log(fallen[0])[-1:]}")
        for name in down:
            fleet.start(name)
        time.sleep(5)
        for name in fleet.running:
            fleet.send(name, signal.SIGTERM)
        fleet.wait(60)
        report = _report(fleet, memory) | {"minutes": arguments.minutes, "kills": kills}
    print(json.dumps(report))
    holds = not report["unaccounted"] and report["longest_wait_seconds"] <= DEADLINE_SECONDS + 5
    sys.exit(0 if holds and report["memory_growth"] <= 0.1 else 1)


def _report(fleet: Fleet, memory: list[int]) -> dict[str, Any]:
    unaccounted, jumped, longest, rounds, accuracy = [], 0, 0.0, [], []
    totals: dict[str, float] = {}
    for name in fleet.names:
        rows = read_lines(fleet.place(name) / "metrics.jsonl")
        log = fleet.log(name)
        jumps = {row["to_round"]: row["from_round"] for row in log if row["event"] == "caught up"}
        for before, row in zip([{"round": 0}, *rows], rows, strict=False):
            skipped = row["round"] - before["round"] - 1
            if skipped and jumps.get(row["round"] - 1, row["round"]) > before["round"]:
                unaccounted.append([name, before["round"], row["round"]])
            jumped += skipped
        longest = max(longest, *(row["waited_seconds"] for row in rows))
        rounds.append(rows[-1]["round"])
        accuracy += [row["accuracy"] for row in rows if "accuracy" in row][-1:]
        left = [row for row in log if row["event"] == "left"][-1]
        for key in ("missing", "late_used", "late_dropped", "duplicates", "lost_out", "pulls_in", "bad_frames"):
            totals[key] = totals.get(key, 0) + left[key]
    quarter = len(memory) // 4
    early, late = median(memory[quarter : 2 * quarter]), median(memory[-quarter:])
    return {
        "rounds": [min(rounds), max(rounds)],
        "unaccounted": unaccounted,
        "rounds_jumped": jumped,
        "longest_wait_seconds": longest,
        "accuracy": round(sum(accuracy) / len(accuracy), 4),
        "memory_bytes": [int(early), int(late)],
        "memory_growth": round(late / early - 1, 4),
        **totals,
    }


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--every", type=float, default=10, help="seconds between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
