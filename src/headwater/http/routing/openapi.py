"""The OpenAPI document of the route table."""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from headwater import errors
from headwater.access import errors as access_errors
from headwater.declarations.events import DEFINED, EventDef
from headwater.declarations.features import FeatureDef
from headwater.http.routing import request_errors
from headwater.http.routing.problems import RULES
from headwater.http.routing.request_parsing import Upload, UploadedFile
from headwater.http.routing.responses import ACCEPTED, NO_CONTENT, NOT_MODIFIED
from headwater.http.routing.route import (
    JSON_TYPES,
    Parameter,
    Route,
    RouteSignature,
    signature_of,
)
from headwater.model import callers
from headwater.model.events import EventBody
from headwater.model.history import CSV, PARQUET
from headwater.model.kinds import SCHEMAS
from headwater.model.problems import (
    INTERNAL,
    MEDIA_TYPE,
    NDJSON,
    TYPE_PREFIX,
    UNAVAILABLE,
    Problem,
    Rule,
)
from headwater.model.values import ServiceEvent

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
    request_errors.EncodingError,
    request_errors.TooManyValuesError,
    request_errors.DisconnectedError,
    request_errors.BacklogError,
)
_OF_BODIES = (
    request_errors.TooLargeError,
    request_errors.MediaTypeError,
    request_errors.EncodingError,
)
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


_Schemas = dict[Any, dict[str, Any]]
"""The schema of each type that the routes use."""

