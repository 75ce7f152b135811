"""The pages: the list of runs, and the report of some of them, as far as they have got."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from gossamer.runs import report
from gossamer.runs.report.text import safe
from gossamer.runs.run import curves_of, read_run, title_of
from gossamer.runs.watch.listing import Listed, parts


def list_page(root: Path, runs: Sequence[Listed]) -> str:
    """Every run with a link to its report; those that are ticked are shown together."""
    rows = ""
    for run in runs:
        when = datetime.fromtimestamp(run.changed, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        told = [run.state, run.algorithm, run.task, str(run.nodes), str(run.seed), when if run.changed else "–"]
        box = f'<input type="checkbox" name="run" value="{safe(run.name)}" aria-label="{safe(run.name)}">'
        link = f'<a href="/report?{safe(urlencode({"run": run.name}))}">{safe(run.name)}</a>'
        cells = "".join(f"<td>{safe(cell)}</td>" for cell in told)
        row = f'<td>{box}</td><th scope="row">{link}</th>{cells}'
        rows += f'<tr data-run="{safe(" ".join([run.name, *told]))}">{row}</tr>\n'
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("run", "state", "algorithm", "task", "nodes", "seed", "changed")
    )
    table = f"""<form action="/report"><p class="find"><input type="search" id="search" placeholder="Search" \
aria-label="Search runs"> <button>Show ticked runs together</button></p>
<div class="scroll" tabindex="0"><table class="results runs"><thead><tr><td></td>{heads}</tr></thead>
<tbody>
{rows}</tbody></table></div></form>"""
    nothing = (
        f'<p class="note">There are no runs in {safe(root)} yet. gossamer run makes one; then load this page again.</p>'
    )
    body = f"<main>\n<h1>Runs</h1>\n{table if runs else nothing}\n</main>\n"
    return report.document("Runs", body, report.policy("'self'"))


def report_page(runs: Sequence[Listed]) -> str:
    """The report of these runs, which follows them."""
    events = safe(f"/events?{urlencode([('run', run.name) for run in runs])}")
    head = f'<p class="live"><a href="/">All runs</a> <span id="state" role="status">{safe(state(runs))}</span></p>\n'
    body = f'{head}<main data-events="{events}">\n{content(runs)}</main>\n'
    return report.document(", ".join(run.name for run in runs), body, report.policy("'self'"))


def content(runs: Sequence[Listed]) -> str:
    """What the report of these runs has between its ends now."""
    read = [read_run(part, None) for run in runs for part in parts(run.directory) if (part / "metrics.jsonl").exists()]
    begun = [run for run in read if run.metrics]
    if not begun:
        return '<h1>Waiting</h1>\n<p class="lead">No round is complete yet.</p>\n'
    return report.content(title_of(begun), curves_of(begun))


def state(runs: Sequence[Listed]) -> str:
    return "; ".join(f"{run.name}: {run.state}" for run in runs[:4]) + f"; and {len(runs) - 4} more" * (len(runs) > 4)
