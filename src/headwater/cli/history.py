"""`headwater history`: past values for the rows of a file, imports and exports of history."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli.commands import STORE, AnyStore, Call, Commands, FileParameter, option_names
from headwater.cli.output import note, pluralize, progress_bar
from headwater.errors import InvalidInputError
from headwater.model.history import ImportReport


class ReadByDefault(TyperGroup):
    """A group in which the path of a file stands for the command that reads it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        is_command = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if is_command else ["read", *args])


# -f names features here, so the features file has no short option.
_FILE = FileParameter(
    typer.Option(
        "--file", metavar="FILE", help="Features file or module. Default: the setting `features`."
    ),
    is_declared=True,
)
app = Commands()
history = app.group(
    "history",
    "Read the past values of features for the rows of a file; import and export history.",
    file=_FILE,
    cls=ReadByDefault,
)
Features = Annotated[
    list[str],
    typer.Option(
        "--feature",
        "-f",
        metavar="NAMES",
        help="Names of features of one entity, separated by commas; can be repeated.",
    ),
]


@history.command(file=STORE)
def export(call: Call, folder: Path) -> None:
    """Write the history of all features to Parquet files; again, add the rows since then.

    `headwater history FRAME --exported FOLDER` reads them without loading the database. An export
    that was interrupted is simply run again. Values that are pruned or dropped later stay in the
    files.

    Args:
        folder: New or empty folder, or one with an earlier export of the same store.
    """
    report = call.run(lambda store: store.history.export(folder))
    added = pluralize(report.added, "row") if report.added else "no new rows"
    rows, files = pluralize(report.rows, "row"), pluralize(report.files, "file")
    call.show(report, f"Exported {added}; {folder} has {rows} in {files}.")


@history.command()
def read(
    call: Call,
    frame: Path,
    *,
    features: Features,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    at: str = "timestamp",
    known: bool = False,
    as_of: bool = False,
    exported: Path | None = None,
) -> None:
    """Add a column for each feature to the rows of a file, with its value at the time of the row.

    `headwater history FRAME …` is short for `headwater history read FRAME …`. The rows keep their
    order, and no value is later than its row. The file may be larger than memory.

    Args:
        frame: Parquet or CSV file with a column of entity ids, named like the id field of the
            entity, and a column of times with a time zone.
        output: Parquet or CSV file to write, which is replaced if it exists. Default: FRAME with
            the ending `.features.parquet`, if it does not exist.
        at COLUMN: Column with the times.
        known: Only values that had been written by that time, as they were served.
        as_of: Add a column FEATURE__as_of with the time of each value.
        exported FOLDER: Read stored values from this folder, which `headwater history export`
            wrote.
    """
    with call.named(), option_names(), progress_bar("Reading history") as progress:
        options: dict[str, Any] = {
            "at": at,
            "known": known,
            "with_as_of": as_of,
            "output": output,
            "progress": progress,
        }
        if exported is None:
            written = call.run(
                lambda store: store.get_historical_features(frame, _names(features), **options)
            )
        else:
            written = _read_export(call, frame, _names(features), exported, options)
    call.show({"output": str(written)}, f"Wrote {written}.")


def _read_export(
    call: Call, frame: Path, names: Sequence[str], exported: Path, options: dict[str, Any]
) -> Any:
    """Read an export without opening the store, which may be on another machine."""
    if (server := call.server) is not None:
        raise typer.BadParameter(
            f"--exported reads files of this machine, and {server.url} was named; pass --file with "
            "a features file in place of --url and HEADWATER_CLIENT_URL, or leave out --exported"
        )

    async def read() -> Any:
        store = call.local
        try:
            return await store.get_historical_features(frame, names, exported=exported, **options)
        finally:
            await store.close()

    return asyncio.run(read())


@history.command("import")
def import_(
    call: Call,
    table: Path,
    *,
    features: Features,
    id_: Annotated[str | None, typer.Option("--id", metavar="COLUMN")] = None,
    value: str | None = None,
    at: str | None = None,
    written: str | None = None,
    time_zone: str | None = None,
) -> None:
    """Add the values of a feature table to history, with the times that they are of.

    Rows that are in history already are left out, so it is safe to repeat an import. Online values
    do not change: `headwater rebuild` restores the last values from history.

    Args:
        table FILE: Parquet or CSV file with ids, times and values of features.
        id_: Column with the entity ids. Default: the id field of the entity.
        value COLUMN: Column with the values, if only one feature is imported. Default: its name, or
            `value`.
        at COLUMN: Column with the times that the values are of. Default: `event_timestamp` or
            `timestamp`.
        written COLUMN: Column with the times at which values were written. Default: created or
            created_timestamp; the current time if there is no such column.
        time_zone ZONE: Time zone of times that have none, such as UTC; without it, they are
            refused.
    """

    async def load(store: AnyStore) -> ImportReport:
        with progress_bar("Importing") as progress:
            return await store.history.import_file(
                table,
                _names(features),
                id=id_,
                value=value,
                at=at,
                written=written,
                time_zone=time_zone,
                progress=progress,
            )

    with option_names():
        report = call.run(load, create=True, has_names=True)
    old = report.values - report.added - report.erased
    values = pluralize(report.added, "new value" if old else "value")
    present = f"; {old:,} {'was' if old == 1 else 'were'} there already" if old else ""
    rows = pluralize(report.rows, "row")
    call.show(report, f"Imported {values} of {rows} into history{present}.")
    if call.as_json:
        return
    if report.missing:
        note(f"{pluralize(report.missing, 'value')} missing in the file and left out.")
    if report.erased:
        note(f"{pluralize(report.erased, 'value')} of erased entities left out.")
    note("Online values have not changed; `headwater rebuild` restores them from history.")


def _names(features: list[str]) -> list[str]:
    names = [name.strip() for text in features for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidInputError("name at least one feature, as in -f total_spend")
    return names
