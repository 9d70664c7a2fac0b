"""`headwater lag`: waiting events of each partition."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from headwater.cli.groups import GROUP_COLUMNS, age_ms, group_rows
from headwater.cli.options import AnyStore, AsJson, StoreArgument, bare_or_remote, command_group
from headwater.cli.output import (
    fitted_table,
    is_interactive,
    pluralize,
    print_json,
    print_table,
    span_text,
)
from headwater.cli.runner import run
from headwater.model.admin import ConsumerGroup, ConsumerLag

app = command_group("Show how many events are waiting, and for how long.")

_COLUMNS = ("partition", "owner", "waiting", "oldest")
_WATCH_SECONDS = 1.0


@app.command()
def lag(
    file: StoreArgument = None,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C; needs a terminal."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the waiting events of each partition, the age of the oldest, and the worker.

    If the store has several consumer groups, a second table shows all of them.
    """
    store = bare_or_remote(file)
    if watch:
        if as_json or not is_interactive():
            raise typer.BadParameter("--watch needs a terminal and cannot be combined with --json")
        with suppress(KeyboardInterrupt):
            run(store, _watch)
        return
    lags, groups = run(store, _read)
    now = store.clock.now()
    if as_json:
        oldest = oldest_of(lags)
        print_json(
            {
                "waiting": sum(lag.waiting for lag in lags),
                "oldest_at": oldest,
                "age_ms": age_ms(oldest, now),
                "partitions": lags,
                "groups": groups,
            }
        )
        return
    print_table(_COLUMNS, lag_rows(lags, now))
    if any(group.name != store.settings.worker.consumer_group for group in groups):
        typer.echo()
        print_table(GROUP_COLUMNS, group_rows(groups, now))


async def _read(store: AnyStore) -> tuple[list[ConsumerLag], list[ConsumerGroup]]:
    return await store.admin.lag(), await store.admin.groups()


def lag_rows(lags: Sequence[ConsumerLag], now: datetime) -> list[tuple[object, ...]]:
    """Return the rows of the table: each partition, the SQL ticks, and the total."""
    ticks = len(lags) - 1  # the last one
    rows: list[tuple[object, ...]] = [
        (
            lag.partition if lag.partition < ticks else f"{lag.partition} (SQL ticks)",
            lag.owner,
            lag.waiting,
            span_text(age_ms(lag.oldest_at, now)),
        )
        for lag in lags
    ]
    owners = len({lag.owner for lag in lags if lag.owner})
    waiting = sum(lag.waiting for lag in lags)
    return [
        *rows,
        ("all", pluralize(owners, "worker"), waiting, span_text(age_ms(oldest_of(lags), now))),
    ]


def oldest_of(lags: Sequence[ConsumerLag]) -> datetime | None:
    """Return the time of the oldest waiting event."""
    return min((lag.oldest_at for lag in lags if lag.oldest_at), default=None)


async def _watch(store: AnyStore) -> None:
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            lags = await store.admin.lag()
            rows = lag_rows(lags, store.clock.now())
            live.update(fitted_table(_COLUMNS, rows), refresh=True)
            await asyncio.sleep(_WATCH_SECONDS)
