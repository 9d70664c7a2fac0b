"""Responses to requests that failed: RFC 9457 problem details."""

from __future__ import annotations

import msgspec

from headwater import errors
from headwater.access import errors as access_errors
from headwater.access.bounded_verbs import CALL_RULES
from headwater.core.logging import log
from headwater.errors.base import RequestError
from headwater.errors.hints import shortened
from headwater.http.routing import request_errors
from headwater.http.routing.responses import ApiResponse
from headwater.model import problems
from headwater.model.callers import ScopeError
from headwater.model.problems import (
    MEDIA_TYPE,
    STORE_RULES,
    TYPE_PREFIX,
    UNAVAILABLE,
    Problem,
    Rule,
    error_fields,
)

_LONGEST_DETAIL = 1_500
_RETRY_AFTER = {"retry-after": "1"}

# Many in a row, and no fault of the server.
_REFUSALS = (request_errors.BacklogError, request_errors.StoreFullError)

RULES: dict[type[BaseException], Rule] = {
    request_errors.MalformedError: Rule(400, "malformed", "Malformed request"),
    access_errors.KeyRequiredError: Rule(401, "key-required", "API key required"),
    access_errors.ForeignRequestError: Rule(
        403, "foreign-request", "Request from another machine or site"
    ),
    ScopeError: Rule(403, "scope", "Key without the scope", ("key", "scope")),
    request_errors.NoRouteError: Rule(404, "no-route", "Route not found"),
    request_errors.MethodError: Rule(405, "method", "Method not allowed"),
    request_errors.RequestTimeoutError: Rule(408, "request-timeout", "Request timed out"),
    request_errors.TooLargeError: Rule(413, "too-large", "Body too large", ("limit",)),
    request_errors.TableTooLargeError: Rule(413, "table-too-large", "Table too large", ("limit",)),
    request_errors.UrlTooLongError: Rule(414, "url-too-long", "URL too long", ("limit",)),
    request_errors.MediaTypeError: Rule(415, "media-type", "Unsupported media type"),
    request_errors.EncodingError: Rule(415, "content-encoding", "Unsupported content encoding"),
    request_errors.TooManyValuesError: Rule(
        422, "too-many-values", "Too many values at once", ("limit",)
    ),
    access_errors.TokenKeysUnavailableError: Rule(
        UNAVAILABLE, "token-keys-unavailable", "Keys of tokens unavailable"
    ),
    access_errors.TooManyRequestsError: Rule(429, "too-many-requests", "Too many requests"),
    access_errors.TooManyWrongKeysError: Rule(
        429, "too-many-wrong-keys", "Too many wrong API keys"
    ),
    request_errors.HeadTooLargeError: Rule(
        431, "headers-too-large", "Headers too large", ("limit",)
    ),
    # Only the access log shows it; the number is that of other servers.
    request_errors.DisconnectedError: Rule(499, "disconnected", "Client disconnected"),
    request_errors.TooManyConnectionsError: Rule(
        UNAVAILABLE, "too-many-connections", "Too many connections"
    ),
    **CALL_RULES,
    request_errors.TooManyTailsError: Rule(UNAVAILABLE, "too-many-tails", "Too many live tails"),
    request_errors.BacklogError: Rule(UNAVAILABLE, "backlog", "Event backlog full"),
    request_errors.StoreFullError: Rule(UNAVAILABLE, "store-full", "Store full"),
    **STORE_RULES,
}


def rule_of(error: Exception) -> Rule:
    """Return the row of the table that applies to an error."""
    return problems.rule_of(error, RULES)


def problem_response(error: Exception, request_id: str = "") -> ApiResponse:
    """Return the response to a request that ended in an error."""
    rule, body = rule_of(error), msgspec.structs.asdict(problem_of(error))
    for name in rule.members:
        value = getattr(error, name)
        if value not in (None, ""):
            body[name] = shortened(value) if isinstance(value, str) else value
    if request_id:
        body["request_id"] = request_id
    headers = error.headers if isinstance(error, RequestError) else {}
    if rule.status == UNAVAILABLE:
        headers = headers | _RETRY_AFTER
    return ApiResponse(msgspec.json.encode(body), rule.status, headers, MEDIA_TYPE)


def problem_of(error: Exception) -> Problem:
    """Return the problem of an error, with the members that every problem has."""
    rule = rule_of(error)
    name = f"unknown-{error.kind}" if isinstance(error, errors.UnknownNameError) else rule.name
    detail, half = rule.detail.format(error), _LONGEST_DETAIL // 2
    if len(detail) > 2 * half:  # the remedy is at its end
        detail = f"{detail[:half]} … {detail[-half:]}"
    return Problem(TYPE_PREFIX + name, rule.title, rule.status, detail)


def log_problem(
    error: Exception, method: str, route: str, request_id: str, *, private: bool
) -> None:
    """Log an error of the server; if ``private``, without the messages of user code."""
    if rule_of(error).status < 500 or isinstance(error, _REFUSALS):
        return
    fields = error_fields(error, private=private)
    log.error("request failed", method=method, route=route, request_id=request_id, **fields)
