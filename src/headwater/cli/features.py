"""`headwater features`: read values, list declared features, and change stored ones."""

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from shlex import quote
from shutil import get_terminal_size
from types import NoneType
from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.commands import (
    DECLARED,
    AnyStore,
    CommandCall,
    Commands,
    Yes,
    features_file,
    option_names,
    parse_time,
)
from headwater.cli.declarations_page import facts_of, recomputed
from headwater.cli.feature_trials import Trial, failure_of, print_trial, read_payload
from headwater.cli.output import (
    cell_text,
    check_terminal,
    note,
    pluralize,
    print_facts,
    print_table,
    span_text,
)
from headwater.core.durations import format_duration
from headwater.core.short_repr import printable_lines
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.errors import FeatureFailedError, FeatureValueError, UnknownNameError
from headwater.history.one_value import MOST_ROWS
from headwater.model.catalog import Dropped
from headwater.model.dead_letters import MOST_LETTERS
from headwater.model.declarations import FeatureListing
from headwater.model.values import FeatureValue
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declared_feature

_WIDE = 120
_MOST_COLUMNS = 7

app = Commands()
features = Commands(app, "features", "Read, list, rename and drop features.", file=DECLARED)


@features.command()
def get(call: CommandCall, name: str, entity_ids: list[str]) -> None:
    """Read a feature of one or more entities.

    Each value is shown with its age and its source.

    Args:
        name: Name of the feature.
        entity_ids ENTITY_ID...: Ids of one or more entities.
    """
    call.check_name(lambda registry: registry.feature(name))

    async def read(store: AnyStore) -> tuple[dict[str, FeatureValue], list[str]]:
        rows = await store.get_feature_values([name], entity_ids)
        values = {i: row[name] for i, row in zip(entity_ids, rows, strict=True)}
        if call.as_json or not isinstance(store, FeatureStore):
            return values, []
        feature = runtime_of(store).registry.feature(name)
        return values, await explain_missing(store, feature, values)

    values, notes = call.run(read)
    now = call.store.clock.now()

    def print_values() -> None:
        declared = call.declarations()
        (owner,) = [feature.entity for feature in declared.features if feature.name == name]
        (field,) = [entity.id_field for entity in declared.entities if entity.name == owner]
        rows = [
            (i, v.value, v.source, span_text(v.age_ms(now)), v.as_of) for i, v in values.items()
        ]
        print_table((field, name, "source", "age", "as of"), rows)
        if notes:
            note("\n" + "\n".join(notes))

    plain = [
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
    call.show(plain, print_values)


@features.command()
def history(
    call: CommandCall,
    name: str,
    entity_id: str,
    *,
    since: str | None = None,
    until: str | None = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="Maximum number.")] = 100,
) -> None:
    """Show the values of a feature for one entity over time, the newest first.

    Each value is shown with the time it is about, the time it was written, and its cause. A window
    has a value at each contribution, and where it falls because time has passed.

    Args:
        name: Name of the feature.
        entity_id: Id of the entity.
        since WHEN: Only values as of this time or later: a duration ago, such as 7d, or a time.
        until WHEN: Only values as of before this time, in the same form.
    """
    call.check_name(lambda registry: registry.feature(name))
    start, end = call.span(since, until)
    values = call.run(
        lambda store: store.get_feature_history(name, entity_id, start=start, end=end, limit=limit)
    )
    rows = [(value.as_of, value.value, value.written_at, value.cause) for value in values]
    newest = f"These are the newest {pluralize(limit, 'value')}; pass --limit or --until for more."
    more = newest if len(rows) == limit else None
    columns = ("as of", name, "written at", "cause")
    call.show_table(values, columns, rows, more, empty="No values.")


