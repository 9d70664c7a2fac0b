"""`headwater sources`: list the sources of SQL features, and load them into Postgres tables."""

from headwater.cli.commands import DECLARED, AnyStore, CommandCall, Commands
from headwater.cli.output import pluralize, print_table, progress_bar, second_text
from headwater.model.sources import LoadedSource, SourceList, SourceStatus

app = Commands()
sources = Commands(
    app,
    "sources",
    "List the sources of SQL features; load them into the Postgres tables that queries read.",
    file=DECLARED,
)


@sources.command("list")
def list_(call: CommandCall) -> None:
    """List the sources, the features that read them, and the tables that stand for them."""
    statuses = call.run(lambda store: store.sources.list(), create=True)
    columns = ("source", "location", "features", "table", "rows", "loaded")
    rows = [
        (s.name, s.location, ", ".join(s.features), _state(s))
        + ((s.table.rows, second_text(s.table.loaded_at)) if s.table else ("", ""))
        for s in statuses
    ]
    is_missing = any(s.table is None and not s.is_read_directly for s in statuses)
    call.show_table(
        SourceList(statuses),
        columns,
        rows,
        "`headwater sources load` makes the missing tables." if is_missing else None,
        empty="No sources.",
    )


def _state(source: SourceStatus) -> str:
    if source.is_read_directly:
        return "read directly"
    if source.table is None:
        return "missing"
    return source.table.name + ("" if source.table.is_loaded else " (your own)")


@sources.command()
def load(call: CommandCall, name: str | None = None) -> None:
    """Replace the Postgres tables of sources by the present rows of their files or servers.

    Queries see the earlier rows until all are there. Run it again, for example by cron, when a
    source has changed. A table that this command has not made is never replaced. The embedded store
    reads sources itself and needs no tables.

    Args:
        name: Only this source. Default: all, except those with a table of your own.
    """

    async def load_all(store: AnyStore) -> list[LoadedSource]:
        names = [name] if name else [s.name for s in await store.sources.list() if _is_due(s)]
        loaded = []
        for source in names:
            with progress_bar(f"Loading {source}") as progress:
                loaded.append(await store.sources.load(source, progress=progress))
        return loaded

    reports = call.run(load_all, create=True, has_names=True)

    def print_reports() -> None:
        rows = [
            (report.name, report.table, report.rows, pluralize(len(report.columns), "column"))
            for report in reports
            if report.table
        ]
        if rows:
            print_table(("source", "table", "rows", "columns"), rows)

    is_direct = any(report.table is None for report in reports)
    call.show(
        reports,
        print_reports,
        "The embedded store reads sources directly: there is nothing to load."
        if is_direct
        else None,
        "No sources to load." if not reports else None,
    )


def _is_due(source: SourceStatus) -> bool:
    return source.table is None or source.table.is_loaded
