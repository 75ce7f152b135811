"""Which experiment a command was given."""

import os
from pathlib import Path
from typing import Any


def document(experiment: str) -> dict[str, Any]:
    """The document of a TOML file or of the recipe of this name."""
    from gossamer.experiments import toml
    from gossamer.experiments.experiment import Experiment, ExperimentError
    from gossamer.experiments.recipes import RECIPES

    if experiment in RECIPES:
        return toml.write(RECIPES[experiment]())
    if os.path.isfile(experiment):
        return toml.write(Experiment()) | toml.load(Path(experiment))  # so that --set finds the default sections
    raise ExperimentError(f"{experiment} is neither a file nor a recipe; the recipes are {', '.join(RECIPES)}")


def unused(path: Path) -> Path:
    """This path, or one with a number behind it that nothing has yet."""
    number, free = 1, path
    while os.path.exists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
