"""`headwater events`: publishing what happened."""

from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.key_value_args import read_pairs
from headwater.cli.options import AsJson, StoreOption, bare_store, read_time, verbs, without_zone
from headwater.cli.output import note, print_json, print_table
from headwater.cli.runner import run
from headwater.cli.utf8_args import check_event_bytes
from headwater.core.values import ServiceEvent
from headwater.errors import EventError
from headwater.ports import PublishResult
from headwater.store.feature_store import FeatureStore

app = verbs("Publish events.")


@app.callback()
def events() -> None:
    """Publish events."""


class InputLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One event of a batch, as a line of JSON."""

    event_type: str
    entity_id: str
    payload: dict[str, Any] = {}
    timestamp: datetime | msgspec.UnsetType = msgspec.UNSET
    event_id: str | msgspec.UnsetType = msgspec.UNSET

    def event(self) -> ServiceEvent:
        if isinstance(self.timestamp, datetime) and self.timestamp.tzinfo is None:
            raise EventError(without_zone(self.timestamp))
        given = {field: getattr(self, field) for field in self.__struct_fields__}
        return ServiceEvent(**{k: v for k, v in given.items() if v is not msgspec.UNSET})


@app.command()
def publish(
    event_type: Annotated[
        str,
        typer.Argument(
            metavar="EVENT_TYPE",
            help="What happened; - reads a batch from stdin, one JSON event a line.",
        ),
    ],
    entity_id: Annotated[
        str | None,
        typer.Argument(metavar="ENTITY_ID", show_default=False, help="To whom it happened."),
    ] = None,
    payload: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PAYLOAD...", show_default=False, help="One JSON object, or key=value pairs."
        ),
    ] = None,
    *,
    event_id: Annotated[
        str | None, typer.Option(help="An id of your own; an event repeated under it counts once.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(help="When it happened, with a time zone; now by default.")
    ] = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event, or a batch from stdin, durably."""
    batch = event_type == "-"
    if batch and (entity_id or payload or event_id or timestamp):
        raise typer.BadParameter("- takes the whole events from stdin and nothing else with it")
    if batch:
        events = read_lines(typer.get_binary_stream("stdin"))
    else:
        events = [_one_event(event_type, entity_id, payload or [], event_id, timestamp)]
    if not events:
        note("Nothing was read from stdin, and nothing published.")
        if as_json:
            print_json([])
        return

    async def publish_all(store: FeatureStore) -> list[PublishResult]:
        return await store.bus.publish_many(events, dedup=batch or event_id is not None)

    answers = _answers(events, run(bare_store(file), publish_all, make=True))
    if as_json:
        print_json(answers if batch else answers[0])
        return
    rows = [
        (
            a["event_type"],
            a["entity_id"],
            a["event_id"],
            "counted before" if a["duplicate"] else "new",
        )
        for a in answers
    ]
    print_table(("event type", "entity id", "event id", "published"), rows)


def read_lines(lines: Iterable[bytes]) -> list[ServiceEvent]:
    """The events of a batch, or an error that names the line."""
    found: list[ServiceEvent] = []
    for number, line in enumerate(lines, 1):
        try:
            text = _text(line.removeprefix(BOM_UTF8) if number == 1 else line)
            if text.strip():
                found.append(msgspec.json.decode(text, type=InputLine).event())
        except (msgspec.DecodeError, RecursionError, EventError) as error:
            raise EventError(f"line {number}: {error}; nothing was published") from error
    return found


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise EventError(
            f"it is not UTF-8 (byte {error.object[error.start]:#x} at {error.start}); convert the "
            "events to UTF-8"
        ) from error


def _one_event(
    event_type: str,
    entity_id: str | None,
    payload: Sequence[str],
    event_id: str | None,
    timestamp: str | None,
) -> ServiceEvent:
    if entity_id is None:
        raise typer.BadParameter("name the entity that the event happened to, after its type")
    check_event_bytes([event_type, entity_id, *payload, event_id], "nothing was published")
    line = InputLine(event_type, entity_id, read_pairs(payload, "payload"))
    if event_id is not None:
        line.event_id = event_id
    if timestamp is not None:
        line.timestamp = read_time(timestamp)
    return line.event()


def _answers(
    events: Sequence[ServiceEvent], published: Sequence[PublishResult]
) -> list[dict[str, object]]:
    return [
        {
            "event_id": answer.event_id,
            "event_type": event.event_type,
            "entity_id": event.entity_id,
            "timestamp": event.timestamp,
            "duplicate": answer.duplicate,
        }
        for event, answer in zip(events, published, strict=True)
    ]
