"""Commands of operators: lag, groups, audits, rebuilds, pruning, erasure, migration, backups."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from headwater.backends.connect import migrate as migrate_backends
from headwater.backends.connect import restore as restore_home
from headwater.cli.commands import (
    DECLARED,
    DECLARED_ARGUMENT,
    STORE,
    STORE_ARGUMENT,
    AnyStore,
    Before,
    CommandCall,
    Commands,
    Since,
    Yes,
    option_names,
    run,
)
from headwater.cli.output import (
    check_terminal,
    confirm,
    fitted_table,
    is_interactive,
    note,
    pluralize,
    print_table,
    progress_bar,
    second_text,
    span_text,
)
from headwater.errors import GroupInUseError, StoreMismatchError, UnknownGroupError
from headwater.model.admin import (
    BackupReport,
    ConsumerGroup,
    ConsumerLag,
    ForgetReport,
    PruneReport,
    RebuildReport,
    ServedReport,
    StoredValue,
)
from headwater.settings.loading import load
from headwater.settings.schema import on_servers

app = Commands()
groups = Commands(app, "groups", "List and drop consumer groups.", file=STORE)
_GROUP_COLUMNS = ("group", "workers", "waiting", "oldest", "last commit")
_LAG_COLUMNS = ("partition", "owner", "waiting", "oldest")
_WATCH_SECONDS = 1.0
_MOST_SHOWN = 20
_PRUNED = {"history": "past value", "events": "event", "records": "record"}


@groups.command("list")
def list_groups(call: CommandCall) -> None:
    """List the consumer groups with their live workers, waiting events and last commit."""
    listed = call.run(lambda store: store.admin.groups())
    rows = _group_rows(listed, call.store.clock.now())
    empty = "No consumer groups: no worker has run yet."
    call.show_table(listed, _GROUP_COLUMNS, rows, empty=empty)


@groups.command("drop")
def drop_group(call: CommandCall, name: str, *, yes: Yes = False) -> None:
    """Forget a group without live workers, so that events are no longer kept for it.

    Args:
        name: Name of the group.
    """

    async def find(store: AnyStore) -> ConsumerGroup:
        groups = {group.name: group for group in await store.admin.groups()}
        if name not in groups:
            raise UnknownGroupError(name, groups)
        if groups[name].workers:
            raise GroupInUseError(name, groups[name].workers)
        return groups[name]

    group = call.run(find)
    waiting = pluralize(group.waiting, "waiting event")
    if not yes:
        confirm(f"Drop consumer group {name}, which has {waiting}?", "drop the group")
    call.run(lambda store: store.admin.drop_group(name))
    dropped = {"dropped": name, "waiting": group.waiting}
    call.show(dropped, f"Dropped consumer group {name}, which had {waiting}.")


def _group_rows(groups: Sequence[ConsumerGroup], now: datetime) -> list[tuple[object, ...]]:
    return [
        (
            group.name,
            len(group.workers),
            group.waiting,
            span_text(_age_ms(group.oldest_at, now)),
            span_text(_age_ms(group.committed_at, now)),
        )
        for group in groups
    ]


def _age_ms(since: datetime | None, now: datetime) -> int | None:
    """Return the age of a time; not negative, even if the server's clock is ahead."""
    return None if since is None else max(0, int((now - since).total_seconds() * 1000))


@app.command(file=STORE_ARGUMENT)
def lag(
    call: CommandCall,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C; needs a terminal."),
    ] = False,
) -> None:
    """Show the waiting events of each partition, the age of the oldest, and the worker.

    If the store has several consumer groups, a second table shows all of them.
    """
    if watch:
        if call.as_json or not is_interactive():
            raise typer.BadParameter("--watch needs a terminal and cannot be combined with --json")
        with suppress(KeyboardInterrupt):
            call.run(_watch)
        return

    async def read(store: AnyStore) -> tuple[list[ConsumerLag], list[ConsumerGroup]]:
        return await store.admin.lag(), await store.admin.groups()

    lags, groups = call.run(read)
    now, oldest = call.store.clock.now(), _oldest_of(lags)

    def print_lags() -> None:
        print_table(_LAG_COLUMNS, _lag_rows(lags, now))
        if any(group.name != call.store.settings.worker.consumer_group for group in groups):
            typer.echo()
            print_table(_GROUP_COLUMNS, _group_rows(groups, now))

    report = {
        "waiting": sum(lag.waiting for lag in lags),
        "oldest_at": oldest,
        "age_ms": _age_ms(oldest, now),
        "partitions": lags,
        "groups": groups,
    }
    call.show(report, print_lags)


