"""Every seam between Headwater and a backend, with the promises a signature cannot make.

events       Bus            the durable log of events, read by workers that hold leases
             Leases         which workers are alive, and which partitions each of them holds
             DeadLetters    events that could not be handled, until someone decides about them
values       OnlineStore    the present values of every entity
history      OfflineStore   everything that was: every value, every event
             RecentHistory  its newest rows in an embedded home, and the segment files with the rest
             Outbox         the newest of it on one server, on its way to another
records      RecordLog      the records of all contexts, which never change
             Cache          values that may be lost at any time
environment  Lifecycle      the health and the end of what is behind all of these (``Backends``)

Each promise is a test of the same words in ``headwater.testing``. All methods take batches; a
single is a batch of one.
"""

from headwater.ports.environment import Backends, Health, Lifecycle
from headwater.ports.events import (
    Batch,
    Bus,
    ConsumerLag,
    DeadLetter,
    DeadLetters,
    Delivery,
    Failure,
    Handled,
    Lease,
    Leases,
    Outcome,
    PublishResult,
    Tick,
)
from headwater.ports.history import (
    IdentityChange,
    LogKind,
    OfflineStore,
    Outbox,
    OutboxBatch,
    PastValue,
    Point,
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
    RecordSummary,
    StoredRecord,
    is_keepable,
)
from headwater.ports.values import Change, EntityState, OnlineStore, by_entity, newest

__all__ = [
    "Backends",
    "Batch",
    "Bus",
    "Cache",
    "Cached",
    "Change",
    "ConsumerLag",
    "DeadLetter",
    "DeadLetters",
    "Delivery",
    "EntityState",
    "Failure",
    "Handled",
    "Health",
    "IdentityChange",
    "Lease",
    "Leases",
    "Lifecycle",
    "LogKind",
    "OfflineStore",
    "OnlineStore",
    "Outbox",
    "OutboxBatch",
    "Outcome",
    "PastValue",
    "Point",
    "PublishResult",
    "RecentHistory",
    "RecordLog",
    "RecordSummary",
    "Rows",
    "Segment",
    "Snapshot",
    "StoreIdentity",
    "StoredRecord",
    "Tick",
    "by_entity",
    "is_keepable",
    "newest",
]