_REFERENCE = "#/components/schemas/{name}"
_DESCRIPTION = """\
Send a key as `X-API-Key` or as `Authorization: Bearer`. Each route names the scope that the key
needs; `admin` includes all. Errors are problems (RFC 9457), whose `type` is stable. Every response
has an `X-Request-Id`, which its log records have too.
"""
_KEYS = {
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}
_HEADERS = {
    "traceparent": {
        "name": "traceparent",
        "in": "header",
        "required": False,
        "description": "W3C trace context, which the events carry; ignored if it is invalid",
        "schema": {
            "type": "string",
            "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        },
    },
    "last_event_id": {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "description": "The id of the last message of an earlier response, to continue after it",
        "schema": {"type": "string", "examples": ["4711"]},
    },
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILES: dict[str, dict[str, Any]] = {
    PARQUET: _BINARY,
    CSV: _BINARY | {"example": "user_id,timestamp\nada,2026-01-15T09:23:12Z\n"},
    NDJSON: _BINARY | {"example": '"parcels"\n'},
}
_REQUEST_ID = {
    "X-Request-Id": {
        "description": "The id of the request: the one that it has, or a new one.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    }
}
_ETAG = {
    "ETag": {
        "description": "Identifies the content; send it as If-None-Match.",
        "required": True,
        "schema": {"type": "string", "pattern": '^(W/)?"[^"]+"$'},
    }
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the client's copy; if it is current, the status is 304.",
    "schema": {"type": "string", "examples": ['"sha256:76f754e2"']},
}

_PUBLISHING = "/ingest/{event_type}"
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that names of components must not have."""

_READ = {"id": "$response.body#/context_id"}
_ASSEMBLED = {
    "read_context": _READ,
    "read_lineage": _READ,
    "explain_context": _READ,
    "read_causes": _READ,
    "read_record": {"ref": "$response.body#/record_hash"},
}
_FIRST_LISTED = {
    "read_context": {"id": "$response.body#/contexts/0/context_id"},
    "read_record": {"ref": "$response.body#/contexts/0/record_hash"},
}
_DOCUMENT = {"index": "$response.body#/index", "document": "$response.body#/document"}

LINKS: dict[str, dict[str, dict[str, str]]] = {
    "list_declarations": {
        "read_feature": {"name": "$response.body#/features/0/name"},
        "assemble_context": {"name": "$response.body#/contexts/0/name"},
        "search_index": {"index": "$response.body#/indexes/0/name"},
    },
    "ingest_event": {
        "read_feature": {"entity_id": "$response.body#/entity_id"},
        "read_history": {"entity_id": "$response.body#/entity_id"},
    },
    "assemble_context": _ASSEMBLED,
    "assemble": _ASSEMBLED,
    "list_contexts": {
        **_FIRST_LISTED,
        "list_contexts": {"cursor": "$response.body#/next_cursor"},
    },
    "find_contexts": _FIRST_LISTED,
    "read_context": {
        "read_lineage": {"id": "$response.body#/context_id"},
        "explain_context": {"id": "$response.body#/context_id"},
        "read_record": {"ref": "$response.body#/record_hash"},
    },
    "index_document": {
        "read_document": _DOCUMENT,
        "remove_document": _DOCUMENT,
        "search_index": {"index": "$response.body#/index"},
    },
    "list_indexes": {"search_index": {"index": "$response.body#/indexes/0/name"}},
}
"""Operations that follow each operation, and where their parameters are in its response."""


def document(
    routes: Sequence[Route],
    events: Sequence[EventDef] = (),
    features: Sequence[FeatureDef] = (),
) -> dict[str, Any]:
    """Return a description of every route, of publishing each declared event, and of features."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, schemas, components
        )
    for event in events:
        operation, added = _publishing(paths[_PUBLISHING]["post"], event)
        paths[f"/ingest/{quote(event.name, safe='')}"] = {"post": operation}
        components |= added
    if features:
        components["FeatureValues"] = _feature_values(features)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": version("headwater"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "tags": list({tag["name"]: tag for tag in map(_tag, routes)}.values()),
        "paths": paths,
        "components": {"schemas": components | SCHEMAS, "securitySchemes": _KEYS},
    }


def _feature_values(features: Sequence[FeatureDef]) -> dict[str, Any]:
    """Return the schema of values by feature, which says what each of them means."""
    return {
        "title": "FeatureValues",
        "description": "The values of declared features, by name; null if there is none.",
        "type": "object",
        "properties": {
            feature.name: {
                "title": feature.name,
                "description": feature.description,
                "x-entity": feature.entity.name,
                "x-type": feature.codec.expected,
                "x-unit": feature.unit,
                "x-owner": feature.owner,
                "x-tags": feature.tags,
            }
            for feature in features
        },
    }


def _publishing(general: dict[str, Any], event: EventDef) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the operation that publishes events of a declared type, and the schemas it needs."""
    safe = _NOT_OF_NAMES.sub(lambda found: f"_{ord(found[0]):x}", event.name)
    name, inner = f"Event.{safe}", f"PartOfEvent.{safe}."
    text = msgspec.json.encode(event.schema).decode()
    schema = msgspec.json.decode(text.replace(f'"{DEFINED}', f'"{_REFERENCE.format(name=inner)}'))
    added = {f"{inner}{part}": described for part, described in schema.pop("$defs", {}).items()}
    body: dict[str, Any] = {
        "allOf": [{"$ref": _REFERENCE.format(name=EventBody.__name__)}],
        "properties": {"payload": {"$ref": _REFERENCE.format(name=name)}},
        "required": ["payload"] if schema.get("required") else [],
    }
    operation = general | {
        "operationId": f"{general['operationId']}.{safe}",
        "summary": f"Publish an event of the type {event.name}.",
        **({"description": event.description} if event.description else {}),
        "parameters": [each for each in general["parameters"] if each["in"] != "path"],
        "requestBody": {"required": True, "content": {JSON_TYPES[0]: {"schema": body}}},
    }
    return operation, {name: schema, **added}


def _tag(route: Route) -> dict[str, str]:
    """Return the module of a route as its tag; the module's first line describes it."""
    module = route.function.__module__
    described = inspect.getdoc(sys.modules[module]) or ""
    return {"name": module.rpartition(".")[2], "description": described.partition("\n")[0]}


def _schemas(routes: Sequence[Route]) -> tuple[_Schemas, dict[str, Any]]:
    kinds: list[Any] = [Problem]
    for route in routes:
        kinds += _kinds(route, signature_of(route))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    if ServiceEvent.__name__ in components:
        # A note for the bus; an event that was read from the log never has it.
        del components[ServiceEvent.__name__]["properties"]["assigned_time"]
    return dict(zip(kinds, schemas, strict=True)), components


def _kinds(route: Route, signature: RouteSignature) -> Iterator[Any]:
    for parameter in (*signature.path, *signature.query):
        yield parameter.kind
    if signature.body not in (None, UploadedFile):
        yield _body_type(route, signature)
    yield from _response_types(route, signature)


def _body_type(route: Route, signature: RouteSignature) -> Any:
    return route.documents if signature.body is Upload else signature.body


def _response_types(route: Route, signature: RouteSignature) -> tuple[Any, ...]:
    if not signature.returns_response:
        return (signature.returns,)
    return route.documents if isinstance(route.documents, tuple) else (route.documents,)


def _operation(route: Route, schemas: _Schemas, components: dict[str, Any]) -> dict[str, Any]:
    signature = signature_of(route)
    summary, _, details = (inspect.getdoc(route.function) or "").partition("\n")
    name = route.function.__name__
    roles = [] if route.scope == "any" else [route.scope]
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "tags": [_tag(route)["name"]],
        "parameters": [
            *(_parameter(parameter, "path", schemas) for parameter in signature.path),
            *(_parameter(parameter, "query", schemas) for parameter in signature.query),
            *(_HEADERS[name] for name in signature.headers),
            *([_IF_NONE_MATCH] if route.has_etag else ()),
        ],
        "responses": _responses(route, signature, schemas),
        "security": [] if route.scope == "public" else [{name: roles} for name in _KEYS],
        "x-scope": route.scope,
    }
    if details:
        operation["description"] = details.strip()
    if signature.body is UploadedFile:
        operation["requestBody"] = {
            "required": True,
            "content": {media_type: _FILES[media_type] for media_type in route.accepts},
        }
    elif signature.body is not None:
        schema = schemas[_body_type(route, signature)]
        content = {"schema": schema, "example": _example(schema, components)}
        operation["requestBody"] = {
            "required": True,
            "content": dict.fromkeys(route.accepts, content),
        }
    return operation


