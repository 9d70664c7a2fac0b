"""`headwater eval run`: assemble the contexts of a cohort again with the present code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from headwater.backends.runners.processes import ProcessRunner
from headwater.cli.commands import CommandCall, features_file
from headwater.cli.commands import run as run_store
from headwater.cli.eval_answers import answer_options
from headwater.cli.eval_show import ReportFiles, folder_of, print_report, write_reports
from headwater.cli.output import ProgressLines, bar, note, span_text
from headwater.contexts.evaluation.results import find_run
from headwater.errors import InvalidInputError
from headwater.model.evaluations import EvaluationProgress, OnEvaluated
from headwater.store.evaluation_run import RunOptions


def run(
    call: CommandCall,
    name: str,
    *,
    base: Path | None = None,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    model: str | None = None,
    index: list[str] | None = None,
    processes: Annotated[int | None, typer.Option(min=1)] = None,
    again: bool = False,
    baseline: Path | None = None,
    write_baseline: Path | None = None,
    html: Path | None = None,
    markdown: Path | None = None,
    junit: Path | None = None,
    answer: str | None = None,
    score: str | None = None,
    recorded_answers: bool = False,
    concurrency: Annotated[int, typer.Option(min=1)] = 4,
) -> None:
    """Assemble the contexts of a cohort again with the present code, on what was known then.

    Nothing is written to the store, and no model is called, unless your own function does. A run
    that was interrupted continues, and the same code on the same cohort is not run twice.

    Args:
        name: Name of the cohort.
        base FILE: Features file of the former code. Default: the code that the cohort keeps.
        max_tokens: Budget of the contexts, in place of the declared one.
        model: Model of the contexts, in place of the declared one.
        index NAME@GENERATION: Generation of an index to search, in place of the recorded version.
        processes: Local processes that evaluate, in place of those of the setting runner.
        again: Run again what is done.
        baseline FILE: Changes that gates accept, as --write-baseline wrote them.
        write_baseline FILE: Write a baseline that accepts all changes of this run.
        html FILE: Write a page that needs no other file.
        markdown FILE: Write a comment for a pull request.
        junit FILE: Write test cases for a CI system.
        answer MODULE:FUNCTION: Function that answers a context; called for both sides of each
            context whose text changed.
        score MODULE:FUNCTION: Function of a context and its answer that returns a number, true or
            false, or a mapping of names to them; the scores of both sides are compared.
        recorded_answers: Use the recorded answer to the recorded context, where there is one.
        concurrency: Contexts that are answered at a time.
    """
    options = RunOptions(
        max_tokens=max_tokens, model=model, indexes=dict(map(_generation, index or ()))
    )
    answers = answer_options(
        answer, score, concurrency=concurrency, recorded_answers=recorded_answers
    )
    runner = ProcessRunner(processes) if processes else None
    file = str(features_file(call.file))
    store = call.local
    with _shown_progress() as progress:
        report = run_store(
            store,
            lambda store: store.evaluations.run(
                name,
                file=file,
                base="" if base is None else str(base),
                options=options,
                runner=runner,
                again=again,
                baseline=baseline,
                answers=answers,
                progress=progress,
            ),
        )
    folder = find_run(folder_of(call), name, report.run.run_id)
    print_report(call, folder, report)
    write_reports(call, folder, report, ReportFiles(html, markdown, junit, write_baseline))
    if not all(gate.passed for gate in report.gates):
        raise typer.Exit(1)


def _generation(text: str) -> tuple[str, str]:
    name, _, generation = text.partition("@")
    if not name or not generation:
        raise InvalidInputError(
            f"--index {text!r} does not name an index and a generation of it, as in --index help@3"
        )
    return name, generation


_TITLES = {"evaluate": "Evaluating", "answer": "Answering"}
"""What a run does, by the label of its progress."""


@contextmanager
def _shown_progress() -> Iterator[OnEvaluated]:
    """Show how far a run is: a bar on a terminal, lines elsewhere."""
    lines = ProgressLines()
    title, left_text = TextColumn("{task.fields[title]}"), TextColumn("{task.fields[left]}")
    columns = (title, BarColumn(), MofNCompleteColumn(), left_text)
    with bar(*columns, left="", title=_TITLES["evaluate"]) as update:

        def show(progress: EvaluationProgress) -> None:
            seconds = progress.seconds_left
            left = f"{span_text(round(1000 * seconds))} left" if seconds else ""
            title = _TITLES[progress.label]
            if update:
                update(completed=progress.done, total=progress.total, left=left, title=title)
            elif lines.is_due(progress.label):
                note(f"{title}: {progress.done:,} of {progress.total:,}{left and ', ' + left}")

        yield show
