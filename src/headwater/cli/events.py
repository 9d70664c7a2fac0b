"""`headwater events`: publish events, and read the log of events."""

from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headwater.cli.hints import hint_at_unknown_events
from headwater.cli.key_value_args import parse_values
from headwater.cli.options import (
    AnyStore,
    AsJson,
    Before,
    Since,
    StoreOption,
    bare_or_remote,
    command_group,
    is_project,
    no_time_zone,
    parse_span,
    parse_time,
)
from headwater.cli.output import note, print_facts, print_json, print_table
from headwater.cli.runner import run
from headwater.cli.utf8_args import check_utf8
from headwater.errors import EventError
from headwater.model.dead_letters import DeadLetter
from headwater.model.events import AcceptedEvent, LoggedEvent
from headwater.model.values import ServiceEvent
from headwater.store.feature_store import FeatureStore

if TYPE_CHECKING:
    from headwater.client import AsyncClient

app = command_group("Publish, list and show events.")

_MANY = 10_000


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
        fields = {field: getattr(self, field) for field in self.__struct_fields__}
        return ServiceEvent(**{k: v for k, v in fields.items() if v is not msgspec.UNSET})


@app.command()
def publish(
    event_type: Annotated[
        str,
        typer.Argument(
            metavar="EVENT_TYPE",
            help="Type of the event, or - to read a batch from stdin, one JSON event per line.",
        ),
    ],
    entity_id: Annotated[
        str | None,
        typer.Argument(metavar="ENTITY_ID", show_default=False, help="Id of the entity."),
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAYLOAD...", show_default=False, help="One JSON object, or key=value pairs."
        ),
    ] = None,
    *,
    event_id: Annotated[
        str | None, typer.Option(help="Your own id; an event that repeats it is ignored.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="Time of the event, with a time zone. Default: now.")
    ] = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event, or a batch from stdin.

    The command returns when all events are on disk.
    """
    batch = event_type == "-"
    if batch and (entity_id or payload or event_id or timestamp):
        raise typer.BadParameter(
            "- reads events from stdin and takes no other arguments; remove them"
        )
    if batch:
        events = read_lines(typer.get_binary_stream("stdin"))
    else:
        events = [_one_event(event_type, entity_id, payload or [], event_id, timestamp)]
    if not events:
        note("stdin is empty; no events were published.")
        if as_json:
            print_json([])
        return

    store = bare_or_remote(file)
    dedup = batch or event_id is not None
    results = run(
        store, lambda store: _publish(store, events, dedup=dedup), create=is_project(file)
    )
    if as_json:
        without_hints = [msgspec.structs.replace(result, hint=None) for result in results]
        print_json(without_hints if batch else without_hints[0])
    else:
        _print_results(results)
    _hint(store, file, results)


async def _publish(
    store: "FeatureStore | AsyncClient", events: Sequence[ServiceEvent], *, dedup: bool
) -> Sequence[AcceptedEvent]:
    if not isinstance(store, FeatureStore):
        return await store.bus.send(events)
    published = await store.bus.publish_many(events, dedup=dedup)
    return [
        AcceptedEvent(
            result.event_id, event.event_type, event.entity_id, event.timestamp, result.duplicate
        )
        for event, result in zip(events, published, strict=True)
    ]


def _hint(
    store: "FeatureStore | AsyncClient", file: Path | None, results: Sequence[AcceptedEvent]
) -> None:
    """Print a note for each event type that triggers no feature."""
    if not isinstance(store, FeatureStore):
        for hint in dict.fromkeys(result.hint for result in results if result.hint):
            note(hint)
    elif file is None:  # the store of a features file knows its event types, and logs the others
        hint_at_unknown_events(file, store, [result.event_type for result in results])


@app.command("list")
def list_(
    *,
    event_type: Annotated[str | None, typer.Option(help="Only events of this type.")] = None,
    entity_id: Annotated[str | None, typer.Option(help="Only events of this entity.")] = None,
    since: Since = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number.")] = 20,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List accepted events, newest first, whether or not a worker has handled them."""
    store = bare_or_remote(file)
    start, end = parse_span(since, before, store.clock.now())
    logged = run(
        store,
        lambda store: store.bus.list(
            event_type=event_type, entity_id=entity_id, since=start, before=end, limit=limit
        ),
    )
    if as_json:
        print_json([_plain(entry) for entry in logged])
    elif logged:
        columns = ("timestamp", "event type", "entity id", "event id", "payload")
        print_table(columns, [_row(entry.event) for entry in logged])
    else:
        typer.echo("No events.")
    if not logged and event_type is not None:
        hint_at_unknown_events(file, store, [event_type])


@app.command()
def show(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="Id of the event.")],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show an event with its payload and its dead letters.

    Entities may use the same event id; then each of their events is shown.
    """

    async def read(store: AnyStore) -> tuple[list[LoggedEvent], list[DeadLetter]]:
        entries = await store.bus.list(event_id=event_id)
        letters: list[DeadLetter] = []
        for entity_id in {entry.event.entity_id for entry in entries}:
            letters += await store.dead_letters.list(entity_id=entity_id, limit=_MANY)
        return entries, [letter for letter in letters if letter.event.event_id == event_id]

    entries, letters = run(bare_or_remote(file), read)
    if not entries:
        raise EventError(f"no event has the id {event_id!r}; see `headwater events list`")
    if as_json:
        print_json({"events": [_plain(entry) for entry in entries], "dead_letters": letters})
        return
    for entry in entries:
        failed = [letter.feature for letter in letters if letter.event == entry.event]
        print_facts(_facts(entry, failed))


def _plain(logged: LoggedEvent) -> dict[str, object]:
    return {**msgspec.to_builtins(logged.event), "received_at": logged.received_at}


def _row(event: ServiceEvent) -> tuple[object, ...]:
    payload = msgspec.json.encode(event.payload).decode()
    return event.timestamp, event.event_type, event.entity_id, event.event_id, payload


def _facts(logged: LoggedEvent, failed: Sequence[str]) -> dict[str, object]:
    event = logged.event
    return {
        "event id": event.event_id,
        "event type": event.event_type,
        "entity id": event.entity_id,
        "timestamp": event.timestamp,
        "received at": logged.received_at,
        "dead letters": ", ".join(failed) or "–",
        "payload": event.payload,
    }


def read_lines(lines: Iterable[bytes]) -> list[ServiceEvent]:
    """Return the events of a batch; raise EventError with the line number if one is invalid."""
    events: list[ServiceEvent] = []
    for number, line in enumerate(lines, 1):
        try:
            text = _text(line.removeprefix(BOM_UTF8) if number == 1 else line)
            if text.strip():
                events.append(msgspec.json.decode(text, type=InputLine).event())
        except (msgspec.DecodeError, RecursionError, EventError) as error:
            raise EventError(f"line {number}: {error}; nothing was published") from error
    return events


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise EventError(
            f"not UTF-8 (byte {error.object[error.start]:#x} at {error.start}); convert the events "
            "to UTF-8"
        ) from error


def _one_event(
    event_type: str,
    entity_id: str | None,
    payload: Sequence[str],
    event_id: str | None,
    timestamp: str | None,
) -> ServiceEvent:
    if entity_id is None:
        raise typer.BadParameter(
            "missing ENTITY_ID; write the id of the entity after the event type"
        )
    check_utf8([event_type, entity_id, *payload, event_id], "nothing was published")
    line = InputLine(event_type, entity_id, parse_values(payload, "payload"))
    if event_id is not None:
        line.event_id = event_id
    if timestamp is not None:
        line.timestamp = parse_time(timestamp)
    return line.event()


def _print_results(results: Sequence[AcceptedEvent]) -> None:
    rows = [
        (
            result.event_type,
            result.entity_id,
            result.event_id,
            "duplicate" if result.duplicate else "new",
        )
        for result in results
    ]
    print_table(("event type", "entity id", "event id", "published"), rows)
