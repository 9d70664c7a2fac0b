"""Records of contexts, which are permanent, and the cache of their searches."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from headwater.errors import InvalidInputError
from headwater.model.contexts import RecordSummary
from headwater.model.values import LONGEST_NAME, is_storable
from headwater.ports.outcomes import OutcomeLog

HASH_PREFIX = "sha256:"
"""The beginning of every record hash, and of no context id."""


class StoredRecord(RecordSummary, frozen=True, kw_only=True):
    """A context's record as stored: its bytes are returned unchanged."""

    core: bytes
    disclosures: bytes
    signature: bytes | None = None
    redactions: bytes = b"[]"
    keys: bytes = b""
    """The search keys, one after the other: a context that reads this record inherits them."""

    def check(self) -> None:
        """Raise InvalidInputError if a text cannot be stored in every log."""
        texts = [self.context_id, self.record_hash, self.content_hash]
        texts += [self.name, self.freshness_status, self.caller or "", self.model or ""]
        # Nearly all texts are valid, so check them all at once first.
        if len(joined := "".join(texts)) <= LONGEST_NAME and joined.isprintable():
            return
        for text in texts:
            if not is_storable(text):
                raise InvalidInputError(
                    f"{reprlib.repr(text)} cannot be stored in a record log; use at most "
                    f"{LONGEST_NAME} characters, without U+0000 and lone surrogates"
                )


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of records, and the page; ``start`` is inclusive, ``end`` exclusive.

    ``before`` is the id of the last record of the previous page.
    """

    start: datetime | None = None
    end: datetime | None = None
    name: str | None = None
    freshness_status: str | None = None
    caller: str | None = None
    before: str | None = None
    oldest_first: bool = False
    limit: int = 100

    def texts(self) -> dict[str, str] | None:
        """Return the columns to compare and their texts, or None if no record can match."""
        columns = {
            "name": self.name,
            "freshness_status": self.freshness_status,
            "caller": self.caller,
        }
        texts = {column: text for column, text in columns.items() if text is not None}
        return texts if all(map(is_storable, texts.values())) else None


class RecordLog(OutcomeLog, Protocol):
    """The immutable records of all contexts with their outcomes, found by id, hash and search key.

    A record whose append returned survives the death of every process, and all readers see it
    from then on. Two records are the same if their hashes are equal.

    Lists are sorted from newest to oldest by ``created_at``, then by id. ``before`` is the id of
    the last record of the previous page; records appended meanwhile do not shift the pages. An
    unknown ``before`` is refused. With ``oldest_first`` the order is reversed.
    """

    async def append(
        self, record: StoredRecord, keys: Collection[bytes], *, checked: int = 0
    ) -> None:
        """Store a record under these search keys; concurrent appends share a commit.

        ``checked`` is the revision of the ledger of erasures that its reads were compared with.

        Appending the same record again changes nothing and does not undo redactions. A cancelled
        append does not affect other appends; its own record is stored completely or not at all.

        Raises:
            ErasedMeanwhileError: an entity was erased since ``checked``; nothing was stored.
            ImmutableRecordError: a different record has this id; other appends are not affected.
            InvalidInputError: a text cannot be stored (too long, U+0000, a lone surrogate); other
                appends are not affected.
        """

    async def get(self, ref: str) -> StoredRecord | None:
        """Return the record with this context id or record hash, or None."""

    async def beginning(
        self, prefix: str, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        """Return the records whose context id begins with a prefix, by descending id.

        A prefix that begins with ``sha256:`` is one of the record hash; of a short one, only some
        records are returned.
        """

    async def records(self, query: RecordQuery) -> list[RecordSummary]:
        """Return the records that match all filters of the query."""

    async def find(
        self,
        key: bytes,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        before: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
    ) -> list[RecordSummary]:
        """Return the records that were appended with this key."""

    async def count(self, query: RecordQuery, edges: Sequence[datetime], most: int) -> list[int]:
        """Return how many records match the filters between each edge and the next.

        No interval is counted beyond ``most``; ``start``, ``end`` and the page are not used.
        """

    async def count_found(self, key: bytes, edges: Sequence[datetime], most: int) -> list[int]:
        """Return how many records with this key are between each edge and the next."""

    async def index_key(self) -> bytes:
        """Return the secret for search keys: random, created on first use, then constant."""

    async def add_mark(self, mark: bytes) -> None:
        """Remember the mark of a configured secret for search keys, for good."""

    async def marks(self) -> set[bytes]:
        """Return all marks of secrets that were remembered."""

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        """Replace a record's disclosures and redactions if its redactions are as expected.

        Return True if they were replaced. All other fields stay unchanged. The backend documents
        when the replaced bytes are gone from its files.
        """

    async def prune(self, before: datetime, *, dry_run: bool = False) -> int:
        """Remove the records created before a moment, with keys and outcomes; return their number.

        No outcome is ever there without its record.
        """


class Cached(msgspec.Struct, frozen=True):
    """A cached value and the time it was stored, in microseconds since the epoch."""

    value: bytes
    kept_at: int


class Cache(Protocol):
    """Values that may be lost at any time, shared by all processes of a store."""

    async def get(self, key: str) -> Cached | None:
        """Return the value, or None if it is absent or its time to live is over."""

    async def drops(self) -> int:
        """Return how often values were dropped in this store, by any process."""

    async def put(
        self, key: str, cached: Cached, ttl: timedelta, *, drops: int | None = None
    ) -> None:
        """Store a value, replacing an earlier one; its time to live starts at ``kept_at``.

        A value may be made of what was erased while it was computed. With ``drops``, their number
        before the computation began, it is absent if there was another drop since then.
        """

    async def drop(self, *prefixes: str) -> None:
        """Remove all values whose keys begin with one of the prefixes, for good."""
