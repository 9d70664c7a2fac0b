"""The interfaces of backends, with the promises that a signature cannot express.

events       Bus             the durable log of events, read by workers that hold leases
             Leases          the live workers, and the partitions that each of them holds
             ConsumerGroups  the groups of workers, each of which gets every event
             DeadLetters     events that a feature could not handle
feed         Feed            the end of a bus to which records of a log elsewhere are appended
             Feeder          appends the records of that log
values       OnlineStore     the current values of every entity
history      FrameReader     point-in-time reads of many rows: the offline store, or exported files
             OfflineStore    the history of every value, and the log of every event
recent       RecentHistory   the newest rows of history in an embedded home, and its segment files
             LakeTail        the same rows where a lake has the rest
lake         Lake            the upkeep of the lake's tables
outbox       Outbox          the newest history in Redis, until Postgres has stored it
catalog      Catalog         the versions of every feature, and which of them is and was served
tokens       TokenCounter    the tokens of a whole request, by a template or by the provider
sources      SourceTables    the tables that SQL features query in place of their sources
runner       Task            work that any process can do
             Runner          where independent tasks run
vectors      VectorIndex     the documents of indexes, with chunks and embeddings
outcomes     OutcomeLog      answers and scores of recorded contexts, a part of ``RecordLog``
records      RecordLog       the immutable records of all contexts
             Cache           values that may be lost at any time
audit        AuditLog        the administrative actions, which cannot be changed or removed
erasures     Erasures        the erased entities, which every write is compared with
environment  Lifecycle       health and shutdown of all backends of a store (``Backends``)

The suites in ``conformance/`` have a test for each promise, in the same words. All methods take
batches; a single item is a batch of one.
"""

from headwater.model.values import is_storable
from headwater.ports.audit import AuditLog, AuditQuery
from headwater.ports.catalog import Catalog, NamedSpan, decode_catalog, encode_catalog, named_spans
from headwater.ports.environment import Backends, HealthCheck, Lifecycle
from headwater.ports.erasures import (
    SECRET_BYTES,
    Admitted,
    Erasures,
    Ledger,
    Tombstone,
    erasure_digest,
)
from headwater.ports.events import (
    Awaited,
    Batch,
    BatchOutcome,
    Bus,
    ConsumerGroups,
    DeadLetterQuery,
    DeadLetters,
    Delivery,
    Failure,
    Handled,
    Lease,
    Leases,
    LetterSummary,
    Subjects,
    Tick,
    event_content,
    no_subjects,
    position_order,
    publish_result,
)
from headwater.ports.feed import (
    FedRange,
    FedRecord,
    Feed,
    Feeder,
    FeedRecord,
    FeedState,
    LogRange,
)
from headwater.ports.history import (
    MOST_SKIPPED,
    EventFilter,
    FrameColumn,
    FrameQuery,
    FrameReader,
    HistoryRow,
    LogKind,
    OfflineStore,
    PastEvent,
    PastValue,
    Point,
    Pruned,
    Rows,
    SeriesFile,
    SeriesQuery,
    bucket_ranges,
    misfit_error,
    series_ranges,
)
from headwater.ports.lake import Lake, LakeSnapshot
from headwater.ports.outbox import (
    CommittedWrites,
    Mismatch,
    Outbox,
    OutboxBatch,
    OutboxState,
    PositionedEvent,
    Positions,
    Rewound,
    StoreIdentity,
)
from headwater.ports.outcomes import (
    NO_DISCLOSURES,
    Operator,
    OutcomeFilter,
    OutcomeLog,
    StoredOutcome,
)
from headwater.ports.recent import (
    FileChecksum,
    LakeTail,
    Mark,
    RecentHistory,
    Segment,
    Snapshot,
    TailFile,
)
from headwater.ports.records import (
    HASH_PREFIX,
    Cache,
    Cached,
    RecordLog,
    RecordQuery,
    StoredRecord,
)
from headwater.ports.runner import Runner, Task
from headwater.ports.sources import SourceTables
from headwater.ports.tokens import TokenCounter
from headwater.ports.values import (
    Change,
    EntityState,
    OnlineStore,
    Replacement,
    Standing,
    by_entity,
    history_rows,
    newest,
)
from headwater.ports.vectors import (
    NO_GENERATION,
    AllOf,
    AnyOf,
    Compare,
    DocumentWrite,
    Embedding,
    Filter,
    Hit,
    Hits,
    IndexedChunk,
    IndexVersion,
    Not,
    VectorIndex,
    VectorQuery,
)
