"""`headwater features`: read values, list declared features, and change stored ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from headwater.cli.context_declared import hint_at_contexts
from headwater.cli.feature_reasons import explain_missing, recomputed
from headwater.cli.feature_versions import drop, rename, versions
from headwater.cli.options import (
    AsJson,
    FileOption,
    command_group,
    declared_or_remote,
    named_in,
    parse_span,
)
from headwater.cli.output import note, pluralize, print_json, print_table, span_text
from headwater.cli.runner import listing, run
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.history.one_value import MOST_ROWS
from headwater.model.declarations import StoreListing
from headwater.model.values import FeatureValue
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declared_feature

if TYPE_CHECKING:
    from headwater.client import AsyncClient

app = command_group("Read, list, rename and drop features.")


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    entity_ids: Annotated[
        list[str], typer.Argument(metavar="ENTITY_ID...", help="Ids of one or more entities.")
    ],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Read a feature of one or more entities.

    Each value is shown with its age and its source.
    """
    store = declared_or_remote(file)
    _check_declared(store, name, file)

    async def read(
        store: "FeatureStore | AsyncClient",
    ) -> tuple[dict[str, FeatureValue], list[str]]:
        rows = await store.get_feature_values([name], entity_ids)
        values = {i: row[name] for i, row in zip(entity_ids, rows, strict=True)}
        if as_json or not isinstance(store, FeatureStore):
            return values, []
        return values, await explain_missing(
            store, runtime_of(store).registry.feature(name), values
        )

    values, notes = run(store, read)
    now = store.clock.now()
    if as_json:
        print_json(
            [
                {
                    "feature": name,
                    "entity_id": entity_id,
                    "value": value.value,
                    "as_of": value.as_of,
                    "age_ms": value.age_ms(now),
                    "source": value.source,
                }
                for entity_id, value in values.items()
            ]
        )
        return
    rows = [(i, v.value, v.source, span_text(v.age_ms(now)), v.as_of) for i, v in values.items()]
    print_table((_id_field(listing(store), name), name, "source", "age", "as of"), rows)
    if notes:
        note("\n" + "\n".join(notes))


@app.command()
def history(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    entity_id: Annotated[str, typer.Argument(metavar="ENTITY_ID", help="Id of the entity.")],
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Only values as of this time or later: a duration ago, such as 7d, or a time.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only values as of before this time, in the same form."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number.")] = 100,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the values of a feature for one entity over time, the newest first.

    Each value is shown with the time it is about, the time it was written, and its cause.
    """
    store = declared_or_remote(file)
    _check_declared(store, name, file)
    start, end = parse_span(since, until, store.clock.now())
    values = run(
        store,
        lambda store: store.get_feature_history(name, entity_id, start=start, end=end, limit=limit),
    )
    if as_json:
        print_json(values)
        return
    rows = [(value.as_of, value.value, value.written_at, value.cause) for value in values]
    if rows:
        print_table(("as of", name, "written at", "cause"), rows)
    else:
        typer.echo("No values.")
    if len(rows) == limit:
        note(f"These are the newest {pluralize(limit, 'value')}; pass --limit or --until for more.")


@app.command("list")
def list_(*, file: FileOption = None, as_json: AsJson = False) -> None:
    """List the features of a file, and when each is recomputed."""
    store = declared_or_remote(file)
    listed = listing(store)
    if as_json:
        if isinstance(store, FeatureStore):
            print_json(list(map(_declaration, runtime_of(store).registry.features.values())))
        else:
            print_json(listed.features)
        return
    rows = [
        (f.name, f.entity, f.type, f.mode, recomputed(f), f.description[:80])
        for f in listed.features
    ]
    if rows:
        print_table(("feature", "entity", "type", "mode", "recomputed", "description"), rows)
    else:
        typer.echo("No features.")
    hint_at_contexts(listed)


app.command()(versions)
app.command()(rename)
app.command()(drop)


def _declaration(feature: FeatureDef) -> dict[str, object]:
    return msgspec.structs.asdict(declared_feature(feature)) | {
        "max_retries": feature.max_retries,
        "order": feature.order,
        "declared_at": str(feature.location),
    }


def _check_declared(store: "FeatureStore | AsyncClient", name: str, file: Path | None) -> None:
    """Raise an error about a name that the features file does not declare; servers check it."""
    if isinstance(store, FeatureStore):
        with named_in(file):
            runtime_of(store).registry.feature(name)


def _id_field(listed: StoreListing, name: str) -> str:
    """Return the field that identifies the entities of a feature."""
    owners = {feature.name: feature.entity for feature in listed.features}
    fields = {entity.name: entity.id_field for entity in listed.entities}
    return fields[owners[name]]
