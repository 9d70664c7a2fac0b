"""The settings: their names, types, defaults and descriptions.

The name of a variable is the path of its setting: ``worker.batch_size`` is
``HEADWATER_WORKER_BATCH_SIZE``, and ``batch_size`` in the table ``[worker]`` of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from headwater.errors import ConfigError, UnknownSettingError
from headwater.settings.groups import (
    BackfillSettings,
    ClientSettings,
    ContextSettings,
    EmbeddingSettings,
    EvalSettings,
    HttpSettings,
    IndexSettings,
    IngestSettings,
    LakeSettings,
    LineageSettings,
    LogSettings,
    McpSettings,
    ObjectiveSettings,
    OfflineSettings,
    OidcSettings,
    RecordSettings,
    RetentionSettings,
    RunnerSettings,
    TelemetrySettings,
    TokenSettings,
    WorkerSettings,
)
from headwater.settings.kinds import Prices, Secret, SettingsGroup, Sources, Text, walk
from headwater.settings.servers import BusSettings, PostgresSettings, RedisSettings, VectorSettings


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
        "reads while the store, or a partition of it, is known to have lost data: refuse them, or "
        "return defaults",
    ] = "refuse"
    api_key: Annotated[Secret, "API key that requests must send; separate several by commas"] = ""
    keys_file: Annotated[
        Text, "file of named API keys, which `headwater keys create` writes; watched for changes"
    ] = "keys.toml"
    signing_key: Annotated[
        Secret, "keys of records, separated by commas; the first signs, all verify"
    ] = ""
    signature_mode: Annotated[
        Literal["off", "optional", "required"], "sign records: never, if there is a key, or always"
    ] = "optional"
    context: ContextSettings = ContextSettings()
    tokens: TokenSettings = TokenSettings()
    record: RecordSettings = RecordSettings()
    embeddings: EmbeddingSettings = EmbeddingSettings()
    redis: RedisSettings = RedisSettings()
    bus: BusSettings = BusSettings()
    postgres: PostgresSettings = PostgresSettings()
    vectors: VectorSettings = VectorSettings()
    worker: WorkerSettings = WorkerSettings()
    http: HttpSettings = HttpSettings()
    oidc: OidcSettings = OidcSettings()
    mcp: McpSettings = McpSettings()
    client: ClientSettings = ClientSettings()
    ingest: IngestSettings = IngestSettings()
    indexes: IndexSettings = IndexSettings()
    offline: OfflineSettings = OfflineSettings()
    lake: LakeSettings = LakeSettings()
    retention: RetentionSettings = RetentionSettings()
    backfill: BackfillSettings = BackfillSettings()
    runner: RunnerSettings = RunnerSettings()
    lineage: LineageSettings = LineageSettings()
    eval: EvalSettings = EvalSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    objectives: ObjectiveSettings = ObjectiveSettings()
    sources: Annotated[Sources, "files and URLs that SQL features can read, by name"] = field(
        default_factory=dict
    )
    prices: Annotated[
        Prices,
        "prices of models in nano-USD per million tokens: of input, or a table with input, output, "
        "cache_read and cache_write",
    ] = field(default_factory=dict)

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The keys in ``api_key``."""
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


SETTINGS = {setting.path: setting for setting in walk(Settings)}
"""Every setting by its path, in order of declaration."""

_GROUPS = {path[:end] for path in SETTINGS for end, sign in enumerate(path) if sign == "."}


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
            kind = type(value).__name__  # and not the value, which may have a password
            raise ConfigError(f"{where}: {path} is a table of settings, not one of type {kind}")


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


def on_servers(settings: Settings) -> bool:
    """Return whether the store is on Redis and Postgres; raise if only one of them is set."""
    urls = {"redis.url": settings.redis.url, "postgres.url": settings.postgres.url}
    missing = [name for name, url in urls.items() if not url]
    if missing and (settings.env == "production" or len(missing) < len(urls)):
        raise ConfigError(
            f"{' and '.join(missing)} must be set: the store lives either on Redis and Postgres or "
            "in the embedded home; see `headwater config show`"
        )
    if missing and settings.bus.url:
        raise ConfigError(
            "bus.url is for a store on Redis and Postgres: set redis.url and postgres.url, or copy "
            "a topic into the embedded store with `headwater events mirror`"
        )
    return not missing
