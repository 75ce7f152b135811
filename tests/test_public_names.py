"""The public face: what `import gossamer as gs` gives, which changes only together with the changelog."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.experiments.tables import TABLES

ROOT = Path(__file__).parent.parent
LISTED = (Path(__file__).parent / "public_names.txt").read_text().split("\n")


def test_every_public_name_is_there_and_explains_itself() -> None:
    assert dir(gs) == gs.__all__ == sorted(set(gs.__all__))
    for name in gs.__all__:
        assert hasattr(gs, name), f"add {name} to _NAMES in src/gossamer/__init__.py"
        assert getattr(gs, name).__doc__, f"{name} has no docstring"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gs.nothing  # noqa: B018


def test_public_names_change_only_with_the_changelog() -> None:
    """The list has the names of the last release, and of those that came or went since, "+ name" and "- name"."""
    lines = [line for line in LISTED if line and not line.startswith("#")]
    added, removed = ({line[2:] for line in lines if line.startswith(sign)} for sign in ("+ ", "- "))
    released = {line for line in lines if line[1:2] != " "}
    assert set(gs.__all__) == (released | added) - removed, "change tests/public_names.txt and CHANGELOG.md"
    changelog = (ROOT / "CHANGELOG.md").read_text()
    for name in added | removed:
        assert re.search(rf"\bgs\.{name}\b", changelog), f"CHANGELOG.md does not tell of gs.{name}"


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_whatever_an_experiment_file_can_name_is_public(kind: type) -> None:
    for name, named in TABLES[kind].items():
        public = named.__name__
        places = "the imports, _NAMES and __all__"
        assert hasattr(gs, public), f"{name}: add {public} to {places} in src/gossamer/__init__.py"
        assert public in gs.__all__, f"{name}: add {public} to __all__ in src/gossamer/__init__.py"
        assert getattr(gs, public) is named, name


def test_type_checkers_see_the_names_that_there_are() -> None:
    text = (ROOT / "src" / "gossamer" / "__init__.py").read_text()
    block = next(node for node in ast.parse(text).body if isinstance(node, ast.If))
    imports = [node for node in ast.walk(block) if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name for node in imports for alias in node.names}
    assert seen == {*gs.__all__} - {"__version__"}, "imports and __all__ of src/gossamer/__init__.py differ"
    assert (ROOT / "src" / "gossamer" / "py.typed").exists()


def test_to_import_gossamer_is_quick() -> None:
    program = "import sys, gossamer; dir(gossamer), gossamer.__version__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "torch" not in loaded
    assert "numpy" not in loaded
    assert [name for name in loaded if name.startswith("gossamer")] == ["gossamer"]


def snippets() -> dict[str, str]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    python = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    found = {page.name: "\n".join(python.findall(page.read_text())) for page in pages}
    return found | {program.name: program.read_text() for program in sorted((ROOT / "examples").glob("*.py"))}


@pytest.mark.parametrize("name", [name for name, text in snippets().items() if text])
def test_examples_use_public_names_only(name: str) -> None:
    text = snippets()[name]
    assert not re.search(r"\bfrom gossamer\b|\bimport gossamer\.|\bgossamer\.\w", text)
    for used in re.findall(r"\bgs\.(\w+)", text):
        assert used in gs.__all__, used
