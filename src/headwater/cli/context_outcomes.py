"""`headwater context`: add, list and redact the outcomes of contexts."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.arguments import check_utf8
from headwater.cli.commands import AnyStore, Before, CommandCall, Ref, Since, Yes
from headwater.cli.context_output import OUTCOME_COLUMNS, outcome_row
from headwater.cli.output import STANDARD_STREAM, check_terminal, note, write
from headwater.core.json_values import plain
from headwater.errors import InvalidInputError
from headwater.model.contexts import LARGEST_PAGE
from headwater.model.outcomes import ImportFormat, Judge

Limit = Annotated[int, typer.Option(min=1, max=LARGEST_PAGE, help="Maximum number.")]
_SCORES: dict[str, Any] = {"value": float, "label": str, "flag": bool, "text": str}


def outcome(
    call: CommandCall,
    ref: Ref,
    *,
    answer: str | None = None,
    score: str | None = None,
    label: str | None = None,
    flag: str | None = None,
    text: str | None = None,
    correction: str | None = None,
    error: str | None = None,
    model: str | None = None,
    explanation: str | None = None,
    judge: Judge | None = None,
    actor: str | None = None,
) -> None:
    """Add an outcome to a context: an answer, a score, a correction or an error.

    Outcomes are never changed; add another one to say more.

    Args:
        answer TEXT: What the model answered.
        score NAME=NUMBER: Score as a number, such as helpful=4.
        label NAME=LABEL: Score as a category, such as tone=friendly.
        flag NAME=BOOLEAN: Score as true or false, such as safe=true.
        text NAME=TEXT: Score as text, such as note=too_long.
        correction TEXT: What the model should have answered.
        error TYPE: Type of the error of a failed call, such as RateLimitError.
        model: Model that answered, for an answer, a correction or an error.
        explanation: Reason for a score.
        judge: Who judged.
        actor: Person or program that it comes from. Default: the key, if there is one.
    """
    given = [answer, score, label, flag, text, correction, error]
    check_utf8([value for value in given if value is not None], "nothing was stored")
    said: dict[str, Any] = dict(
        answer=answer,
        correction=correction,
        error=error,
        model=model,
        explanation=explanation,
        judge=judge,
        actor=actor,
    )
    said |= _score(value=score, label=label, flag=flag, text=text)
    added = call.run(lambda store: store.records.add_outcome(ref, **said))
    call.show(plain(added), f"Added {added.kind} {added.outcome_id} to {added.context_id}.")


def outcomes(call: CommandCall, ref: Ref, *, limit: Limit = 100) -> None:
    """List the outcomes of a context, the oldest first: answers, scores, corrections, errors."""
    listed = call.run(lambda store: store.records.outcomes(ref, limit=limit))
    rows = [*map(outcome_row, listed)]
    call.show_table(plain(listed), OUTCOME_COLUMNS, rows, empty="No outcomes.")


def redact_outcome(
    call: CommandCall,
    outcome_id: str,
    pointers: list[str],
    *,
    reason: str,
    by: str | None = None,
    yes: Yes = False,
) -> None:
    """Redact values of an outcome permanently. Its hash and signature stay valid.

    Args:
        outcome_id: Id of the outcome.
        pointers POINTER...: JSON pointers of one or more values, such as /response/messages/0.
        reason: Reason; it stays in the outcome.
        by: Who decided this; it stays in the outcome.
    """
    if not yes:
        check_terminal("redact-outcome")
        typer.confirm(f"Permanently redact {', '.join(pointers)} of {outcome_id}?", abort=True)
    redacted = call.run(
        lambda store: store.records.redact_outcome(outcome_id, *pointers, reason=reason, by=by)
    )
    call.show(plain(redacted), f"Redacted {', '.join(pointers)} of {redacted.outcome_id}.")


def export_outcomes(
    call: CommandCall,
    refs: Annotated[list[str] | None, typer.Argument(metavar="[REF]...")] = None,
    *,
    name: str | None = None,
    since: Since = None,
    before: Before = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    force: bool = False,
) -> None:
    """Export the outcomes of contexts as lines of OTLP in JSON, for other systems.

    An answer is a span, and a score an event, by OpenTelemetry's conventions for generative AI.

    Args:
        refs [REF]...: Contexts: ids, hashes or unique prefixes. Default: all contexts that match.
        name: Only contexts with this name.
        output: Write to this file instead of stdout.
        force: Replace an existing file; without it, an existing file is an error.
    """
    start, end = call.span(since, before)

    async def exported(store: AnyStore) -> str:
        if refs:
            return await store.records.export_outcomes(*refs)
        lines, cursor = [], None
        while True:
            page = await store.list_contexts(start, end, LARGEST_PAGE, name=name, cursor=cursor)
            if page.contexts:
                ids = [each.context_id for each in page.contexts]
                lines.append(await store.records.export_outcomes(*ids))
            cursor = page.next_cursor
            if cursor is None:
                return "".join(lines)

    if refs and (name or since or before):
        raise typer.BadParameter("contexts cannot be combined with --name, --since or --before")
    text = call.run(exported)
    write(text.encode(), output, force=force)
    if output is not None:
        note(f"Wrote {text.count(chr(10))} outcomes to {output}.")


def import_outcomes(
    call: CommandCall,
    path: Annotated[Path, typer.Argument(metavar="FILE")],
    *,
    form: Annotated[ImportFormat, typer.Option("--format")],
) -> None:
    """Import outcomes of other systems; what was imported before is not stored again.

    Lines that are not outcomes of a recorded context are printed with their number, and all others
    are stored; exit with 1 if there are any.

    Args:
        path FILE: File of up to 5,000 outcomes; - reads stdin.
        form: Format of the file: langfuse (scores of its API), otlp (JSON) or csv.
    """
    try:
        is_stdin = path == STANDARD_STREAM
        content = typer.get_binary_stream("stdin").read() if is_stdin else path.read_bytes()
        text = content.decode()
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 at byte {error.start}") from error
    report = call.run(lambda store: store.records.import_outcomes(text, format=form))
    shown = [
        f"{report.added} added, {report.known} stored before, {report.failed} failed.",
        *(f"line {each.line}: {each.problem}" for each in report.problems),
    ]
    call.show(report, "\n".join(shown))
    raise typer.Exit(1 if report.failed else 0)


def _score(**given: str | None) -> dict[str, Any]:
    """Return the score in options such as ``helpful=4``."""
    named = {kind: option for kind, option in given.items() if option is not None}
    if len(named) > 1:
        options = " and ".join("--score" if kind == "value" else f"--{kind}" for kind in named)
        raise typer.BadParameter(f"{options} are several scores; pass one of them")
    for kind, option in named.items():
        name, separator, said = option.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{option!r} has no name; write NAME={option}")
        try:
            return {"score": name, kind: msgspec.convert(said, _SCORES[kind], strict=False)}
        except msgspec.ValidationError:
            expected = "a number" if kind == "value" else "true or false"
            raise typer.BadParameter(f"{said!r} in {option!r} is not {expected}") from None
    return {}
