"""Commands: their options, the store or server that they call, and what they print."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

import typer
from typer.core import TyperGroup

from headwater.cli.output import note, print_json, print_table
from headwater.core.durations import to_timedelta
from headwater.core.logging import log
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    DeclarationError,
    DurationError,
    FeaturesFileError,
    HomeError,
    InvalidInputError,
    UnknownNameError,
)
from headwater.model.declarations import StoreListing
from headwater.settings.loading import load
from headwater.settings.schema import Settings, on_servers
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declarations_of
from headwater.store.loader import load_store, locate

if TYPE_CHECKING:
    # Loading httpx takes longer than most commands.
    from headwater.client import AsyncClient

F = TypeVar("F", bound=Callable[..., None])
S = TypeVar("S", bound="FeatureStore | AsyncClient")
T = TypeVar("T")
AnyStore: TypeAlias = "FeatureStore | AsyncClient"
"""A store, here or behind a server: both have the same verbs."""
LOCAL_ONLY = {
    "demo": "it makes a store of its own",
    "init": "it writes files here",
    "check": "it reads a features file here",
    "dev": "it is the server",
    "serve": "it is the server",
    "worker": "it runs the functions of a features file here",
    "mcp": "it runs the functions of a features file here, for the program that starts it",
    "keys": "keys and their file stay on the machine that makes them",
    "migrate": "it changes the tables of the Postgres server in the settings",
    "backup": "it copies the home of this machine",
    "restore": "it makes a home on this machine",
    "metrics": "its output does not depend on a store",
    "config": "it shows the settings of this machine",
    "plan": "it computes with numbers that were measured before",
    "eval": "cohorts and results are files here, and it runs the functions of a features file",
    "features test": "it runs a function of a features file here",
    "history export-feast": "it needs the declared features of a features file here",
    "events mirror": "it copies a topic into the store of the settings here",
}
"""The commands that never call a server, and why."""
_EXAMPLE_TIME = "2026-01-31T12:00:00Z"
_ARGUMENT = re.compile(
    r"\b(at|value|written|id|time_zone|exported|output|history|events|records|event_type|entity_id"
    r"|timestamp|event_id)=(?:'(\w+)')?"
)
# The help of a parameter in a docstring: its name, the word for its value, and the text.
_HELP = re.compile(r"^    (\w+)(?: (\S+))?: (.*(?:\n {8}.*)*)", re.MULTILINE)
_FILE = (
    "Features file or module, such as shop/features.py or shop.features; it may name "
    "its store. Default: the setting `features`."
)
_STORE = (
    "Use the store that this features file or module names. Default: the store in the "
    "settings of the working directory."
)
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
    str | None, typer.Option(metavar="WHEN", help="Only if created before, in the same form.")
]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


class FileParameter(NamedTuple):
    """How a command takes the features file."""

    info: Any
    is_declared: bool
    """Whether the command needs the declarations of the file, and not its store alone."""


DECLARED = FileParameter(typer.Option("--file", "-f", metavar="FILE", help=_FILE), is_declared=True)
DECLARED_ARGUMENT = FileParameter(
    typer.Argument(metavar="FILE", show_default=False, help=_FILE), is_declared=True
)
STORE = FileParameter(typer.Option("--file", "-f", metavar="FILE", help=_STORE), is_declared=False)
STORE_ARGUMENT = FileParameter(
    typer.Argument(metavar="FILE", show_default=False, help=_STORE), is_declared=False
)
NO_FILE = FileParameter(None, is_declared=False)


@dataclass
class CommandCall:
    """One run of a command: the store or server that it calls, and how it prints."""

    file: Path | None
    url: str | None
    key: str | None
    as_json: bool
    is_declared: bool

    @cached_property
    def server(self) -> "AsyncClient | None":
        """The server that the command line or the settings name, or None for a local store.

        A features file on the command line means a local store, also if the settings name a server.
        """
        if self.url and self.file:
            raise typer.BadParameter(
                "--url calls a server, which has its own features file; pass --url or a file, not "
                "both"
            )
        settings = load()
        if self.file or not (self.url or settings.client.url):
            if self.key:
                raise typer.BadParameter("--key is for a server; pass --url, too")
            return None
        from headwater.client import AsyncClient  # noqa: PLC0415 - only commands with a server need it

        return AsyncClient(self.url, key=self.key, settings=settings)

    @cached_property
    def local(self) -> FeatureStore:
        """The store of the features file, or of the settings if declarations are not needed."""
        return declared_store(self.file) if self.is_declared else bare_store(self.file)

    @cached_property
    def declared(self) -> Registry | None:
        """The declarations of the features file, or None if it does not exist or load.

        It is loaded once: another file that it imports has its declarations already.
        """
        path = features_file(self.file)
        try:
            locate(path)
        except FeaturesFileError:
            return None
        try:
            # The features file may print; stdout is for the command's own output.
            with redirect_stdout(sys.stderr):
                return runtime_of(declared_store(path)).registry
        except DeclarationError as error:
            note(f"Could not check the names, because {path} did not load: {error}")
            return None

    @property
    def store(self) -> AnyStore:
        """The server that the command calls, or else the local store."""
        return self.server or self.local

    def run(
        self,
        verb: Callable[[AnyStore], Awaitable[T]],
        *,
        create: bool = False,
        has_names: bool = False,
    ) -> T:
        """Call a verb of the store; ``has_names`` adds the file to errors about unknown names."""
        with self.named() if has_names else nullcontext():
            return run(self.store, verb, create=create)

    def declarations(self) -> StoreListing:
        """Return the declarations of the store, which is not opened, or of the server."""
        if self.server is not None:
            return run(self.server, lambda server: server.declarations())
        return declarations_of(self.local)

    def show(self, data: object, shown: str | Callable[[], None], *notes: str | None) -> None:
        """Print data as JSON if that is requested, and else a sentence or as a function does."""
        if self.as_json:
            print_json(data)
            return
        if isinstance(shown, str):
            typer.echo(shown)
        else:
            shown()
        for text in filter(None, notes):
            note(text)

    def show_table(
        self,
        data: object,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *notes: str | None,
        empty: str = "",
    ) -> None:
        """Print data as JSON if that is requested, and else as a table."""
        self.show(data, partial(print_table, columns, rows, empty=empty), *notes)

    def span(
        self, since: str | None, before: str | None
    ) -> tuple[datetime | None, datetime | None]:
        """Return the times of the options --since and --before."""
        now = self.store.clock.now()
        start, end = (None if text is None else _parse_when(text, now) for text in (since, before))
        return start, end

    def check_name(self, find: Callable[[Registry], object]) -> None:
        """Raise an error about a name that the features file does not declare; servers check it."""
        if self.server is None:
            with self.named():
                find(runtime_of(self.local).registry)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the features file and the `--file` option to the error about an unknown name."""
        try:
            yield
        except UnknownNameError as error:
            if error.response is not None:
                raise
            raise InvalidInputError(
                f"{error} (searched {features_file(self.file)}; pass --file to use another file)"
            ) from error