@features.command()
def windows(call: CommandCall, name: str, entity_id: str) -> None:
    """Show all windows of a family for one entity: a row for each window.

    With --json, also the tiles that the values are made of.

    Args:
        name: Name of the family, or of one of its features.
        entity_id: Id of the entity.
    """
    call.check_name(lambda registry: registry.feature(name))
    read = call.run(lambda store: store.get_feature_windows(name, entity_id))
    values = {(each.window, each.aggregate): each.value for each in read.values}
    spans, aggregates = (list(dict.fromkeys(part)) for part in zip(*values, strict=True))
    rows = [(span, *(values[span, aggregate] for aggregate in aggregates)) for span in spans]
    folded = "never" if read.last_fold is None else cell_text(read.last_fold)
    call.show_table(
        read,
        ("window", *aggregates),
        rows,
        f"As of {cell_text(read.as_of)}; last contribution: {folded}.",
    )


@features.command("test")
def try_feature(
    call: CommandCall,
    name: str,
    entity_id: str,
    *,
    event: str | None = None,
    event_id: str | None = None,
    type: str | None = None,
    at: str | None = None,
) -> None:
    """Run the function of a feature once on the present values; store and publish nothing.

    It prints the value, and what the function would write and publish. If the function fails, it
    prints the traceback, and exits with 1.

    Args:
        name: Name of the feature.
        entity_id: Id of the entity.
        event PAYLOAD: Payload of the event of a triggered feature: one JSON object, or @FILE.
        event_id: Take a stored event of the entity, by its id.
        type: Type of the event, if the feature has several triggers.
        at TIME: Time of the event, with a time zone. Default: now.
    """
    if call.url is not None:
        raise typer.BadParameter("--url: it runs the functions of a features file here; drop it")
    if event is not None and event_id is not None:
        raise typer.BadParameter("pass --event or --event-id, not both")
    call.check_name(lambda registry: registry.feature(name))
    given = {
        "payload": read_payload(event),
        "event_type": type,
        "timestamp": None if at is None else parse_time(at),
    }
    try:
        with option_names():
            trial = Trial(name, entity_id, given, event_id).run(call)
    except FeatureFailedError as error:
        failure = failure_of(name, error)
        shown = f"{name} of {entity_id} failed: {failure['error']}"
        call.show(failure, lambda: note(printable_lines(f"{failure['traceback']}\n\n{shown}")))
        raise typer.Exit(1) from None
    call.show(trial, lambda: print_trial(trial))


@features.command("list")
def list_features(
    call: CommandCall,
    *,
    entity: str | None = None,
    owner: str | None = None,
    tag: list[str] | None = None,
    windows: bool = False,
) -> None:
    """List the features of a file, and when each is recomputed.

    Args:
        entity NAME: Only features of this entity.
        owner OWNER: Only features of this owner; an empty one finds those without an owner.
        tag TAG: Only features with this tag; repeat it for features with all of them.
        windows: Show each window of a family, and not only the family.
    """
    listed = call.declarations()
    matching = [
        feature
        for feature in listed.features
        if entity in (None, feature.entity)
        and owner in (None, feature.owner)
        and set(tag or ()) <= set(feature.tags)
    ]
    shown = [feature for feature in matching if windows or feature.window is None]
    table = {
        "feature": [f.name for f in shown],
        "entity": [_entity_text(f) for f in shown],
        "type": [f.type for f in shown],
        "unit": [f.unit for f in shown],
        "recomputed": [recomputed(f) for f in shown],
        "owner": [f.owner for f in shown],
        "tags": [", ".join(f.tags) for f in shown],
        "description": [f.description.partition("\n")[0][:80] for f in shown],
    }
    columns = [name for name, cells in table.items() if any(cells)]
    if sys.stdout.isatty() and get_terminal_size().columns < _WIDE:
        columns = columns[:_MOST_COLUMNS]  # `features show` has the description
    rows = list(zip(*(table[name] for name in columns), strict=True))
    counts = [
        pluralize(len(declared), kind)
        for declared, kind in ((listed.contexts, "context"), (listed.retrievers, "retriever"))
        if declared
    ]
    others = f"The file also declares {' and '.join(counts)}: see `headwater context declared`."
    plain = [_complete(call, feature) for feature in matching]
    call.show_table(plain, columns, rows, others if counts else None, empty="No features.")


