"""Options that several verbs share, and the store that they speak of."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.loader import load_store
from headwater.settings import load
from headwater.store import FeatureStore

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="The features file; without it, the one of the setting `features`.",
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="The features file; without it, the one of the setting `features`.",
    ),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Use the store of this features file; without it, the one of the settings.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]


def features_file(given: Path | None) -> Path:
    """The features file that was named, or the one of the settings."""
    return given or Path(load().features)


def declared_store(given: Path | None) -> FeatureStore:
    """The store of a features file, for verbs that need declarations."""
    return load_store(features_file(given))


def bare_store(given: Path | None) -> FeatureStore:
    """The store of the settings, for verbs that need no declarations, unless a file is named."""
    return load_store(given) if given else FeatureStore()


def verbs(summary: str) -> typer.Typer:
    """A group of verbs, or the place of a single one, in the manner of the whole command line."""
    return typer.Typer(
        help=summary, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )
