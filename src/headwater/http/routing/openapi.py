"""The OpenAPI document of the route table."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from headwater.http.routing.openapi_links import links_of
from headwater.http.routing.openapi_problems import problem_responses
from headwater.http.routing.request_parsing import Upload
from headwater.http.routing.responses import NO_CONTENT, NOT_MODIFIED
from headwater.http.routing.route import Parameter, Route, RouteSignature, signature_of
from headwater.http.routing.uploads import UploadedFile
from headwater.model.history import CSV, PARQUET
from headwater.model.kinds import SCHEMAS
from headwater.model.problems import Problem
from headwater.model.progress import NDJSON
from headwater.model.values import ServiceEvent

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


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return a description of every route."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route, schemas, components
        )
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
        "security": _security(route),
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
        operation["requestBody"] = _body(route, schemas[_body_type(route, signature)], components)
    return operation


def _security(route: Route) -> list[dict[str, list[str]]]:
    """Return the schemes of a route with the scope that the key needs, as a role."""
    if route.scope == "public":
        return []
    roles: list[str] = [] if route.scope == "any" else [route.scope]
    return [{name: roles} for name in _KEYS]


def _responses(route: Route, signature: RouteSignature, schemas: _Schemas) -> dict[str, Any]:
    """Return the responses of requests that succeed."""
    headers = _REQUEST_ID | (_ETAG if route.has_etag else {})
    success: dict[str, Any] = {"description": "Success", "headers": headers}
    if route.status != NO_CONTENT:
        forms = [schemas[kind] for kind in _response_types(route, signature)]
        schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
        success["content"] = {route.returns.partition(";")[0]: {"schema": schema}}
    links = links_of(route.function.__name__)
    if links:
        success["links"] = links
    responses = {str(route.status): success}
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


def _body(route: Route, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    example = _example(schema, components)
    content = {"schema": schema, "example": example}
    return {"required": True, "content": dict.fromkeys(route.accepts, content)}


def _example(schema: dict[str, Any], components: dict[str, Any]) -> Any:
    """Return an example of a body: the first example of each field that has one."""
    if "$ref" in schema:
        return _example(components[schema["$ref"].rpartition("/")[2]], components)
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "array":
        return [_example(schema["items"], components)]
    fields = schema.get("properties", {}).items()
    shown = {name: _field_example(field) for name, field in fields}
    return {name: value for name, value in shown.items() if value is not None}


def _field_example(field: dict[str, Any]) -> Any:
    return next(
        (each["examples"][0] for each in (field, *field.get("anyOf", ())) if "examples" in each),
        None,
    )