def _entity_text(feature: FeatureListing) -> str:
    """Return the entity, with its owner if the feature has the owner's id."""
    owner = feature.belongs_to
    return feature.entity if owner is None else f"{feature.entity} → {owner}"


def _complete(call: CommandCall, feature: FeatureListing) -> dict[str, Any]:
    """Return a listing and, of a local store, what only the declaration has."""
    if not isinstance(call.store, FeatureStore):
        return msgspec.structs.asdict(feature)
    declared = runtime_of(call.store).registry.feature(feature.name)
    return {
        **msgspec.structs.asdict(feature),
        "max_retries": declared.max_retries,
        "order": declared.order,
        "declared_at": str(declared.location),
    }


@features.command()
def show(call: CommandCall, name: str) -> None:
    """Show one feature: its description, options, next runs, what it needs and what needs it.

    Args:
        name: Name of the feature, or of a family of windows.
    """
    call.check_name(lambda registry: registry.feature(name))
    listed = call.declarations()
    feature = {each.name: each for each in listed.features}.get(name)
    if feature is None:
        raise UnknownNameError("feature", name, [each.name for each in listed.features])
    # Of a family, its windows are options and not what needs it.
    graph = listed.graph if feature.windows is None else listed.graph.folded()
    node, edges = f"feature:{name}", graph.edges
    names = {each.id: each.name for each in listed.graph.nodes}
    near = {
        "needs": [names[edge.source] for edge in edges if edge.target == node],
        "needed_by": [names[edge.target] for edge in edges if edge.source == node],
    }
    complete = _complete(call, feature) | near

    def print_feature() -> None:
        if feature.description:
            typer.echo(printable_lines(feature.description) + "\n")
        facts = {
            "feature": name,
            "entity": _entity_text(feature),
            "recomputed": recomputed(feature),
        }
        runs = (f"{run:%a} {run.isoformat(' ', 'seconds')}" for run in feature.next_runs)
        facts |= {"next runs": ", ".join(runs)} if feature.next_runs else {}
        links = {kind.replace("_", " "): ", ".join(to) for kind, to in near.items() if to}
        print_facts(facts | facts_of(feature) | links)
        if "declared_at" in complete:
            print_facts({"declared at": complete["declared_at"]})

    call.show(complete, print_feature)


@features.command()
def versions(call: CommandCall, name: str) -> None:
    """List the versions of a feature, with the number of their values.

    A version begins with a backfill or with a converted type. The series is the name that its
    values are stored under.

    Args:
        name: Name of the feature.
    """
    listed = call.run(lambda store: store.catalog.versions(name))
    columns = ("version", "state", "type", "since", "series", "online", "history")
    rows = [(v.version, v.state, v.type, v.since, v.series, v.online, v.history) for v in listed]
    call.show_table(listed, columns, rows)


@features.command()
def rename(call: CommandCall, old: str, new: str) -> None:
    """Rename a feature with all its values and its history, while workers run.

    Run it before you deploy the new name: processes that declare the old name go on with it.

    Args:
        old: Present name of the feature.
        new: Its new name.
    """
    call.run(lambda store: store.catalog.rename(old, new))
    rest = "restart the workers and servers that were started with the old name, in any order"
    if not _declares(call, new):
        places = f"{_file(call)}, in templates and contexts too"
        rest = f"rename it in {places}, and deploy that in any order"
    following = f"Next, {rest}; until then they serve and compute the same values as {old}."
    renamed = f"Renamed feature {old} to {new}, with its values and its history."
    call.show({"renamed": old, "to": new, "next": following}, renamed, following)


