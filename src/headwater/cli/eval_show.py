"""`headwater eval`: list cohorts and their runs, and show what a run found."""

from pathlib import Path

from headwater.cli.commands import CommandCall
from headwater.cli.output import second_text
from headwater.contexts.evaluation.results import RunFolder, cohorts_in, find_run, runs_of


def list_(call: CommandCall) -> None:
    """List cohorts and the runs of each, the last run first."""
    folder = folder_of(call)
    runs: list[tuple[str, RunFolder | None]] = []
    for name in cohorts_in(folder):
        runs += [(name, run) for run in runs_of(folder, name)] or [(name, None)]
    data = [
        {"cohort": name, "run": run and run.run, "report": run and run.report} for name, run in runs
    ]
    columns = ("cohort", "run", "started", "contexts", "changed", "failed", "gates")
    call.show_table(
        data,
        columns,
        [(name, *_row(run)) for name, run in runs],
        empty=f"No cohorts in {folder}; `headwater eval freeze` makes one.",
    )


def _row(folder: RunFolder | None) -> tuple[object, ...]:
    if folder is None:
        return (None,) * 6
    run, report = folder.run, folder.report
    started = (run.run_id, second_text(run.started_at), run.count)
    if report is None:
        return (*started, None, None, "not finished")
    broken = [gate.gate for gate in report.gates if not gate.passed]
    gates = ", ".join(broken) + " broken" if broken else "hold" if report.gates else None
    return (*started, report.summary.changed, report.summary.failed, gates)


def show(
    call: CommandCall, name: str, context: str | None = None, *, run: str | None = None
) -> None:
    """Show what a run found, or how one context of it differs.

    Args:
        name: Name of the cohort.
        context: Id of one context, or its first characters.
        run ID: Run, or the first characters of its id. Default: the last one.
    """
    found = find_run(folder_of(call), name, run)
    call.show(found.report or found.run, str(found.report or found.run))


def folder_of(call: CommandCall) -> Path:
    """Return the folder of cohorts and runs."""
    return Path(call.local.settings.eval.folder)
