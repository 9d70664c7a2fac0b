"""`headwater dlq`: dead letters, the events that a feature failed to handle."""

import sys
from datetime import datetime
from typing import Annotated, NamedTuple

import typer

from headwater.cli.hints import hint_at_unknown_names
from headwater.cli.options import (
    AnyStore,
    AsJson,
    Before,
    Since,
    StoreOption,
    bare_or_remote,
    command_group,
    parse_span,
)
from headwater.cli.output import (
    is_interactive,
    pluralize,
    print_facts,
    print_json,
    print_table,
)
from headwater.cli.runner import run
from headwater.core.durations import format_duration
from headwater.core.short_repr import printable_lines
from headwater.model.dead_letters import MOST_LETTERS, DeadLetter

app = command_group("List, show, redrive and discard dead letters.")

Feature = Annotated[str | None, typer.Option(help="Only dead letters of this feature.")]
EventType = Annotated[str | None, typer.Option(help="Only dead letters of this event type.")]
EntityId = Annotated[str | None, typer.Option(help="Only dead letters of this entity.")]
Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID...", show_default=False, help="Ids of dead letters; either these or --all."
    ),
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
    store = bare_or_remote(file)
    times = parse_span(since, before, store.clock.now())
    filters = Filters(feature, event_type, entity_id, *times)
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
    letter = run(bare_or_remote(file), lambda store: store.dead_letters.get(letter_id))
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
        "group": letter.group,
        "partition": letter.partition,
        "position": letter.position,
        "event type": letter.event.event_type,
        "entity id": letter.event.entity_id,
        "event id": letter.event.event_id,
        "timestamp": letter.event.timestamp,
        "payload": letter.event.payload,
    }
    print_facts(facts)
    typer.echo(f"\n{printable_lines(letter.traceback.rstrip())}")


@app.command("redrive", help="Run dead letters again, each only for the feature that failed.")
@app.command("discard", help="Delete dead letters, but not their events.")
def settle(
    context: typer.Context,
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
    """Redrive or discard the selected dead letters."""
    verb = str(context.info_name)
    store = bare_or_remote(file)
    times = parse_span(since, before, store.clock.now())
    filters = Filters(feature, event_type, entity_id, *times)
    _check_selection(ids, filters, every=every)
    confirm = not yes and (every or verb == "discard")
    if confirm and every and verb == "discard" and not is_interactive():
        raise typer.BadParameter(
            "cannot ask for confirmation without a terminal; pass --yes to discard"
        )

    async def select(store: AnyStore) -> list[str]:
        return ids or [letter.id for letter in await filters.letters(store, sys.maxsize)]

    # Ask outside of the event loop, which would keep Ctrl-C from ending the question.
    selected = list(dict.fromkeys(run(store, select)))
    count = pluralize(len(selected), "dead letter")
    if selected and confirm and is_interactive():
        typer.confirm(f"{verb.capitalize()} {count}?", abort=True)

    async def settle(store: AnyStore) -> None:
        letters = store.dead_letters
        settle = letters.redrive if verb == "redrive" else letters.discard
        for start in range(0, len(selected), MOST_LETTERS):
            await settle(*selected[start : start + MOST_LETTERS])

    run(store, settle)
    done, message = (
        ("redriven", f"Queued {count} to run again.")
        if verb == "redrive"
        else ("discarded", f"Discarded {count}.")
    )
    if as_json:
        print_json({done: selected})
    else:
        typer.echo(message)
    if not selected:
        hint_at_unknown_names(file, feature=feature, entity_id=entity_id)


def _check_selection(ids: list[str] | None, filters: Filters, *, every: bool) -> None:
    if ids and every:
        raise typer.BadParameter("cannot combine ids with --all; pass one of them")
    if not ids and not every:
        raise typer.BadParameter("no dead letters selected; pass their ids, or --all")
    if ids and any(filters):
        raise typer.BadParameter("filters need --all; they cannot be combined with ids")


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