class Commands:
    """A group of commands, which all have the options of the store, the server and the output.

    A command is a function of its call. Its positional parameters are arguments, and the others are
    options. The part `Args` of its docstring has their help, after the words for their values.
    """

    def __init__(
        self,
        parent: "Commands | None" = None,
        name: str = "",
        summary: str = "",
        *,
        file: FileParameter = NO_FILE,
        cls: type[TyperGroup] = TyperGroup,
    ) -> None:
        self.typer = typer.Typer(
            cls=cls, help=summary, no_args_is_help=True, add_completion=False, rich_markup_mode=None
        )
        self.verb: str = (parent and parent.verb) or name
        self._file = file
        if parent is not None:
            parent.typer.add_typer(self.typer, name=name)

    def command(
        self,
        name: str = "",
        *,
        file: FileParameter | None = None,
        has_json: bool = True,
        summary: str = "",
    ) -> Callable[[F], F]:
        """Return the decorator of a function that is a command."""
        source = file or self._file

        def add(function: F) -> F:
            text, _, described = cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
            helps = {match[1]: match for match in _HELP.finditer(described)}
            words = name or function.__name__.strip("_")

            def call(*, as_json: bool = False, **given: Any) -> None:
                file, url, key = (given.pop(name, None) for name in ("file", "url", "key"))
                function(CommandCall(file, url, key, as_json, source.is_declared), **given)

            _, *own = signature(function, eval_str=True).parameters.values()
            parameters = [_parameter(p, helps.get(p.name)) for p in own]
            if source.info is not None:
                first = 0 if isinstance(source.info, type(DECLARED_ARGUMENT.info)) else len(own)
                parameters.insert(first, _option("file", Path | None, source.info))
            if has_json:
                info = typer.Option("--json", help="Print JSON only.")
                parameters.append(_option("as_json", bool, info, default=False))
            path = f"{self.verb} {words}" if self.verb else words
            parameters += _server_options(
                LOCAL_ONLY.get(path) or LOCAL_ONLY.get(self.verb or words)
            )
            call.__annotations__ = {p.name: p.annotation for p in parameters}
            vars(call)["__signature__"] = Signature(parameters)
            self.typer.command(words, help=summary or text)(call)
            return function

        return add


