"""`headwater features`: read values, list declared features, and change stored ones."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from shlex import quote
from types import NoneType
from typing import Annotated

import msgspec
import typer

from headwater.api.declarations import declared_feature
from headwater.cli.context_declared import hint_at_contexts
from headwater.cli.dlq import NO_LIMIT
from headwater.cli.feature_versions import drop, rename, versions
from headwater.cli.options import (
    AsJson,
    FileOption,
    command_group,
    declared_store,
    named_in,
    parse_span,
)
from headwater.cli.output import note, pluralize, print_json, print_table, span_text
from headwater.cli.runner import run
from headwater.core.durations import format_duration
from headwater.core.values import FeatureValue
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.errors import FeatureValueError
from headwater.history.one_value import MOST_ROWS
from headwater.store.feature_store import FeatureStore

app = command_group("Read, list, rename and drop features.")

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
    store = declared_store(file)
    with named_in(file):
        feature = runtime_of(store).registry.feature(name)

    async def read(store: FeatureStore) -> tuple[dict[str, FeatureValue], list[str]]:
        rows = await store.get_feature_values([name], entity_ids)
        values = {i: row[name] for i, row in zip(entity_ids, rows, strict=True)}
        return values, [] if as_json else await _explain_missing(store, feature, values)

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
    print_table((feature.entity.id_field, name, "source", "age", "as of"), rows)
    if notes:
        note("\n" + "\n".join(notes))


@app.command()
def history(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    entity_id: Annotated[str, typer.Argument(metavar="ENTITY_ID", help="Id of the entity.")],
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only as of this or later: a duration ago, or a time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only as of before: a duration ago, or a time."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number.")] = 100,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the values of a feature for one entity over time, the newest first.

    Each value is shown with the time it is about, the time it was written, and its cause.
    """
    store = declared_store(file)
    with named_in(file):
        runtime_of(store).registry.feature(name)
    start, end = parse_span(since, until, store.clock.now())
    values = run(
        store,
        lambda store: store.get_feature_history(name, entity_id, start=start, end=end, limit=limit),
    )
    if as_json:
        print_json(values)
        return
    rows = [(each.as_of, each.value, each.written_at, each.cause) for each in values]
    if rows:
        print_table(("as of", name, "written at", "cause"), rows)
    else:
        typer.echo("No values.")
    if len(rows) == limit:
        note(f"These are the newest {pluralize(limit, 'value')}; pass --limit or --until for more.")


@app.command("list")
def list_(*, file: FileOption = None, as_json: AsJson = False) -> None:
    """List the features of a file, and when each is recomputed."""
    registry = runtime_of(declared_store(file)).registry
    features = registry.features.values()
    if as_json:
        print_json([_declaration(feature) for feature in features])
        return
    rows = [
        (f.name, f.entity.name, f.codec.expected, f.mode, _recomputed(f), f.description[:80])
        for f in features
    ]
    if rows:
        print_table(("feature", "entity", "type", "mode", "recomputed", "description"), rows)
    else:
        typer.echo("No features.")
    hint_at_contexts(registry)


app.command()(versions)
app.command()(rename)
app.command()(drop)


def _declaration(feature: FeatureDef) -> dict[str, object]:
    return msgspec.structs.asdict(declared_feature(feature)) | {
        "max_retries": feature.max_retries,
        "order": feature.order,
        "declared_at": str(feature.location),
    }


def _recomputed(feature: FeatureDef) -> str:
    """Return when a feature is recomputed, in words."""
    if feature.triggers:
        return f"on {', '.join(feature.triggers)}"
    if feature.refresh:
        return f"every {format_duration(feature.refresh // _MILLISECOND)}"
    if feature.template:
        return f"from {', '.join(dict.fromkeys(feature.template.references))}, when read"
    return "when read"


async def _explain_missing(
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
        if missing := [each for each in inputs if row[each].value is None]:
            reason = (
                f"{name} needs {', '.join(missing)}, with no value; "
                f"`headwater features get {missing[0]} ID` explains why"
            )
        elif defaults := [each for each in inputs if row[each].as_of is None]:
            reason = f"{name} contains the default of {', '.join(defaults)}"
        else:
            continue  # the value has been written since the first read
        reasons.setdefault(reason, []).append(entity_id)
    return reasons


async def _failures(store: FeatureStore, feature: FeatureDef, entity_id: str) -> str:
    """Return the number of dead letters of a feature and an entity, and how to list them."""
    name, text_id = feature.name, feature.entity.text_id(entity_id)
    letters = await store.dead_letters.list(feature=name, entity_id=text_id, limit=NO_LIMIT)
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
    return (
        f"{backlog}no refresh has written {feature.name} {period}; `headwater serve` and "
        f"`headwater worker` refresh it {_recomputed(feature)} and log `refresh failed` on errors"
    )
