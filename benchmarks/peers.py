"""How fast peers on one machine exchange large messages.

    python benchmarks/peers.py --peers 16 --megabytes 1 --rounds 60 --out runs/bench

Every peer sends a message of the given size to four others in every round (SGP on a random directed graph, least
squares with one step per round, so that next to nothing is computed). One line of JSON: rounds per second between the
tenth and the last round, at the slowest peer; CPU seconds per round of all peers together, all threads and the kernel's
share included, which other programs on the machine disturb less; and what travelled.
"""

import argparse
import json
from pathlib import Path

from gossamer.algorithms import Sgp
from gossamer.data import Quadratic
from gossamer.experiments.experiment import Evaluation, Experiment
from gossamer.graphs.topologies import DirectedRandom
from gossamer.peers.config import Timeouts
from gossamer.peers.local.local_group import LocalGroup
from gossamer.runs.files import read_lines
from gossamer.training.optimizer import Optimizer

BITS_A_VALUE = 26.6  # of a float32, coded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=16)
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    dimension = int(arguments.megabytes * 8e6 / BITS_A_VALUE)
    experiment = Experiment(
        name="peers",
        nodes=arguments.peers,
        rounds=arguments.rounds,
        local_steps=1,
        batch_size=1,
        task=Quadratic(dimension=dimension, num_samples=arguments.peers),
        topology=DirectedRandom(out_degree=4),
        algorithm=Sgp(),
        optimizer=Optimizer(0.1),
        evaluation=Evaluation(every=arguments.rounds, samples=1),
    )
    patient = Timeouts(deadline_seconds=120, dead_seconds=60)
    with LocalGroup(experiment, arguments.out, patient, checkpoint_every=arguments.rounds) as peers:
        peers.start()
        peers.wait(600 + arguments.rounds)
        rows = [read_lines(peers.directory_of(name) / "metrics.jsonl") for name in peers.names]
        results = [peers.result(name) for name in peers.names]
    assert all(results), "a peer did not finish"
    seconds = max(sum(row["seconds"] for row in of[10:-1]) for of in rows)  # the last round tests the model
    cpu_seconds = sum(row["cpu_seconds"] for of in rows for row in of[10:-1])
    sent = sum(result["bytes_out"] for result in results if result)
    messages = sum(result["messages_out"] for result in results if result)
    print(
        json.dumps(
            {
                "peers": arguments.peers,
                "rounds_a_second": round((arguments.rounds - 11) / seconds, 2),
                "cpu_seconds_a_round": round(cpu_seconds / (arguments.rounds - 11), 3),
                "message_bytes": round(sent / messages),
                "messages": messages,
                "lost": sum(result["lost_out"] for result in results if result),
            }
        )
    )


if __name__ == "__main__":
    main()
