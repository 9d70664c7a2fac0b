"""The problems of each route, for its OpenAPI description."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from headwater import errors
from headwater.access import errors as access_errors
from headwater.http.routing import request_errors
from headwater.http.routing.problems import RULES
from headwater.http.routing.route import Route, signature_of
from headwater.model import callers
from headwater.model.problems import INTERNAL, MEDIA_TYPE, TYPE_PREFIX, UNAVAILABLE, Rule

_KINDS_OF_NAMES = ("feature", "entity", "context", "index", "retriever", "event", "source")
_TOO_MANY_REQUESTS = 429
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before another attempt.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    }
}

# Of a path that has no such route, of some routes only, or never sent.
_NOT_OF_EVERY_ROUTE = (
    access_errors.TooManyCallsError,
    access_errors.SlowCallError,
    request_errors.NoRouteError,
    request_errors.MethodError,
    request_errors.TooLargeError,
    request_errors.MediaTypeError,
    request_errors.TooManyValuesError,
    request_errors.DisconnectedError,
    request_errors.BacklogError,
)
_OF_BODIES = (request_errors.TooLargeError, request_errors.MediaTypeError)
_OF_THE_STORE = (
    errors.InvalidInputError,
    errors.CallerLimitError,
    errors.ConfigError,
    errors.BackendError,
    errors.StoreLostError,
)
_READING = (
    errors.UnknownNameError,
    errors.EntityChangedError,
    errors.FeatureValueError,
    errors.FeatureFailedError,
)
_STORED = (errors.UnknownNameError, errors.EntityChangedError)
_READING_MANY = (*_READING, request_errors.TooManyValuesError)
_EMBEDDING = (
    errors.UnknownNameError,
    errors.IndexMismatchError,
    errors.DurationError,
    errors.EmbeddingError,
)

_NAMED = (
    errors.NotFoundError,
    errors.UnknownNameError,
    errors.UnknownContextError,
    errors.AmbiguousRefError,
)

ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "read_feature": _READING,
    "read_history": _STORED,
    "read_past_values": _STORED,
    "import_history": _STORED,
    "export_history": _STORED,
    "read_features": _READING_MANY,
    "get_features": _READING_MANY,
    "read_entity": _STORED,
    "run_retriever": (
        *_EMBEDDING,
        errors.RerankFailedError,
        errors.RetrieverFailedError,
        errors.RetrieverTimeoutError,
        errors.RecordValueError,
        errors.FeatureFailedError,
    ),
    "load_documents": (errors.UnknownNameError,),
}
"""Errors of each operation beyond those of every route."""

_MODULES = (access_errors.__name__, request_errors.__name__, callers.__name__)


class Help(NamedTuple):
    """When a problem occurs, and what to do then."""

    cause: str
    remedy: str


@cache
def problem_help() -> dict[str, Help]:
    """Return the help for each problem, by its name: the end of its ``type``."""
    text = files("headwater.http.routing").joinpath("problem_help.toml").read_text("utf-8")
    return {name: Help(**table) for name, table in tomllib.loads(text).items()}


def problem_responses(route: Route, headers: dict[str, Any]) -> dict[str, Any]:
    """Return the responses of a route to requests that fail, by status."""
    by_status: dict[int, list[Rule]] = defaultdict(list)
    for rule in dict.fromkeys(_rules(route)):
        by_status[rule.status].append(rule)
    return {
        str(status): _response(status, rules, headers)
        for status, rules in sorted(by_status.items())
    }


def _rules(route: Route) -> Iterator[Rule]:
    for kind, rule in RULES.items():
        if kind.__module__ in _MODULES and kind not in _NOT_OF_EVERY_ROUTE:
            yield rule
    yield INTERNAL
    named = _NAMED if "{" in route.path else ()
    own = (*named, *route.raises, *ERRORS.get(route.function.__name__, ()))
    of_body = () if signature_of(route).body is None else _OF_BODIES
    yield from (RULES[kind] for kind in (*_OF_THE_STORE, *own, *of_body))


def names_of(rule: Rule) -> list[str]:
    """Return the names of a rule's problems: an unknown name has one for each kind of name."""
    if rule is RULES[errors.UnknownNameError]:
        return [f"unknown-{kind}" for kind in _KINDS_OF_NAMES]
    return [rule.name]


def _response(status: int, rules: list[Rule], headers: dict[str, Any]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for rule in rules for name in names_of(rule)))
    help_of = problem_help()
    if status in (_TOO_MANY_REQUESTS, UNAVAILABLE):
        headers = headers | _RETRY_AFTER
    return {
        "description": "\n".join(f"- `{name}`: {help_of[name].cause}" for name in names),
        "headers": headers,
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "allOf": [{"$ref": "#/components/schemas/Problem"}],
                    "properties": {
                        "type": {"enum": [TYPE_PREFIX + name for name in names]},
                        "status": {"const": status},
                        "request_id": {"type": "string"},
                    },
                }
            }
        },
    }
