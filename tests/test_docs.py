"""What the documents say is what the program does."""

import re
import runpy
import shlex
import sys
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
from gossamer.cli.options import document
from gossamer.experiments import grid, sweep_file, tables, toml
from gossamer.experiments.experiment import Experiment
from gossamer.peers.identity import group

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OLD_NAMES = {"CHANGELOG.md"}  # pages that name what is no more
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [text for kind, text in found if kind == language]


def commands() -> list[list[str]]:
    """Every `gossamer ...` line in the documents, as words."""
    lines = [line for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    return [arguments(line) for line in lines if re.match(r"\S*gossamer ", line)]


def arguments(line: str) -> list[str]:
    """The words behind `gossamer` in a line for a shell."""
    words = shlex.split(line.partition("gossamer ")[2], comments=True)
    return words[: words.index(">")] if ">" in words else words


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_in_the_documents_is_one_that_the_program_takes(words: list[str]) -> None:
    name, *rest = words
    command = cli.commands[name]
    command.make_context(name, rest)  # parses, and runs nothing


def subcommands(group: click.Group, prefix: str = "gossamer") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from subcommands(command, f"{prefix} {name}")


def options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def test_every_command_and_option_stands_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text()
    for name, command in subcommands(cli):
        assert name in guide
        assert command.help, name
        for option in options(command):
            assert option.help, f"{name} {option.name}"
            assert option.opts[0] in guide, f"{name} {option.opts[0]}"


def test_every_event_of_a_peers_log_stands_in_the_deployment_page_and_no_other() -> None:
    code = "".join(path.read_text() for path in sorted((ROOT / "src" / "gossamer" / "peers").rglob("*.py")))
    called = re.findall(r'(?:log|rate_limited)\(\s*"([a-z ]+)"(?: if \w+ else "([a-z ]+)")?', code)
    events = {event for pair in called for event in pair if event}
    assert {"begins", "waiting", "left", "neighbour found"} <= events, "the pattern finds them"
    watching = (ROOT / "docs" / "deploy.md").read_text().partition("## Watching")[2].partition("In a program")[0]
    rows = [line for line in watching.splitlines() if line.startswith("| ")]
    told = set(re.findall(r"`([a-z ]+)`", re.sub(r"\([^)]*\)", "", "".join(rows)))) | {"printed"}
    assert "`printed`" in watching
    assert told == events


def leaves() -> list[tuple[str, click.Command]]:
    return [(name, command) for name, command in subcommands(cli) if not isinstance(command, click.Group)]


@pytest.mark.parametrize(("name", "command"), leaves(), ids=[name for name, _ in leaves()])
def test_every_command_has_examples_that_it_takes(name: str, command: click.Command) -> None:
    lines = (command.epilog or "").partition("Examples:\n")[2].splitlines()
    examples = [arguments(line) for line in lines]
    assert examples, f"{name}: give examples as its epilog"
    assert examples[0][: len(name.split()) - 1] == name.split()[1:]
    for words in examples:
        cli.commands[words[0]].make_context(words[0], words[1:])


def test_the_reference_of_commands_says_what_help_says() -> None:
    site = runpy.run_path(str(ROOT / "docs" / "site.py"))
    page = site["on_page_markdown"]((ROOT / "docs" / "commands.md").read_text())
    for name, command in leaves():
        (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert (command.help or "?").splitlines()[0] in section
        for option in options(command):
            assert option.opts[0] in section
            assert str(option.help) in section.replace("&lt;", "<")
        assert (command.epilog or "?").splitlines()[-1].strip() in section


def inline(page: Path) -> list[str]:
    """What stands in the text of a page as code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def test_options_that_the_pages_for_users_name_exist() -> None:
    known = {"--help"} | {
        name for _, command in subcommands(cli) for option in options(command) for name in option.opts
    }
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for code in inline(page):
            if code.startswith(("pip ", "tensorboard ", "torchrun ")):
                continue
            for option in re.findall(r"(?:^| )(--[a-z-]+)", code):
                assert option in known, f"{page.name}: {code}"


def test_the_toml_in_the_documents_is_read(tmp_path: Path) -> None:
    for page in PAGES:
        for block in blocks(page, "toml"):
            if "[peers." in block:
                (tmp_path / "peers.toml").write_text(block)
                assert group.load(tmp_path / "peers.toml", nodes=3)
            elif "project" in (found := tomllib.loads(block)):  # a package's, with entry points for ours
                for name in found["project"]["entry-points"]:
                    assert f'with_plugins("{name.removeprefix("gossamer.")}"' in Path(tables.__file__).read_text()
            elif sweep_file.is_sweep_file(tomllib.loads(block)):
                (tmp_path / "sweep.toml").write_text(block)
                assert (
                    len(grid.experiments(document("jwins-digits"), sweep_file.load(tmp_path / "sweep.toml").grids)) > 1
                )
            else:
                assert toml.read(tomllib.loads(block)) != Experiment()


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_the_python_in_the_documents_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks(page, "python")))
    runpy.run_path(str(program))


def test_the_python_example_of_the_readme_is_short() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    assert len(example.splitlines()) < 20
    hugging_face = blocks(ROOT / "docs" / "pytorch.md", "python")[0]
    assert "BertForSequenceClassification" in hugging_face
    assert len(hugging_face.splitlines()) <= len(example.splitlines()) + 3


SHORTER = {"lora_shakespeare.py": ["--pretraining", "2", "--rounds", "2"]}  # for examples that take minutes
ELSEWHERE = {"own_model_on_peers.py"}  # tests/peers/test_own_model.py runs it, as two sites would
PROGRAMS = [
    pytest.param(path, marks=[pytest.mark.slow] if path.name in SHORTER else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
    if path.name not in ELSEWHERE
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")  # of peft
def test_every_example_runs(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shakespeare" / "by_play_and_character"
    folder.mkdir(parents=True)
    for role in range(10):
        folder.joinpath(f"HAMLET_{role}.txt").write_text(f"Words, words, words, says number {role}. " * 40)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(program), *SHORTER.get(program.name, [])])
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


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OLD_NAMES], ids=named)
def test_files_and_python_names_in_the_documents_exist(page: Path) -> None:
    package = ROOT / "src" / "gossamer"
    places = [ROOT, ROOT / "tests", package, *(path for path in package.iterdir() if path.is_dir())]
    for code in inline(page):
        if re.fullmatch(r"src/[\w/]+|[\w/]+\.py", code):
            assert any((place / code).exists() for place in places), code
        if found := re.match(r"(gossamer(\.\w+)+)(\(|$)", code):
            assert looked_up(found[1]) is not None
