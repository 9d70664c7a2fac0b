"""`headwater dlq`: the events that features could not handle."""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import typer

from headwater.cli.options import AsJson, StoreOption, bare_store, verbs
from headwater.cli.output import on_terminal, print_json, print_table, shown
from headwater.cli.running import run
from headwater.durations import format_duration
from headwater.errors import UnknownDeadLetterError
from headwater.ports import DeadLetter, DeadLetters
from headwater.store import FeatureStore

app = verbs("Look at dead letters, run them again or discard them.")

_EVERY = 1_000_000_000

Feature = Annotated[str | None, typer.Option(help="Only those of this feature.")]
EventType = Annotated[str | None, typer.Option(help="Only those of this event type.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="ID...", show_default=False, help="Which ones.")
]
Every = Annotated[bool, typer.Option("--all", help="All of them, or all that the options select.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Selection(NamedTuple):
    """Which dead letters a verb is for."""

    ids: list[str] | None
    every: bool
    feature: str | None
    event_type: str | None

    def check(self) -> None:
        if bool(self.ids) == self.every:
            raise typer.BadParameter("name the dead letters by id, or pass --all")
        if self.ids and (self.feature or self.event_type):
            raise typer.BadParameter("--feature and --event-type go with --all, not with ids")

    async def among(self, letters: DeadLetters) -> list[str]:
        if self.ids:
            return list(dict.fromkeys(self.ids))
        found = await letters.letters(
            feature=self.feature, event_type=self.event_type, limit=_EVERY
        )
        return [letter.id for letter in found]


@app.command("list")
def list_(
    *,
    feature: Feature = None,
    event_type: EventType = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, oldest first."""
    store = bare_store(file)

    async def read(store: FeatureStore) -> list[DeadLetter]:
        letters = await _letters(store)
        return await letters.letters(feature=feature, event_type=event_type, limit=limit)

    letters = run(store, read)
    if as_json:
        print_json(letters)
    elif letters:
        print_letters(letters, store.clock.now())
    else:
        typer.echo("No dead letters.")


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="Which one.")],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter whole: the event, the error and where it was raised."""

    async def read(store: FeatureStore) -> DeadLetter:
        for letter in await (await _letters(store)).letters(limit=_EVERY):
            if letter.id == letter_id:
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
    yes: Yes = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again, each for the feature that failed and no other."""
    selection = Selection(ids, every, feature, event_type)
    done = _settle("redrive", selection, bare_store(file), ask=every and not yes)
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
    yes: Yes = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Throw dead letters away; their events stay in the event log."""
    selection = Selection(ids, every, feature, event_type)
    done = _settle("discard", selection, bare_store(file), ask=not yes)
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

    async def settle(store: FeatureStore) -> list[str]:
        letters = await _letters(store)
        ids = await selection.among(letters)
        if ids and ask and on_terminal():
            typer.confirm(f"{verb} {_counted(ids)}?", abort=True)
        if verb == "redrive":
            await letters.redrive(ids)
        else:
            await letters.discard(ids)
        return ids

    return run(store, settle)


async def _letters(store: FeatureStore) -> DeadLetters:
    return (await store.open()).backends.dead_letters


def _counted(ids: list[str]) -> str:
    return f"{len(ids)} dead letter{'' if len(ids) == 1 else 's'}"
