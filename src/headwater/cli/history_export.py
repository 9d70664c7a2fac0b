"""`headwater history export`: history as Parquet files."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.options import AsJson, StoreOption, bare_or_remote
from headwater.cli.output import pluralize, print_json
from headwater.cli.runner import run


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
