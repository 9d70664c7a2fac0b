"""Settings: what there is to set, what each may be and what it is for.

The name of a variable is the path of its setting: ``worker.batch_size`` is
``HEADWATER_WORKER_BATCH_SIZE``, and ``batch_size`` in the table ``[worker]`` of the file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from headwater.core.durations import format_duration, to_timedelta
from headwater.core.logging import Format, Level
from headwater.core.sql_sources import check_name, kind_of
from headwater.errors import ConfigError, DeclarationError, InvalidInputError, UnknownSettingError

PREFIX = "HEADWATER_"

_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


def _hidden(secret: str) -> str:
    return "***" if secret else ""


def _without_password(url: str) -> str:
    # Greedy up to the last @: a password with an unescaped @ or / must not show its tail.
    url = re.sub(r"(://[^:@]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&\s]+", r"\1***", url)


def _checked_sources(sources: Mapping[str, str]) -> Mapping[str, str]:
    for name, location in sources.items():
        check_name(name)
        kind_of(name, location)
    return sources


def rates_of(prices: Mapping[str, int | str]) -> dict[str, int]:
    """Prices as whole numbers of nano-USD for a million tokens."""
    for model, given in prices.items():
        text = str(given)
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_RATE:
            raise InvalidInputError(
                f"{given!r} for {model!r} is not a whole number of nano-USD for a million "
                f"tokens, such as 2500000000 for 2.50 USD, of at most {_LONGEST_RATE} digits"
            )
    return {model: int(given) for model, given in prices.items()}


_SECRET = {"show": _hidden}
_URL = {"show": _without_password}
# A dollar for each token: a record holds what nine million of those cost.
_LONGEST_RATE = 15


class WorkerSettings(msgspec.Struct, frozen=True):
    """How events are worked off."""

    batch_size: Annotated[int, Meta(ge=1, description="events per batch")] = 100
    poll_interval: Annotated[float, Meta(gt=0, description="longest idle wait, in seconds")] = 1.0
    consumer_group: Annotated[
        str, Meta(min_length=1, description="name under which workers share the events")
    ] = "headwater_workers"
    lease_ttl: Annotated[
        float, Meta(gt=0, description="seconds after which a silent worker loses its partitions")
    ] = 10.0
    concurrency: Annotated[
        int, Meta(ge=1, description="entities at once in a batch of one partition")
    ] = 64
    handler_timeout: Annotated[float, Meta(gt=0, description="seconds a function may run")] = 60.0
    threads: Annotated[int, Meta(ge=1, description="threads for functions not async")] = 16
    max_deliveries: Annotated[
        int,
        Meta(ge=1, description="runs of an event that kills its worker, before it is set aside"),
    ] = 5
    drain_timeout: Annotated[
        float, Meta(gt=0, description="seconds a stopping worker may take to finish its batch")
    ] = 30.0
    metrics_port: Annotated[
        int,
        Meta(ge=0, le=65_535, description="port of a worker's metrics and probes; 0 for none"),
    ] = 0


class HttpSettings(msgspec.Struct, frozen=True):
    """How the server listens."""

    host: Annotated[str, Meta(min_length=1, description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="port; 0 takes a free one")] = 8000
    max_body_bytes: Annotated[int, Meta(ge=1, description="largest request body")] = 1_048_576
    rate_limit: Annotated[
        float, Meta(ge=0, description="requests per second and key; 0 for no limit")
    ] = 0.0
    access_log: Annotated[bool, Meta(description="whether each request is logged")] = True


class IngestSettings(msgspec.Struct, frozen=True):
    """Which events are taken in."""

    dedup_window: Annotated[
        timedelta, Meta(description="how long a repeated event_id is recognised")
    ] = timedelta(hours=24)
    future_tolerance: Annotated[
        timedelta, Meta(description="how far ahead of our clock an event's timestamp may be")
    ] = timedelta(minutes=5)
    max_event_bytes: Annotated[int, Meta(ge=1, description="largest payload of an event")] = (
        1_048_576
    )
    dedup_limit: Annotated[
        int, Meta(ge=1, description="event ids recognised at most; the oldest are forgotten first")
    ] = 10_000_000
    max_backlog: Annotated[
        int, Meta(ge=0, description="waiting events above which ingest answers 503; 0 for no limit")
    ] = 0


class OfflineSettings(msgspec.Struct, frozen=True):
    """How the embedded history is kept."""

    segment_rows: Annotated[int, Meta(ge=1, description="rows per Parquet segment")] = 50_000
    segment_grace: Annotated[
        timedelta, Meta(description="how long a merged segment stays for those who read it")
    ] = timedelta(minutes=5)


class RedisSettings(msgspec.Struct, frozen=True):
    """Where production keeps what happens now."""

    url: Annotated[str, Meta(description="Redis for events and values", extra=_URL)] = ""
    prefix: Annotated[
        str, Meta(min_length=1, description="what the names of all keys begin with")
    ] = "headwater"
    timeout: Annotated[float, Meta(gt=0, description="seconds to wait for an answer")] = 5.0
    connect_timeout: Annotated[
        float, Meta(gt=0, description="seconds to wait for a connection")
    ] = 5.0


class PostgresSettings(msgspec.Struct, frozen=True):
    """Where production keeps what happened."""

    url: Annotated[str, Meta(description="Postgres for history", extra=_URL)] = ""
    schema: Annotated[
        str, Meta(pattern="^[a-z_][a-z0-9_]{0,62}$", description="schema of Headwater's own tables")
    ] = "headwater"
    pool_size: Annotated[
        int, Meta(ge=1, description="most connections of a process, and one for records")
    ] = 10
    timeout: Annotated[float, Meta(gt=0, description="seconds a statement may take")] = 60.0
    connect_timeout: Annotated[
        float, Meta(gt=0, description="seconds to wait for a connection")
    ] = 10.0


class RecordSettings(msgspec.Struct, frozen=True):
    """How contexts are recorded."""

    include_content: Annotated[
        bool, Meta(description="whether texts, inputs and values are kept, not only their hashes")
    ] = True
    required: Annotated[
        bool, Meta(description="whether a context that could not be recorded is an error")
    ] = False
    index_key: Annotated[
        str,
        Meta(description="secret by which records are found; else the store's own", extra=_SECRET),
    ] = ""
    timeout: Annotated[
        float, Meta(gt=0, description="seconds a context waits for its record to be kept")
    ] = 5.0


class ContextSettings(msgspec.Struct, frozen=True):
    """How contexts are assembled."""

    timeout: Annotated[
        float, Meta(gt=0, description="seconds the function of a context or a retriever may run")
    ] = 30.0


class LogSettings(msgspec.Struct, frozen=True):
    """What is logged, and how."""

    level: Annotated[Level, Meta(description="least important level that is written")] = "info"
    format: Annotated[Format, Meta(description="auto is console on a terminal, else json")] = "auto"


class Settings(msgspec.Struct, frozen=True):
    """Everything that can be set without changing a features file."""

    env: Annotated[
        Literal["development", "production"],
        Meta(description="production insists on Redis and Postgres, and makes no tables by itself"),
    ] = "development"
    home: Annotated[str, Meta(min_length=1, description="the embedded store's folder")] = (
        ".headwater"
    )
    features: Annotated[
        str, Meta(min_length=1, description="features file of a command that names none")
    ] = "features.py"
    partitions: Annotated[
        int, Meta(ge=1, le=1024, description="parts of the event log, fixed when a store is made")
    ] = 16
    api_key: Annotated[
        str, Meta(description="key that requests must carry; several with commas", extra=_SECRET)
    ] = ""
    signing_key: Annotated[
        str,
        Meta(
            description="keys that sign and verify records, with commas; the first one signs",
            extra=_SECRET,
        ),
    ] = ""
    signature_mode: Annotated[
        Literal["off", "optional", "required"],
        Meta(description="whether records are signed; optional is when there is a key"),
    ] = "optional"
    context: ContextSettings = ContextSettings()
    record: RecordSettings = RecordSettings()
    redis: RedisSettings = RedisSettings()
    postgres: PostgresSettings = PostgresSettings()
    worker: WorkerSettings = WorkerSettings()
    http: HttpSettings = HttpSettings()
    ingest: IngestSettings = IngestSettings()
    offline: OfflineSettings = OfflineSettings()
    log: LogSettings = LogSettings()
    sources: Annotated[
        dict[str, str],
        Meta(
            description="names that SQL features read, each with its file",
            extra={"check": _checked_sources},
        ),
    ] = {}
    prices: Annotated[
        dict[str, int | str],
        Meta(
            description="models with a price of your own, in nano-USD for a million input tokens",
            extra={"check": rates_of},
        ),
    ] = {}

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The keys that are valid at once."""
        return tuple(key for part in self.api_key.split(",") if (key := part.strip()))

    def replace(self, **changes: object) -> Settings:
        """These settings with some replaced, checked as the file's are; a group is a mapping."""
        given = {
            path: SETTINGS[path].check(value, path) for path, value in by_path(changes, "settings")
        }
        return replaced(self, given)

    # What is printed, or shown with a traceback, has no secrets in it.
    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(path, setting.shown(setting.of(self))) for path, setting in SETTINGS.items()]

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{path}={value!r}' for path, value in self.__rich_repr__())})"