def _lag_rows(lags: Sequence[ConsumerLag], now: datetime) -> list[tuple[object, ...]]:
    """Return the rows of the table: each partition, the SQL ticks, and the total."""
    ticks = len(lags) - 1  # the last one
    rows: list[tuple[object, ...]] = [
        (
            lag.partition if lag.partition < ticks else f"{lag.partition} (SQL ticks)",
            lag.owner,
            lag.waiting,
            span_text(_age_ms(lag.oldest_at, now)),
        )
        for lag in lags
    ]
    workers = pluralize(len({lag.owner for lag in lags if lag.owner}), "worker")
    waiting = sum(lag.waiting for lag in lags)
    return [*rows, ("all", workers, waiting, span_text(_age_ms(_oldest_of(lags), now)))]


def _oldest_of(lags: Sequence[ConsumerLag]) -> datetime | None:
    return min((lag.oldest_at for lag in lags if lag.oldest_at), default=None)


async def _watch(store: AnyStore) -> None:
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        while True:
            rows = _lag_rows(await store.admin.lag(), store.clock.now())
            live.update(fitted_table(_LAG_COLUMNS, rows), refresh=True)
            await asyncio.sleep(_WATCH_SECONDS)


@app.command(file=DECLARED, has_json=False)
def refresh(call: CommandCall, name: str) -> None:
    """Queue a run of a scheduled feature; the next free worker runs it.

    Args:
        name FEATURE: Name of the feature.
    """
    call.run(lambda store: store.admin.refresh(name), has_names=True)
    note(f"Queued a run of {name} for the next free worker; `headwater lag` shows what waits.")


@app.command(file=DECLARED_ARGUMENT)
def rebuild(call: CommandCall, *, adopt: bool = False) -> None:
    """Restore the online value of every declared feature from history.

    Newer online values stay. It is safe to run this while workers are running, and to repeat it.

    Args:
        adopt: Take over the history in Postgres if it belongs to another store. The other store
            keeps its online values but can no longer write history.
    """

    def rebuilt(*, adopt: bool) -> RebuildReport:
        with progress_bar("Rebuilding") as progress:
            return call.run(lambda store: store.admin.rebuild(adopt=adopt, progress=progress))

    try:
        report = rebuilt(adopt=adopt)
    except StoreMismatchError as error:
        if call.as_json or not is_interactive():
            raise
        typer.confirm(f"{error}.\nAdopt it now?", abort=True)
        report = rebuilt(adopt=True)
    values = f"{pluralize(report.values, 'value')} of {_entities(report.entity_ids)}"
    call.show(report, f"Rebuilt {values} from history; newer online values stayed.")


def _entities(number: int) -> str:
    return pluralize(number, "entity", "entities")


