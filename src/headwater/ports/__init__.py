"""Every seam between Headwater and a backend, with the promises a signature cannot make.

events       Bus            the durable log of events, read by workers that hold leases
             Roster         which workers are alive, and which partitions each of them holds
             DeadLetters    events that could not be handled, until someone decides about them
values       OnlineStore    the present values of every entity
history      OfflineStore   everything that was: every value, every event
             Tail           the newest of it in an embedded home, and which files hold the rest
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
    DeadLetter,
    DeadLetters,
    Delivery,
    Failure,
    Handled,
    Lag,
    Lease,
    Outcome,
    Published,
    Roster,
    Tick,
)
from headwater.ports.history import (
    LogKind,
    News,
    OfflineStore,
    Outbox,
    Parcel,
    PastValue,
    Point,
    Rows,
    Segment,
    Snapshot,
    Standing,
    Tail,
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
    "DeadLetter",
    "DeadLetters",
    "Delivery",
    "EntityState",
    "Failure",
    "Handled",
    "Health",
    "Lag",
    "Lease",
    "Lifecycle",
    "LogKind",
    "News",
    "OfflineStore",
    "OnlineStore",
    "Outbox",
    "Outcome",
    "Parcel",
    "PastValue",
    "Point",
    "Published",
    "RecordLog",
    "RecordSummary",
    "Roster",
    "Rows",
    "Segment",
    "Snapshot",
    "Standing",
    "StoredRecord",
    "Tail",
    "Tick",
    "by_entity",
    "is_keepable",
    "newest",
]
