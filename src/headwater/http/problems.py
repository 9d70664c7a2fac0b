"""What a caller is told when a request cannot be answered: RFC 9457 problem details.

The edge adds a few errors of its own to the tree of ``headwater.errors``:

HeadwaterError
└── RequestError            a request that the store never sees
    ├── MalformedError
    ├── KeyRequiredError
    ├── ForeignRequestError
    ├── NoRouteError
    ├── MethodError
    ├── TooLargeError
    ├── MediaTypeError
    ├── TooManyRequestsError
    └── BacklogError
InvalidInputError
└── FieldError              a field of the body, the path or the query
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from headwater.core.logging import log
from headwater.errors import (
    AmbiguousRefError,
    BackendError,
    ContextFailedError,
    ContextTimeoutError,
    DamagedRecordError,
    DurationError,
    EventError,
    FeatureFailedError,
    FeatureValueError,
    FreshnessSLAError,
    HeadwaterError,
    ImmutableRecordError,
    InvalidInputError,
    NotFoundError,
    RecordingError,
    RecordValueError,
    RetrieverFailedError,
    RetrieverTimeoutError,
    SignatureError,
    TokenBudgetError,
    UnknownContextError,
    UnknownNameError,
)
from headwater.http.responses import Header, Response

MEDIA_TYPE = b"application/problem+json"
TYPE_PREFIX = "urn:headwater:problem:"

_RETRY_SECONDS = 1


class RequestError(HeadwaterError):
    """A request that the store never sees."""


class MalformedError(RequestError):
    """A request that cannot be read."""


class KeyRequiredError(RequestError):
    """A request without a valid key."""

    def __init__(self) -> None:
        super().__init__("send a valid key as X-API-Key or as Authorization: Bearer")


class ForeignRequestError(RequestError):
    """A request from elsewhere to a server that has no key and so serves this machine only."""

    def __init__(self, what: str, given: str) -> None:
        super().__init__(
            f"this server has no key and serves its own machine only, not {what} {given!r}; "
            "set HEADWATER_API_KEY to serve others"
        )


class NoRouteError(RequestError):
    """A path that no route has."""

    def __init__(self) -> None:
        super().__init__("no route has this path; /openapi.json lists those there are")


class MethodError(RequestError):
    """A method that the path's routes do not have."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allowed = ", ".join(allowed)
        super().__init__(f"{method} is not possible here; use {' or '.join(allowed)}")


class TooLargeError(RequestError):
    """A body larger than the server takes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"the body is larger than {limit} bytes; send less at a time")


class MediaTypeError(RequestError):
    """A body of a type that the route does not take."""

    def __init__(self, given: str, accepted: Sequence[str]) -> None:
        super().__init__(f"Content-Type {given!r} is not {' or '.join(accepted)}")


class TooManyRequestsError(RequestError):
    """A key that asks more often than it may."""

    def __init__(self, wait: float) -> None:
        self.wait = wait
        super().__init__("this key has asked more often than it may; wait and try again")


class BacklogError(RequestError):
    """More events wait than the settings allow."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} events wait to be processed; wait and try again")


class FieldError(InvalidInputError):
    """A field of the body, the path or the query that is missing, unknown or wrong."""

    def __init__(
        self, problem: str, field: str = "", nearest: str | None = None, index: int | None = None
    ) -> None:
        self.problem = problem
        self.field = field
        self.nearest = nearest
        self.index = index
        super().__init__(problem if index is None else f"event {index}: {problem}")


class Rule(NamedTuple):
    """What one kind of error is for a caller."""

    status: int
    name: str
    title: str


_INTERNAL = Rule(500, "internal", "The server failed")

# The first row whose class an error has, going up its bases, holds.
RULES: dict[type[BaseException], Rule] = {
    MalformedError: Rule(400, "malformed", "The request cannot be read"),
    KeyRequiredError: Rule(401, "key-required", "A valid key is required"),
    ForeignRequestError: Rule(403, "foreign-request", "The request comes from elsewhere"),
    NoRouteError: Rule(404, "no-route", "There is nothing here"),
    NotFoundError: Rule(404, "not-found", "There is no such thing"),
    UnknownNameError: Rule(404, "unknown-name", "Nothing is declared under this name"),
    UnknownContextError: Rule(404, "unknown-record", "No recorded context has this id or hash"),
    MethodError: Rule(405, "method", "The method is not possible here"),
    ImmutableRecordError: Rule(409, "immutable-record", "A record cannot be changed"),
    TooLargeError: Rule(413, "too-large", "The body is too large"),
    MediaTypeError: Rule(415, "media-type", "The body has a type that is not taken"),
    InvalidInputError: Rule(422, "invalid-input", "The request has a value that cannot be used"),
    DurationError: Rule(422, "invalid-duration", "A duration is not one"),
    EventError: Rule(422, "invalid-event", "An event is not valid"),
    FeatureValueError: Rule(422, "invalid-feature-value", "A value does not fit its feature"),
    AmbiguousRefError: Rule(422, "ambiguous-ref", "Several contexts begin so"),
    RecordValueError: Rule(422, "invalid-record-value", "A value has no exact form in a record"),
    TokenBudgetError: Rule(422, "token-budget", "What is required does not fit the budget"),
    FreshnessSLAError: Rule(422, "not-fresh", "The context is not as fresh as it must be"),
    TooManyRequestsError: Rule(429, "too-many-requests", "Too many requests"),
    FeatureFailedError: Rule(500, "feature-failed", "A feature could not be computed"),
    RetrieverFailedError: Rule(500, "retriever-failed", "A retriever could not search"),
    ContextFailedError: Rule(500, "context-failed", "A context could not be assembled"),
    DamagedRecordError: Rule(500, "damaged-record", "A record can no longer be read"),
    SignatureError: Rule(500, "not-signed", "A record could not be signed"),
    BacklogError: Rule(503, "backlog", "Too many events wait"),
    RecordingError: Rule(503, "not-recorded", "The context could not be recorded"),
    BackendError: Rule(503, "backend", "The store cannot be used"),
    RetrieverTimeoutError: Rule(504, "retriever-timeout", "A retriever took too long"),
    ContextTimeoutError: Rule(504, "context-timeout", "A context took too long"),
}


