"""`headwater eval`: list cohorts and their runs, and show what a run found."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from headwater.cli.commands import AnyStore, CommandCall
from headwater.cli.context_output import dollars, print_diff
from headwater.cli.evaluation_page import html_page
from headwater.cli.evaluation_reports import (
    CHANGED_COLUMNS,
    ReportFindings,
    base_text,
    causes_text,
    changed_rows,
    choose,
    junit,
    kinds_text,
    markdown,
    overview,
    sections,
    verdict,
)
from headwater.cli.output import (
    EMPTY,
    STANDARD_STREAM,
    note,
    print_facts,
    print_json,
    print_table,
    second_text,
    write,
)
from headwater.contexts.evaluation.gates import baseline_text
from headwater.contexts.evaluation.results import RunFolder, cohorts_in, find_run, runs_of
from headwater.errors import InvalidInputError, NotFoundError
from headwater.model.evaluations import (
    ChangeKind,
    ComparedContext,
    EvaluatedContext,
    EvaluationReport,
    EvaluationRun,
    Status,
)

_SHOWN = 10
_LISTED = 3


def list_(call: CommandCall) -> None:
    """List cohorts and the runs of each, the last run first."""
    folder = folder_of(call)
    runs: list[tuple[str, RunFolder | None]] = []
    for name in cohorts_in(folder):
        runs += [(name, run) for run in runs_of(folder, name)] or [(name, None)]
    data = [
        {"cohort": name, "run": run and run.run, "report": run and run.report} for name, run in runs
    ]
    columns = ("cohort", "run", "started", "contexts", "changed", "failed", "gates", "changes")
    call.show_table(
        data,
        columns,
        [(name, *_row(run)) for name, run in runs],
        empty=f"No cohorts in {folder}; `headwater eval freeze` makes one.",
    )


def _row(folder: RunFolder | None) -> tuple[object, ...]:
    if folder is None:
        return (None,) * 7
    run, report = folder.run, folder.report
    started = (run.run_id, second_text(run.started_at), run.count)
    if report is None:
        return (*started, None, None, "not finished", _changes(run, {}))
    broken = [gate.gate for gate in report.gates if not gate.passed]
    gates = ", ".join(broken) + " broken" if broken else "hold" if report.gates else None
    summary = report.summary
    return (*started, summary.changed, summary.failed, gates, _changes(run, summary.causes))


def _changes(run: EvaluationRun, causes: Mapping[str, int]) -> str:
    """Return what a run evaluated: the changed declarations, by the number of their effects."""
    labels = [change.label for change in run.changes]
    labels.sort(key=lambda label: -causes.get(label, 0))
    words = [f"{label} ({causes[label]:,})" if label in causes else label for label in labels]
    return ", ".join(words[:_LISTED]) + (", …" if len(words) > _LISTED else "")


def show(
    call: CommandCall,
    name: str,
    context: str | None = None,
    *,
    run: str | None = None,
    kind: ChangeKind | None = None,
    status: Status | None = None,
    html: Path | None = None,
    markdown: Path | None = None,
    junit: Path | None = None,
    write_baseline: Path | None = None,
) -> None:
    """Show what a run found, how one context of it differs, or the contexts that differ in a way.

    Args:
        name: Name of the cohort.
        context: Id of one context, or its first characters.
        run ID: Run, or the first characters of its id. Default: the last one.
        kind: List the contexts that differ in this way.
        status: List the contexts of this status.
        html FILE: Write a page that needs no other file.
        markdown FILE: Write a comment for a pull request.
        junit FILE: Write test cases for a CI system.
        write_baseline FILE: Write a baseline that accepts all changes of the run.
    """
    folder = find_run(folder_of(call), name, run)
    if context is not None:
        _show_context(call, folder, context)
        return
    if kind is not None or status is not None:
        _show_contexts(call, folder, kind, status)
        return
    report = folder.report
    if report is None:
        raise InvalidInputError(
            f"run {folder.run.run_id} of {name!r} is not finished; `headwater eval run {name}` "
            "continues it"
        )
    print_report(call, folder, report)
    files = ReportFiles(html, markdown, junit, write_baseline)
    write_reports(call, folder, report, files)


def _show_context(call: CommandCall, folder: RunFolder, beginning: str) -> None:
    found = [one for one in folder.contexts() if one.context_id.startswith(beginning)]
    if len(found) > 1:
        raise NotFoundError(
            f"{len(found):,} contexts begin with {beginning!r}; give more characters"
        )
    if not found:
        raise NotFoundError(
            f"run {folder.run.run_id} has no context {beginning!r}; `headwater eval show "
            f"{folder.run.cohort}` lists some"
        )
    (compared,) = _compared(call, folder, found)
    shown = compared.context

    def print_context() -> None:
        sides = {
            "freshness": (shown.freshness_before, shown.freshness_after),
            "price": (dollars(shown.cost_before), dollars(shown.cost_after)),
        }
        print_facts(
            {
                "context": shown.context_id,
                "result": kinds_text(shown) or shown.status,
                "cause": causes_text(shown),
                "compared with": "the record" if shown.compared_with == "record" else "former code",
                "fidelity": "; ".join((shown.fidelity, *shown.reasons)),
                **{
                    name: " → ".join(side or EMPTY for side in both)
                    for name, both in sides.items()
                    if any(both)
                },
            }
        )
        if compared.diff is not None:
            print_diff(compared.diff)

    call.show(compared, print_context, compared.withheld)


def _show_contexts(
    call: CommandCall, folder: RunFolder, kind: ChangeKind | None, status: Status | None
) -> None:
    found = [
        one
        for one in folder.contexts()
        if kind in (None, *one.kinds) and status in (None, one.status)
    ]
    words = " ".join(filter(None, (status, kind)))
    empty = f"Run {folder.run.run_id} has no contexts that are {words}."
    call.show_table(found, CHANGED_COLUMNS, changed_rows(found), empty=empty)


def print_report(call: CommandCall, folder: RunFolder, report: EvaluationReport) -> None:
    """Print a report: the verdict, its tables and the first contexts that differ."""
    if call.as_json:
        print_json(report)
        return
    run = report.run
    typer.echo(f"{run.cohort}, run {run.run_id}: {run.file} against {base_text(report)}")
    typer.echo(overview(report))
    for title, columns, rows in sections(report):
        typer.echo(f"\n{title}")
        print_table(columns, rows)
    differing = choose(folder.contexts(), _SHOWN)
    if differing:
        typer.echo("\nContexts that differ, some of each kind")
        print_table(CHANGED_COLUMNS, changed_rows(differing))
    for gate in report.gates:
        if gate.contexts:
            typer.echo("\n  ".join((f"\n{gate.gate} is broken by, first of all:", *gate.contexts)))
    typer.echo(f"\n{verdict(report)}")
    if differing:
        note(
            f"`headwater eval show {run.cohort} --kind KIND` lists the contexts of a kind, and "
            f"`headwater eval show {run.cohort} CONTEXT` compares both sides of one."
        )


class ReportFiles(NamedTuple):
    """The files of a report that are requested."""

    html: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    baseline: Path | None = None


def write_reports(
    call: CommandCall, folder: RunFolder, report: EvaluationReport, files: ReportFiles
) -> None:
    """Write the files that are requested; earlier ones are replaced."""
    has_texts = files.html is not None or files.markdown is not None
    examples = _compared(call, folder, choose(folder.contexts())) if has_texts else []
    found = ReportFindings(report, examples)
    makers: Sequence[Callable[[], str]] = (
        partial(html_page, found),
        partial(markdown, found),
        partial(junit, report, folder.contexts()),
        partial(baseline_text, folder.contexts()),
    )
    for file, make in zip(files, makers, strict=True):
        if file is not None:
            write(make().encode(errors="replace"), file, force=True)
            if file != STANDARD_STREAM:
                note(f"Wrote {file}.")


def _compared(
    call: CommandCall, folder: RunFolder, contexts: Sequence[EvaluatedContext]
) -> list[ComparedContext]:
    """Return both sides of contexts, except contexts that were redacted since."""
    run = folder.run

    async def read(store: AnyStore) -> list[ComparedContext]:
        return [
            await store.evaluations.context(run.cohort, run.run_id, one.context_id)
            for one in contexts
        ]

    return call.run(read) if contexts else []


def folder_of(call: CommandCall) -> Path:
    """Return the folder of cohorts and runs."""
    return Path(call.local.settings.eval.folder)
