"""`headwater lake`: create the Iceberg tables of a lake, and look after their files."""

import typer

from headwater.cli.commands import STORE, CommandCall, Commands, Yes, option_names
from headwater.cli.output import check_terminal, pluralize, second_text
from headwater.model.lake import LakeStatus

app = Commands()
lake = Commands(
    app, "lake", "Create, show, compact and expire the Iceberg tables of a lake.", file=STORE
)


@lake.command()
def init(call: CommandCall) -> None:
    """Create the tables of the setting `lake.url`, and begin to move history into them.

    Tables that exist stay as they are. The first use of history does the same.
    """
    _show(call, call.run(lambda store: store.lake.init(), create=True))


@lake.command()
def status(call: CommandCall) -> None:
    """Show the files, rows and snapshots of the tables."""
    _show(call, call.run(lambda store: store.lake.status()))


@lake.command()
def compact(call: CommandCall) -> None:
    """Move all rows that may leave the tail, and merge small files.

    Workers do this by themselves, as soon as there are `offline.segment_rows` rows. After this
    command, other engines see the rows of every event that all consumer groups have handled.
    """
    _show(call, call.run(lambda store: store.lake.compact()))


@lake.command()
def expire(call: CommandCall, *, older_than: str | None = None, yes: Yes = False) -> None:
    """Remove old snapshots of the tables, and the files that only they have.

    Workers do this by themselves after the time of the setting `lake.snapshots`. Training sets that
    name a removed snapshot cannot be read again.

    Args:
        older_than AGE: Remove snapshots that are older, such as 30d. Default: `lake.snapshots`.
    """
    if not yes:
        check_terminal("remove the snapshots")
        typer.confirm("Remove the old snapshots? They cannot be restored.", abort=True)
    with option_names():
        expired = call.run(lambda store: store.lake.expire(older_than=older_than))
    call.show(
        expired,
        f"Removed {pluralize(expired.files, 'file')} of snapshots from before "
        f"{second_text(expired.before)}.",
    )


def _show(call: CommandCall, status: LakeStatus) -> None:
    columns = ("table", "files", "small", "rows", "bytes", "snapshots", "snapshot", "location")
    rows = [
        (
            *(table.table, table.files, table.small_files, table.rows, table.bytes),
            *(table.snapshots, table.snapshot_id, table.location),
        )
        for table in status.tables
    ]
    is_behind = any(table.waiting for table in status.tables)
    call.show_table(
        status,
        columns,
        rows,
        "The tail has rows that are due: a worker, or `headwater lake compact`, moves them."
        if is_behind
        else None,
        empty="This store has no lake; set lake.url.",
    )
