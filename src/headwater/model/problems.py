"""How errors of the store, and the progress of long actions, are reported to callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from headwater import errors
from headwater.core.tracebacks import format_traceback

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:headwater:problem:"
UNAVAILABLE = 503
_SEE_LOG = "; see the server log for the cause"


class Problem(msgspec.Struct, frozen=True):
    """The members that every problem has (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Rule(NamedTuple):
    """How one class of errors is reported to a caller."""

    status: int
    name: str
    title: str
    members: tuple[str, ...] = ()
    """Attributes of the error that the problem includes."""
    detail: str = "{0}"
    """A format of the error. Messages of user code and paths of files stay in the log."""


INTERNAL = Rule(500, "internal", "Internal server error", detail="the request failed" + _SEE_LOG)

_EMBEDDING_FAILED = Rule(
    UNAVAILABLE,
    "embedding-failed",
    "Embedding failed",
    ("embedder",),
    "embedding with {0.embedder} failed" + _SEE_LOG,
)

STORE_RULES: dict[type[BaseException], Rule] = {
    errors.CallerLimitError: Rule(
        403, "limit", "Outside of the limits of the key", ("key", "index")
    ),
    errors.NotFoundError: Rule(404, "not-found", "Not found"),
    errors.UnknownNameError: Rule(404, "unknown-name", "Name not declared", ("name", "nearest")),
    errors.UnknownContextError: Rule(404, "unknown-record", "Record not found", ("ref",)),
    errors.UnknownOutcomeError: Rule(404, "unknown-outcome", "Outcome not found", ("outcome_id",)),
    errors.UnknownDocumentError: Rule(
        404, "unknown-document", "Document not found", ("index", "document")
    ),
    errors.UnknownDeadLetterError: Rule(
        404, "unknown-dead-letter", "Dead letter not found", ("letter_id",)
    ),
    errors.UnknownGroupError: Rule(404, "unknown-group", "Consumer group not found", ("name",)),
    errors.UnknownEvaluationError: Rule(
        404, "unknown-evaluation", "Cohort or run not found", ("kind", "name")
    ),
    errors.GroupInUseError: Rule(
        409, "group-in-use", "Consumer group has live workers", ("name", "workers")
    ),
    errors.FeatureInUseError: Rule(
        409, "feature-in-use", "Feature is run by live workers", ("name", "workers")
    ),
    errors.StoreMismatchError: Rule(
        UNAVAILABLE, "store-mismatch", "History belongs to another store", ("found",)
    ),
    errors.ImmutableRecordError: Rule(
        409, "immutable-record", "Record is immutable", ("context_id", "stored", "given")
    ),
    errors.EventConflictError: Rule(
        409, "event-conflict", "Event conflicts with what is stored", ("conflicts",)
    ),
    errors.IndexMismatchError: Rule(
        409,
        "index-mismatch",
        "Index was built with another embedder",
        ("index", "built_with", "declared"),
    ),
    errors.EntityChangedError: Rule(
        409, "entity-changed", "Values belong to another entity", ("feature",), "{0.problem}"
    ),
    errors.TooManyChunksError: Rule(
        413, "too-many-chunks", "Too many chunks in one request", ("limit",)
    ),
    errors.InvalidInputError: Rule(422, "invalid-input", "Invalid input"),
    errors.FieldError: Rule(422, "invalid-input", "Invalid input", ("index", "field", "nearest")),
    errors.LooserOverrideError: Rule(
        422, "looser-override", "Option is looser than declared", ("option",)
    ),
    errors.DurationError: Rule(422, "invalid-duration", "Invalid duration"),
    errors.EventError: Rule(422, "invalid-event", "Invalid event", ("index", "field")),
    errors.FeatureValueError: Rule(
        422, "invalid-feature-value", "Value does not match feature type"
    ),
    errors.AmbiguousRefError: Rule(422, "ambiguous-ref", "Ambiguous reference", ("ref", "ids")),
    errors.RecordValueError: Rule(
        422, "invalid-record-value", "Value cannot be recorded exactly", ("pointer",)
    ),
    errors.TokenBudgetError: Rule(
        422, "token-budget", "Token budget exceeded", ("needed", "available", "items")
    ),
    errors.FreshnessSLAError: Rule(
        422, "not-fresh", "Freshness SLA not met", ("context", "violations", "context_id")
    ),
    errors.FeatureFailedError: Rule(
        500,
        "feature-failed",
        "Feature computation failed",
        ("feature", "entity_id"),
        "feature {0.feature!r} failed for {0.entity_id!r}" + _SEE_LOG,
    ),
    errors.RetrieverFailedError: Rule(
        500,
        "retriever-failed",
        "Retriever failed",
        ("retriever",),
        "retriever {0.retriever!r} failed" + _SEE_LOG,
    ),
    errors.RerankFailedError: Rule(
        500,
        "rerank-failed",
        "Re-ranking failed",
        ("index",),
        "re-ranking the results of index {0.index!r} failed" + _SEE_LOG,
    ),
    errors.ContextFailedError: Rule(
        500,
        "context-failed",
        "Context assembly failed",
        ("context",),
        "context {0.context!r} failed" + _SEE_LOG,
    ),
    errors.DamagedRecordError: Rule(
        500, "damaged-record", "Record is damaged", ("context_id", "part")
    ),
    errors.ConfigError: Rule(500, "not-configured", "Server is not configured for this"),
    errors.SignatureError: Rule(500, "not-signed", "Record could not be signed"),
    errors.EmbeddingError: _EMBEDDING_FAILED,
    # Names the variables of the key, never the key.
    errors.MissingApiKeyError: _EMBEDDING_FAILED._replace(detail="{0}"),
    errors.RecordingError: Rule(
        UNAVAILABLE,
        "not-recorded",
        "Context could not be recorded",
        ("context_id",),
        "context {0.context_id} was not recorded, and record.required is set" + _SEE_LOG,
    ),
    errors.BackendError: Rule(
        UNAVAILABLE, "backend", "Store unavailable", detail="the store is unavailable" + _SEE_LOG
    ),
    errors.StoreLostError: Rule(UNAVAILABLE, "store-lost", "Store lost its data", ("server",)),
    errors.RetrieverTimeoutError: Rule(
        504, "retriever-timeout", "Retriever timed out", ("retriever", "seconds")
    ),
    errors.ContextTimeoutError: Rule(
        504, "context-timeout", "Context timed out", ("context", "seconds")
    ),
}


def rule_of(error: Exception, rules: Mapping[type[BaseException], Rule] = STORE_RULES) -> Rule:
    """Return the row of the first class in the error's method resolution order that has one."""
    return next((rules[kind] for kind in type(error).__mro__ if kind in rules), INTERNAL)


def error_fields(error: Exception, *, private: bool) -> dict[str, str]:
    """Return the fields of a log record; if ``private``, without the messages of user code."""
    name = type(error).__name__
    # Messages of the store itself never contain the data that it holds.
    is_shown = not private or isinstance(error, errors.BackendError | errors.RecordingError)
    fields = {"error": f"{name}: {error}" if is_shown else name}
    if not isinstance(error, errors.BackendError):
        fields["traceback"] = format_traceback(error, private=private)
    return fields


NDJSON = "application/x-ndjson"

P = TypeVar("P")
R = TypeVar("R")


class ProgressStep(msgspec.Struct, frozen=True):
    """How many of all parts of a long action are done."""

    done: int
    total: int


class ActionLine(msgspec.Struct, Generic[P, R], frozen=True, omit_defaults=True):
    """A line of the answer: progress until the last one, which has the result or the problem."""

    progress: P | None = None
    result: R | None = None
    problem: Problem | None = None


class FileLine(ActionLine[P, R], Generic[P, R], frozen=True, omit_defaults=True):
    """A line of the answer; the ``data`` of all lines together, base64, is a file."""

    data: bytes = b""


OnStep = Callable[[int, int], None]
"""Called with the number of parts that are done and the number of all."""