def _option(name: str, kind: Any, info: Any, *, default: object = None) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _parameter(parameter: Parameter, text: re.Match[str] | None) -> Parameter:
    """Return a parameter of a command as typer reads it, with the help of the docstring."""
    if text is None:
        return parameter.replace(kind=Parameter.KEYWORD_ONLY)
    kind, info = parameter.annotation, typer.Option()
    if get_origin(kind) is Annotated:
        kind, declared = get_args(kind)
        info = copy(declared)
    elif parameter.kind is not Parameter.KEYWORD_ONLY:
        metavar = parameter.name.upper() + ("..." if "list" in str(kind) else "")
        info = typer.Argument(metavar=metavar, show_default=parameter.default is not None)
    elif parameter.default is False:
        info = typer.Option(f"--{parameter.name.replace('_', '-')}")
    info.help = " ".join(text[3].split())
    info.metavar = text[2] or info.metavar
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info])


def _server_options(reason: str | None) -> list[Parameter]:
    """Return --url and --key, which a command that never calls a server refuses."""

    def check(context: typer.Context, value: str | None) -> str | None:
        if value is not None and reason is not None:
            raise typer.BadParameter(f"`{context.command_path}` cannot call a server: {reason}")
        return value

    def option(name: str, text: str) -> Parameter:
        is_hidden, word = reason is not None, name.upper()
        info = typer.Option(f"--{name}", metavar=word, help=text, hidden=is_hidden, callback=check)
        return _option(name, str | None, info)

    return [
        option("url", "Call this server, not a local store. Default: HEADWATER_CLIENT_URL."),
        option("key", "API key for the server. Default: HEADWATER_CLIENT_KEY."),
    ]


def features_file(file: Path | None) -> Path:
    """Return the features file or module from the command line, or else from the settings."""
    return file or Path(load().features)


def declared_store(file: Path | None) -> FeatureStore:
    """Return the store of a features file, for commands that need declarations."""
    return _with_log(load_store(features_file(file)))


def bare_store(file: Path | None) -> FeatureStore:
    """Return the store of the settings, or of a file if one is named, without declarations."""
    return _with_log(load_store(file) if file else FeatureStore())


def _with_log(store: FeatureStore) -> FeatureStore:
    log.configure(store.settings.log.level, store.settings.log.format)
    return store


@contextmanager
def option_names() -> Iterator[None]:
    """Name options instead of Python arguments in the message of an error."""

    def as_option(argument: re.Match[str]) -> str:
        name, value = argument.groups()
        return f"--{name.replace('_', '-')}" + (f" {value}" if value else "")

    try:
        yield
    except InvalidInputError as error:
        message = _ARGUMENT.sub(as_option, str(error))
        if message == str(error):
            raise
        raise InvalidInputError(message) from error


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
        f"{_EXAMPLE_TIME}"
    )


def parse_time(text: str) -> datetime:
    """Return a time that is written in ISO 8601 with its time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time; write {_EXAMPLE_TIME}") from error
    if time.tzinfo is None:
        raise typer.BadParameter(no_time_zone(time))
    return time


def no_time_zone(time: datetime) -> str:
    """Return the message for a time without a time zone."""
    return f"{time.isoformat()} has no time zone; add one, as in {time.isoformat()}Z"


def run(store: S, call: Callable[[S], Awaitable[T]], *, create: bool = False) -> T:
    """Open the store, or connect to a server, await one call and close it.

    Raise HomeError if the embedded store does not exist, unless ``create`` is set.
    """
    announce_if_new = None
    if isinstance(store, FeatureStore):
        announce_if_new = new_store_notice(store.settings)
        if not create:
            _check_home(store)

    async def opened() -> T:
        async with store:
            if announce_if_new:
                announce_if_new()
            return await call(store)

    return asyncio.run(opened())


def new_store_notice(settings: Settings) -> Callable[[], None]:
    """Return a function that prints, after opening, that a new store was created."""
    home = _missing_home(settings)
    return lambda: None if home is None else note(f"Created a new store in {home}.")


def _check_home(store: FeatureStore) -> None:
    """Raise HomeError if the embedded store does not exist, instead of reading an empty one."""
    if (home := _missing_home(store.settings)) is not None:
        entities = runtime_of(store).registry.entities.values()
        folders = {Path(entity.location.file).parent / store.settings.home for entity in entities}
        existing = [folder for folder in folders if folder.exists()]
        setting = f"HEADWATER_HOME={os.path.relpath(existing[0])}" if existing else "HEADWATER_HOME"
        raise HomeError(
            str(home),
            "does not exist",
            f"run this command in the folder with the store, or set {setting} or the home= of the "
            "features file; `headwater serve FILE` creates a new one",
        )


def is_missing(store: FeatureStore) -> bool:
    """Return whether this is an embedded store whose folder does not exist."""
    return _missing_home(store.settings) is not None


def _missing_home(settings: Settings) -> Path | None:
    """Return the folder of an embedded store that does not exist, or None."""
    if on_servers(settings):
        return None
    home = Path(settings.home).absolute()
    with suppress(OSError):  # opening the store reports why the folder cannot be read
        return None if home.exists() else home
    return None
