"""What contexts leave behind: their records for good, and their searches for a while."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from headwater.core.values import LONGEST_NAME
from headwater.errors import InvalidInputError

_UNKEEPABLE = re.compile("[\0\ud800-\udfff]")


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of records says of each."""

    context_id: str
    record_hash: str
    content_hash: str
    name: str
    created_at: datetime
    freshness_status: str


class StoredRecord(RecordSummary, frozen=True, kw_only=True):
    """A context's record as it lies in the log: bytes that are given back as they came."""

    core: bytes
    disclosures: bytes
    signature: bytes | None = None
    redactions: bytes = b"[]"

    def check(self) -> None:
        """Refuses texts that a log cannot keep."""
        texts = [self.context_id, self.record_hash, self.content_hash]
        texts += [self.name, self.freshness_status]
        # One look for what is fine, as nearly all is.
        if len(joined := "".join(texts)) <= LONGEST_NAME and joined.isprintable():
            return
        for text in texts:
            if not is_keepable(text):
                raise InvalidInputError(
                    f"{reprlib.repr(text)} cannot be kept in a record log; give at most "
                    f"{LONGEST_NAME} characters, without U+0000 and halves of surrogate pairs"
                )


def is_keepable(text: str) -> bool:
    """Says whether a record may have this text: every store can hold it and look it up."""
    return len(text) <= LONGEST_NAME and _UNKEEPABLE.search(text) is None


class RecordLog(Protocol):
    """The records of all contexts: immutable, found by id, by hash and by what they were made of.

    A record whose append returned survives the death of every process, and all readers see it
    from then on. Two records are the same if their hashes are.

    Lists go from the newest to the oldest by ``created_at``, and by id among records of one moment.
    They go on after the record whose id is ``before``; what is appended meanwhile moves nothing.
    An id that no record has is refused there.
    """

    async def append(self, record: StoredRecord, keys: Collection[bytes]) -> None:
        """Keeps a record, to be found by these keys; appends of one time share a commit.

        The same record again changes nothing, not even what was redacted meanwhile. Another one
        under its id is refused with ImmutableRecordError, a text that cannot be kept (too long,
        with U+0000 or half of a surrogate pair) with InvalidInputError, and no other append with
        it. Who gives up waiting stops no other append; its own record is kept whole or not at all.
        """
        ...

    async def get(self, ref: str) -> StoredRecord | None:
        """The record with this context id or record hash."""
        ...

    async def ids_beginning(self, prefix: str, limit: int) -> list[str]:
        """Context ids that begin so, in sorted order."""
        ...

    async def records(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        name: str | None = None,
        freshness_status: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RecordSummary]:
        """Lists records that fit everything that is given: from ``start`` on, before ``end``."""
        ...

    async def find(
        self, key: bytes, *, before: str | None = None, limit: int = 100
    ) -> list[RecordSummary]:
        """Lists records that were appended with this key."""
        ...

    async def index_key(self) -> bytes:
        """A secret to make keys with: random, made when first asked for, the same ever after."""
        ...

    async def redact(
        self, context_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        """Replaces a record's disclosures and redactions if its redactions are as expected.

        Says whether it did. Everything else of a record stays as it is. The backend says when
        what was replaced is gone from its files.
        """
        ...


class Cached(msgspec.Struct, frozen=True):
    """A value that was kept for a while, and since when, in microseconds."""

    value: bytes
    kept_at: int


class Cache(Protocol):
    """Values that may be lost at any time, shared by all processes of a store."""

    async def get(self, key: str) -> Cached | None:
        """The value, unless its time to live is over."""
        ...

    async def put(self, key: str, cached: Cached, ttl: timedelta) -> None:
        """Keeps a value in place of an earlier one; its time to live begins at ``kept_at``."""
        ...