@app.command(file=DECLARED_ARGUMENT)
def audit(
    call: CommandCall,
    *,
    limit: Annotated[int, typer.Option(min=1, help="Stop after this many differences.")] = 100,
    records: Annotated[int, typer.Option(min=0)] = 100,
) -> None:
    """Compare the online value of every declared feature with the latest value in history.

    Also compare the values that recorded contexts got with those that history gives as known at
    that moment. Files of history that changed are an error. Exit with 1 if values differ. It is
    safe to run this while workers are running: a difference counts only if it is still there after
    a second read.

    Args:
        records: Compare the values of this many recorded contexts; 0 for none.
    """
    with progress_bar("Comparing") as progress:
        report = call.run(
            lambda store: store.admin.audit(limit=limit, records=records, progress=progress)
        )

    def print_audit() -> None:
        values = f"{pluralize(report.values, 'value')} of {_entities(report.entity_ids)}"
        print_table(
            ("entity", "entity id", "feature", "online", "as of", "history", "as of"),
            [
                (d.entity, d.entity_id, d.feature, *_cells(d.online), *_cells(d.history))
                for d in report.differences
            ],
            empty=f"No differences: compared {values}.",
        )
        if report.not_compared:
            names = ", ".join(report.not_compared)
            note(f"Not compared, because their stored values are only a cache: {names}.")
        if not report.complete:
            listed = pluralize(len(report.differences), "difference")
            note(f"There are more than {listed}; pass --limit to list more.")
        if report.differences:
            note("Run `headwater rebuild` to restore values that are missing or older online.")
        if report.served.records:
            _print_served(report.served)

    call.show(report, print_audit)
    raise typer.Exit(1 if report.differences or report.served.different else 0)


def _cells(stored: StoredValue | None) -> tuple[object, object]:
    return (None, None) if stored is None else (bytes(stored.value).decode(), stored.as_of)


def _print_served(served: ServedReport) -> None:
    counts = f"{served.equal} equal, {served.different} different"
    typer.echo(
        f"Recorded contexts: {pluralize(served.records, 'record')} with "
        f"{pluralize(served.values, 'value')}: {counts} in history."
    )
    if served.differences:
        rows = [
            (d.context_id, d.feature, d.entity_id, d.at, d.recorded, d.history)
            for d in served.differences
        ]
        columns = ("context", "feature", "entity id", "at", "recorded", "known in history")
        print_table(columns, rows)
    for name, hint in {d.feature: d.hint for d in served.differences if d.hint}.items():
        note(f"Feature {name!r}: {hint}.")
    for reason, count in served.not_compared.items():
        note(f"Not compared: {pluralize(count, 'recorded value')} {reason}.")
    if served.different > len(served.differences):
        note(f"There are {served.different} different values; pass --limit to list more.")


@app.command("audit-log", file=STORE)
def audit_log(
    call: CommandCall,
    *,
    action: str | None = None,
    actor: str | None = None,
    since: Since = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number.")] = 100,
    cursor: str | None = None,
) -> None:
    """List administrative actions, newest first: who did what, when, and how it ended.

    Args:
        action: Only this action, such as dead_letters.redrive.
        actor: Only of this actor: the name of a key, or user@host.
        cursor: Continue after an earlier page; its `next_cursor`.
    """
    start, end = call.span(since, before)
    page = call.run(
        lambda store: store.audit_log(
            action=action, actor=actor, since=start, before=end, limit=limit, cursor=cursor
        )
    )
    rows = [
        (
            second_text(entry.at),
            entry.actor,
            entry.action,
            entry.target,
            entry.outcome if entry.error is None else f"{entry.outcome}: {entry.error}",
            entry.parameters or None,
        )
        for entry in page.entries
    ]
    columns = ("at", "actor", "action", "target", "outcome", "parameters")
    more = page.next_cursor and f"There are more; pass --cursor {page.next_cursor} to list them."
    call.show_table(page, columns, rows, more, empty="No administrative actions.")


