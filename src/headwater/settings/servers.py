"""The groups of settings about Redis, Postgres, Kafka and the vector index."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from headwater.settings.kinds import (
    Count,
    EventFields,
    Hosts,
    KafkaOptions,
    Limit,
    Seconds,
    Secret,
    SettingsGroup,
    Text,
    Url,
)


class TlsSettings(SettingsGroup, frozen=True):
    """Settings of encrypted connections; the files are read for every new connection."""

    ca_file: Annotated[str, "file of the CAs that are trusted, in PEM; empty: the system's"] = ""
    cert_file: Annotated[str, "file of the certificate that is shown to the server, in PEM"] = ""
    key_file: Annotated[str, "file of its key; empty if the file of the certificate has it"] = ""
    verify: Annotated[bool, "check the certificate of the server, and its name"] = True
    server_name: Annotated[
        str, "name that the certificate of the server must have; empty: the host of the URL"
    ] = ""


class SentinelSettings(SettingsGroup, frozen=True):
    """Settings of the Sentinels of a URL with redis+sentinel://."""

    username: Annotated[str, "user of the Sentinels, who is not that of the URL"] = ""
    password: Annotated[Secret, "password of the Sentinels, which is not that of the URL"] = ""
    encrypted: Annotated[
        Literal["auto", "yes", "no"], "whether Sentinels are spoken to by TLS; auto: as Redis is"
    ] = "auto"
    tls: TlsSettings = TlsSettings()


class RedisSettings(SettingsGroup, frozen=True):
    """Settings of Redis."""

    url: Annotated[
        Url,
        "URL of the Redis server for events and current values; commas separate the servers of a "
        "cluster, or the Sentinels of redis+sentinel://one:26379,two:26379/name",
    ] = ""
    password: Annotated[Secret, "password, instead of one in the URL"] = ""
    credentials: Annotated[
        str,
        "function that returns user, password and when they expire, as module:function; called "
        "again before that",
    ] = ""
    prefix: Annotated[Text, "prefix of all keys"] = "headwater"
    max_memory: Annotated[
        Limit,
        "refuse events with 503 while the keys of the store take about more bytes than this; 0 for "
        "no limit",
    ] = 0
    declared_keys: Annotated[
        bool,
        "let no script derive a key from what it has read, for servers that refuse that, such as "
        "ElastiCache Serverless; reading a batch takes one more round trip",
    ] = False
    timeout: Annotated[Seconds, "timeout of a command, in seconds"] = 5.0
    connect_timeout: Annotated[
        Seconds, "timeout of connecting, in seconds; at most `redis.timeout`"
    ] = 3.0
    tls: TlsSettings = TlsSettings()
    sentinel: SentinelSettings = SentinelSettings()


class BusSettings(SettingsGroup, frozen=True):
    """Settings of a log of events outside of Redis."""

    url: Annotated[
        Url,
        "topic of Kafka that keeps the events, such as kafka://a:9092,b:9092/events; Redis has "
        "those that wait for workers then. Empty: Redis keeps all",
    ] = ""
    options: Annotated[
        KafkaOptions,
        "settings of librdkafka, such as security.protocol=SASL_SSL,sasl.mechanism=PLAIN",
    ] = ""
    password: Annotated[Secret, "password of SASL, librdkafka's sasl.password"] = ""
    timeout: Annotated[Seconds, "seconds until an event that no broker acknowledges fails"] = 10.0
    max_waiting: Annotated[
        Count, "events of a partition in Redis from which on further ones stay in Kafka"
    ] = 20_000
    fields: Annotated[
        EventFields,
        "names of the fields event_type, entity_id, payload, timestamp and event_id in records of "
        "other producers, where they differ",
    ] = field(default_factory=dict)
    decode: Annotated[
        str, "function that makes an event of a record of another producer, as module:function"
    ] = ""


