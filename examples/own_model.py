"""Your own model and data, on sixteen nodes. Run me: python examples/own_model.py"""

import torch
from torch import nn

import gossamer as gs

points = torch.randn(4000, 2)
inside = (points.norm(dim=1) < 1).long()  # which points lie in the unit circle?
task = gs.Supervised(
    model=lambda: nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)),
    train=(points[:3000], inside[:3000]),
    test=(points[3000:], inside[3000:]),
)
experiment = gs.Experiment(
    name="circle", task=task, nodes=16, rounds=60, topology=gs.Ring(), algorithm=gs.Jwins(budget=0.2)
)
run = gs.simulate(experiment)
print(f"{run.result['accuracy_mean']:.1%} right, {run.result['bytes_share_of_full']:.0%} of full sharing's bytes")
gs.write_report("circle.html", [run])
