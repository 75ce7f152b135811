"""A complete run as one archive: all that somebody else needs to repeat it, and to see that the same came out.

README.md            the command that repeats it
experiment.toml      what was run; files that it names are in files/
requirements.txt     the packages, in the versions that this machine has now
manifest.json        digests of data, models and code, and the machine
metrics.jsonl, result.json, report.html, and ledger.jsonl if there is one
"""

import hashlib
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import tomli_w

from gossamer.data.sources import Source
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.graphs.generators import read_file
from gossamer.runs import files
from gossamer.runs.run import Run, open_run
from gossamer.simulator.prepared import PreparedExperiment

_KEPT = ("metrics.jsonl", "result.json", "report.html", "ledger.jsonl")
_EXTRAS = ("images", "arrow", "privacy", "transformers")  # that a simulation may use
_PACKAGE = Path(__file__).parents[1]


def pack(directory: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Pack the complete run in a directory into a new zip archive, by default beside it; returns its path."""
    directory = Path(directory)
    archive = directory.with_name(f"{directory.resolve().name}.zip") if out is None else Path(out)
    if os.path.exists(archive):
        raise ExperimentError(f"{archive} exists already; name another file with --out")
    run = open_run(directory)
    if run.peer is not None:
        raise ExperimentError(f"{directory} is a peer's, whose data are its own; pack takes runs of the simulator")
    if run.experiment is None:
        raise ExperimentError(f"{directory} is of an experiment with classes of your own, which a file cannot repeat")
    if not (directory / "result.json").exists():
        raise ExperimentError(f"{directory} is not complete; continue it with gossamer resume, and pack it then")
    run.check_rounds("a pack, from which others repeat them,")
    content = _content(run, run.experiment, directory)
    try:
        with files.replacing(archive) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as target:
            for name, data in content.items():
                target.writestr(zipfile.ZipInfo(f"{archive.stem}/{name}"), data, zipfile.ZIP_DEFLATED)  # without a date
    except OSError as error:
        raise ExperimentError(f"{archive} cannot be written: {error.strerror}; name another file with --out") from error
    return archive


def _content(run: Run, experiment: Experiment, directory: Path) -> dict[str, bytes]:
    document = toml.write(experiment)
    document["task"].pop("root", None)  # a place on this machine; --data names another
    named = dict(_take_files(document))
    packages = _packages()
    manifest = _manifest(run, experiment) | {"packages": packages}
    kept = {name: (directory / name).read_bytes() for name in _KEPT if (directory / name).exists()}
    return {
        "README.md": _readme(run, manifest, bool(manifest["data_files"])).encode(),
        "experiment.toml": tomli_w.dumps(document).encode(),
        "requirements.txt": "".join(f"{name}=={version}\n" for name, version in packages.items()).encode(),
        "manifest.json": json.dumps(manifest, indent=2).encode() + b"\n",
        **kept,
        **named,
    }


def _take_files(section: Any) -> Iterator[tuple[str, bytes]]:
    """The files that a document names, which it has digests of; in the document they are then those of the archive."""
    for key, value in list(section.items()) if isinstance(section, dict) else []:
        digest = section.get(f"{key}_digest") or section.get("digest")
        if isinstance(value, str) and digest and not key.endswith("digest") and os.path.isabs(value):
            content, _ = read_file(value, digest, "file")
            section[key] = f"files/{digest}-{Path(value).name}"
            yield section[key], content.encode()
        for inner in value if isinstance(value, list) else [value]:
            yield from _take_files(inner)


def _manifest(run: Run, experiment: Experiment) -> dict[str, Any]:
    code = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        code.update(f"{path.relative_to(_PACKAGE).as_posix()} {_sha256(path)}\n".encode())
    return {
        "gossamer": sys.modules["gossamer"].__version__,
        "gossamer_sha256": code.hexdigest(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "models_sha256": run.models_sha256,
        "data_sha256": PreparedExperiment.of(experiment).fingerprint(),
        "data_files": dict(_data_files(experiment)),
    }


def _data_files(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """The files that the task reads, if it reads any, and their digests."""
    source = getattr(experiment.task, "source", None)
    if isinstance(source, Source):
        found = source.find(getattr(experiment.task, "root", None))
        for pattern in found.layout.files:
            for path in found.paths(pattern) or [found.path(pattern)]:
                yield path.relative_to(found.folder).as_posix(), _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _packages() -> dict[str, str]:
    """What this package needs, directly or not, with the versions that are installed."""
    found: dict[str, str] = {}
    waiting = ["gossamer"]
    while waiting:
        name = waiting.pop()
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # an option, or not for this system
        if one.metadata["Name"] in found:
            continue
        found[one.metadata["Name"]] = one.version
        for requirement in one.requires or ():
            needed, _, condition = requirement.partition(";")
            extra = re.search(r"extra == ['\"]([^'\"]+)", condition)
            if extra is None or (name == "gossamer" and extra[1] in _EXTRAS):
                waiting.append(re.split(r"[^\w.-]", needed.strip(), maxsplit=1)[0])
    found.pop("gossamer", None)  # it has no place to be installed from by its name
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _readme(run: Run, manifest: dict[str, Any], reads_files: bool) -> str:
    result = run.result
    data = " --data DIRECTORY" if reads_files else ""
    where = ", where DIRECTORY holds the data sets whose digests manifest.json has" if reads_files else ""
    figures = ", ".join(f"{key} {value}" for key, value in result.items() if key in _figures(result["metric"]))
    what = "{algorithm} on {task}, {nodes} nodes, {rounds} rounds, seed {seed}".format(**result)
    python = manifest["python"].rpartition(".")[0]
    return f"""\
# {result["name"]}

{what}: {figures}.

To repeat it, with Gossamer {manifest["gossamer"]}, Python {python} and the packages of requirements.txt, in this
directory{where}:

    gossamer run experiment.toml --out again{data}

It took {result["seconds"]:.0f} s. again/result.json is then as result.json in everything but seconds. With the same
versions of packages and on a processor of the same kind ({manifest["machine"]}) models are the same to the last bit:

    python -c "import gossamer; print(gossamer.open_run('again').models_sha256)"

    {manifest["models_sha256"]}

| file | what |
| --- | --- |
| experiment.toml | what was run, with every default; files that it names are in files/ |
| requirements.txt | packages and their versions when it was packed |
| manifest.json | digests of data, models and code, and the machine |
| metrics.jsonl, result.json | what came of it, by round and in all |
| report.html | tables and figures |
"""


def _figures(metric: str) -> tuple[str, ...]:
    return f"{metric}_mean", f"{metric}_of_mean_model", "bytes_total"