class Setting(NamedTuple):
    """One setting: where it is written, what it may be and what it is for."""

    path: str
    kind: Any
    meta: Meta

    @property
    def variable(self) -> str | None:
        """Its environment variable; a table can only be written in the file."""
        if get_origin(self.kind) is dict:
            return None
        return PREFIX + self.path.replace(".", "_").upper()

    @property
    def description(self) -> str:
        return self.meta.description or ""

    @property
    def allowed(self) -> str:
        """What may be written, in words."""
        origin = get_origin(self.kind) or self.kind
        if origin is Literal:
            return "one of " + ", ".join(get_args(self.kind))
        meta = self.meta
        bounds = ((" above", meta.gt), (" from", meta.ge), (" to", meta.le))
        limits = "".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
        words = _IN_WORDS[self.kind if origin is dict else origin]
        return words + limits + (" that is not empty" if meta.min_length else "")

    def of(self, settings: Settings) -> Any:
        """Its value among these settings."""
        value: Any = settings
        for name in self.path.split("."):
            value = getattr(value, name)
        return value

    def shown(self, value: Any) -> Any:
        """A value as people may see it: durations in words, secrets masked."""
        if isinstance(value, timedelta):
            return format_duration(value // timedelta(milliseconds=1))
        show = (self.meta.extra or {}).get("show")
        return show(str(value)) if show else value

    def check(self, given: object, where: str) -> Any:
        """The value in its own type, or an error that names where it was written."""
        try:
            return self._value(os.fspath(given) if isinstance(given, os.PathLike) else given)
        except ValueError as error:
            raise ConfigError(
                f"{where}: {self.shown(given)!r} is not allowed; it must be {self.allowed}"
            ) from error
        except (InvalidInputError, DeclarationError) as error:
            raise ConfigError(f"{where}: {error}") from error

    def check_text(self, text: str, where: str) -> Any:
        """The same for a variable, where every value is text."""
        given: object = text
        if self.kind is bool:
            given = _BOOLEANS.get(text.lower(), text)
        elif self.kind in (int, float):
            try:
                given = msgspec.convert(text, self.kind, strict=False)
            except msgspec.ValidationError:
                given = text
        return self.check(given, where)

    def _value(self, given: Any) -> Any:
        if self.kind is timedelta:
            return to_timedelta(given)
        value = msgspec.convert(given, Annotated[self.kind, self.meta])
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(value)
        check = (self.meta.extra or {}).get("check")
        return check(value) if check else value


_IN_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict[str, str]: "a table of names and texts",
    dict[str, int | str]: "a table of names and whole numbers",
    timedelta: "a duration such as '500ms', '30s', '5m', '1.5h' or '1d'",
}


