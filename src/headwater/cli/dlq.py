"""`headwater dlq`: dead letters, the events that a feature failed to handle."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import typer

from headwater.cli.hints import hint_at_unknown_names
from headwater.cli.options import AsJson, StoreOption, bare_store, command_group, parse_when
from headwater.cli.output import cell_text, is_interactive, pluralize, print_json, print_table
from headwater.cli.runner import run
from headwater.core.durations import format_duration
from headwater.errors import UnknownDeadLetterError
from headwater.ports import DeadLetter
from headwater.store.feature_store import FeatureStore

app = command_group("List, show, redrive and discard dead letters.")

_NO_LIMIT = 1_000_000_000

Feature = Annotated[str | None, typer.Option(help="Only dead letters of this feature.")]
EventType = Annotated[str | None, typer.Option(help="Only dead letters of this event type.")]
EntityId = Annotated[str | None, typer.Option(help="Only dead letters of this entity.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Only if created since: a duration such as 2h, or a time."),
]
Before = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Only if created before: a duration such as 2h, or a time."),
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", show_default=False, help="Ids of dead letters."),
]
Every = Annotated[
    bool, typer.Option("--all", help="Select all dead letters that match the options.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class Filters(NamedTuple):
    """Filters of a list of dead letters."""

    feature: str | None
    event_type: str | None
    entity_id: str | None
    since: datetime | None
    before: datetime | None

    async def letters(self, store: FeatureStore, limit: int) -> list[DeadLetter]:
        """Return the matching dead letters, oldest first."""
        return await store.dead_letters.list(**self._asdict(), limit=limit)


def read_filters(
    now: datetime,
    feature: str | None,
    event_type: str | None,
    entity_id: str | None,
    since: str | None,
    before: str | None,
) -> Filters:
    """Return the filters, with the times parsed."""
    times = [None if text is None else parse_when(text, now) for text in (since, before)]
    return Filters(feature, event_type, entity_id, *times)


class Selection(NamedTuple):
    """The dead letters that a command selects, by id or by filter."""

    ids: list[str] | None
    every: bool
    filters: Filters

    def check(self) -> None:
        if self.ids and self.every:
            raise typer.BadParameter("cannot combine ids with --all; pass one of them")
        if not self.ids and not self.every:
            raise typer.BadParameter("no dead letters selected; pass their ids, or --all")
        if self.ids and any(self.filters):
            raise typer.BadParameter("filters need --all; they cannot be combined with ids")

    async def among(self, store: FeatureStore) -> list[str]:
        if self.ids:
            return list(dict.fromkeys(self.ids))
        return [letter.id for letter in await self.filters.letters(store, _NO_LIMIT)]


@app.command("list")
def list_(
    *,
    feature: Feature = None,
    event_type: EventType = None,
    entity_id: EntityId = None,
    since: Since = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number.")] = 100,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, oldest first."""
    store = bare_store(file)
    filters = read_filters(store.clock.now(), feature, event_type, entity_id, since, before)
    letters = run(store, lambda store: filters.letters(store, limit))
    if as_json:
        print_json(letters)
    elif letters:
        print_letters(letters, store.clock.now())
    else:
        typer.echo("No dead letters.")
    if not letters:
        hint_at_unknown_names(file, feature=feature, entity_id=entity_id)


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the dead letter.")],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its event, error and traceback."""

    async def read(store: FeatureStore) -> DeadLetter:
        for letter in await store.dead_letters.list(ids=[letter_id]):
            return letter
        raise UnknownDeadLetterError(letter_id)

    letter = run(bare_store(file), read)
    if as_json:
        print_json(letter)
        return
    facts = {
        "id": letter.id,
        "feature": letter.feature,
        "error": letter.error,
        "attempts": letter.attempts,
        "first failed": letter.first_failed_at,
        "dead at": letter.dead_at,
        "partition": letter.partition,
        "position": letter.position,
        "event type": letter.event.event_type,
        "entity id": letter.event.entity_id,
        "event id": letter.event.event_id,
        "timestamp": letter.event.timestamp,
        "payload": letter.event.payload,
    }
    for name, value in facts.items():
        typer.echo(f"{name:<13} {cell_text(value)}")
    typer.echo(f"\n{letter.traceback.rstrip()}")


@app.command()
def redrive(
    ids: Ids = None,
    *,
    every: Every = False,
    feature: Feature = None,
    event_type: EventType = None,
    entity_id: EntityId = None,
    since: Since = None,
    before: Before = None,
    yes: Yes = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again.

    Each runs only for the feature that failed.
    """
    store = bare_store(file)
    filters = read_filters(store.clock.now(), feature, event_type, entity_id, since, before)
    done = _settle("redrive", Selection(ids, every, filters), store, confirm=every and not yes)
    if as_json:
        print_json({"redriven": done})
    else:
        typer.echo(f"Queued {_count(done)} to run again.")


@app.command()
def discard(
    ids: Ids = None,
    *,
    every: Every = False,
    feature: Feature = None,
    event_type: EventType = None,
    entity_id: EntityId = None,
    since: Since = None,
    before: Before = None,
    yes: Yes = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters, but not their events."""
    store = bare_store(file)
    filters = read_filters(store.clock.now(), feature, event_type, entity_id, since, before)
    done = _settle("discard", Selection(ids, every, filters), store, confirm=not yes)
    if as_json:
        print_json({"discarded": done})
    else:
        typer.echo(f"Discarded {_count(done)}.")


def print_letters(letters: list[DeadLetter], now: datetime) -> None:
    """Print dead letters as a table."""
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
    print_table(("id", "feature", "event type", "entity id", "attempts", "age", "error"), rows)


def _settle(
    verb: Literal["redrive", "discard"], selection: Selection, store: FeatureStore, *, confirm: bool
) -> list[str]:
    """Redrive or discard the selected dead letters, and return their ids."""
    selection.check()
    if confirm and verb == "discard" and selection.every and not is_interactive():
        raise typer.BadParameter(
            "cannot ask for confirmation without a terminal; pass --yes to discard"
        )

    # Ask outside of the event loop, which would keep Ctrl-C from ending the question.
    ids = run(store, selection.among)
    if ids and confirm and is_interactive():
        typer.confirm(f"{verb.capitalize()} {_count(ids)}?", abort=True)

    def settle(store: FeatureStore) -> Awaitable[None]:
        letters = store.dead_letters
        return letters.redrive(*ids) if verb == "redrive" else letters.discard(*ids)

    run(store, settle)
    return ids


def _count(ids: list[str]) -> str:
    return pluralize(len(ids), "dead letter")
