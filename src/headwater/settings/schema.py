"""The settings: their names, types, defaults and descriptions.

The name of a variable is the path of its setting: ``worker.batch_size`` is
``HEADWATER_WORKER_BATCH_SIZE``, and ``batch_size`` in the table ``[worker]`` of the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from headwater.core.durations import format_duration, to_timedelta
from headwater.core.logging import Format, Level
from headwater.core.sql_sources import check_name, kind_of
from headwater.errors import ConfigError, DeclarationError, InvalidInputError, UnknownSettingError
from headwater.settings.masking import mask, mask_address

PREFIX = "HEADWATER_"

_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


def _check_sources(sources: Mapping[str, str]) -> Mapping[str, str]:
    for name, location in sources.items():
        check_name(name)
        kind_of(name, location)
    return sources


def rates_of(prices: Mapping[str, int | str]) -> dict[str, int]:
    """Return prices as whole numbers of nano-USD per million tokens."""
    for model, price in prices.items():
        text = str(price)
        if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_RATE:
            raise InvalidInputError(
                f"{price!r} for {model!r} is not a whole number of nano-USD per million "
                f"tokens, such as 2500000000 for 2.50 USD, of at most {_LONGEST_RATE} digits"
            )
    return {model: int(price) for model, price in prices.items()}


# One dollar per token; the cost of nine million such tokens still fits into a record.
_LONGEST_RATE = 15

_SECONDS = Meta(gt=0)

# Each setting is annotated with one of these types, or a plain one, and its description.
Count = Annotated[int, Meta(ge=1)]
Limit = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, _SECONDS]
Text = Annotated[str, Meta(min_length=1)]
Secret = Annotated[str, Meta(extra={"show": mask})]
Url = Annotated[str, Meta(extra={"show": mask_address})]
Sources = Annotated[dict[str, str], Meta(extra={"check": _check_sources})]
Prices = Annotated[dict[str, int | str], Meta(extra={"check": rates_of})]


class SettingsGroup(msgspec.Struct, frozen=True):
    """Settings whose secrets are masked wherever the group is printed, also in tracebacks."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(each.path, each.shown(each.of(self))) for each in _walk(type(self))]

    def __repr__(self) -> str:
        shown = ", ".join(f"{path}={value!r}" for path, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


class WorkerSettings(SettingsGroup, frozen=True):
    """Settings of workers."""

    batch_size: Annotated[Count, "maximum number of events per batch"] = 100
    poll_interval: Annotated[Seconds, "seconds between polls when idle"] = 1.0
    consumer_group: Annotated[Text, "consumer group of the workers, who share its events"] = (
        "headwater_workers"
    )
    lease_ttl: Annotated[Seconds, "seconds without a heartbeat until a worker's leases expire"] = (
        10.0
    )
    concurrency: Annotated[Count, "entities of one partition that are processed concurrently"] = 64
    handler_timeout: Annotated[Seconds, "timeout of a handler, in seconds"] = 60.0
    threads: Annotated[Count, "threads for functions that are not async"] = 16
    max_hung_threads: Annotated[
        Count, "threads that may hang in functions that are not async before the worker exits"
    ] = 64
    max_deliveries: Annotated[
        Count, "attempts at an event that crashes workers before it is a dead letter"
    ] = 5
    retry_budget: Annotated[
        Seconds,
        "seconds after its first failure in which an event is retried, and that a partition pauses "
        "at once",
    ] = 5.0
    breaker_threshold: Annotated[
        Limit, "consecutive failures until a feature's events get one attempt each; 0 for never"
    ] = 10
    drain_timeout: Annotated[
        Seconds, "seconds that a stopping worker may take to finish a batch"
    ] = 30.0
    metrics_port: Annotated[Port, "port for metrics and probes of a worker; 0 for none"] = 0
    processes: Annotated[
        Limit, "worker processes that `headwater serve` starts in production; 0 for none"
    ] = 1


class HttpSettings(SettingsGroup, frozen=True):
    """Settings of the HTTP server."""

    host: Annotated[Text, "address to listen on"] = "127.0.0.1"
    port: Annotated[Port, "port; 0 for any free port"] = 8000
    max_body_bytes: Annotated[Count, "maximum size of a request body"] = 1_048_576
    rate_limit: Annotated[
        float, Meta(ge=0), "requests per second for each API key; 0 for no limit"
    ] = 0.0
    access_log: Annotated[bool, "log every request"] = True


class IngestSettings(SettingsGroup, frozen=True):
    """Settings of publishing."""

    dedup_window: Annotated[
        timedelta, "how long an event_id is remembered, so that a duplicate is ignored"
    ] = timedelta(hours=24)
    future_tolerance: Annotated[timedelta, "how far in the future an event's timestamp may be"] = (
        timedelta(minutes=5)
    )
    max_event_bytes: Annotated[Count, "maximum size of an event's payload"] = 1_048_576
    dedup_limit: Annotated[Count, "maximum number of remembered event ids; the oldest go first"] = (
        10_000_000
    )
    max_backlog: Annotated[
        Limit, "refuse events with 503 while more than this wait; 0 for no limit"
    ] = 0


class OfflineSettings(SettingsGroup, frozen=True):
    """Settings of the embedded history."""

    segment_rows: Annotated[Count, "rows per Parquet segment"] = 50_000
    segment_grace: Annotated[timedelta, "how long readers may still use a merged segment"] = (
        timedelta(minutes=5)
    )


class RedisSettings(SettingsGroup, frozen=True):
    """Settings of Redis."""

    url: Annotated[
        Url,
        "URL of the Redis server for events and current values; commas separate the servers of a "
        "cluster",
    ] = ""
    prefix: Annotated[Text, "prefix of all keys"] = "headwater"
    timeout: Annotated[Seconds, "timeout of a command, in seconds"] = 5.0
    connect_timeout: Annotated[
        Seconds, "timeout of connecting, in seconds; at most `redis.timeout`"
    ] = 3.0


class PostgresSettings(SettingsGroup, frozen=True):
    """Settings of Postgres."""

    url: Annotated[Url, "URL of the Postgres server for history"] = ""
    schema: Annotated[str, Meta(pattern="^[a-z_][a-z0-9_]{0,62}$"), "schema of the tables"] = (
        "headwater"
    )
    pool_size: Annotated[
        Count, "maximum number of connections per process, plus one for records"
    ] = 10
    timeout: Annotated[Seconds, "timeout of a statement, in seconds"] = 60.0
    connect_timeout: Annotated[Seconds, "timeout of connecting, in seconds"] = 10.0


class RecordSettings(SettingsGroup, frozen=True):
    """Settings of context records."""

    include_content: Annotated[
        bool, "store texts, inputs and values in records, not only their hashes"
    ] = True
    required: Annotated[bool, "fail a context if its record cannot be stored"] = False
    index_key: Annotated[
        Secret, "secret key of the search index; by default the store generates one"
    ] = ""
    timeout: Annotated[Seconds, "seconds that a context waits until its record is stored"] = 5.0


class ContextSettings(SettingsGroup, frozen=True):
    """Settings of context assembly."""

    timeout: Annotated[Seconds, "timeout of context and retriever functions, in seconds"] = 30.0


class LogSettings(SettingsGroup, frozen=True):
    """Settings of logging."""

    level: Annotated[Level, "minimum level"] = "info"
    format: Annotated[Format, "auto means console on a terminal, json elsewhere"] = "auto"


class Settings(SettingsGroup, frozen=True):
    """All settings."""

    env: Annotated[
        Literal["development", "production"],
        "production requires Redis and Postgres, and never creates tables",
    ] = "development"
    home: Annotated[Text, "folder of the embedded store"] = ".headwater"
    features: Annotated[Text, "default features file of commands"] = "features.py"
    partitions: Annotated[
        int, Meta(ge=1, le=1024), "partitions of the event log; fixed at creation"
    ] = 16
    lost_store: Annotated[
        Literal["refuse", "defaults"],
        "reads while the store is known to have lost its data: refuse them, or return defaults",
    ] = "refuse"
    api_key: Annotated[Secret, "API key that requests must send; separate several by commas"] = ""
    signing_key: Annotated[
        Secret, "keys of records, separated by commas; the first signs, all verify"
    ] = ""
    signature_mode: Annotated[
        Literal["off", "optional", "required"], "sign records: never, if there is a key, or always"
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
    sources: Annotated[Sources, "files that SQL features can read, by name"] = {}
    prices: Annotated[Prices, "prices of models, in nano-USD per million input tokens"] = {}

    @property
    def api_keys(self) -> tuple[str, ...]:
        """All valid keys."""
        return tuple(key for part in self.api_key.split(",") if (key := part.strip()))

    def replace(self, **changes: object) -> Settings:
        """Return a copy with validated changes; the value of a group is a mapping.

        >>> Settings().replace(partitions=4, worker={"lease_ttl": 5}).worker.lease_ttl
        5.0
        """
        values = {
            path: SETTINGS[path].check(value, path) for path, value in by_path(changes, "settings")
        }
        return replace_values(self, values)


class Setting(NamedTuple):
    """One setting: its path, type, constraints and description."""

    path: str
    kind: Any
    meta: Meta
    description: str

    @property
    def variable(self) -> str | None:
        """The environment variable, or None for a table, which only the file can hold."""
        if get_origin(self.kind) is dict:
            return None
        return PREFIX + self.path.replace(".", "_").upper()

    @property
    def allowed(self) -> str:
        """A description of the allowed values."""
        origin = get_origin(self.kind) or self.kind
        if origin is Literal:
            return "one of " + ", ".join(get_args(self.kind))
        meta = self.meta
        bounds = ((" above", meta.gt), (" from", meta.ge), (" to", meta.le))
        limits = "".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
        if meta is _SECONDS:
            limits += ", in seconds, or a duration such as '30s'"
        name = _TYPE_NAMES[self.kind if origin is dict else origin]
        return name + limits + (" that is not empty" if meta.min_length else "")

    def of(self, group: SettingsGroup) -> Any:
        """Return the value of this setting in the group that its path starts from."""
        value: Any = group
        for name in self.path.split("."):
            value = getattr(value, name)
        return value

    def shown(self, value: Any) -> Any:
        """Return a value for display: durations formatted, secrets masked."""
        if isinstance(value, timedelta):
            return format_duration(value // timedelta(milliseconds=1))
        show = (self.meta.extra or {}).get("show")
        return show(str(value)) if show else value

    def check(self, value: object, where: str) -> Any:
        """Return the value in the setting's type; raise ConfigError naming its place otherwise."""
        try:
            return self._convert(os.fspath(value) if isinstance(value, os.PathLike) else value)
        except ValueError as error:
            raise ConfigError(
                f"{where}: {self.shown(value)!r} is not allowed; it must be {self.allowed}"
            ) from error
        except (InvalidInputError, DeclarationError) as error:
            raise ConfigError(f"{where}: {error}") from error

    def check_text(self, text: str, where: str) -> Any:
        """Return the value of an environment variable in the setting's type."""
        value: object = text
        if self.kind is bool:
            value = _BOOLEANS.get(text.lower(), text)
        elif self.kind in (int, float):
            with suppress(msgspec.ValidationError):
                value = msgspec.convert(text, self.kind, strict=False)
        return self.check(value, where)

    def _convert(self, raw: Any) -> Any:
        if self.kind is timedelta:
            return to_timedelta(raw)
        if self.meta is _SECONDS and isinstance(raw, str):
            raw = to_timedelta(raw).total_seconds()
        value = msgspec.convert(raw, Annotated[self.kind, self.meta])
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(value)
        check = (self.meta.extra or {}).get("check")
        return check(value) if check else value


_TYPE_NAMES: dict[Any, str] = {
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
            kind, *meta, description = get_args(field.type)
            yield Setting(path, kind, meta[0] if meta else Meta(), description)
        else:
            yield from _walk(field.type, path + ".")


SETTINGS = {setting.path: setting for setting in _walk(Settings)}
"""Every setting by its path, in order of declaration."""

_GROUPS = {path.partition(".")[0] for path in SETTINGS if "." in path}


def by_path(tree: Mapping[str, Any], where: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings in a nested mapping with their paths."""
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


def replace_values(group: _Group, values: Mapping[str, Any], prefix: str = "") -> _Group:
    """Return a copy with the values at these paths, which are not validated."""
    changes: dict[str, Any] = {}
    for name in group.__struct_fields__:
        path, current = prefix + name, getattr(group, name)
        if isinstance(current, msgspec.Struct):
            changes[name] = replace_values(current, values, path + ".")
        elif path in values:
            changes[name] = values[path]
    return msgspec.structs.replace(group, **changes)