def _walk(group: type[msgspec.Struct], prefix: str = "") -> Iterator[Setting]:
    for field in msgspec.structs.fields(group):
        path = prefix + field.name
        if get_origin(field.type) is Annotated:
            yield Setting(path, *get_args(field.type))
        else:
            yield from _walk(field.type, path + ".")


SETTINGS = {setting.path: setting for setting in _walk(Settings)}
"""Every setting by its path, in the order in which they are declared."""

_GROUPS = {path.partition(".")[0] for path in SETTINGS if "." in path}


def by_path(tree: Mapping[str, Any], where: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every written setting by its path."""
    for key, value in tree.items():
        path = prefix + key
        if path in SETTINGS:
            yield path, value
        elif path not in _GROUPS:
            raise UnknownSettingError(path, where, [*SETTINGS, *_GROUPS])
        elif isinstance(value, Mapping):
            yield from by_path(value, where, path + ".")
        else:
            raise ConfigError(f"{where}: {path} is a table of settings, not {value!r}")


_Group = TypeVar("_Group", bound=msgspec.Struct)


def replaced(group: _Group, values: Mapping[str, Any], prefix: str = "") -> _Group:
    """Settings with some replaced, given by their paths and checked already."""
    changes: dict[str, Any] = {}
    for name in group.__struct_fields__:
        path, current = prefix + name, getattr(group, name)
        if isinstance(current, msgspec.Struct):
            changes[name] = replaced(current, values, path + ".")
        elif path in values:
            changes[name] = values[path]
    return msgspec.structs.replace(group, **changes)
