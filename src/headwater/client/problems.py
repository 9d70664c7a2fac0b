"""Problems (RFC 9457) of a server as the errors that the store itself raises."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from headwater import errors
from headwater.errors import ErrorResponse, EventConflict, HeadwaterError
from headwater.model.lineage import FreshnessViolation
from headwater.model.problems import STORE_RULES, TYPE_PREFIX, Problem

# Problems of requests. All others that the store does not have are a RequestRefusedError.
_DENIED = {"key-required", "key-expired", "scope", "foreign-request"}
_OVERLOADED = {"backlog", "store-full", "too-many-connections", "too-many-calls"}
_BAD_KEY = "; give the key as key=, --key or HEADWATER_CLIENT_KEY"

_MEMBER_TYPES: dict[str, Any] = {
    "violations": list[FreshnessViolation],
    "conflicts": list[EventConflict],
    "items": dict[int, int],
    "ids": tuple[str, ...],
    "workers": tuple[str, ...],
}

# The first class of the table has the name, except where a problem is more precise (see below).
_KINDS: dict[str, type[BaseException]] = {}
for _kind, _rule in STORE_RULES.items():
    _KINDS.setdefault(_rule.name, _kind)


def error_of(
    problem: Problem, members: Mapping[str, Any], url: str, request_id: str | None
) -> HeadwaterError:
    """Return the error that a problem of the server at ``url`` stands for."""
    name = problem.type.removeprefix(TYPE_PREFIX)
    kind = _kind_of(name, members)
    if kind is None:
        error = _refusal(name, problem)
    else:
        error = _rebuilt(kind, problem.detail, dict(members))
        if isinstance(error, errors.UnknownNameError):
            error.kind = name.removeprefix("unknown-")
    error.response = ErrorResponse(url, problem.status, problem.type, problem.detail, request_id)
    return error


def _kind_of(name: str, members: Mapping[str, Any]) -> type[HeadwaterError] | None:
    kind = _KINDS.get(name)
    if kind is errors.InvalidInputError and members.keys() & {"field", "index", "nearest"}:
        return errors.FieldError
    if kind is None and name.startswith("unknown-"):
        return errors.UnknownNameError
    return kind if kind is not None and issubclass(kind, HeadwaterError) else None


def _refusal(name: str, problem: Problem) -> HeadwaterError:
    if name in _DENIED:
        return errors.AccessDeniedError(
            problem.detail + (_BAD_KEY if problem.status == 401 else "")
        )
    if problem.status == 429:
        return errors.RateLimitedError(problem.detail)
    if name in _OVERLOADED:
        return errors.OverloadedError(problem.detail)
    return errors.RequestRefusedError(f"{problem.title}: {problem.detail}")


def _rebuilt(kind: type[HeadwaterError], detail: str, members: dict[str, Any]) -> HeadwaterError:
    """Return an error with the message and the attributes that the server's error had.

    Its constructor would write the message again, from values that the problem does not contain.
    """
    error = kind.__new__(kind)
    error.args = (detail,)
    members["problem"] = detail.removeprefix(f"event {members.get('index')}: ")
    for name in (*_attributes(kind), *STORE_RULES[kind].members):
        value = members.get(name)
        if value is not None and name in _MEMBER_TYPES:
            value = msgspec.convert(value, _MEMBER_TYPES[name], strict=False)
        setattr(error, name, value)
    return error


def _attributes(kind: type[HeadwaterError]) -> tuple[str, ...]:
    """Return the attributes of an error, which have the names of its constructor's arguments."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