def _responses(route: Route, signature: RouteSignature, schemas: _Schemas) -> dict[str, Any]:
    """Return the responses of requests that succeed."""
    headers = _REQUEST_ID | (_ETAG if route.has_etag else {})
    success: dict[str, Any] = {"description": "Success", "headers": headers}
    if route.status != NO_CONTENT:
        forms = [schemas[kind] for kind in _response_types(route, signature)]
        schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
        success["content"] = {route.returns.partition(";")[0]: {"schema": schema}}
    if links := LINKS.get(route.function.__name__):
        success["links"] = {
            target: {"operationId": target, "parameters": parameters}
            for target, parameters in links.items()
        }
    responses = {str(route.status): success}
    if route.is_pending is not None:
        responses[str(ACCEPTED)] = success | {"description": "Accepted; the work goes on"}
    if route.has_etag:
        responses[str(NOT_MODIFIED)] = {"description": "Not modified", "headers": headers}
    responses |= problem_responses(route, _REQUEST_ID)
    if route.failing_status is not None:
        responses[str(route.failing_status)]["content"] |= success["content"]
    return responses


def _parameter(parameter: Parameter, place: str, schemas: _Schemas) -> dict[str, Any]:
    schema = dict(schemas[parameter.kind])
    described = {"description": schema.pop("description")} if "description" in schema else {}
    return {
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        **described,
        "schema": schema,
    }


def _example(schema: dict[str, Any], components: dict[str, Any]) -> Any:
    """Return an example of a body: the first example of each field that has one."""
    if "$ref" in schema:
        return _example(components[schema["$ref"].rpartition("/")[2]], components)
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "array":
        return [_example(schema["items"], components)]
    shown = {}
    for name, field in schema.get("properties", {}).items():
        forms = (field, *field.get("anyOf", ()))
        if examples := next((form["examples"] for form in forms if "examples" in form), None):
            shown[name] = examples[0]
    return shown