class PostgresTlsSettings(SettingsGroup, frozen=True):
    """Settings of encrypted connections; the files are read for every new connection."""

    mode: Annotated[
        Literal["", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
        "libpq's sslmode; empty: that of the URL, or verify-full if there is a CA, or prefer",
    ] = ""
    ca_file: Annotated[
        str, "file of the CAs that are trusted, in PEM; system: the system's (sslrootcert)"
    ] = ""
    cert_file: Annotated[
        str, "file of the certificate that is shown to the server, in PEM (sslcert)"
    ] = ""
    key_file: Annotated[str, "file of its key (sslkey)"] = ""
    key_password: Annotated[Secret, "password of its key (sslpassword)"] = ""
    crl_file: Annotated[str, "file of revoked certificates, in PEM (sslcrl)"] = ""
    min_version: Annotated[
        Literal["", "TLSv1.2", "TLSv1.3"], "oldest version of TLS; empty: TLSv1.2"
    ] = ""


class PostgresSettings(SettingsGroup, frozen=True):
    """Settings of Postgres."""

    url: Annotated[Url, "URL of the Postgres server for history"] = ""
    hosts: Annotated[
        Hosts,
        "servers of which one is the primary, separated by commas, in place of the host of "
        "`postgres.url`: one:5432,two:5432",
    ] = ""
    target_session_attrs: Annotated[
        Literal["", "any", "primary", "read-write"],
        "what a server must be to be used; by default read-write if several are named",
    ] = ""
    password: Annotated[
        Secret, "password, instead of one in the URL; of replicas whose URL has none"
    ] = ""
    credentials: Annotated[
        str,
        "function that returns user, password and when they expire, as module:function; called "
        "again before that",
    ] = ""
    schema: Annotated[str, Meta(pattern="^[a-z_][a-z0-9_]{0,62}$"), "schema of the tables"] = (
        "headwater"
    )
    pooler: Annotated[
        Literal["none", "transaction"],
        "a pooler such as PgBouncer between Headwater and Postgres: transaction, if it may use "
        "another session for each transaction",
    ] = "none"
    pool_size: Annotated[
        Count, "maximum number of connections per process, plus one for records"
    ] = 10
    timeout: Annotated[Seconds, "timeout of a statement, in seconds"] = 60.0
    connect_timeout: Annotated[Seconds, "timeout of connecting, in seconds"] = 10.0
    replica_url: Annotated[
        Url,
        "URL of a replica for reads, or of several: "
        "postgresql://user:password@first:5432,second:5432/database",
    ] = ""
    replica_timeout: Annotated[
        Seconds,
        "seconds that a read waits for the replica to have all that the primary has, before it "
        "reads from the primary",
    ] = 2.0
    replica_reads: Annotated[
        Literal["history", "all"],
        "what is read from replicas: long reads of history, or all of records and searches too",
    ] = "history"
    tables_per_month: Annotated[
        int,
        Meta(ge=1, le=64),
        "tables of each new month of history and of events, by the hash of the entity id",
    ] = 1
    tls: PostgresTlsSettings = PostgresTlsSettings()

    @property
    def servers(self) -> list[str]:
        """The host and port of each server."""
        places = self.hosts or urlsplit(self.url).netloc.rpartition("@")[2]
        return [place.strip() for place in places.split(",")]

    @property
    def target(self) -> str:
        """What a server must be to be used; empty if any may be, or the URL says it."""
        is_open = len(self.servers) > 1 and "target_session_attrs=" not in self.url
        return self.target_session_attrs or ("read-write" if is_open else "")

    def url_of(self, *servers: str) -> str:
        """Return the URL with these servers in place of its own."""
        url = urlsplit(self.url)
        user, at, _ = url.netloc.rpartition("@")
        return url._replace(netloc=f"{user}{at}{','.join(servers)}").geturl()


class VectorSettings(SettingsGroup, frozen=True):
    """Settings of indexes of documents in Postgres with pgvector."""

    hnsw_m: Annotated[
        int, Meta(ge=2, le=100), "connections of a chunk in a new HNSW index; more find more"
    ] = 16
    hnsw_ef_construction: Annotated[
        int,
        Meta(ge=4, le=1_000),
        "candidates when a chunk is added to a new HNSW index; at least twice `vectors.hnsw_m`",
    ] = 64
    hnsw_ef_search: Annotated[
        int, Meta(ge=1, le=1_000), "candidates of a search; more find more and take longer"
    ] = 100
    iterative_scan: Annotated[
        Literal["off", "relaxed_order", "strict_order"],
        "how a search goes on if filters leave too few of the candidates",
    ] = "relaxed_order"
    max_scan_tuples: Annotated[
        Count, "chunks that such a search visits before all chunks are compared"
    ] = 20_000
    halfvec: Annotated[
        bool, "store embeddings of new generations in 16 instead of 32 bits per number"
    ] = False
