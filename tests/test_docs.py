"""What the documents say is what the program does."""

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from markdown.extensions.toc import slugify, unique

import gossamer
from gossamer.cli.main import cli
from gossamer.experiments.recipes import RECIPES

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def commands() -> list[list[str]]:
    """Every `gossamer ...` line in the documents, as words."""
    lines = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if re.match(r"\S*gossamer ", line)]


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


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """What a link into a page can point to: its headings, and the Python names that it documents."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    seen: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        unique(slugify(re.sub(r"[`*]", "", heading), "-"), seen)
    return seen | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            target = (page.parent / path) if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_picture_of_the_layers_is_what_the_linter_checks() -> None:
    (picture,) = re.findall(r"## The layers.*?^```\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.M | re.S)
    packages = {path.stem for path in (ROOT / "src" / "gossamer").iterdir()}
    drawn = [packages & set(re.split(r"  +", line)) for line in picture.splitlines()]
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    assert drawn == [{name.removeprefix("gossamer.") for name in layer.split(" | ")} for layer in contract["layers"]]


def nav(entry: Any) -> Iterator[str]:
    """The pages that the site's menu leads to."""
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from nav(below)


def test_the_menu_of_the_site_leads_to_every_page_once() -> None:
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(nav(SITE["nav"])) == sorted(pages)


def test_every_public_name_stands_in_the_python_reference() -> None:
    text = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    documented = [looked_up(name) for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    inside = [value for module in documented for value in vars(module).values()]
    for name in sorted({*gossamer.__all__} - {"__version__"}):
        value = getattr(gossamer, name)
        assert any(value is other for other in [*documented, *inside]), name


def looked_up(path: str) -> Any:
    """What a name such as gossamer.core.Part stands for; AttributeError if there is none."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(looked_up(module), name)


def test_files_and_recipes_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`(src/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name
    assert "jwins-digits" in RECIPES
