"""Options that several verbs share, and the store that they speak of."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from headwater.core.durations import to_timedelta
from headwater.errors import DurationError, InvalidInputError, UnknownNameError
from headwater.settings.loading import load
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store

EXAMPLE_TIME = "2026-01-31T12:00:00Z"

_FILE = (
    "The features file; without it, the one of the setting `features`. The store is the one of the "
    "working directory's settings, unless the file gives its FeatureStore home= or settings=."
)
FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", show_default=False, help=_FILE)
]
FileOption = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help=_FILE)]
_STORE = (
    "Use the store that this features file's home= or settings= names. Without them, and without a "
    "file, it is the one of the working directory's settings, wherever the file lies."
)
StoreOption = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help=_STORE)]
StoreArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", show_default=False, help=_STORE)
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


@contextmanager
def looked_up_in(given: Path | None) -> Iterator[None]:
    """Says of a name that nobody declares which file was looked in, and how to name another."""
    try:
        yield
    except UnknownNameError as error:
        raise InvalidInputError(
            f"{error} ({features_file(given)} was looked in; pass --file to name another)"
        ) from error


def moment(text: str, now: datetime) -> datetime:
    """A time that was written as such, or as a duration before now."""
    with suppress(DurationError, OverflowError):
        return now - to_timedelta(text)
    with suppress(ValueError):
        given = datetime.fromisoformat(text)
        if given.tzinfo is not None:
            return given
    raise typer.BadParameter(
        f"{text!r} is neither a duration such as 2h nor a time with its zone such as {EXAMPLE_TIME}"
    )


def read_time(text: str) -> datetime:
    """A time in the form of ISO 8601, with its zone."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write it as in {EXAMPLE_TIME}") from error
    if given.tzinfo is None:
        raise typer.BadParameter(without_zone(given))
    return given


def without_zone(given: datetime) -> str:
    """What is said of a time that is another moment in every zone."""
    return f"{given.isoformat()} has no time zone; add one, as in {given.isoformat()}Z"


def verbs(summary: str) -> typer.Typer:
    """A group of verbs, or the place of a single one, in the manner of the whole command line."""
    return typer.Typer(
        help=summary, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )
