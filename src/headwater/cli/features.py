"""`headwater features`: read values, list declared features, and change stored ones."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from shlex import quote
from types import NoneType
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from headwater.cli.groups import Yes
from headwater.cli.hints import hint_at_contexts
from headwater.cli.options import (
    AnyStore,
    AsJson,
    FileOption,
    command_group,
    declared_or_remote,
    features_file,
    named_in,
    parse_span,
)
from headwater.cli.output import is_interactive, note, pluralize, print_json, print_table, span_text
from headwater.cli.runner import listing, run
from headwater.core.durations import format_duration
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.errors import FeatureValueError
from headwater.history.one_value import MOST_ROWS
from headwater.model.catalog import Dropped
from headwater.model.dead_letters import MOST_LETTERS
from headwater.model.declarations import FeatureListing, StoreListing
from headwater.model.values import FeatureValue
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declared_feature

if TYPE_CHECKING:
    from headwater.client import AsyncClient

app = command_group("Read, list, rename and drop features.")
_COLUMNS = ("version", "state", "type", "since", "series", "online", "history")
_MILLISECOND = timedelta(milliseconds=1)


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


@app.command()
def versions(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a feature, with the number of their values.

    A version begins with a backfill or with a converted type. The series is the name that its
    values are stored under.
    """
    listed = run(declared_or_remote(file), lambda store: store.catalog.versions(name))
    if as_json:
        print_json(listed)
        return
    print_table(
        _COLUMNS,
        [(v.version, v.state, v.type, v.since, v.series, v.online, v.history) for v in listed],
    )


@app.command()
def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Present name of the feature.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Rename a feature with all its values and its history, while workers run.

    Run it before you deploy the new name: processes that declare the old name go on with it.
    """
    store = declared_or_remote(file)
    run(store, lambda store: store.catalog.rename(old, new))
    path, features = _shown(store, file), _declared(store)
    rest = "restart the workers and servers that were started with the old name, in any order"
    if new not in features:
        rest = f"rename it in {path}, in templates and contexts too, and deploy that in any order"
    following = f"Next, {rest}; until then they serve and compute the same values as {old}."
    if as_json:
        print_json({"renamed": old, "to": new, "next": following})
    else:
        typer.echo(f"Renamed feature {old} to {new}, with its values and its history.")
        note(following)


@app.command()
def drop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    *,
    version: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Drop this version alone, which is not served."),
    ] = None,
    yes: Yes = False,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove a feature with all its values and its history, or one version of it.

    Remove it from the features file and restart the workers first. If it is declared again, it
    begins without values.
    """
    store = declared_or_remote(file)
    if not yes:
        if not is_interactive():
            raise typer.BadParameter(
                "cannot ask for confirmation without a terminal; pass --yes to drop the feature"
            )
        preview = run(store, lambda store: store.catalog.drop(name, version=version, dry_run=True))
        typer.confirm(f"Drop {_described(preview, version)}? They cannot be restored.", abort=True)
    dropped = run(store, lambda store: _drop(store, name, version))
    if as_json:
        print_json(dropped)
    else:
        typer.echo(f"Dropped {_described(dropped, version)}.")
        if version is None and name in _declared(store):
            note(f"{_shown(store, file)} still declares {name}: it begins without values.")


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


async def _drop(store: AnyStore, name: str, version: int | None) -> Dropped:
    return await store.catalog.drop(name, version=version)


def _described(found: Dropped, version: int | None) -> str:
    subject = f"feature {found.feature}"
    if version is not None:
        subject = f"version {version} of {subject}"
    values = f"{found.online:,} online and {found.history:,} in history"
    return f"{subject} with {pluralize(found.online + found.history, 'value')} ({values})"


def _declared(store: AnyStore) -> Collection[str]:
    """Return the names of the declared features."""
    if isinstance(store, FeatureStore):
        return runtime_of(store).registry.features
    listing = run(store, lambda store: store.declarations())
    return {feature.name for feature in listing.features}


def _shown(store: AnyStore, file: Path | None) -> str:
    if isinstance(store, FeatureStore):
        return str(features_file(file))
    return f"the features file of {store.url}"


def recomputed(feature: FeatureListing) -> str:
    """Return when a feature is recomputed, in words."""
    if feature.triggers:
        return f"on {', '.join(feature.triggers)}"
    if feature.refresh_ms:
        return f"every {format_duration(feature.refresh_ms)}"
    if feature.template:
        return f"from {', '.join(feature.needs)}, when read"
    return "when read"


async def explain_missing(
    store: FeatureStore, feature: FeatureDef, values: Mapping[str, FeatureValue]
) -> list[str]:
    """Return a sentence for each reason why entities have no value, or only a default."""
    inputs = list(dict.fromkeys(feature.template.references)) if feature.template else []
    missing = [
        entity_id
        for entity_id, value in values.items()
        if value.source in ("missing", "default") or (inputs and value.as_of is None)
    ]
    if not missing:
        return []
    failed = [part.detail for part in await store.admin.health() if part.needed and not part.ok]
    if failed:
        reasons = {"; ".join(failed): missing}
    elif feature.template:
        reasons = await _template_reasons(store, feature.name, inputs, missing)
    elif feature.codec.annotation is NoneType:
        reasons = {f"{feature.name} is annotated `-> None`, so it never has a value": missing}
    else:
        waiting = sum(lag.waiting for lag in await store.admin.lag())
        reasons = {}
        for entity_id in missing:
            reason = await _unreadable(store, feature, entity_id) or (
                _not_computed(feature, waiting)
                + (
                    await _failures(store, feature, entity_id)
                    or ("" if waiting else await _past_events(store, feature, entity_id))
                )
            )
            reasons.setdefault(reason, []).append(entity_id)
    return [f"{', '.join(entity_ids)}: {reason}" for reason, entity_ids in reasons.items()]


async def _unreadable(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return why the stored value of an entity cannot be read, which a read of it alone tells."""
    try:
        await store.get_feature_values([feature.name], [entity_id])
    except FeatureValueError as error:
        return str(error)
    return ""


async def _template_reasons(
    store: FeatureStore, name: str, inputs: Sequence[str], entity_ids: Sequence[str]
) -> dict[str, list[str]]:
    """Return the inputs that a template lacks, each reason with its entities."""
    reasons: dict[str, list[str]] = {}
    rows = await store.get_feature_values(inputs, entity_ids)
    for entity_id, row in zip(entity_ids, rows, strict=True):
        if missing := [input_name for input_name in inputs if row[input_name].value is None]:
            reason = (
                f"{name} needs {', '.join(missing)}, with no value; "
                f"`headwater features get {missing[0]} ID` explains why"
            )
        elif defaults := [input_name for input_name in inputs if row[input_name].as_of is None]:
            reason = f"{name} contains the default of {', '.join(defaults)}"
        else:
            continue  # the value has been written since the first read
        reasons.setdefault(reason, []).append(entity_id)
    return reasons


async def _failures(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return the number of dead letters of a feature and an entity, and how to list them."""
    name, text_id = feature.name, feature.entity.text_id(entity_id)
    letters = await store.dead_letters.list(feature=name, entity_id=text_id, limit=MOST_LETTERS)
    command = f"headwater dlq list --feature {name} --entity-id {quote(text_id)}"
    return f"; {pluralize(len(letters), 'dead letter')}: {command}" if letters else ""


async def _past_events(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return how to compute a feature from past events of an entity, if it has some."""
    if feature.ttl is not None:
        return ""  # the value may have expired
    text_id = feature.entity.text_id(entity_id)
    for event_type in feature.triggers:
        if await store.bus.list(event_type=event_type, entity_id=text_id, limit=1):
            return (
                "; there are past events: if they are older than the feature, run "
                f"`headwater backfill {feature.name}`"
            )
    return ""


def _not_computed(feature: FeatureDef, waiting: int) -> str:
    backlog = f"{pluralize(waiting, 'event')} waiting (see `headwater lag`); " if waiting else ""
    period = "yet"
    if feature.ttl is not None:
        period = f"within its ttl of {format_duration(feature.ttl // _MILLISECOND)}"
    if feature.triggers:
        events = " or ".join(feature.triggers)
        return (
            f"{backlog}no worker has computed {feature.name} {period}; a worker computes it on "
            f"{events}"
        )
    when = recomputed(declared_feature(feature))
    return (
        f"{backlog}no refresh has written {feature.name} {period}; `headwater serve` and "
        f"`headwater worker` refresh it {when} and log `refresh failed` on errors"
    )