@app.command(file=STORE)
def prune(
    call: CommandCall,
    *,
    history: str | None = None,
    events: str | None = None,
    records: str | None = None,
    dry_run: bool = False,
    yes: Yes = False,
) -> None:
    """Remove history, events and records that are older than the given ages.

    Without ages, those of the settings `retention.history`, `retention.events` and
    `retention.records` apply. The current value of every entity stays, however old it is, and so
    do events that a consumer group has not committed. Ages are written as in 36h, 30d, 8w or 2y.

    Args:
        history AGE: Remove past values that are older: an age such as 400d, 8w or 2y.
        events AGE: Remove events that are older, such as 30d.
        records AGE: Remove records of contexts that are older, such as 2y.
        dry_run: Count the rows and remove nothing.
    """

    def pruned(*, dry_run: bool) -> PruneReport:
        with option_names():
            return call.run(
                lambda store: store.admin.prune(
                    history=history, events=events, records=records, dry_run=dry_run
                )
            )

    if not (dry_run or yes):
        counted = pruned(dry_run=True)  # which also finds mistakes
        check_terminal("remove the rows, or --dry-run to count them")
        if counts := [
            f"{pluralize(rows, _PRUNED[part])} from before {before}"
            for part, before, rows in _pruned_rows(counted)
        ]:
            _explain_refusals(counted)
            typer.confirm(f"Remove {', '.join(counts)}? They cannot be restored.", abort=True)
    report = pruned(dry_run=dry_run)

    def print_pruned() -> None:
        if rows := _pruned_rows(report):
            print_table(("part", "before", "to remove" if dry_run else "removed"), rows)
        _explain_refusals(report)
        for reason in report.held:
            note(f"Not all was removed: {reason}.")

    call.show(report, print_pruned)


def _explain_refusals(report: PruneReport) -> None:
    part = report.history
    if part is not None:
        verb = "will be" if report.dry_run else "are"
        # The last values stay, so there may be older ones although none is removed.
        condition = "" if part.rows else ", if it has older values"
        note(
            f"Reads of history at moments before {second_text(part.before)} {verb} refused, for "
            f"all features{condition}; files of `headwater history export` still answer them."
        )


def _pruned_rows(report: PruneReport) -> list[tuple[str, str | None, int]]:
    parts = {"history": report.history, "events": report.events, "records": report.records}
    return [
        (name, second_text(part.before), part.rows)
        for name, part in parts.items()
        if part is not None
    ]


@app.command(file=DECLARED)
def forget(
    call: CommandCall,
    entity: str,
    entity_id: str,
    *,
    reason: str,
    allow_return: bool = False,
    dry_run: bool = False,
    yes: Yes = False,
) -> None:
    """Erase an entity: its values, history, events and dead letters, and its values in records.

    What belongs to it by belongs_to= is erased with it, and listed before.
    Records of contexts that read the entity keep their hashes and lose all values. Documents of
    indexes and exported files stay: remove these with `headwater index delete` and by hand. What is
    erased stays erased: refreshes, imports, backfills, rebuilds and late events do not bring it
    back, and new events are refused unless --allow-return is given. It is safe to repeat this, and
    to run it while workers are running.

    Args:
        entity: Entity, such as User.
        entity_id ID: Its id.
        reason: Reason; it stays in the records, so name no person.
        allow_return: Let events of after this begin it anew.
        dry_run: Count, and erase nothing.
    """

    def forgotten(*, dry_run: bool) -> ForgetReport:
        return call.run(
            lambda store: store.admin.forget(
                entity, entity_id, reason=reason, allow_return=allow_return, dry_run=dry_run
            )
        )

    if not (dry_run or yes):
        counted = forgotten(dry_run=True)  # which also finds mistakes
        check_terminal("erase the entity, or --dry-run to count")
        _print_forgotten(counted)
        typer.confirm(f"Erase {entity} {entity_id} for good?", abort=True)
    report = forgotten(dry_run=dry_run)
    call.show(report, lambda: _print_forgotten(report))


