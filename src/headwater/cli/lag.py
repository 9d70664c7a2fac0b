"""`headwater lag`: what waits in each partition."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from headwater.cli.options import AsJson, StoreArgument, bare_store, verbs
from headwater.cli.output import counted, fitted_table, on_terminal, print_json, print_table
from headwater.cli.runner import run
from headwater.core.durations import format_duration
from headwater.ports import ConsumerLag
from headwater.store.feature_store import FeatureStore

app = verbs("Show how many events wait.")

_COLUMNS = ("partition", "owner", "waiting", "oldest")
_WATCH_SECONDS = 1.0


@app.command()
def lag(
    file: StoreArgument = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it anew every second, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how many events wait in each partition, since when the oldest does, and who has it."""
    store = bare_store(file)
    if watch:
        if as_json or not on_terminal():
            raise typer.BadParameter("--watch is for a person at a terminal")
        with suppress(KeyboardInterrupt):
            run(store, _watch)
        return
    lags = run(store, lambda store: store.admin.lag())
    now = store.clock.now()
    if as_json:
        oldest = oldest_of(lags)
        print_json(
            {
                "waiting": sum(lag.waiting for lag in lags),
                "oldest_at": oldest,
                "age_ms": age_ms(oldest, now),
                "partitions": lags,
            }
        )
    else:
        print_table(_COLUMNS, lag_rows(lags, now, store.settings.partitions))


def lag_rows(
    lags: Sequence[ConsumerLag], now: datetime, partitions: int
) -> list[tuple[object, ...]]:
    """The rows of the table: one for each partition of entities, for the ticks, and for all."""
    rows: list[tuple[object, ...]] = [
        (
            lag.partition if lag.partition < partitions else f"{lag.partition} (SQL ticks)",
            lag.owner,
            lag.waiting,
            _age(lag.oldest_at, now),
        )
        for lag in lags
    ]
    owners = len({lag.owner for lag in lags if lag.owner})
    waiting = sum(lag.waiting for lag in lags)
    return [*rows, ("all", counted(owners, "worker"), waiting, _age(oldest_of(lags), now))]


def oldest_of(lags: Sequence[ConsumerLag]) -> datetime | None:
    """Since when the oldest event of all partitions waits."""
    return min((lag.oldest_at for lag in lags if lag.oldest_at), default=None)


def age_ms(since: datetime | None, now: datetime) -> int | None:
    """How long ago a moment was; a server's clock may be a little ahead of ours."""
    return None if since is None else max(0, int((now - since).total_seconds() * 1000))


def _age(since: datetime | None, now: datetime) -> str | None:
    age = age_ms(since, now)
    return None if age is None else format_duration(age)


async def _watch(store: FeatureStore) -> None:
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            lags = await store.admin.lag()
            rows = lag_rows(lags, store.clock.now(), store.settings.partitions)
            live.update(fitted_table(_COLUMNS, rows), refresh=True)
            await asyncio.sleep(_WATCH_SECONDS)
