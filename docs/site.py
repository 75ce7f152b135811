"""How the site (mkdocs.yml) reads this repository: pages that stand at its top, and text beside the code.

A paragraph that is only a link to a page at the top, such as `[README](../README.md)`, becomes that page, so that it is
written once. The reference of the commands is made from what `--help` prints.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe

from gossamer.cli.main import cli

ROOT = Path(__file__).parent.parent
SITE = {  # pages at the top of the repository, and where they stand in the site
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"\[([^]]*)\]\(([^)]+)\)")
COMMANDS = "<!-- all commands -->"
INCLUDE = re.compile(r"^\[[^]]*\]\(\.\./(\w+\.md)\)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this with the text of every page."""
    markdown = markdown.replace(COMMANDS, commands()) if COMMANDS in markdown else markdown
    return INCLUDE.sub(lambda found: _from_top((ROOT / found[1]).read_text()), markdown)


def commands() -> str:
    """What `--help` says of every command, as a section of a page."""
    return "\n\n".join(_command(context) for context in _contexts(click.Context(cli, info_name="gossamer")))


def _contexts(above: click.Context) -> Iterator[click.Context]:
    assert isinstance(above.command, click.Group)
    for name, command in sorted(above.command.commands.items()):
        context = click.Context(command, above, name)
        if isinstance(command, click.Group):
            yield from _contexts(context)
        else:
            yield context


def _command(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    records = filter(None, (option.get_help_record(context) for option in options))
    examples = re.sub(r"^  ", "", (command.epilog or "").partition("Examples:\n")[2], flags=re.MULTILINE)
    sections = [
        f"## {context.command_path}",
        f"```\n{usage}\n```",
        inspect.cleandoc(command.help or ""),
        "\n".join(f"- `{names}`: {meaning.replace('<', '&lt;')}" for names, meaning in records),
        f"```\n{examples}\n```",
    ]
    return "\n\n".join(sections)


def _from_top(text: str) -> str:
    """The text of a page at the top, with its links as they must be inside docs/."""

    def link(found: re.Match[str]) -> str:
        text, (path, *anchor) = found[1], found[2].split("#", 1)
        if path.startswith("http") or not path:
            return found[0]
        if path.startswith("docs/") or path in SITE:
            return f"[{text}]({'#'.join([SITE.get(path, path.removeprefix('docs/')), *anchor])})"
        return text  # what is no page, such as a folder of programs

    return LINK.sub(link, text)


class FromSource(griffe.Extension):  # type: ignore[misc]
    """What the reference would miss: comments that explain fields, and the paper that a file of an algorithm cites."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        fields = []
        for name, field in cls.members.items():
            comment = _comment(field) if isinstance(field, griffe.Attribute) else None
            if comment:
                fields.append(f"- `{name}`: {comment}")
                field.public = False  # one line in the list is enough
        _add(cls, "\n".join(fields))

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        if mod.path.startswith("gossamer.algorithms.") and mod.docstring:
            for cls in mod.classes.values():
                if "Algorithm" in map(str, cls.bases):
                    _add(cls, mod.docstring.value)


def _comment(field: griffe.Attribute) -> str | None:
    found = re.search(r"  # (?!noqa|type:)(.*)$", field.lines[-1] if field.lines else "")
    return found and found[1]


def _add(cls: griffe.Class, text: str) -> None:
    before = cls.docstring.value if cls.docstring else ""
    if before or text:
        cls.docstring = griffe.Docstring(f"{before}\n\n{text}".strip(), parent=cls)
