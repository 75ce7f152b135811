"""The witness: what every algorithm of the contract's table computes, as digests, to the last bit.

    python tests/witness/record.py            compare this code with simulator.json; --write records it anew
    python tests/witness/record.py --peers    the same for groups of real peers, with peers.json (half an hour)

A change that is not meant to change results leaves both files as they are; one that is meant to records them anew and
says why in its commit. Networks give the same bits only with the same torch on the same kind of processor.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from contract import CASES, of  # noqa: E402
from gossamer.algorithms import Dpsgd, Jwins, Silk  # noqa: E402
from gossamer.data import Supervised  # noqa: E402
from gossamer.data.partition import Iid  # noqa: E402
from gossamer.experiments import toml  # noqa: E402
from gossamer.experiments.experiment import Experiment, Wire  # noqa: E402
from gossamer.experiments.recipes import RECIPES  # noqa: E402
from gossamer.graphs.faults import Faults  # noqa: E402
from gossamer.graphs.topologies import Ring  # noqa: E402
from gossamer.models import GnLeNet, ResNet20  # noqa: E402
from gossamer.models.low_precision import to_int8  # noqa: E402
from gossamer.simulator.simulation import Simulation  # noqa: E402
from gossamer.training.optimizer import Optimizer  # noqa: E402

Record = dict[str, Any]
FAULTS = Faults(drop=0.2, down=((2, 2, 3),), late=((4, 1),))
PATIENT = ["--deadline", "120", "--start-deadline", "300", "--dead-after", "60"]


def experiments() -> Iterator[tuple[str, Experiment]]:
    """Every case of the contract as it is, through real bytes, and with faults where it takes them; some networks."""
    for case in CASES:
        yield case, of(case)
        yield f"{case}, encoded", of(case, wire=Wire(mode="encode"))
        requires = CASES[case].algorithm.requires
        if "reliable" not in requires:
            faults = replace(FAULTS, late=()) if case.startswith("scsp") else FAULTS
            yield f"{case}, with faults", of(case, faults=faults, wire=Wire(mode="encode"))
    digits = replace(RECIPES["jwins-digits"](), rounds=4)
    for strategy in ("rows", "batched", "vmap"):
        yield f"digits by {strategy}", replace(digits, strategy=strategy)
    yield "digits, fast", replace(digits, strategy="rows", fast=True)
    yield "digits, silk", replace(digits, algorithm=Silk())
    yield (
        "digits, full sharing with momentum",
        replace(digits, algorithm=Dpsgd(), optimizer=Optimizer(0.05, momentum=0.9, weight_decay=1e-3)),
    )
    yield (
        "digits, indices compared",
        replace(digits, algorithm=Jwins(budget=0.2), wire=Wire(compare=("elias-fpzip", "six-bytes"), ledger=True)),
    )
    images = torch.randn(70, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(70) % 10

    def task(norm: str = "group", low_precision: bool = False) -> Supervised:
        def model() -> nn.Module:
            network = ResNet20(norm, width=4) if norm == "batch" else GnLeNet()
            built = network.build((3, 8, 8), 10)
            return to_int8(built) if low_precision else built

        return Supervised(model, images, images)

    small = replace(digits, nodes=4, rounds=2, topology=Ring(), partition=Iid(), strategy="rows", batch_size=4)
    yield "images", replace(small, task=task())
    yield "images, fast", replace(small, task=task(), fast=True)
    yield (
        "images, fast, with momentum",
        replace(small, task=task(), fast=True, optimizer=Optimizer(0.05, momentum=0.9, quasi_global=True)),
    )
    yield "images, batch normalization", replace(small, task=task("batch"))
    yield "images, eight bits", replace(small, task=task(low_precision=True))


def simulated(experiment: Experiment) -> Record:
    """Models, bytes by kind over the run, and the last metrics."""
    with Simulation(experiment, workers=1) as simulation:
        rows = [simulation.step() for _ in range(experiment.rounds)]
        kinds = [key for key in rows[-1] if key.startswith("bytes_")]
        state = {name: _digest(tensor) for name, tensor in sorted(simulation.save().items())}
        return {
            "models": _digest(simulation.models()),
            "state": hashlib.sha256(json.dumps(list(state.values())).encode()).hexdigest(),
            "bytes": {key: sum(row[key] for row in rows) for key in kinds},
            "metrics": {key: value for key, value in rows[-1].items() if _counts(key) and key not in kinds},
            "ledger": hashlib.sha256(json.dumps(simulation.ledger()).encode()).hexdigest(),
        }


def _counts(key: str) -> bool:
    """Is it a result? Not of single nodes, whose models have a digest, nor how often the seed's faults struck."""
    of_faults = ("messages_sent", "messages_lost", "messages_late", "nodes_away")
    return key not in ("seconds", "parts", "higher_is_better", *of_faults) and not key.endswith("_by_node")


def by_peers(experiment: Experiment) -> Record:
    """Models and bytes of a group of processes."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "experiment.toml"
        file.write_text(toml.dumps(experiment))
        command = [sys.executable, "-m", "gossamer", "up", str(experiment.nodes), str(file), *PATIENT, "--json"]
        done = subprocess.run([*command, "--out", f"{directory}/up"], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        peers = sorted(json.loads(done.stdout)["peers"], key=lambda peer: peer["node"])
        return {"models": [peer["model_sha256"] for peer in peers], "bytes": [peer["bytes_out"] for peer in peers]}


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def digest_of(records: dict[str, Record]) -> str:
    return hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()


def made_with() -> str:
    """On what the bits of a network depend."""
    return f"torch {torch.__version__.split('+')[0]}, {torch.backends.cpu.get_cpu_capability()}"


def kept(name: str) -> tuple[dict[str, Record], str]:
    """The records of a file, and what they were made with."""
    records = json.loads((HERE / name).read_text())
    return records, records.pop("made with")


def main(arguments: list[str]) -> int:
    if "--peers" in arguments:
        name, found = "peers.json", {}
        recorded, _ = kept(name)
        for number, case in enumerate(CASES, 1):
            found[case] = by_peers(of(case, rounds=6))
            verdict = "as recorded" if found[case] == recorded.get(case) else "differs"
            print(f"{number} of {len(CASES)}, {case}: {verdict}", file=sys.stderr, flush=True)
    else:
        name, found = "simulator.json", {label: simulated(experiment) for label, experiment in experiments()}
    if "--write" in arguments:
        text = json.dumps(found | {"made with": made_with()}, indent=1, sort_keys=True)
        (HERE / name).write_text(text + "\n")
    before, machine = kept(name)
    changed = sorted(label for label in before.keys() | found.keys() if before.get(label) != found.get(label))
    print(f"{len(found)} runs, digest {digest_of(found)}; recorded with {machine}: {digest_of(before)}")
    print("\n".join(f"differs: {label}" for label in changed))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