def _print_forgotten(report: ForgetReport) -> None:
    parts = {
        "current values": report.values,
        "past values": report.history,
        "events": report.events,
        "dead letters": report.dead_letters,
        "records": report.records,
        "outcomes": report.outcomes,
    }
    print_table(("part", "to erase" if report.dry_run else "erased"), list(parts.items()))
    for entity, ids in report.belonging.items():
        shown = ", ".join(ids[:_MOST_SHOWN])
        more = f" and {len(ids) - _MOST_SHOWN} more" if len(ids) > _MOST_SHOWN else ""
        note(f"With it {'go' if report.dry_run else 'went'} {entity} {shown}{more}.")
    mentions = report.mentions
    if mentions is None:
        note("It could not be counted what else mentions the id: see `headwater mentions`.")
    elif counts := [
        pluralize(count, word)
        for count, word in (
            (mentions.events, "event"),
            (mentions.values, "past value"),
            (mentions.dead_letters, "dead letter"),
        )
        if count
    ]:
        least = "" if mentions.complete else "At least "
        note(
            f"{least}{', '.join(counts)} of other entities contain the id and stay: "
            "list them with `headwater mentions`."
        )
    if report.waiting:
        note(
            f"{pluralize(report.waiting, 'event')} in the partition of this entity still wait; "
            "those of this entity have no effect."
        )
    for names, problem in (
        (report.sources, "still return this entity; its rows are not stored: remove them there"),
        (report.unchecked_sources, "could not be run, so it is not known if they return it"),
    ):
        if names:
            note(f"The queries of {', '.join(names)} {problem}.")
    if report.topic:
        note(f"{report.topic} keeps the events of this entity until its retention ends.")
    if report.lake_refs:
        verb = "go" if report.dry_run else "are gone"
        refs = ", ".join(report.lake_refs)
        note(f"Tags and branches of the lake, which keep earlier rows, {verb}: {refs}.")


@app.command(file=DECLARED)
def mentions(
    call: CommandCall, entity: str, entity_id: str, *, limit: int = 100, cursor: str | None = None
) -> None:
    """List the events, past values and dead letters of others that contain the id of an entity.

    A value or a key that equals the id counts, and no text that only contains it. `forget` does not
    change them. Each page scans the log of events or history.

    Args:
        entity: Entity, such as User.
        entity_id ID: Its id.
        limit: Number of mentions of a page.
        cursor: The next_cursor of the page before.
    """
    page = call.run(
        lambda store: store.admin.mentions(entity, entity_id, limit=limit, cursor=cursor)
    )
    columns = ("kind", "name", "entity id", "id", "at", "where")
    rows = [
        (each.kind, each.name, each.entity_id, each.id, each.at, " ".join(each.pointers) or "/")
        for each in page.mentions
    ]
    more = page.next_cursor and f"More follow: --cursor {page.next_cursor}"
    call.show_table(page, columns, rows, more, empty="No mentions.")


@app.command()
def migrate(call: CommandCall) -> None:
    """Create or update the Postgres tables. Several processes may run this at the same time."""
    settings = load()
    versions = asyncio.run(migrate_backends(settings))
    result = "Nothing to migrate: the embedded store migrates its own tables when it is opened."
    if versions:
        result = f"Migrated the tables to version {versions[-1]}."
    elif on_servers(settings):
        result = "Nothing to migrate: the tables are up to date."
    call.show({"versions": versions}, result)


@app.command(file=STORE)
def backup(call: CommandCall, folder: Path) -> None:
    """Copy the embedded store of this moment into a new folder, and verify the copy.

    Workers and servers may be running. Redis and Postgres have tools of their own.

    Args:
        folder: The folder to make; it must not exist.
    """
    report = run(call.local, lambda store: store.backup(folder))
    call.show(report, f"Backed up {_copied(report)} to {report.folder}; every byte was verified.")


@app.command()
def restore(call: CommandCall, folder: Path, *, to: Path | None = None) -> None:
    """Make an embedded store of a backup, and verify it.

    A store that exists is left alone. Erasures since the backup have to be made again.

    Args:
        folder: The folder that `headwater backup` made.
        to FOLDER: The home to make. Default: the setting `home`.
    """
    report = restore_home(load(), folder, to)
    made = f"{second_text(report.created_at)}, {_copied(report)}, to {report.folder}"
    call.show(report, f"Restored the backup of {made}; every byte was verified.")


def _copied(report: BackupReport) -> str:
    return f"{pluralize(report.files, 'file')} with {report.bytes:,} bytes"
