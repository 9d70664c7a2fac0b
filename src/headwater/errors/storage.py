"""Errors of stored events and records, and of the backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headwater.errors.base import HeadwaterError
from headwater.errors.inputs import InvalidInputError

RETURN_REMEDY = (
    "values and events of before an erasure are never stored again, those of after it only if it "
    "allows the return: to allow it, forget the entity again with allow_return"
)


class CommitError(HeadwaterError):
    """A batch that was not committed and will be read again."""


class LeaseLostError(CommitError):
    """A partition that another worker holds."""

    def __init__(self, partition: int, owner: str) -> None:
        self.partition = partition
        super().__init__(f"worker {owner} lost its lease on partition {partition}")


class VersionConflictError(CommitError):
    """An entity that changed while the batch ran; ``changed`` has each one's name and id."""

    def __init__(self, partition: int, changed: Iterable[tuple[str, str]] = ()) -> None:
        self.partition = partition
        self.changed = frozenset(changed)
        super().__init__(f"an entity of partition {partition} changed while its batch ran")


class ErasedMeanwhileError(CommitError):
    """A write that was not compared with the latest erasures, and has to be."""

    def __init__(self) -> None:
        super().__init__("an entity was erased after this was prepared; nothing was stored")


class ErasedEntityError(InvalidInputError):
    """A value of an entity that was erased."""

    def __init__(self, entity: str, entity_id: str) -> None:
        self.entity = entity
        self.entity_id = entity_id
        super().__init__(f"{entity} {entity_id!r} was erased: nothing was stored; {RETURN_REMEDY}")


@dataclass(frozen=True, slots=True)
class EventConflict:
    """An event whose id was accepted with other content, or whose entity was erased.

    ``index`` is its place in the batch, and ``problem`` how the content differs.
    """

    index: int
    entity_id: str
    event_id: str
    problem: str
    is_erased: bool = False

    def __str__(self) -> str:
        if self.is_erased:
            of = f"event {self.event_id!r} is of {self.entity_id!r}"
            return f"{of}, which was erased, or names an owner that was"
        return (
            f"event {self.event_id!r} of entity {self.entity_id!r} was accepted before with other "
            f"content ({self.problem})"
        )


class EventConflictError(HeadwaterError):
    """Events whose ids were accepted for their entities with other content, or that were erased.

    They are not stored; ``conflicts`` lists them.
    """

    _shown = 5
    _remedies: ClassVar = {False: "give each new event its own event_id", True: RETURN_REMEDY}

    def __init__(self, conflicts: Sequence[EventConflict], events: int) -> None:
        self.conflicts = list(conflicts)
        problems = list(map(str, conflicts[: self._shown]))
        if len(conflicts) > self._shown:
            problems.append(f"{len(conflicts) - self._shown} more events")
        accepted = events - len(conflicts)
        others = f"; {accepted} of {events} events of the batch were accepted" if accepted else ""
        kinds = {conflict.is_erased for conflict in conflicts}
        remedies = [text for kind, text in self._remedies.items() if kind in kinds]
        super().__init__(f"{'; '.join(problems)}: not stored{others}; {'; '.join(remedies)}")


class IndexMismatchError(HeadwaterError):
    """An index built with another embedder than the declared one, which is not available."""

    def __init__(self, index: str, built_with: str, declared: str) -> None:
        self.index = index
        self.built_with = built_with
        self.declared = declared
        super().__init__(
            f"index {index!r} was built with {built_with}, which is not available here, and is "
            f"declared with {declared}; `headwater index reindex {index}` builds it with the "
            "declared one, or declare the first one again"
        )


class ImmutableRecordError(HeadwaterError):
    """A different record, or outcome, that is already stored under the same id."""

    def __init__(self, context_id: str, stored: str, given: str, noun: str = "context") -> None:
        self.context_id = context_id
        self.stored = stored
        self.given = given
        problem = f"{noun} {context_id} is already recorded as {stored} and cannot become {given}"
        remedy = "assemble again" if noun == "context" else "add another one"
        super().__init__(f"{problem}; records never change: {remedy} to get a new one")


class DamagedRecordError(HeadwaterError):
    """A stored record that is unreadable.

    ``headwater context verify`` shows which checks still pass.
    """

    def __init__(self, context_id: str, part: str, problem: str) -> None:
        self.context_id = context_id
        self.part = part
        remedy = f"`headwater context verify {context_id}` lists the intact parts"
        super().__init__(f"the {part} of context {context_id} cannot be read: {problem}; {remedy}")


class SignatureError(HeadwaterError):
    """A record that cannot be signed, or whose signature cannot be read."""


class BackendError(HeadwaterError):
    """A store that cannot be used."""


class HomeError(BackendError):
    """An embedded store that is read-only, full, corrupt or of another version."""

    def __init__(self, home: str, problem: str, remedy: str) -> None:
        super().__init__(f"the store in {home} {problem}; {remedy}")


class BackendUnavailableError(BackendError):
    """A server that cannot be reached, or that cannot serve any caller at present."""


class SchemaError(BackendError):
    """Postgres tables that are missing or of another version."""

    def __init__(self, schema: str, problem: str, remedy: str) -> None:
        super().__init__(f"the tables in the Postgres schema {schema!r} {problem}; {remedy}")


class StoreMismatchError(BackendError):
    """Redis and Postgres hold different stores, or one of them is an older copy."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}, so history is neither read nor added to; correct redis.url, redis.prefix, "
            "postgres.url or postgres.schema; if they are right, `headwater rebuild --adopt` makes "
            "the history in this Postgres that of the store in this Redis and restores its values"
        )


class LakeAheadError(BackendError):
    """A tail that is an older copy than its lake, which has rows that the tail never moved."""

    def __init__(self, tail: str, kind: str, mark: str, known: str) -> None:
        super().__init__(
            f"the lake has rows of {kind} up to number {mark}, but {tail} has moved rows up to "
            f"{known or 0} only, so one of them is an older copy, or belongs to another store; "
            "nothing was read or deleted: restore copies of one time, or set the table back to a "
            "snapshot whose headwater.upto is at most that number"
        )


class StoreLostError(BackendError):
    """A store that lost its data, or cannot show that it did not: its values are missing or old.

    ``partitions`` are those that lost data, None for all.
    """

    def __init__(self, server: str, problem: str, partitions: frozenset[int] | None = None) -> None:
        self.server = server
        self.partitions = partitions
        super().__init__(problem)


class ClosedError(BackendError):
    """A store that was closed, or was opened before a fork."""
