"""Outcomes of contexts: the answers of models and the scores, next to the records."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from headwater.errors import InvalidInputError
from headwater.model.contexts import RecordSummary
from headwater.model.outcomes import OutcomeKind
from headwater.model.values import LONGEST_NAME, is_storable

Operator = Literal["<", "<=", ">", ">=", "=", "!="]
NO_DISCLOSURES = b"[]"


class StoredOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome as stored: its bytes are returned unchanged.

    The other fields are columns to search by. ``label_key`` and ``source_key`` are keyed hashes:
    of the label, and of the other system's name with its id of the outcome. ``predicted`` and
    ``billed`` are tokens of the input.
    """

    outcome_id: str
    context_id: str
    record_hash: str
    outcome_hash: str
    kind: OutcomeKind
    at: datetime
    name: str | None = None
    value: float | None = None
    flag: bool | None = None
    label_key: bytes | None = None
    model: str | None = None
    error_type: str | None = None
    predicted: int | None = None
    billed: int | None = None
    source_key: bytes | None = None
    is_signed: bool = False
    is_redacted: bool = False
    core: bytes
    disclosures: bytes = NO_DISCLOSURES
    signature: bytes | None = None
    redactions: bytes = b"[]"

    def __repr__(self) -> str:
        # Keeps texts and salts out of logs and error reports.
        return f"StoredOutcome({self.outcome_id!r}, {self.outcome_hash!r})"

    def check(self) -> None:
        """Raise InvalidInputError if a text cannot be stored in every log."""
        for text in (self.outcome_id, self.outcome_hash, self.name, self.model, self.error_type):
            if text is not None and not is_storable(text):
                raise InvalidInputError(
                    f"{reprlib.repr(text)} cannot be stored in an outcome; use at most "
                    f"{LONGEST_NAME} characters, without U+0000 and lone surrogates"
                )


class OutcomeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What one outcome of a context must match; ``operator`` compares ``value``."""

    name: str | None = None
    operator: Operator = "="
    value: float | None = None
    flag: bool | None = None
    label_key: bytes | None = None
    model: str | None = None
    error_type: str | None = None

    def columns(self) -> Mapping[str, Any] | None:
        """Return the columns to compare and their values, or None if no outcome can match."""
        columns = {
            column: value
            for column in self.__struct_fields__
            if column != "operator" and (value := getattr(self, column)) is not None
        }
        texts = (value for value in columns.values() if isinstance(value, str))
        return columns if all(map(is_storable, texts)) else None


class OutcomeLog(Protocol):
    """The immutable outcomes of recorded contexts, which live as long as their records.

    An outcome whose append returned survives the death of every process, and all readers see it
    from then on.
    """

    async def append_outcome(self, outcome: StoredOutcome) -> StoredOutcome:
        """Store an outcome and return it as stored; concurrent appends share a commit.

        An outcome with the same ``source_key``, or the same id and hash, changes nothing and is
        returned as it is stored. An outcome of a record that discloses nothing is stored without
        disclosures: so those that are appended while their record is being erased are erased
        with it. A cancelled append does not affect other appends.

        Raises:
            ImmutableRecordError: a different outcome has this id.
            InvalidInputError: a text cannot be stored (too long, U+0000, a lone surrogate).
            UnknownContextError: no record has this context id and record hash.
        """

    async def outcome(self, outcome_id: str) -> StoredOutcome | None:
        """Return the outcome with this id, or None."""

    async def outcomes(
        self, context_ids: Collection[str], *, after: str | None = None, limit: int = 1_000
    ) -> list[StoredOutcome]:
        """Return the outcomes of these contexts, from oldest to newest by ``at``, then by id.

        ``after`` is the id of the last outcome of the previous page; an unknown one is refused.
        """

    async def outcome_page(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> list[StoredOutcome]:
        """Return the outcomes of all contexts, in the order and with the pages of ``outcomes``."""

    async def having(
        self,
        outcome: OutcomeFilter,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        before: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
    ) -> list[RecordSummary]:
        """Return the records that have an outcome which matches all fields of the filter.

        Each is listed once, in the order and with the pages of the lists of records.
        """

    async def measured(self, model: str, *, limit: int = 1_000) -> list[tuple[int, int]]:
        """Return predicted and billed tokens of the newest contexts for a model."""

    async def measured_models(self) -> list[str]:
        """Return the models of contexts that have predicted and billed tokens, sorted."""

    async def redact_outcome(
        self, outcome_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        """Replace an outcome's disclosures and redactions if its redactions are as expected.

        Return True if they were replaced. All other fields stay unchanged.
        """
