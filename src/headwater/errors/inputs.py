"""Errors of callers: invalid arguments, and names that are not found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from headwater.errors.base import HeadwaterError
from headwater.errors.hints import closest, nearest, quoted, shortened


class InvalidInputError(HeadwaterError):
    """An invalid argument, such as an event, a value or a duration."""


class LooserOverrideError(InvalidInputError, ValueError):
    """An option of one call that is looser than the declaration of its context allows."""

    def __init__(self, context: str, option: str, value: str, declared: str) -> None:
        self.option = option
        super().__init__(
            f"context {context!r}: {option}={value} is looser than the declared {declared}, and "
            f"callers may only tighten it; pass {declared} or less, or declare the context with "
            f"allow_looser={option!r}"
        )


class IndexVersionGoneError(InvalidInputError):
    """A past version of an index that is no longer kept."""

    def __init__(self, index: str, version: str, kept: str) -> None:
        self.index = index
        super().__init__(
            f"index {index!r} no longer has its version of {version}: it keeps replaced chunks for "
            f"{kept}; declare a longer keep_versions to search further back from now on"
        )


class TooManyChunksError(InvalidInputError):
    """A request whose documents have more chunks than one request may have."""

    def __init__(self, index: str, chunks: int, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the documents of this request have {chunks} chunks in index {index!r}, more than the "
            f"maximum of {limit}; send fewer at once, divide a large one into several documents, "
            "or raise indexes.max_request_chunks"
        )


class FieldError(InvalidInputError):
    """A field of a request, or a parameter of a context, that is missing, unknown or invalid.

    ``field`` names it.
    """

    def __init__(
        self, problem: str, field: str = "", nearest: str | None = None, index: int | None = None
    ) -> None:
        self.problem = problem
        self.field = field
        self.nearest = nearest
        self.index = index
        super().__init__(problem if index is None else f"event {index}: {problem}")

    @classmethod
    def unknown(
        cls, problem: str, name: str, candidates: Iterable[str], field: str = ""
    ) -> FieldError:
        """Return an error for an unknown name that suggests the nearest known one."""
        names = list(candidates)
        near = closest(name, names)
        listed = f"known: {', '.join(names)}" if names else "none is defined"
        hint = f"did you mean {near!r}?" if near else listed
        return cls(f"{problem} {quoted(name)}; {hint}", field or shortened(name), near)


class DurationError(InvalidInputError, ValueError):
    """An invalid duration."""

    def __init__(self, value: object, units: Iterable[str] = ("ms", "s", "m", "h", "d")) -> None:
        self.value = value
        remedy = f"write a number and one of {', '.join(units)}, as in '1.5h', or a timedelta"
        super().__init__(f"{quoted(value)} is not a duration; {remedy}; the least is 1ms")


class EventError(InvalidInputError, ValueError):
    """An invalid event; ``index`` is its position in the batch.

    ``field`` is the path of what does not fit its declared schema, such as ``payload.amount``.
    """

    def __init__(self, problem: str, index: int | None = None, field: str | None = None) -> None:
        self.problem = problem
        self.index = index
        self.field = field
        super().__init__(problem if index is None else f"event {index}: {problem}")

    def at(self, index: int | None) -> EventError:
        """Return the error with the position of the event in another batch."""
        return EventError(self.problem, index, self.field)


class QueryError(InvalidInputError):
    """A query that can never run: it is not one statement that returns rows."""


class FeatureValueError(InvalidInputError, ValueError):
    """A value that does not fit its feature's annotated type."""

    def __init__(self, feature: str, problem: str) -> None:
        self.feature = feature
        super().__init__(f"feature {feature!r} {problem}")


class RecordValueError(InvalidInputError, ValueError):
    """A value that cannot be represented exactly in a record."""

    def __init__(self, pointer: str, problem: str) -> None:
        self.pointer = pointer
        self.problem = problem
        super().__init__(f"{pointer or 'the value'}: {problem}")


class OutcomeError(InvalidInputError, ValueError):
    """An outcome that is incomplete, contradicts itself or is out of range."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"invalid outcome: {field}: {problem}")


class RecordDocumentError(InvalidInputError, ValueError):
    """A text that is not a valid record document."""

    def __init__(self, problem: str) -> None:
        remedy = "`headwater context export ID` writes one"
        super().__init__(f"this is not the document of a record: {problem}; {remedy}")


class CohortError(InvalidInputError, ValueError):
    """A cohort file that is damaged, that was altered, or that no known key signed."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(
            f"cohort {path} cannot be used: {problem}; restore the file from where it was frozen, "
            "or freeze it again with `headwater eval freeze`"
        )


class RedactionError(InvalidInputError, ValueError):
    """A pointer at which a record has nothing to redact."""

    def __init__(self, pointer: str, disclosed: Iterable[str], erased: str | None = None) -> None:
        self.pointer = pointer
        pointers = list(disclosed)
        hint = nearest(pointer, pointers) if pointers else "the record withholds every value"
        absent = f"no value is disclosed at {quoted(pointer)}; {hint}"
        gone = f"the value at {pointer!r} was already erased {erased}"
        super().__init__(absent if erased is None else gone)


class AmbiguousRefError(InvalidInputError, LookupError):
    """A prefix that matches the ids of several contexts."""

    def __init__(self, ref: str, ids: Sequence[str]) -> None:
        self.ref = ref
        self.ids = tuple(ids)
        super().__init__(f"{', '.join(ids)} all begin with {ref!r}; give more of the id")


