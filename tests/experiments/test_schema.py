"""The JSON Schema of experiment files says what the reader of experiment files says."""

import tomllib
from dataclasses import fields
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gossamer.cli.experiments import COMMENTED
from gossamer.experiments import toml
from gossamer.experiments.experiment import Experiment, ExperimentError
from gossamer.experiments.recipes import RECIPES
from gossamer.experiments.schema import schema
from gossamer.experiments.tables import TABLES

SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_valid(name: str) -> None:
    VALIDATOR.validate(tomllib.loads(toml.dumps(RECIPES[name]())))


def test_files_with_defaults_or_comments_are_valid() -> None:
    for document in ({}, toml.write(Experiment()), toml.load(COMMENTED)):
        VALIDATOR.validate(document)


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_the_schema_knows_every_name_and_its_fields(kind: type) -> None:
    sections = [one["properties"] for one in SCHEMA["$defs"][kind.__name__]["anyOf"] if "properties" in one]
    assert [section["name"]["const"] for section in sections] == list(TABLES[kind])
    for section, named in zip(sections, TABLES[kind].values(), strict=True):
        assert section.keys() - {"name"} == {f.name for f in fields(named)}


DOCUMENTS: list[dict[str, Any]] = [
    {"nodes": "many"},
    {"nodes": 4.5},
    {"node": 4},
    {"topology": "ring"},
    {"topology": "rong"},
    {"topology": {"name": "ring", "degree": 4}},
    {"topology": {"degree": 4}},
    {"topology": {"name": "cycle", "graphs": ["ring", {"name": "random-regular", "degree": 4}]}},
    {"topology": {"name": "cycle", "graphs": ["ring", "rong"]}},
    {"topology": {"name": "matchings", "graph": "torus"}},
    {"algorithm": {"name": "choco", "compressor": {"name": "top-k", "fraction": 0.1}}},
    {"algorithm": {"name": "choco", "compressor": {"name": "top-k"}}},
    {"algorithm": {"name": "choco", "compressor": "top-k"}},
    {"algorithm": {"name": "jwins", "budget": 0.2}},
    {"algorithm": {"name": "jwins", "budget": 1}},
    {"algorithm": {"name": "jwins", "budget": "small"}},
    {"wire": "encode"},
    {"wire": "decode"},
    {"wire": {"mode": "encode", "compare": ["six-bytes"]}},
    {"wire": {"compare": ["seven-bytes"]}},
    {"evaluation": {"nodes": "all", "samples": 10}},
    {"evaluation": {"nodes": "some"}},
    {"faults": {"down": [[1, 2, 3]]}},
    {"faults": {"down": [[1, 2]]}},
    {"optimizer": {"schedule": {"name": "steps", "at": [10, 20]}}},
    {"optimizer": {"schedule": {"name": "steps", "at": ["ten"]}}},
    {"fast": 1},
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_schema_and_reader_agree_on_what_is_a_mistake(document: dict[str, Any]) -> None:
    try:
        toml.read(document)
    except ExperimentError:
        assert not VALIDATOR.is_valid(document)
    else:
        VALIDATOR.validate(document)


def test_keys_are_explained_by_the_comments_of_the_source() -> None:
    assert SCHEMA["properties"]["local_steps"]["description"] == "steps of a node's optimizer per round, tau"
    assert SCHEMA["properties"]["local_steps"]["default"] == 3
    cuts = next(one for one in SCHEMA["$defs"]["Partition"]["anyOf"][1:] if "label-cuts" in str(one))
    assert cuts["properties"]["per_node"]["description"] == "shards per node"  # which it inherits
