"""`headwater groups`: consumer groups, each of which gets every event."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from headwater.cli.options import AnyStore, AsJson, StoreOption, bare_or_remote, command_group
from headwater.cli.output import is_interactive, pluralize, print_json, print_table, span_text
from headwater.cli.runner import run
from headwater.errors import GroupInUseError, UnknownGroupError
from headwater.model.admin import ConsumerGroup

app = command_group("List and drop consumer groups.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the group.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
GROUP_COLUMNS = ("group", "workers", "waiting", "oldest", "last commit")


@app.command("list")
def list_(*, file: StoreOption = None, as_json: AsJson = False) -> None:
    """List the consumer groups with their live workers, waiting events and last commit."""
    store = bare_or_remote(file)
    groups = run(store, lambda store: store.admin.groups())
    if as_json:
        print_json(groups)
    elif groups:
        print_table(GROUP_COLUMNS, group_rows(groups, store.clock.now()))
    else:
        typer.echo("No consumer groups: no worker has run yet.")


@app.command()
def drop(
    name: Name, *, yes: Yes = False, file: StoreOption = None, as_json: AsJson = False
) -> None:
    """Forget a group without live workers, so that events are no longer kept for it."""
    store = bare_or_remote(file)
    group = run(store, lambda store: _find(store, name))
    waiting = pluralize(group.waiting, "waiting event")
    if not yes:
        if not is_interactive():
            raise typer.BadParameter(
                "cannot ask for confirmation without a terminal; pass --yes to drop the group"
            )
        typer.confirm(f"Drop consumer group {name}, which has {waiting}?", abort=True)
    run(store, lambda store: store.admin.drop_group(name))
    if as_json:
        print_json({"dropped": name, "waiting": group.waiting})
    else:
        typer.echo(f"Dropped consumer group {name}, which had {waiting}.")


async def _find(store: AnyStore, name: str) -> ConsumerGroup:
    groups = {group.name: group for group in await store.admin.groups()}
    if name not in groups:
        raise UnknownGroupError(name, groups)
    if groups[name].workers:
        raise GroupInUseError(name, groups[name].workers)
    return groups[name]


def group_rows(groups: Sequence[ConsumerGroup], now: datetime) -> list[tuple[object, ...]]:
    """Return the rows of the table of consumer groups."""
    return [
        (
            group.name,
            len(group.workers),
            group.waiting,
            span_text(age_ms(group.oldest_at, now)),
            span_text(age_ms(group.committed_at, now)),
        )
        for group in groups
    ]


def age_ms(since: datetime | None, now: datetime) -> int | None:
    """Return the age of a time; not negative, even if the server's clock is ahead."""
    return None if since is None else max(0, int((now - since).total_seconds() * 1000))