@features.command()
def drop(
    call: CommandCall,
    name: str,
    *,
    version: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    yes: Yes = False,
) -> None:
    """Remove a feature with all its values and its history, or one version of it.

    Remove it from the features file and restart the workers first. If it is declared again, it
    begins without values.

    Args:
        name: Name of the feature.
        version: Drop this version alone, which is not served.
    """

    def described(dropped: Dropped) -> str:
        subject = f"feature {dropped.feature}"
        if version is not None:
            subject = f"version {version} of {subject}"
        values = f"{dropped.online:,} online and {dropped.history:,} in history"
        return f"{subject} with {pluralize(dropped.online + dropped.history, 'value')} ({values})"

    if not yes:
        check_terminal("drop the feature")
        preview = call.run(lambda store: store.catalog.drop(name, version=version, dry_run=True))
        typer.confirm(f"Drop {described(preview)}? They cannot be restored.", abort=True)
    dropped = call.run(lambda store: store.catalog.drop(name, version=version))
    call.show(dropped, f"Dropped {described(dropped)}.")
    if not call.as_json and version is None and _declares(call, name):
        note(f"{_file(call)} still declares {name}: it begins without values.")


def _declares(call: CommandCall, name: str) -> bool:
    return name in {feature.name for feature in call.declarations().features}


def _file(call: CommandCall) -> str:
    if call.server is None:
        return str(features_file(call.file))
    return f"the features file of {call.server.url}"


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
            try:
                # A read of it alone tells whether its stored value can be read.
                await store.get_feature_values([feature.name], [entity_id])
                reason = _not_computed(feature, waiting)
                # The events of a window are those of its family.
                handled = feature
                if feature.window is not None:
                    handled = runtime_of(store).registry.feature(feature.window.family)
                reason += await _failures(store, handled, entity_id, has_waiting=bool(waiting))
            except FeatureValueError as error:
                reason = str(error)
            reasons.setdefault(reason, []).append(entity_id)
    return [f"{', '.join(entity_ids)}: {reason}" for reason, entity_ids in reasons.items()]


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


async def _failures(
    store: FeatureStore, feature: FeatureDef, entity_id: str, *, has_waiting: bool
) -> str:
    """Return how to list the dead letters of an entity, or to compute a value from past events."""
    name, text_id = feature.name, feature.entity.text_id(entity_id)
    letters = await store.dead_letters.list(feature=name, entity_id=text_id, limit=MOST_LETTERS)
    if letters:
        command = f"headwater dlq list --feature {name} --entity-id {quote(text_id)}"
        return f"; {pluralize(len(letters), 'dead letter')}: {command}"
    # A value with a ttl may have expired.
    for event_type in feature.triggers if feature.ttl is None and not has_waiting else ():
        if await store.bus.list(event_type=event_type, entity_id=text_id, limit=1):
            return (
                "; there are past events: if they are older than the feature, run "
                f"`headwater backfill {name}`"
            )
    return ""


def _not_computed(feature: FeatureDef, waiting: int) -> str:
    backlog = f"{pluralize(waiting, 'event')} waiting (see `headwater lag`); " if waiting else ""
    if feature.window is not None:
        span = feature.window.window.name
        return f"{backlog}nothing contributed to {feature.window.family} in the last {span}"
    period = "yet"
    if feature.ttl is not None:
        period = f"within its ttl of {format_duration(feature.ttl // timedelta(milliseconds=1))}"
    if feature.triggers:
        events = " or ".join(feature.triggers)
        return (
            f"{backlog}no worker has computed {feature.name} {period}; a worker computes it on "
            f"{events}"
        )
    if feature.mode == "stored":
        return f"{backlog}no handler and no set_feature has written {feature.name} {period}"
    when = recomputed(declared_feature(feature))
    return (
        f"{backlog}no refresh has written {feature.name} {period}; `headwater serve` and "
        f"`headwater worker` refresh it {when} and log `refresh failed` on errors"
    )
