"""Your own model on several sites, each with a table that stays there. The same program on every site; docs/deploy.md
("Your own model") leads through it.

    python own_model_on_peers.py alice --check              is all well between the sites? On all at the same time
    python own_model_on_peers.py alice                      train; the model is in runs/alice/model.safetensors
    python own_model_on_peers.py alice --predict new.csv    what it says of new rows
"""

import argparse
from dataclasses import dataclass, replace

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import gossamer as gs


class Net(nn.Module):
    """Your module: rows of numbers in, one number per class out."""

    def __init__(self, columns: int, classes: int):
        super().__init__()
        self.first, self.last = nn.Linear(columns, 32), nn.Linear(32, classes)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(rows)))


@dataclass(frozen=True)
class OwnModel(gs.Architecture):
    """Tells Gossamer how to build it for a table."""

    def build(self, inputs: tuple[int, ...], outputs: int) -> nn.Module:
        return Net(inputs[0], outputs)


def main(name: str, check: bool, new_rows: str | None) -> None:
    experiment = gs.read_experiment("experiment.toml")  # the same on all sites, with the columns that they agreed on
    table = experiment.task
    experiment = replace(experiment, task=replace(table, model=OwnModel()))
    config = gs.PeerConfig(name, "peers.toml", "keys", f"runs/{name}", data="data")
    if check:
        if not all(found.ok for found in gs.examine_peer(experiment, config, tell=print, progress=print)):
            raise SystemExit(1)
    elif new_rows:
        rows = table.inputs(new_rows)
        model = Net(rows.shape[1], len(table.classes))
        model.load_state_dict(load_file(config.out / "model.safetensors"))
        model.eval()  # without it, dropout would go on
        with torch.no_grad():
            shares = model(rows).softmax(1)
        for number, share in enumerate(shares, start=1):
            print(f"row {number}: {table.classes[int(share.argmax())]}, {share.max():.0%} sure")
    else:
        timeouts = gs.Timeouts(
            start_seconds=600
        )  # the other sites have ten minutes to start; a round waits 30 s for one
        report = gs.run_peer(experiment, config, timeouts)
        if report["rounds"] < experiment.rounds:
            print(f"left after {report['rounds']} of {experiment.rounds} rounds; the same command goes on from there")
        else:
            print(f"{report['rounds']} rounds, {report['accuracy']:.1%} of this site's test rows are right")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="of this site, in peers.toml and in its certificate")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--predict", metavar="FILE")
    given = parser.parse_args()
    try:
        main(given.name, given.check, given.predict)
    except (ValueError, OSError) as error:  # a gs.ExperimentError among them: a sentence that says what to do
        raise SystemExit(str(error)) from None
