"""The groups of settings, one for each part of the store."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, field

from headwater.core.encodings import LibraryChoice
from headwater.core.logging import Format, Level
from headwater.core.session_memory import DEFAULT_BYTES
from headwater.settings.kinds import (
    Age,
    AnthropicKey,
    AzureKey,
    CohereKey,
    Count,
    Gates,
    GeminiKey,
    LangfuseHost,
    LangfusePublicKey,
    LangfuseSecretKey,
    Limit,
    Models,
    Objectives,
    OpenAIKey,
    Options,
    Origins,
    Port,
    Seconds,
    Secret,
    SettingsGroup,
    Text,
    Url,
    VoyageKey,
)


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


class HttpTlsSettings(SettingsGroup, frozen=True):
    """Settings of HTTPS."""

    cert_file: Annotated[
        str, "file of the certificate that the API is served with, in PEM; empty: plain HTTP"
    ] = ""
    key_file: Annotated[str, "file of its key; empty if the file of the certificate has it"] = ""


class HttpSettings(SettingsGroup, frozen=True):
    """Settings of the HTTP server."""

    host: Annotated[Text, "address to listen on"] = "127.0.0.1"
    port: Annotated[Port, "port; 0 for any free port"] = 8000
    processes: Annotated[Count, "API processes that `headwater serve` starts"] = 1
    tls: HttpTlsSettings = HttpTlsSettings()
    max_body_bytes: Annotated[Count, "maximum size of a request body"] = 1_048_576
    max_upload_bytes: Annotated[
        Count, "maximum size of a file that is sent to be read or imported"
    ] = 268_435_456
    max_table_rows: Annotated[
        Count, "maximum number of rows of such a file, and of values in any of its columns"
    ] = 10_000_000
    max_table_columns: Annotated[Count, "maximum number of columns of such a file"] = 1_000
    max_tables: Annotated[
        Count, "tables of past values that one process reads, imports or exports at the same time"
    ] = 2
    table_timeout: Annotated[
        Seconds, "seconds that reading, importing or exporting one of them may take"
    ] = 600.0
    max_values: Annotated[
        Count, "maximum number of values that one request reads: entity ids times features"
    ] = 10_000
    max_connections_per_address: Annotated[
        Limit, "open connections of one address; 0 for half of all"
    ] = 0
    head_timeout: Annotated[Seconds, "time for the head of a request"] = 10.0
    idle_timeout: Annotated[Seconds, "how long a connection stays open between requests"] = 30.0
    transfer_timeout: Annotated[
        Seconds, "how long a client may send a body, or read a response, below the minimum rate"
    ] = 20.0
    min_transfer_rate: Annotated[Count, "minimum rate of bodies and responses, in bytes/s"] = 1_024
    rate_limit: Annotated[
        float, Meta(ge=0), "requests per second for each API key; 0 for no limit"
    ] = 0.0
    address_rate_limit: Annotated[
        float, Meta(ge=0), "requests per second for each client address; 0 for no limit"
    ] = 0.0
    access_log: Annotated[bool, "log every request"] = True
    cors_origins: Annotated[
        Origins, "origins of web pages that may call the API, separated by commas"
    ] = ""


class McpSettings(SettingsGroup, frozen=True):
    """Settings of the MCP server."""

    enabled: Annotated[bool, "serve MCP at /mcp of `headwater serve`; needs the extra mcp"] = False


class ClientSettings(SettingsGroup, frozen=True):
    """Settings of clients: `headwater.client`, and commands with `--url`."""

    url: Annotated[
        Url, "server that commands and clients call; empty: commands use a local store"
    ] = ""
    key: Annotated[Secret, "API key that they send"] = ""
    ca_file: Annotated[
        str, "file of the CAs that are trusted for https://, in PEM; empty: the usual ones"
    ] = ""
    timeout: Annotated[Seconds, "seconds that they wait for a response"] = 30.0
    retries: Annotated[Limit, "attempts after the first, if a request can be repeated"] = 4


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
        Limit, "refuse events with 503 if more than this would wait; 0 for no limit"
    ] = 1_000_000


class IndexSettings(SettingsGroup, frozen=True):
    """Settings of indexes of documents."""

    max_document_bytes: Annotated[Count, "maximum size of the text of a document"] = 10_485_760
    max_metadata_bytes: Annotated[Count, "maximum size of the metadata of a document"] = 65_536
    max_request_chunks: Annotated[
        Count, "maximum number of chunks of the documents that one request sends"
    ] = 5_000
    background_chunks: Annotated[
        Count,
        "new chunks of a document from which on a request leaves it to the workers, who embed it "
        "in the background",
    ] = 64


class OfflineSettings(SettingsGroup, frozen=True):
    """Settings of history."""

    segment_rows: Annotated[Count, "rows per Parquet segment of the embedded history"] = 50_000
    segment_grace: Annotated[timedelta, "how long readers may still use a merged segment"] = (
        timedelta(minutes=5)
    )
    max_session_bytes: Annotated[
        int,
        Meta(ge=64 << 20),
        "maximum memory of each DuckDB session, which reads history, tables and sources of queries",
    ] = DEFAULT_BYTES


class LakeSettings(SettingsGroup, frozen=True):
    """Settings of the lake: history and events in Iceberg tables, which other engines can read."""

    url: Annotated[
        Url,
        "folder, or s3://bucket/prefix, of the tables; empty for history in the home or Postgres",
    ] = ""
    catalog: Annotated[Url, "URL of a REST catalog; empty for one in the home or in Postgres"] = ""
    catalog_token: Annotated[Secret, "token that is sent to the REST catalog"] = ""
    warehouse: Annotated[str, "warehouse of the REST catalog; empty for its default"] = ""
    namespace: Annotated[Text, "namespace of the tables `history` and `events`"] = "headwater"
    endpoint: Annotated[Url, "URL of an S3-compatible server; empty for AWS"] = ""
    region: Annotated[str, "region of the bucket"] = ""
    access_key: Annotated[Secret, "access key of the bucket; empty for that of the machine"] = ""
    secret_key: Annotated[Secret, "secret key of the bucket"] = ""
    snapshots: Annotated[
        timedelta, "how long a snapshot can be read after it was replaced, also by its id"
    ] = timedelta(days=7)

    @property
    def is_remote(self) -> bool:
        """Whether the files are in S3-compatible storage."""
        return self.url.startswith("s3://")


class RetentionSettings(SettingsGroup, frozen=True):
    """Settings of retention: a nightly run of the workers removes what is older."""

    history: Annotated[
        Age, "how long past values are kept, such as 400d; empty to keep all of them"
    ] = ""
    events: Annotated[Age, "how long events are kept, such as 30d; empty to keep all of them"] = ""
    records: Annotated[
        Age, "how long records of contexts are kept, such as 2y; empty to keep all of them"
    ] = ""
    hour: Annotated[int, Meta(ge=0, le=23), "hour of the day of the nightly run, in UTC"] = 3


class BackfillSettings(SettingsGroup, frozen=True):
    """Settings of backfills."""

    folder: Annotated[
        str, "folder for the events and results of backfills; empty: `backfills` in the home"
    ] = ""


class RunnerSettings(SettingsGroup, frozen=True):
    """Settings of tasks: where training sets, backfills, windows and evaluations are computed."""

    kind: Annotated[
        Literal["auto", "processes", "ray", "spark"],
        "where tasks run: in local processes, on Ray or on Spark; auto means local processes, and "
        "training sets in the process that reads them",
    ] = "auto"
    address: Annotated[
        str,
        "cluster: ray://host:10001, auto, spark://host:7077, local[2]; empty: the one that this "
        "process is connected to, that of this machine, or a new one",
    ] = ""
    processes: Annotated[
        Limit, "local processes, also of a cluster that is started here; 0 for one per core"
    ] = 0
    folder: Annotated[
        str,
        "folder for the files of training sets, on a file system that all nodes share; empty: the "
        "temporary folder of the system",
    ] = ""
    options: Annotated[
        Options,
        "options of Ray's tasks, such as memory or runtime_env, or properties of Spark; in the "
        "variable as JSON",
    ] = field(default_factory=dict)


class LineageSettings(SettingsGroup, frozen=True):
    """Settings of OpenLineage events about exports, training sets and backfills."""

    openlineage_url: Annotated[
        Url,
        "receiver of events, such as http://marquez:5000/api/v1/lineage, or a file that they are "
        "appended to; empty for no events",
    ] = ""
    api_key: Annotated[Secret, "API key that they are sent with"] = ""
    namespace: Annotated[Text, "namespace of the jobs and tables of this store"] = "headwater"


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

    @property
    def is_private(self) -> bool:
        """Whether texts, inputs and values are left out of records, and so also out of logs."""
        return not self.include_content


class ContextSettings(SettingsGroup, frozen=True):
    """Settings of context assembly."""

    timeout: Annotated[Seconds, "timeout of context and retriever functions, in seconds"] = 30.0
    tokenizer: Annotated[
        LibraryChoice, "library that counts tokens; auto means splintr if it is installed"
    ] = "auto"


class TokenSettings(SettingsGroup, frozen=True):
    """Settings of counting the tokens of requests to models."""

    models: Annotated[
        Models,
        "models by name or prefix: family, encoding, provider, window, output, or the folder with "
        "the tokenizer and the chat template; in the variable as JSON",
    ] = field(default_factory=dict)
    openai_api_key: Annotated[
        Secret, 'API key of OpenAI for `count="provider"`; by default OPENAI_API_KEY'
    ] = ""
    anthropic_api_key: Annotated[AnthropicKey, "API key of Anthropic"] = ""
    gemini_api_key: Annotated[GeminiKey, "API key of Gemini"] = ""
    openai_url: Annotated[Url, "URL of OpenAI's API"] = "https://api.openai.com/v1"
    anthropic_url: Annotated[Url, "URL of Anthropic's API"] = "https://api.anthropic.com"
    gemini_url: Annotated[Url, "URL of Gemini's API"] = (
        "https://generativelanguage.googleapis.com/v1beta"
    )
    timeout: Annotated[Seconds, "seconds that a context waits for a provider's count"] = 5.0


Provider = Literal["auto", "local", "lexical", "openai", "azure", "cohere", "voyage"]


class EmbeddingSettings(SettingsGroup, frozen=True):
    """Settings of embeddings."""

    provider: Annotated[
        Provider,
        "embeddings of indexes that declare none; auto means local if its files are installed, "
        "lexical otherwise",
    ] = "auto"
    model: Annotated[str, "model; by default the provider's general one"] = ""
    dimensions: Annotated[Limit, "dimensions of the vectors; 0 for those of the model"] = 0
    base_url: Annotated[Url, "URL of the API, if it is not the provider's own"] = ""
    api_key: Annotated[Secret, "API key of the provider, before its usual variable"] = ""
    openai_api_key: Annotated[OpenAIKey, "API key of OpenAI"] = ""
    azure_api_key: Annotated[AzureKey, "API key of OpenAI on Azure"] = ""
    cohere_api_key: Annotated[CohereKey, "API key of Cohere"] = ""
    voyage_api_key: Annotated[VoyageKey, "API key of Voyage AI"] = ""
    batch_size: Annotated[Count, "texts that are embedded by one request or call"] = 100
    concurrency: Annotated[Count, "requests that a process makes at once"] = 4
    timeout: Annotated[Seconds, "timeout of one request or call, in seconds"] = 20.0
    max_retries: Annotated[Limit, "how often a failed request is sent again"] = 6
    retry_budget: Annotated[
        Seconds, "seconds after its first attempt in which a request is retried"
    ] = 30.0
    cache_ttl: Annotated[timedelta, "how long embeddings of queries are cached"] = timedelta(days=1)


class OidcSettings(SettingsGroup, frozen=True):
    """Settings of bearer tokens of an OpenID Connect issuer."""

    issuer: Annotated[str, "issuer of accepted tokens, their claim `iss`; empty for no tokens"] = ""
    audience: Annotated[str, "audience that tokens must name in their claim `aud`"] = ""
    jwks: Annotated[Url, "URL or file of the issuer's public keys, a JWKS"] = ""
    algorithms: Annotated[Text, "accepted signature algorithms, separated by commas"] = (
        "RS256,ES256,EdDSA"
    )
    scope_claim: Annotated[Text, "claim with the scopes: a list, or words"] = "scope"
    scope_prefix: Annotated[str, "prefix of the scopes that count, such as headwater:"] = ""
    name_claim: Annotated[Text, "claim with the name of the caller"] = "sub"
    tenant_claim: Annotated[
        str, "claim with the prefix of the entity ids that a token is limited to; empty for none"
    ] = ""
    id_claim: Annotated[
        str, "claim with the entity id that a token is limited to; empty for none"
    ] = ""
    leeway: Annotated[Seconds, "seconds by which clocks may differ when a token expires"] = 30.0


class LogSettings(SettingsGroup, frozen=True):
    """Settings of logging."""

    level: Annotated[Level, "minimum level"] = "info"
    format: Annotated[Format, "auto means console on a terminal, json elsewhere"] = "auto"


class TelemetrySettings(SettingsGroup, frozen=True):
    """Settings of tracing with OpenTelemetry; its SDK reads the collector from OTEL variables."""

    enabled: Annotated[bool, "export traces; the address is OTEL_EXPORTER_OTLP_ENDPOINT"] = False
    provider: Annotated[
        Literal["otlp", "global"],
        "export by OTLP over HTTP, or by the tracer provider that the application has installed",
    ] = "otlp"
    service_name: Annotated[Text, "name of the service, unless OTEL_SERVICE_NAME has one"] = (
        "headwater"
    )
    sample_ratio: Annotated[
        float, Meta(ge=0, le=1), "share of the traces begun here that are exported"
    ] = 1.0
    content: Annotated[
        bool, "export texts, payloads and ids too; never without `record.include_content`"
    ] = False


class EvalSettings(SettingsGroup, frozen=True):
    """Settings of evaluations."""

    folder: Annotated[Text, "folder of cohorts and of the results of evaluations"] = "evals"
    portion: Annotated[Count, "contexts that a process evaluates at a time"] = 250
    langfuse_host: Annotated[LangfuseHost, "address of Langfuse, for cohorts of its datasets"] = (
        "https://cloud.langfuse.com"
    )
    langfuse_public_key: Annotated[LangfusePublicKey, "public key of a project of Langfuse"] = ""
    langfuse_secret_key: Annotated[LangfuseSecretKey, "secret key of that project"] = ""
    gates: Annotated[
        Gates, "limits that an evaluation must keep to, such as max_changed = '2%'"
    ] = field(default_factory=dict)


class ObjectiveSettings(SettingsGroup, frozen=True):
    """Objectives, of which burn rates are computed."""

    features: Annotated[
        Objectives,
        "limits by the name of a feature: the freshness of a value when it becomes visible, the "
        "latency of the function, and the target, which is 0.99",
    ] = field(default_factory=dict)
    contexts: Annotated[
        Objectives,
        "limits by the name of a context: the freshness of its oldest value, the latency of its "
        "assembly, and the target, which is 0.99",
    ] = field(default_factory=dict)