class ReplayError(InvalidInputError):
    """A record that withholds values which a replay needs."""

    def __init__(self, context_id: str, mode: str, withheld: Sequence[str]) -> None:
        self.context_id = context_id
        self.mode = mode
        self.withheld = tuple(withheld)
        shown = ", ".join(self.withheld[:4]) + (", …" if len(self.withheld) > 4 else "")
        problem = f"context {context_id} cannot be replayed in mode {mode!r}: it withholds {shown}"
        super().__init__(f"{problem}; `headwater context show {context_id}` shows its record")


class ReplayWriteError(InvalidInputError):
    """A write from a context function that is replayed, or from the handler of past events."""

    def __init__(self, verb: str, remedy: str = "call it outside the context function") -> None:
        self.verb = verb
        problem = f"{verb} is not allowed in a replay, which must not change anything"
        super().__init__(f"{problem}; {remedy}")


class BackfillRefusedError(InvalidInputError):
    """A feature that cannot be computed from past events."""

    def __init__(self, feature: str, problem: str) -> None:
        self.feature = feature
        super().__init__(f"feature {feature!r} cannot be backfilled: {problem}")


class NotFoundError(HeadwaterError):
    """A name or an id that does not exist."""


class UnknownNameError(NotFoundError, LookupError):
    """A name under which nothing is declared; the message suggests one of the ``candidates``."""

    def __init__(self, kind: str, name: str, candidates: Iterable[str] | None) -> None:
        self.kind = kind
        self.name = shortened(name)
        names = list(candidates or ())
        self.nearest = closest(name, names)
        hint = "check its spelling" if candidates is None else nearest(name, names)
        super().__init__(f"unknown {kind} {quoted(name)}; {hint}")


class UnknownContextError(NotFoundError, LookupError):
    """An id or record hash that matches no recorded context."""

    def __init__(self, ref: str, pruned_before: datetime | None = None) -> None:
        self.ref = shortened(ref)
        pruned = "" if pruned_before is None else f"; records before {pruned_before} were pruned"
        remedy = "give a context id, its first 8 or more characters, or a record hash"
        super().__init__(
            f"no recorded context {quoted(ref)}{pruned}; {remedy}; see `headwater context list`"
        )


class UnknownOutcomeError(NotFoundError, LookupError):
    """An id that matches no outcome of a recorded context."""

    def __init__(self, outcome_id: str) -> None:
        self.outcome_id = shortened(outcome_id)
        super().__init__(
            f"no outcome {quoted(outcome_id)}; see `headwater context outcomes` for those of a "
            "context"
        )


class UnknownDocumentError(NotFoundError, LookupError):
    """An id that no document of an index has."""

    def __init__(self, index: str, document: str) -> None:
        self.index = index
        self.document = shortened(document)
        super().__init__(f"index {index!r} has no document {quoted(document)}")


class UnknownDeadLetterError(NotFoundError, LookupError):
    """An id that matches no dead letter."""

    def __init__(self, letter_id: str) -> None:
        self.letter_id = letter_id
        super().__init__(f"no dead letter {quoted(letter_id)}; see `headwater dlq list`")


class UnknownGroupError(NotFoundError, LookupError):
    """A name that no consumer group has."""

    def __init__(self, name: str, groups: Iterable[str]) -> None:
        self.name = name
        hint = nearest(name, list(groups))
        super().__init__(
            f"unknown consumer group {quoted(name)} (see `headwater groups list`); {hint}"
        )


class UnknownEvaluationError(NotFoundError, LookupError):
    """A name that no cohort has, an id that no run of one has, or a cohort without runs."""

    def __init__(
        self, kind: Literal["cohort", "run"], name: str, candidates: Iterable[str]
    ) -> None:
        self.kind = kind
        self.name = shortened(name)
        if names := list(candidates):
            hint = nearest(name, names, "`headwater eval list` shows all.")
            problem = f"no {kind} {quoted(name)} of an evaluation; {hint}"
        elif kind == "cohort":
            problem = f"there is no cohort {quoted(name)}; `headwater eval freeze` makes one"
        else:
            problem = f"cohort {quoted(name)} was not evaluated yet; run `headwater eval run`"
        super().__init__(problem)


class FeatureInUseError(HeadwaterError):
    """A feature that cannot be dropped because live workers run it."""

    def __init__(self, name: str, workers: Sequence[str]) -> None:
        self.name = name
        self.workers = workers
        super().__init__(
            f"feature {name!r} is run by live workers ({', '.join(workers)}), which would write "
            "its values again, so it cannot be dropped; remove it from the features file and "
            "restart them, or stop them"
        )


class CallerLimitError(HeadwaterError):
    """A request outside of the limits of its API key.

    The key is limited to other entities, contexts, indexes or a tenant. ``index`` is the position
    of the refused event in a batch of several, or None.
    """

    def __init__(self, key: str, problem: str, index: int | None = None) -> None:
        self.key = key
        self.index = index
        super().__init__(f"the key {key!r} is limited: {problem}; use a key that allows it")


class GroupInUseError(HeadwaterError):
    """A consumer group that cannot be dropped because it has live workers."""

    def __init__(self, name: str, workers: Sequence[str]) -> None:
        self.name = name
        self.workers = workers
        super().__init__(
            f"consumer group {name!r} has live workers ({', '.join(workers)}), so it cannot be "
            "dropped; stop them first"
        )
