"""`headwater dlq`: the events that features could not handle."""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import typer

from headwater.cli.not_found_hints import Named, note_doubts_at_hand
from headwater.cli.options import AsJson, StoreOption, bare_store, moment, verbs
from headwater.cli.output import counted, on_terminal, print_json, print_table, shown
from headwater.cli.runner import run
from headwater.core.durations import format_duration
from headwater.errors import UnknownDeadLetterError
from headwater.ports import DeadLetter
from headwater.store.feature_store import FeatureStore

app = verbs("Look at dead letters, run them again or discard them.")

_EVERY = 1_000_000_000

Feature = Annotated[str | None, typer.Option(help="Only those of this feature.")]
EventType = Annotated[str | None, typer.Option(help="Only those of this event type.")]
EntityId = Annotated[str | None, typer.Option(help="Only those of this entity.")]
Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only those given up since: 2h ago, or a time.")
]
Before = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only those given up before: 2h ago, or a time.")
]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID...", show_default=False, help="Which ones.")
]
Every = Annotated[bool, typer.Option("--all", help="All of them, or all that the options select.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Filters(NamedTuple):
    """What dead letters have in common that a verb is for."""

    feature: str | None
    event_type: str | None
    entity_id: str | None
    since: datetime | None
    before: datetime | None

    async def letters(self, store: FeatureStore, limit: int) -> list[DeadLetter]:
        """Those that fit, oldest first."""
        return await store.dead_letters.list(**self._asdict(), limit=limit)


def read_filters(
    now: datetime,
    feature: str | None,
    event_type: str | None,
    entity_id: str | None,
    since: str | None,
    before: str | None,
) -> Filters:
    """The filters as they were written."""
    times = [None if text is None else moment(text, now) for text in (since, before)]
    return Filters(feature, event_type, entity_id, *times)


class Selection(NamedTuple):
    """Which dead letters a verb is for."""

    ids: list[str] | None
    every: bool
    filters: Filters

    def check(self) -> None:
        if self.ids and self.every:
            raise typer.BadParameter("both ids and --all were given; give only one of them")
        if not self.ids and not self.every:
            raise typer.BadParameter("name the dead letters by id, or pass --all")
        if self.ids and any(self.filters):
            raise typer.BadParameter("filters go with --all, not with ids")

    async def among(self, store: FeatureStore) -> list[str]:
        if self.ids:
            return list(dict.fromkeys(self.ids))
        return [letter.id for letter in await self.filters.letters(store, _EVERY)]


@app.command("list")
def list_(
    *,
    feature: Feature = None,
    event_type: EventType = None,
    entity_id: EntityId = None,
    since: Since = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
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
        note_doubts_at_hand(Named(feature=feature, entity_id=entity_id), file)


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="Which one.")],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter whole: the event, the error and where it was raised."""

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
        "given up": letter.dead_at,
        "partition": letter.partition,
        "position": letter.position,
        "event type": letter.event.event_type,
        "entity id": letter.event.entity_id,
        "event id": letter.event.event_id,
        "timestamp": letter.event.timestamp,
        "payload": letter.event.payload,
    }
    for name, value in facts.items():
        typer.echo(f"{name:<13} {shown(value)}")
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
    """Run dead letters again, each for the feature that failed and no other."""
    store = bare_store(file)
    filters = read_filters(store.clock.now(), feature, event_type, entity_id, since, before)
    done = _settle("redrive", Selection(ids, every, filters), store, ask=every and not yes)
    if as_json:
        print_json({"redriven": done})
    else:
        typer.echo(f"{_counted(done)} will be run again by the next worker.")


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
    """Throw dead letters away; their events stay in the event log."""
    store = bare_store(file)
    filters = read_filters(store.clock.now(), feature, event_type, entity_id, since, before)
    done = _settle("discard", Selection(ids, every, filters), store, ask=not yes)
    if as_json:
        print_json({"discarded": done})
    else:
        typer.echo(f"{_counted(done)} discarded.")


def print_letters(letters: list[DeadLetter], now: datetime) -> None:
    """Prints dead letters as a table."""
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
    verb: Literal["redrive", "discard"], selection: Selection, store: FeatureStore, *, ask: bool
) -> list[str]:
    """Redrives or discards what is selected; gives the ids."""
    selection.check()
    if ask and verb == "discard" and selection.every and not on_terminal():
        raise typer.BadParameter("nobody can be asked without a terminal; pass --yes to discard")

    # Asked outside of the loop, which would keep Ctrl-C from ending the question.
    ids = run(store, selection.among)
    if ids and ask and on_terminal():
        typer.confirm(f"{verb} {_counted(ids)}?", abort=True)
    run(
        store,
        lambda store: (
            store.dead_letters.redrive(*ids)
            if verb == "redrive"
            else store.dead_letters.discard(*ids)
        ),
    )
    return ids


def _counted(ids: list[str]) -> str:
    return counted(len(ids), "dead letter")
