"""`headwater history`: past values for the rows of a file, imports and exports of history."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headwater.cli.options import (
    AnyStore,
    AsJson,
    StoreOption,
    bare_or_remote,
    command_group,
    declared_or_remote,
    declared_store,
    named_in,
    option_names,
)
from headwater.cli.output import note, pluralize, print_json, progress_bar
from headwater.cli.remote import server_of
from headwater.cli.runner import run
from headwater.errors import InvalidInputError

_DEFAULT = "read"


class ReadByDefault(TyperGroup):
    """A group in which the path of a file stands for the command that reads it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        is_command = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if is_command else [_DEFAULT, *args])


app = command_group(
    "Read the past values of features for the rows of a file; import and export history.",
    cls=ReadByDefault,
)


@app.command()
def export(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="New or empty folder, or one with an earlier export of the same store.",
        ),
    ],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the history of all features to Parquet files; again, add the rows since then.

    `headwater history FRAME --exported FOLDER` reads them without loading the database. An export
    that was interrupted is simply run again. Values that are pruned or dropped later stay in the
    files.
    """
    report = run(bare_or_remote(file), lambda store: store.history.export(folder))
    if as_json:
        print_json(report)
        return
    added = pluralize(report.added, "row") if report.added else "no new rows"
    rows, files = pluralize(report.rows, "row"), pluralize(report.files, "file")
    typer.echo(f"Exported {added}; {folder} has {rows} in {files}.")


# -f names features here, so the features file has no short option.
File = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="Features file or module. Default: the setting `features`."
    ),
]

Features = Annotated[
    list[str],
    typer.Option(
        "--feature",
        "-f",
        metavar="NAMES",
        help="Names of features of one entity, separated by commas; can be repeated.",
    ),
]

FrameFile = Annotated[
    Path,
    typer.Argument(
        metavar="FRAME",
        help="Parquet or CSV file with a column of entity ids, named like the id field of the "
        "entity, and a column of times with a time zone.",
    ),
]

OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Parquet or CSV file to write, which is replaced if it exists. "
        "Default: FRAME with the ending `.features.parquet`, if it does not exist.",
    ),
]

Known = Annotated[
    bool,
    typer.Option(
        "--known", help="Only values that had been written by that time, as they were served."
    ),
]

ExportFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Read stored values from this folder, which `headwater history export` wrote.",
    ),
]

TableFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="Parquet or CSV file with ids, times and values of features."
    ),
]

IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column with the entity ids. Default: the id field of the entity.",
    ),
]

ValueColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column with the values, if only one feature is imported. Default: its name, or "
        "`value`.",
    ),
]

WrittenColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column with the times at which values were written. Default: created or "
        "created_timestamp; the current time if there is no such column.",
    ),
]

TimeZone = Annotated[
    str | None,
    typer.Option(
        metavar="ZONE",
        help="Time zone of times that have none, such as UTC; without it, they are refused.",
    ),
]


@app.command(_DEFAULT)
def read(
    frame: FrameFile,
    *,
    features: Features,
    output: OutputFile = None,
    at: Annotated[str, typer.Option(metavar="COLUMN", help="Column with the times.")] = "timestamp",
    known: Known = False,
    as_of: Annotated[
        bool,
        typer.Option("--as-of", help="Add a column FEATURE__as_of with the time of each value."),
    ] = False,
    exported: ExportFolder = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add a column for each feature to the rows of a file, with its value at the time of the row.

    `headwater history FRAME …` is short for `headwater history read FRAME …`. The rows keep their
    order, and no value is later than its row. The file may be larger than memory.
    """
    options: dict[str, Any] = {"at": at, "known": known, "with_as_of": as_of, "output": output}
    with named_in(file), option_names(), progress_bar("Reading history") as progress:
        if exported is None:
            written = run(
                declared_or_remote(file),
                lambda store: store.get_historical_features(
                    frame, _names(features), progress=progress, **options
                ),
            )
        else:
            _check_local(file)
            options |= {"exported": exported, "progress": progress}
            written = asyncio.run(_read_export(file, frame, _names(features), options))
    if as_json:
        print_json({"output": str(written)})
    else:
        typer.echo(f"Wrote {written}.")


@app.command("import")
def import_(
    table: TableFile,
    *,
    features: Features,
    id_: IdColumn = None,
    value: ValueColumn = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the times that the values are of. Default: `event_timestamp` or "
            "`timestamp`.",
        ),
    ] = None,
    written: WrittenColumn = None,
    time_zone: TimeZone = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Add the values of a feature table to history, with the times that they are of.

    Rows that are in history already are left out, so it is safe to repeat an import. Online values
    do not change: `headwater rebuild` restores the last values from history.
    """
    store = declared_or_remote(file)

    async def load(store: AnyStore) -> Any:
        with named_in(file), progress_bar("Importing") as progress:
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
        report = run(store, load, create=True)
    if as_json:
        print_json(report)
        return
    old = report.values - report.added - report.erased
    values = pluralize(report.added, "new value" if old else "value")
    present = f"; {old:,} {'was' if old == 1 else 'were'} there already" if old else ""
    typer.echo(f"Imported {values} of {pluralize(report.rows, 'row')} into history{present}.")
    if report.missing:
        note(f"{pluralize(report.missing, 'value')} missing in the file and left out.")
    if report.erased:
        note(f"{pluralize(report.erased, 'value')} of erased entities left out.")
    note("Online values have not changed; `headwater rebuild` restores them from history.")


def _check_local(file: Path | None) -> None:
    if (server := server_of(file)) is not None:
        raise typer.BadParameter(
            f"--exported reads files of this machine, and {server.url} was named; pass --file with "
            "a features file in place of --url and HEADWATER_CLIENT_URL, or leave out --exported"
        )


async def _read_export(
    file: Path | None, frame: Path, names: list[str], options: dict[str, Any]
) -> Any:
    """Read an export without opening the store, which may be on another machine."""
    store = declared_store(file)
    try:
        return await store.get_historical_features(frame, names, **options)
    finally:
        await store.close()


def _names(features: list[str]) -> list[str]:
    names = [name.strip() for text in features for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidInputError("name at least one feature, as in -f total_spend")
    return names
