"""What the documents say is what the program does."""

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest

from gossamer.cli.main import cli
from gossamer.experiments.recipes import RECIPES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def commands() -> list[list[str]]:
    """Every `gossamer ...` line in the documents, as words."""
    lines = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [w[1:] for w in words if w and w[0].endswith("gossamer")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_in_the_documents_is_one_that_the_program_takes(words: list[str]) -> None:
    name, *arguments = words
    command = cli.commands[name]
    command.make_context(name, arguments)  # parses, and runs nothing


def test_every_command_and_option_stands_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    for name, command in cli.commands.items():
        assert f"gossamer {name}" in guide
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.name}"
                assert parameter.opts[0] in guide, f"{name} {parameter.opts[0]}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_in_the_documents_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks(page, "python")))
    runpy.run_path(str(program))


def test_the_python_example_of_the_readme_is_short() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    assert len(example.splitlines()) < 20


@pytest.mark.parametrize("program", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(program), run_name="__main__")
    assert "%" in capsys.readouterr().out


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=lambda page: page.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_files_and_recipes_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`(src/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name
    assert "jwins-digits" in RECIPES
