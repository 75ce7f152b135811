"""What several commands have in common: options, and which experiment is meant."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gossamer.cli.completion import complete_experiment, complete_setting

if TYPE_CHECKING:
    from gossamer.experiments.experiment import Experiment

PATH = click.Path(path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
workers_option = click.option("--workers", type=click.IntRange(min=1), help="Processes; by default one per core.")
jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs at a time; by default as cores and memory allow."
)
scratch_option = click.option("--scratch", type=PATH, help="Keep models in files of this directory, not in memory.")
checkpoint_option = click.option(
    "--checkpoint-every", type=click.IntRange(min=1), default=100, show_default=True, help="Rounds."
)
experiment_argument = click.argument("experiment", shell_complete=complete_experiment)
tensorboard_option = click.option(
    "--tensorboard", is_flag=True, help="Write events for TensorBoard, too, to RUN/tensorboard."
)
data_option = click.option("--data", help="The directory with data sets; by default what GOSSAMER_DATA names.")


def rank_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Over how many processes nodes are spread: the command gets `ranks`, `placement` and `timeout`, for `in_ranks`."""
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=1),
            default=600,
            show_default=True,
            help="Seconds that ranks wait for each other.",
        ),
        click.option(
            "--placement",
            type=click.Choice(["contiguous", "min-cut"]),
            default="contiguous",
            show_default=True,
            help="Which nodes ranks host: in order, or so that few links are between ranks.",
        ),
        click.option(
            "--ranks",
            type=click.IntRange(min=1),
            help="Processes here that each host a part of the nodes.  [default: 1]",
        ),
    ):
        command = option(command)
    return command


def look_for_data_in(directory: str | None) -> None:
    if directory is not None:
        os.environ["GOSSAMER_DATA"] = directory  # where the tasks look; see gossamer.data.sources


def examples(*lines: str) -> str:
    """The end of a command's --help, as `epilog` of click.command; the reference of all commands has it too."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """EXPERIMENT's changes: the command gets `settings`, `rounds` and `seed`, for `experiment_of`."""
    for option in (
        click.option("--seed", type=int, help="Short for --set seed=N."),
        click.option("--rounds", type=int, help="Short for --set rounds=N."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Change a setting: algorithm.budget=0.2.",
            shell_complete=complete_setting,
        ),
    ):
        command = option(command)
    return command


def experiment_of(name: str, settings: tuple[str, ...] = (), **changes: int | None) -> "Experiment":
    """The experiment in a TOML file, or the recipe of this name, with what an option changes."""
    from gossamer.experiments import toml

    described = document(name) | {key: value for key, value in changes.items() if value is not None}
    for setting in settings:
        toml.change(described, setting)
    return toml.read(described)


def document(experiment: str) -> dict[str, Any]:
    """The document of a TOML file or of the recipe of this name."""
    from gossamer.experiments import toml
    from gossamer.experiments.experiment import Experiment, ExperimentError
    from gossamer.experiments.recipes import RECIPES

    if experiment in RECIPES:
        return toml.write(RECIPES[experiment]())
    if os.path.isfile(experiment):
        return toml.write(Experiment()) | toml.load(Path(experiment))  # so that --set finds the default sections
    from gossamer.experiments.papers import TABLES

    if experiment in TABLES:
        raise ExperimentError(
            f"{experiment} is a table of a paper, not one experiment; "
            f"carry it out with: gossamer reproduce {experiment}"
        )
    guess = toml.guess(experiment, {**RECIPES, **TABLES})
    more = "" if guess else "; gossamer list recipes has their names"
    raise ExperimentError(f"{experiment} is neither a file nor a recipe{guess}{more}")


def unused(path: Path) -> Path:
    """This path, or one with a number behind it that nothing has yet."""
    number, free = 1, path
    while os.path.exists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


class Mistake(click.ClickException):
    """A user's mistake, told without the usage that click adds."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        say(self.message)


def say(sentence: str) -> None:
    click.echo(f"gossamer: {sentence}", err=True)