class Problem(msgspec.Struct, frozen=True):
    """The members that every problem has."""

    type: str
    title: str
    status: int
    detail: str


def answer_problem(error: Exception) -> Response:
    """The answer to a request that ended in an error."""
    rule = rule_of(error)
    problem = Problem(TYPE_PREFIX + _name(error, rule), rule.title, rule.status, _detail(error))
    body = msgspec.json.encode(msgspec.structs.asdict(problem) | _fields(error))
    return Response(rule.status, body, MEDIA_TYPE, _headers(error, rule))


def log_problem(error: Exception, method: str, route: str, *, private: bool) -> None:
    """Logs what the caller is not told, once; in private, nothing that a function has said."""
    rule = rule_of(error)
    if rule.status < 500 or isinstance(error, BacklogError):
        return
    fields = {"method": method, "route": route, "error": type(error).__name__}
    # What the store says of itself has nothing of what it keeps.
    if not private or isinstance(error, BackendError | RecordingError):
        fields["error"] += f": {error}"
    if not isinstance(error, BackendError):
        fields["traceback"] = trace_of(error, private=private)
    log.error("request failed", **fields)


def trace_of(error: BaseException, *, private: bool) -> str:
    """Where an error came from; in private, types and places alone.

    What a function raises may say what it was called with, or what it read.
    """
    return "".join(_places(error, set()) if private else traceback.format_exception(error))


def _places(error: BaseException, known: set[int]) -> Iterator[str]:
    known.add(id(error))
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}\n"
    before = error.__context__ if error.__cause__ is None else error.__cause__
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (before, *inner):
        if other is not None and id(other) not in known:
            yield from _places(other, known)


def rule_of(error: Exception) -> Rule:
    """The row of the table that holds for an error."""
    return next((RULES[kind] for kind in type(error).__mro__ if kind in RULES), _INTERNAL)


def _name(error: Exception, rule: Rule) -> str:
    return f"unknown-{error.kind}" if isinstance(error, UnknownNameError) else rule.name


def _detail(error: Exception) -> str:
    """What the caller may know: nothing of a stack, a message of user code or a folder."""
    match error:
        case FeatureFailedError():
            return f"feature {error.feature!r} failed for {error.entity_id!r}; the log says why"
        case RetrieverTimeoutError() | ContextTimeoutError():
            return str(error)
        case RetrieverFailedError():
            return f"retriever {error.retriever!r} failed; the log says why"
        case ContextFailedError():
            return f"context {error.context!r} failed; the log says why"
        case RecordingError():
            return f"context {error.context_id} was not recorded, and must be; the log says why"
        case BackendError():
            return "the store cannot be used at the moment; the log says why"
        case HeadwaterError() if rule_of(error) is not _INTERNAL:
            return str(error)
        case _:
            return "the request failed; the log says why"


# What a kind of problem says beside what all of them say: attributes of the error.
_MEMBERS: dict[type[BaseException], tuple[str, ...]] = {
    EventError: ("index",),
    FieldError: ("index", "field", "nearest"),
    UnknownNameError: ("name", "nearest"),
    UnknownContextError: ("ref",),
    AmbiguousRefError: ("ref", "ids"),
    RecordValueError: ("pointer",),
    TokenBudgetError: ("needed", "available", "items"),
    FreshnessSLAError: ("context", "violations"),
    ImmutableRecordError: ("context_id", "stored", "given"),
    DamagedRecordError: ("context_id", "part"),
    RecordingError: ("context_id",),
    FeatureFailedError: ("feature", "entity_id"),
    RetrieverFailedError: ("retriever",),
    RetrieverTimeoutError: ("retriever", "seconds"),
    ContextFailedError: ("context",),
    ContextTimeoutError: ("context", "seconds"),
    TooLargeError: ("limit",),
}


def _fields(error: Exception) -> dict[str, Any]:
    """The members that a kind of problem adds, without those that say nothing."""
    names = next((_MEMBERS[kind] for kind in type(error).__mro__ if kind in _MEMBERS), ())
    fields = {name: getattr(error, name) for name in names}
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _headers(error: Exception, rule: Rule) -> tuple[Header, ...]:
    match error:
        case KeyRequiredError():
            return ((b"www-authenticate", b"Bearer"),)
        case MethodError():
            return ((b"allow", error.allowed.encode()),)
        case TooManyRequestsError():
            return ((b"retry-after", b"%d" % max(1, math.ceil(error.wait))),)
    return ((b"retry-after", b"%d" % _RETRY_SECONDS),) if rule.status == 503 else ()
