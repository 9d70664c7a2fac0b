"""`headwater events` and `headwater dlq`: the log of events, and those that a feature failed on."""

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from headwater.cli.arguments import (
    check_utf8,
    hint_at_unknown_events,
    hint_at_unknown_names,
    know_events,
    parse_values,
)
from headwater.cli.commands import (
    DECLARED,
    STORE,
    AnyStore,
    Before,
    CommandCall,
    Commands,
    Limit,
    Since,
    Yes,
    no_time_zone,
    option_names,
    parse_time,
)
from headwater.cli.event_loads import FileLoads, parse_rate
from headwater.cli.output import (
    ProgressLines,
    check_terminal,
    is_interactive,
    note,
    pluralize,
    print_facts,
)
from headwater.core.clock import SystemClock
from headwater.core.durations import format_duration
from headwater.core.short_repr import printable_lines
from headwater.declarations.runtime import runtime_of
from headwater.errors import EventError
from headwater.model.dead_letters import MOST_LETTERS, DeadLetter
from headwater.model.events import AcceptedEvent, LoggedEvent, MirrorOptions, MirrorReport
from headwater.model.payload_schemas import SchemaPart
from headwater.model.values import ServiceEvent
from headwater.settings.loading import FILE, load
from headwater.settings.schema import SETTINGS, Settings
from headwater.store.feature_store import FeatureStore

_NOT_VISIBLE = 3
"""The exit code if events are stored, but what they trigger is not visible after --wait."""
app = Commands()
events = Commands(
    app, "events", "Publish, load, list and show events, and their types.", file=STORE
)
dlq = Commands(app, "dlq", "List, show, redrive and discard dead letters.", file=STORE)
OfFeature = Annotated[str | None, typer.Option(help="Only dead letters of this feature.")]
OfEventType = Annotated[str | None, typer.Option(help="Only dead letters of this event type.")]
OfEntity = Annotated[str | None, typer.Option(help="Only dead letters of this entity.")]


class InputLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One event of a batch, written as a line of JSON."""

    event_type: str
    entity_id: str
    payload: dict[str, Any] = {}
    timestamp: datetime | msgspec.UnsetType = msgspec.UNSET
    event_id: str | msgspec.UnsetType = msgspec.UNSET
    traceparent: str | msgspec.UnsetType = msgspec.UNSET

    def event(self) -> ServiceEvent:
        if isinstance(self.timestamp, datetime) and self.timestamp.tzinfo is None:
            raise EventError(no_time_zone(self.timestamp))
        fields = msgspec.structs.asdict(self)
        return ServiceEvent(**{k: v for k, v in fields.items() if v is not msgspec.UNSET})


@events.command()
def publish(
    call: CommandCall,
    event_type: str,
    entity_id: str | None = None,
    payload: list[str] | None = None,
    *,
    event_id: str | None = None,
    timestamp: str | None = None,
    wait: str | None = None,
) -> None:
    """Publish an event, or a batch from stdin.

    The command returns when all events are on disk. With --wait it returns when everything that
    they trigger is visible, or after that time: then with the problem, and with exit code 3.

    Args:
        event_type: Type of the event, or - to read a batch from stdin, one JSON event per line.
        entity_id: Id of the entity.
        payload: One JSON object, or key=value pairs.
        event_id: Your own id; an event that repeats it is ignored.
        timestamp: Time of the event, with a time zone. Default: now.
        wait: Wait for the events to be visible, such as 2s, at most 60s.
    """
    is_batch = event_type == "-"
    decimals = _decimals(call, event_type) if any("=" in each for each in payload or ()) else {}
    batch = _given_events(event_type, entity_id, payload or [], event_id, timestamp, decimals)
    if not batch:
        note("stdin is empty; no events were published.")
        call.show([], lambda: None)
        return

    async def publish(store: AnyStore) -> Sequence[AcceptedEvent]:
        if not isinstance(store, FeatureStore):
            return await store.bus.send(batch, wait)
        dedup = is_batch or event_id is not None
        published = await store.bus.publish_many(batch, dedup=dedup, wait=wait)
        return [
            AcceptedEvent(
                result.event_id,
                event.event_type,
                event.entity_id,
                event.timestamp,
                result.duplicate,
                visible=result.visible,
                problem=result.problem,
            )
            for event, result in zip(batch, published, strict=True)
        ]

    know_events(call)
    results = call.run(publish, create=_is_project(call.file))
    without_hints = [msgspec.structs.replace(result, hint=None) for result in results]
    call.show_table(
        without_hints if is_batch else without_hints[0],
        ("event type", "entity id", "event id", "published", *(["visible"] if wait else [])),
        [
            (
                *(r.event_type, r.entity_id, r.event_id, "duplicate" if r.duplicate else "new"),
                *(["yes" if r.visible else r.problem] if wait else []),
            )
            for r in results
        ],
    )
    for hint in dict.fromkeys(result.hint for result in results if result.hint):
        note(hint)
    if call.file is None:  # the store of a features file knows its event types, and logs the others
        hint_at_unknown_events(call, [result.event_type for result in results])
    if any(result.visible is False for result in results):
        raise typer.Exit(_NOT_VISIBLE)


@events.command("load")
def load_files(
    call: CommandCall,
    files: list[Path],
    *,
    type: str | None = None,
    event_type: str = "event_type",
    entity_id: str = "entity_id",
    timestamp: str = "timestamp",
    now: bool = False,
    event_id: str | None = None,
    time_zone: str | None = None,
    rate: str | None = None,
    skip_bad: bool = False,
) -> None:
    """Publish the rows of files, each of them once.

    A load that was interrupted continues when the command is run again, on any machine: the log
    says up to which row a file is loaded. The payload is the field `payload` if that is an object,
    and else all other columns.

    Args:
        files FILE...: Files (.jsonl, .ndjson, .csv, .tsv, .parquet; all but the last also with .gz,
            .bz2 or .xz), or - to read JSON lines from stdin.
        type: Type of all events, in place of a column.
        event_type COLUMN: Column with the types.
        entity_id COLUMN: Column with the ids; user.id is the field `id` of `user`.
        timestamp COLUMN: Column with the times.
        now: The rows have no times; their events happen now.
        event_id COLUMN: Column with the ids of events. Default: event_id, and for rows without it
            an id that is derived from the file up to the row.
        time_zone: Time zone of times without one, such as Europe/Berlin.
        rate: Publish at most so many events, such as 5000/s or 300/m.
        skip_bad: Leave out rows that are no valid events, and write them with their problems to
            FILE.rejects.jsonl; without it, the first one ends the command.
    """
    columns = {
        "type": type,
        "event_type": event_type,
        "entity_id": entity_id,
        "timestamp": None if now else timestamp,
        "event_id": event_id,
        "time_zone": time_zone,
    }
    check_utf8(list(columns.values()), "nothing was published")
    per_second = None if rate is None else parse_rate(rate)
    loads = FileLoads(columns, per_second, skips_bad=skip_bad)
    know_events(call)
    with option_names(), loads.interruptible():
        for file in files:
            call.run(partial(loads.load, file), create=_is_project(call.file))
    names = ("file", "rows", "published", "loaded before", "erased", "rejected")
    call.show_table(loads.plain(), names, loads.table(), loads.remark())


def _shown_at_intervals() -> Callable[[MirrorReport], None]:
    lines = ProgressLines()

    def show(report: MirrorReport) -> None:
        if lines.is_due():
            note(f"{report.records:,} records, {report.published:,} new events")

    return show


@events.command("mirror")
def mirror(
    call: CommandCall,
    topic: str,
    *,
    begin: Annotated[str, typer.Option("--from")] = "beginning",
    map: list[str] | None = None,
    decode: str = "",
    once: bool = False,
) -> None:
    """Copy a topic of Kafka into the log, each record once, until interrupted.

    A copy that ended continues when the command is run again, on any machine: the log says how far
    it is. Use bus.options and bus.password for SASL and TLS; the store keeps its own log.

    Args:
        topic URL: Brokers and topic, such as kafka://a:9092,b:9092/orders.
        begin WHERE: Where the first copy begins: beginning, end, or a time.
        map FIELD=NAME: Name of a field in the records, such as entity_id=customer; repeat it for
            others. Without a field for it, the entity id is the key of the record.
        decode MODULE:FUNCTION: Function that makes an event of a record, for other forms than JSON.
        once: End at the records that the topic has now.
    """
    fields = dict(text.split("=", 1) for text in map or () if "=" in text)
    moments = {"beginning": None, "end": datetime.now(UTC)}
    options = MirrorOptions(
        moments[begin] if begin in moments else parse_time(begin),
        SETTINGS["bus.fields"].check(fields, "--map"),
        decode,
        once,
        _shown_at_intervals(),
    )

    async def copy(store: AnyStore) -> MirrorReport:
        from headwater.store import event_mirror  # noqa: PLC0415 - its driver is an extra

        copied = event_mirror.EventMirror(store.bus, SystemClock(), load(), topic, options)
        return await copied.run()

    try:
        report = call.run(copy, create=_is_project(call.file))
    except KeyboardInterrupt:
        note("Interrupted; run the command again to continue.")
        raise typer.Exit(130) from None
    call.show(report, f"Copied {pluralize(report.records, 'record')}.")


def _is_project(file: Path | None) -> bool:
    """Return whether a file or a setting selects the store, and not the working directory alone."""
    settings = load()
    return (
        file is not None
        or Path(FILE).exists()
        or Path(settings.features).exists()
        or settings.home != Settings().home
    )


@events.command("types", file=DECLARED)
def list_types(call: CommandCall) -> None:
    """List the types of events that trigger features or are declared, with their fields.

    A field with a question mark is optional. Any payload fits a type without a schema.
    """
    listed = call.declarations().events
    rows = [
        (e.name, payload_fields(e.schema) if e.schema else "any", e.description) for e in listed
    ]
    columns = ("event type", "payload", "description")
    call.show_table(listed, columns, rows, empty="No event types.")


def payload_fields(schema: Mapping[str, Any]) -> str:
    """Return the fields of a schema on one line."""
    required = schema.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(part)}"
        for name, part in schema.get("properties", {}).items()
    )


def _kind(part: Mapping[str, Any]) -> str:
    """Return the type of a field: its class, its values or its JSON type."""
    if "anyOf" in part:
        return " | ".join(map(_kind, part["anyOf"]))
    if "enum" in part:
        return " | ".join(msgspec.json.encode(value).decode() for value in part["enum"])
    if part.get("type") == "array" and "items" in part:
        return f"list[{_kind(part['items'])}]"
    named = part["$ref"].rpartition("/")[2] if "$ref" in part else part.get("type", "any")
    return str(part.get("format", named))


@events.command("list")
def list_events(
    call: CommandCall,
    *,
    event_type: str | None = None,
    entity_id: str | None = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 20,
) -> None:
    """List accepted events, newest first, whether or not a worker has handled them.

    Args:
        event_type: Only events of this type.
        entity_id: Only events of this entity.
    """
    start, end = call.span(since, before)
    logged = call.run(
        lambda store: store.bus.list(
            event_type=event_type, entity_id=entity_id, since=start, before=end, limit=limit
        )
    )
    columns = ("timestamp", "event type", "entity id", "event id", "payload")
    rows = [
        (
            e.timestamp,
            e.event_type,
            e.entity_id,
            e.event_id,
            msgspec.json.encode(e.payload).decode(),
        )
        for e in (entry.event for entry in logged)
    ]
    call.show_table([_plain(entry) for entry in logged], columns, rows, empty="No events.")
    if not logged and event_type is not None:
        hint_at_unknown_events(call, [event_type])


@events.command("show")
def show_event(call: CommandCall, event_id: str) -> None:
    """Show an event with its payload and its dead letters.

    Entities may use the same event id; then each of their events is shown.

    Args:
        event_id: Id of the event.
    """

    async def read(store: AnyStore) -> tuple[list[LoggedEvent], list[DeadLetter]]:
        entries = await store.bus.list(event_id=event_id)
        letters: list[DeadLetter] = []
        for entity_id in {entry.event.entity_id for entry in entries}:
            letters += await store.dead_letters.list(entity_id=entity_id, limit=MOST_LETTERS)
        return entries, [letter for letter in letters if letter.event.event_id == event_id]

    entries, letters = call.run(read)
    if not entries:
        raise EventError(f"no event has the id {event_id!r}; see `headwater events list`")

    def print_events() -> None:
        for entry in entries:
            event = entry.event
            failed = [letter.feature for letter in letters if letter.event == event]
            print_facts(
                {
                    "event id": event.event_id,
                    "event type": event.event_type,
                    "entity id": event.entity_id,
                    "timestamp": event.timestamp,
                    "received at": entry.received_at,
                    "dead letters": ", ".join(failed),
                    "payload": event.payload,
                }
            )

    plain = {"events": [_plain(entry) for entry in entries], "dead_letters": letters}
    call.show(plain, print_events)


def _plain(logged: LoggedEvent) -> dict[str, object]:
    return {**msgspec.to_builtins(logged.event), "received_at": logged.received_at}


def read_lines(lines: Iterable[bytes]) -> list[ServiceEvent]:
    """Return the events of a batch; raise EventError with the line number if one is invalid."""
    events: list[ServiceEvent] = []
    for number, line in enumerate(lines, 1):
        try:
            text = (line.removeprefix(BOM_UTF8) if number == 1 else line).decode()
            if text.strip():
                events.append(msgspec.json.decode(text, type=InputLine).event())
        except UnicodeDecodeError as error:
            place = f"byte {error.object[error.start]:#x} at {error.start}"
            raise EventError(
                f"line {number}: not UTF-8 ({place}); convert the events to UTF-8; nothing was "
                "published"
            ) from error
        except (msgspec.DecodeError, RecursionError, EventError) as error:
            raise EventError(f"line {number}: {error}; nothing was published") from error
    return events


def _given_events(
    event_type: str,
    entity_id: str | None,
    payload: Sequence[str],
    event_id: str | None,
    timestamp: str | None,
    annotations: Mapping[str, Any],
) -> list[ServiceEvent]:
    """Return the event of the arguments, or the events on stdin."""
    if event_type == "-":
        if entity_id or payload or event_id or timestamp:
            raise typer.BadParameter(
                "- reads events from stdin and takes no other arguments; remove them"
            )
        return read_lines(typer.get_binary_stream("stdin"))
    if entity_id is None:
        raise typer.BadParameter(
            "missing ENTITY_ID; write the id of the entity after the event type"
        )
    check_utf8([event_type, entity_id, *payload, event_id], "nothing was published")
    line = InputLine(event_type, entity_id, parse_values(payload, "payload", annotations))
    if event_id is not None:
        line.event_id = event_id
    if timestamp is not None:
        line.timestamp = parse_time(timestamp)
    return [line.event()]


def _decimals(call: CommandCall, event_type: str) -> dict[str, type[Decimal]]:
    """Return the fields of a declared payload that are decimals; a float would round them."""
    if call.server:
        schemas = {each.name: each.schema for each in call.declarations().events}
    else:
        registry = runtime_of(call.local).registry if call.file else call.declared
        schemas = {name: each.schema for name, each in registry.events.items()} if registry else {}
    schema = schemas.get(event_type) or {}
    part = SchemaPart(schema)
    return {name: Decimal for name in schema.get("properties", ()) if part.at([name]).is_decimal}


class Filters(NamedTuple):
    """Filters of a list of dead letters."""

    feature: str | None
    event_type: str | None
    entity_id: str | None
    since: datetime | None
    before: datetime | None

    async def letters(self, store: AnyStore, limit: int) -> list[DeadLetter]:
        """Return the matching dead letters, oldest first."""
        letters: list[DeadLetter] = []
        while size := min(limit - len(letters), MOST_LETTERS):
            after = letters[-1].id if letters else None
            page = await store.dead_letters.list(**self._asdict(), after=after, limit=size)
            letters += page
            if len(page) < size:
                break
        return letters


@dlq.command("list")
def list_letters(
    call: CommandCall,
    *,
    feature: OfFeature = None,
    event_type: OfEventType = None,
    entity_id: OfEntity = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 100,
) -> None:
    """List dead letters, oldest first."""
    filters = Filters(feature, event_type, entity_id, *call.span(since, before))
    letters = call.run(lambda store: filters.letters(store, limit))
    now = call.store.clock.now()
    rows = [
        (
            letter.id,
            letter.feature,
            letter.event.event_type,
            letter.event.entity_id,
            letter.attempts,
            format_duration(int((now - letter.dead_at).total_seconds() * 1000)),
            letter.error,
        )
        for letter in letters
    ]
    columns = ("id", "feature", "event type", "entity id", "attempts", "age", "error")
    call.show_table(letters, columns, rows, empty="No dead letters.")
    if not letters:
        hint_at_unknown_names(call, feature=feature, entity_id=entity_id)


@dlq.command("show")
def show_letter(call: CommandCall, letter_id: str) -> None:
    """Show one dead letter with its event, error and traceback.

    Args:
        letter_id ID: Id of the dead letter.
    """
    letter = call.run(lambda store: store.dead_letters.get(letter_id))

    def print_letter() -> None:
        print_facts(
            {
                "id": letter.id,
                "feature": letter.feature,
                "error": letter.error,
                "attempts": letter.attempts,
                "first failed": letter.first_failed_at,
                "dead at": letter.dead_at,
                "group": letter.group,
                "partition": letter.partition,
                "position": letter.position,
                "event type": letter.event.event_type,
                "entity id": letter.event.entity_id,
                "event id": letter.event.event_id,
                "timestamp": letter.event.timestamp,
                "payload": letter.event.payload,
            }
        )
        typer.echo(f"\n{printable_lines(letter.traceback.rstrip())}")

    call.show(letter, print_letter)


@dlq.command("redrive", summary="Run dead letters again, each only for the feature that failed.")
@dlq.command("discard", summary="Delete dead letters, but not their events.")
def settle(
    call: CommandCall,
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", show_default=False)] = None,
    *,
    every: Annotated[bool, typer.Option("--all")] = False,
    feature: OfFeature = None,
    event_type: OfEventType = None,
    entity_id: OfEntity = None,
    since: Since = None,
    before: Before = None,
    yes: Yes = False,
) -> None:
    """Redrive or discard the selected dead letters.

    Args:
        ids: Ids of dead letters; either these or --all.
        every: Select all dead letters that match the options.
    """
    verb = str(context.info_name)
    filters = Filters(feature, event_type, entity_id, *call.span(since, before))
    if ids and every:
        raise typer.BadParameter("cannot combine ids with --all; pass one of them")
    if not ids and not every:
        raise typer.BadParameter("no dead letters selected; pass their ids, or --all")
    if ids and any(filters):
        raise typer.BadParameter("filters need --all; they cannot be combined with ids")
    asks = not yes and (every or verb == "discard")
    if asks and every and verb == "discard":
        check_terminal("discard")

    async def select(store: AnyStore) -> list[str]:
        return ids or [letter.id for letter in await filters.letters(store, sys.maxsize)]

    # Ask outside of the event loop, which would keep Ctrl-C from ending the question.
    selected = list(dict.fromkeys(call.run(select)))
    count = pluralize(len(selected), "dead letter")
    if selected and asks and is_interactive():
        typer.confirm(f"{verb.capitalize()} {count}?", abort=True)

    async def settle(store: AnyStore) -> None:
        letters = store.dead_letters
        settle = letters.redrive if verb == "redrive" else letters.discard
        for start in range(0, len(selected), MOST_LETTERS):
            await settle(*selected[start : start + MOST_LETTERS])

    call.run(settle)
    if verb == "redrive":
        call.show({"redriven": selected}, f"Queued {count} to run again.")
    else:
        call.show({"discarded": selected}, f"Discarded {count}.")
    if not selected:
        hint_at_unknown_names(call, feature=feature, entity_id=entity_id)
