"""The settings: what all runs share, and what differs."""

from collections.abc import Iterator
from typing import Any

from gossamer.runs.report.curve import Groups
from gossamer.runs.report.text import distinct, safe, setting, words


def flat(section: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from flat(value, (*prefix, str(key)))
        else:
            yield (*prefix, str(key)), setting(value)


def settings(groups: Groups) -> str:
    """What all runs share, by section; then what differs, one column per label."""
    runs = {label: [dict(flat(curve.experiment)) for curve in curves] for label, curves in groups.items()}
    every = [run for of in runs.values() for run in of]
    keys = list(dict.fromkeys(key for run in every for key in run))
    differing = [key for key in keys if len({run.get(key) for run in every}) > 1]
    sections: dict[str, str] = {}
    for key in keys:
        if key not in differing:
            section = key[0] if len(key) > 1 else "experiment"
            row = f'<tr><th scope="row">{words(key[1:] or key)}</th><td>{safe(every[0][key])}</td></tr>\n'
            sections[section] = sections.get(section, "") + row
    shared = "".join(f"<table><caption>{words([name])}</caption>\n{of}</table>\n" for name, of in sections.items())
    page = f'<div class="settings">\n{shared}</div>'
    if differing:
        head = "".join(f'<th scope="col">{safe(label)}</th>' for label in runs)
        body = ""
        for key in differing:
            cells = "".join(f"<td>{safe(distinct(run.get(key) for run in of))}</td>" for of in runs.values())
            body += f'<tr><th scope="row">{words(key)}</th>{cells}</tr>\n'
        page = f"""<p class="note">What differs between the runs:</p>
<div class="scroll" tabindex="0"><table class="results differences">
<thead><tr><th></th>{head}</tr></thead>
<tbody>
{body}</tbody></table></div>
<p class="note">What they share:</p>
{page}"""
    return page
