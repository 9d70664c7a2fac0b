"""The interfaces of backends, with the promises that a signature cannot express.

events       Bus             the durable log of events, read by workers that hold leases
             Leases          the live workers, and the partitions that each of them holds
             ConsumerGroups  the groups of workers, each of which gets every event
             DeadLetters     events that a feature could not handle
values       OnlineStore     the current values of every entity
history      OfflineStore    the history of every value, and the log of every event
             RecentHistory   the newest rows of history in an embedded home, and its segment files
             Outbox          the newest history in Redis, until Postgres has stored it
vectors      VectorIndex     the documents of indexes, with chunks and embeddings
records      RecordLog       the immutable records of all contexts
             Cache           values that may be lost at any time
environment  Lifecycle       health and shutdown of all backends of a store (``Backends``)

``headwater.testing.conformance`` has a test for each promise, in the same words. All methods take
batches; a single item is a batch of one.
"""

from headwater.ports.environment import Backends, Health, HealthCheck, Lifecycle
from headwater.ports.events import (
    Batch,
    Bus,
    ConsumerGroup,
    ConsumerGroups,
    ConsumerLag,
    DeadLetter,
    DeadLetterQuery,
    DeadLetters,
    Delivery,
    Failure,
    Handled,
    Lease,
    Leases,
    LoggedEvent,
    Outcome,
    PublishResult,
    Tick,
    publish_result,
)
from headwater.ports.history import (
    LogKind,
    OfflineStore,
    Outbox,
    OutboxBatch,
    OutboxState,
    PastValue,
    Point,
    Positions,
    RecentHistory,
    Rows,
    Segment,
    Snapshot,
    StoreIdentity,
)
from headwater.ports.records import (
    Cache,
    Cached,
    RecordLog,
    RecordQuery,
    RecordSummary,
    StoredRecord,
    is_storable,
)
from headwater.ports.values import Change, EntityState, OnlineStore, by_entity, history_rows, newest
from headwater.ports.vectors import (
    AllOf,
    AnyOf,
    Compare,
    DocumentWrite,
    Embedding,
    Filter,
    Generation,
    Hit,
    Hits,
    IndexedChunk,
    IndexSpec,
    IndexVersion,
    Not,
    StoredDocument,
    VectorIndex,
    VectorQuery,
)

__all__ = [
    "AllOf",
    "AnyOf",
    "Backends",
    "Batch",
    "Bus",
    "Cache",
    "Cached",
    "Change",
    "Compare",
    "ConsumerGroup",
    "ConsumerGroups",
    "ConsumerLag",
    "DeadLetter",
    "DeadLetterQuery",
    "DeadLetters",
    "Delivery",
    "DocumentWrite",
    "Embedding",
    "EntityState",
    "Failure",
    "Filter",
    "Generation",
    "Handled",
    "Health",
    "HealthCheck",
    "Hit",
    "Hits",
    "IndexSpec",
    "IndexVersion",
    "IndexedChunk",
    "Lease",
    "Leases",
    "Lifecycle",
    "LogKind",
    "LoggedEvent",
    "Not",
    "OfflineStore",
    "OnlineStore",
    "Outbox",
    "OutboxBatch",
    "OutboxState",
    "Outcome",
    "PastValue",
    "Point",
    "Positions",
    "PublishResult",
    "RecentHistory",
    "RecordLog",
    "RecordQuery",
    "RecordSummary",
    "Rows",
    "Segment",
    "Snapshot",
    "StoreIdentity",
    "StoredDocument",
    "StoredRecord",
    "Tick",
    "VectorIndex",
    "VectorQuery",
    "by_entity",
    "history_rows",
    "is_storable",
    "newest",
    "publish_result",
]
