"""`headwater init`: begin a project."""

from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from headwater.cli.options import command_group
from headwater.errors import InvalidInputError

app = command_group("Write a small project: features, settings and a test that runs.")

_FILES = {
    "features.py": "features.py.txt",
    "test_features.py": "test_features.py.txt",
    "headwater.toml": "headwater.toml.txt",
    ".gitignore": "gitignore.txt",
}


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the project, which may be new.")
    ] = Path(),
) -> None:
    """Write a small project: features, settings and a test that runs."""
    existing = [name for name in _FILES if (folder / name).exists()]
    if existing:
        raise InvalidInputError(
            f"{folder / existing[0]} exists already, and nothing was written; name another folder"
        )
    templates = files("headwater.cli").joinpath("project")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, template in _FILES.items():
            (folder / name).write_text(templates.joinpath(template).read_text("utf-8"), "utf-8")
    except OSError as error:
        raise InvalidInputError(f"cannot write to {folder}: {error.strerror}") from error
    typer.echo(f"Wrote {', '.join(_FILES)} to {folder.absolute()}.\n\nNext:")
    if folder != Path():
        typer.echo(f"  cd {quote(str(folder))}")
    typer.echo("  headwater check     # are all declarations right?")
    typer.echo("  pip install pytest  # the test needs it")
    typer.echo("  python -m pytest    # run the test")
    typer.echo("  headwater serve     # serve the API with a worker")
