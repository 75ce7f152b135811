"""Do peers keep their pace when one of them cannot be reached, or has another experiment?

    python benchmarks/reachability.py --out runs/pace [--rounds 260] [--repeat 3]

Four peers on a ring train the digits, one step per round: undisturbed; with peer-1 refused at the address that peer-0
has of it; with peer-1's packets from peer-0 dropped silently; and with peer-3 on another experiment, where the other
three are compared with three that are alone on the same ring (peer-3 never starts). A line of JSON per case:
rounds per second of the slowest peer over the last 160 rounds, so without the seconds in which the others find out.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "peers"))
from harness import Links
from proxies import Proxies

from gossamer.experiments import toml
from gossamer.experiments.experiment import Evaluation
from gossamer.experiments.recipes import jwins_digits
from gossamer.graphs.topologies import Ring
from gossamer.peers.config import Timeouts
from gossamer.peers.local.local_group import LocalGroup
from gossamer.runs.files import read_lines

TIMEOUTS = Timeouts(deadline_seconds=30)
REASONS = ("cannot reach", "another experiment")


def pace(peers: LocalGroup, names: list[str], last: int = 160) -> dict[str, Any]:
    rows = [read_lines(peers.directory_of(name) / "metrics.jsonl") for name in names]
    told = {name: [row["event"] for row in peers.log(name) if row["event"] in REASONS] for name in names}
    return {
        "rounds_per_second": round(min(last / sum(row["seconds"] for row in of[-last - 1 : -1]) for of in rows), 1),
        "longest_wait_seconds": round(max(row["waited_seconds"] for of in rows for row in of), 1),
        "told": {name: events for name, events in told.items() if events},
    }


def run(case: str, rounds: int, out: Path) -> dict[str, Any]:
    rest = Evaluation(every=rounds, samples=10)
    experiment = replace(jwins_digits(), nodes=4, rounds=rounds, topology=Ring(), local_steps=1, evaluation=rest)
    with Proxies() as proxies:
        links = Links(proxies)

        def seen(viewer: str, member: Any) -> str:
            if case == "refused" and (viewer, member.name) == ("peer-0", "peer-1"):
                return "127.0.0.1:9"  # nobody listens on the port of discard
            address: str = links.seen(viewer, member) if case == "dropped" else member.address
            return address

        with LocalGroup(experiment, out, TIMEOUTS, seen) as peers:
            names = peers.names[:3] if "other" in case or "alone" in case else peers.names
            if case == "dropped":
                links.weather["peer-0", "peer-1"].cut = True
            if case == "other experiment":
                other = out / "other.toml"
                other.write_text(toml.dumps(replace(experiment, seed=7)))
                place = peers.directory_of("peer-3")
                command = [sys.executable, "-m", "gossamer", "peer", str(other), "--me", "peer-3"]
                command += ["--certs", str(peers.keys), "--peers", str(place / "peers.toml"), "--out", str(place)]
                subprocess.Popen(command, stderr=subprocess.DEVNULL)
            peers.start(*names)
            peers.wait(600)
            return {"case": case, **pace(peers, names)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=260)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    for turn in range(arguments.repeat):
        for case in ("undisturbed", "refused", "dropped", "three alone", "other experiment"):
            place = arguments.out / f"{case.replace(' ', '-')}-{turn}"
            print(json.dumps(run(case, arguments.rounds, place)), flush=True)


if __name__ == "__main__":
    main()
