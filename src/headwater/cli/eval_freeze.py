"""`headwater eval freeze`: write recorded contexts to the file of a cohort."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.commands import CommandCall, Since, features_file, run
from headwater.cli.output import STANDARD_STREAM, note, pluralize, print_facts, second_text
from headwater.contexts.evaluation.freezing import FILTERS
from headwater.core.json_values import plain
from headwater.errors import InvalidInputError
from headwater.model.evaluations import FrozenCohort
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

_LISTS = ("ids", "csv", "langfuse_dataset")


def freeze(
    call: CommandCall,
    name: str,
    *,
    context: str | None = None,
    since: Since = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only if created before, in the same form.")
    ] = None,
    where: list[str] | None = None,
    score: str | None = None,
    ids: Path | None = None,
    csv: Path | None = None,
    column: str = "context_id",
    langfuse_dataset: str | None = None,
    sample: Annotated[int | None, typer.Option(min=1)] = None,
    stratify_by: str | None = None,
    seed: int = 0,
    skip_missing: bool = False,
    force: bool = False,
) -> None:
    """Write recorded contexts to the file of a cohort, to evaluate changed code on them.

    The file has the hashes and inputs of the records and the present code, and is sealed like a
    record. The same options and the same seed choose the same contexts.

    Args:
        name: Name of the cohort, which is that of its file.
        context: Only contexts with this name.
        where NAME=VALUE: Only contexts with this status, model, caller, label, answer_model or
            error, such as status=degraded; can be repeated.
        score: Only contexts with this score: a name, or compared, such as 'helpful<3'.
        ids FILE: Contexts of this list instead, with an id or a record hash in each line; - reads
            stdin.
        csv FILE: Contexts of this table instead, whose first line has the names of its columns.
        column NAME: Column of the table with ids or record hashes.
        langfuse_dataset NAME: Contexts of the items of this dataset of Langfuse instead, or of a
            file with exported items; their metadata or traces have the ids.
        sample: Choose so many of the contexts.
        stratify_by NAME: Sample in proportion to the contexts of each model, status or caller, or
            of an input such as input.language, and at least one of each.
        seed: Number that determines the sample.
        skip_missing: Leave out ids that are not recorded, instead of failing.
        force: Replace a cohort of this name.
    """
    start, end = call.span(since, until)
    given = {"ids": ids, "csv": csv, "langfuse_dataset": langfuse_dataset}
    lists = [option for option in _LISTS if given[option] is not None]
    if len(lists) > 1:
        options = " and ".join(f"--{option.replace('_', '-')}" for option in lists)
        raise typer.BadParameter(f"{options} cannot be combined; pass one list of contexts")
    chosen: dict[str, Any] = {
        "context": context,
        "start": start,
        "end": end,
        "where": dict(map(_filter, where or [])),
        "score": score,
        "sample": sample,
        "stratify_by": stratify_by,
        "seed": seed,
        "skip_missing": skip_missing,
    }

    if lists:
        chosen["ids"] = _ids(ids, csv, column, Path(langfuse_dataset or ""))

    async def frozen(store: FeatureStore) -> FrozenCohort:
        if lists and chosen["ids"] is None:
            chosen["ids"] = await _dataset(langfuse_dataset or "", store.settings)
        file = features_file(call.file)
        return await store.evaluations.freeze(name, file=file, replaces=force, **chosen)

    with call.named():
        cohort = run(call.local, frozen)
    call.show(plain(cohort), lambda: _print(cohort))


def _filter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and value):
        raise typer.BadParameter(
            f"--where is {text!r}; give one of {', '.join(FILTERS)} and its value, such as "
            "status=degraded"
        )
    return name.strip(), value


def _ids(ids: Path | None, csv: Path | None, column: str, dataset: Path) -> list[str] | None:
    """Return the ids of a list in a file; None if the dataset is to be read from Langfuse."""
    from headwater.contexts.evaluation import sources  # noqa: PLC0415 - loads httpx

    if ids is not None:
        return [*sources.ids_of_lines(_text(ids).splitlines())]
    if csv is not None:
        return [*sources.ids_of_table(_text(csv).splitlines(keepends=True), column)]
    return [*sources.ids_of_export(_text(dataset))] if dataset.is_file() else None


async def _dataset(name: str, settings: Settings) -> list[str]:
    from headwater.contexts.evaluation import sources  # noqa: PLC0415 - loads httpx

    return [each async for each in sources.ids_of_dataset(name, settings.eval)]


def _text(file: Path) -> str:
    try:
        if file == STANDARD_STREAM:
            return typer.get_binary_stream("stdin").read().decode("utf-8-sig")
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidInputError(f"cannot read {file}: {reason}") from error


def _print(cohort: FrozenCohort) -> None:
    kinds = {"by name": cohort.contexts, "by model": cohort.models, "by status": cohort.statuses}
    counts = {
        kind: ", ".join(f"{name} {number}" for name, number in numbers.items())
        for kind, numbers in kinds.items()
    }
    print_facts(
        {
            "cohort": cohort.name,
            "contexts": cohort.count,
            "from": second_text(cohort.start),
            "to": second_text(cohort.end),
            **counts,
            "hash": cohort.cohort_hash,
            "signed": "yes" if cohort.is_signed else "no",
            "file": cohort.path,
        }
    )
    for reason, number in cohort.left_out.items():
        note(f"Left out: {pluralize(number, 'context')} {reason}.")
    note(f"\nChange your code, then run: headwater eval run {cohort.name}")
