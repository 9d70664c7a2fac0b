"""Options that several commands share, and the store that they select."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer.core import TyperGroup

from headwater.cli.remote import server_of
from headwater.core.durations import to_timedelta
from headwater.core.logging import log
from headwater.errors import DurationError, InvalidInputError, UnknownNameError
from headwater.settings.loading import FILE, load
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import load_store

if TYPE_CHECKING:
    from headwater.client import AsyncClient

EXAMPLE_TIME = "2026-01-31T12:00:00Z"

_ARGUMENT = re.compile(
    r"\b(at|value|written|id|time_zone|exported|output|history|events|records)=(?:'(\w+)')?"
)
_FILE = (
    "Features file or module, such as shop/features.py or shop.features; it may name "
    "its store. Default: the setting `features`."
)
_STORE = (
    "Use the store that this features file or module names. Default: the store in the "
    "settings of the working directory."
)
FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", show_default=False, help=_FILE)
]
FileOption = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help=_FILE)]
StoreOption = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help=_STORE)]
StoreArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", show_default=False, help=_STORE)
]
_REF = (
    "Context id, record hash, or the first 8 or more characters of an id. Ids of the same minute "
    "begin with the same characters and need more."
)
Ref = Annotated[str, typer.Argument(metavar="REF", help=_REF)]
OptionalRef = Annotated[str | None, typer.Argument(metavar="REF", show_default=False, help=_REF)]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="Only if created since: a duration before now, such as 2h, or a time with a time "
        "zone.",
    ),
]
Before = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Only if created before, in the same form."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


def features_file(file: Path | None) -> Path:
    """Return the features file or module from the command line, or else from the settings."""
    return file or Path(load().features)


def is_project(file: Path | None) -> bool:
    """Return whether a file or a setting selects the store, and not the working directory alone."""
    settings = load()
    return (
        file is not None
        or Path(FILE).exists()
        or Path(settings.features).exists()
        or settings.home != Settings().home
    )


def declared_store(file: Path | None) -> FeatureStore:
    """Return the store of a features file, for commands that need declarations."""
    return _with_log(load_store(features_file(file)))


def bare_store(file: Path | None) -> FeatureStore:
    """Return the store of the settings, or of a file if one is named, without declarations."""
    return _with_log(load_store(file) if file else FeatureStore())


AnyStore: TypeAlias = "FeatureStore | AsyncClient"
"""A store, here or behind a server: both have the same verbs."""


def declared_or_remote(file: Path | None) -> AnyStore:
    """Return the server that the command calls, or the store of a features file."""
    return server_of(file) or declared_store(file)


def bare_or_remote(file: Path | None) -> AnyStore:
    """Return the server that the command calls, or the store without declarations."""
    return server_of(file) or bare_store(file)


def _with_log(store: FeatureStore) -> FeatureStore:
    log.configure(store.settings.log.level, store.settings.log.format)
    return store


@contextmanager
def named_in(file: Path | None) -> Iterator[None]:
    """Add the features file and the `--file` option to the error about an unknown name."""
    try:
        yield
    except UnknownNameError as error:
        if error.response is not None:
            raise
        raise InvalidInputError(
            f"{error} (searched {features_file(file)}; pass --file to use another file)"
        ) from error


@contextmanager
def option_names() -> Iterator[None]:
    """Name options instead of Python arguments in the message of an error."""
    try:
        yield
    except InvalidInputError as error:
        message = _ARGUMENT.sub(_as_option, str(error))
        if message == str(error):
            raise
        raise InvalidInputError(message) from error


def _as_option(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    return f"--{name.replace('_', '-')}" + (f" {value}" if value else "")


def parse_span(
    since: str | None, before: str | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the times of the options --since and --before."""
    start, end = (None if text is None else _parse_when(text, now) for text in (since, before))
    return start, end


def _parse_when(text: str, now: datetime) -> datetime:
    """Return a time that is written in ISO 8601, or as a duration before now."""
    with suppress(DurationError, OverflowError):
        return now - to_timedelta(text)
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time
    raise typer.BadParameter(
        f"{text!r} is neither a duration such as 2h nor a time with a time zone such as "
        f"{EXAMPLE_TIME}"
    )


def parse_time(text: str) -> datetime:
    """Return a time that is written in ISO 8601 with its time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time; write {EXAMPLE_TIME}") from error
    if time.tzinfo is None:
        raise typer.BadParameter(no_time_zone(time))
    return time


def no_time_zone(time: datetime) -> str:
    """Return the message for a time without a time zone."""
    return f"{time.isoformat()} has no time zone; add one, as in {time.isoformat()}Z"


def command_group(summary: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Return an empty group of commands with the settings of the whole command line."""
    return typer.Typer(
        cls=cls, help=summary, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )
