"""The OpenAPI document of the route table."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from headwater.api.problems import MEDIA_TYPE, Problem
from headwater.http.request_parsing import Upload
from headwater.http.responses import NO_CONTENT
from headwater.http.routes import Parameter, Route, RouteSignature, signature_of

_Schemas = dict[Any, dict[str, Any]]
"""The schema of each type that the routes use."""

_REFERENCE = "#/components/schemas/{name}"
_KEYS = {
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}
_TRACEPARENT = {
    "name": "traceparent",
    "in": "header",
    "required": False,
    "description": "W3C trace context, which the events carry; ignored if it is invalid",
    "schema": {"type": "string"},
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return a description of every route."""
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headwater", "version": version("headwater")},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _KEYS},
        "security": [{name: []} for name in _KEYS],
    }


def _schemas(routes: Sequence[Route]) -> tuple[_Schemas, dict[str, Any]]:
    kinds: list[Any] = [Problem]
    for route in routes:
        kinds += _kinds(route, signature_of(route))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    return dict(zip(kinds, schemas, strict=True)), components


def _kinds(route: Route, signature: RouteSignature) -> Iterator[Any]:
    for parameter in (*signature.path, *signature.query):
        yield parameter.kind
    if signature.body is not None:
        yield _body_type(route, signature)
    yield _response_type(route, signature)


def _body_type(route: Route, signature: RouteSignature) -> Any:
    return route.documents if signature.body is Upload else signature.body


def _response_type(route: Route, signature: RouteSignature) -> Any:
    return route.documents if signature.returns_response else signature.returns


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    signature = signature_of(route)
    operation: dict[str, Any] = {
        "operationId": route.function.__name__,
        "summary": (inspect.getdoc(route.function) or "").partition("\n")[0],
        "parameters": [
            *(_parameter(parameter, "path", schemas) for parameter in signature.path),
            *(_parameter(parameter, "query", schemas) for parameter in signature.query),
            *([_TRACEPARENT] if signature.has_traceparent else []),
        ],
        "responses": {
            str(route.status): {"description": "Success"} | _content(route, signature, schemas),
            "default": {
                "description": "A problem",
                "content": {MEDIA_TYPE: {"schema": schemas[Problem]}},
            },
        },
    }
    if signature.body is not None:
        schema = schemas[_body_type(route, signature)]
        content = {accepted: {"schema": schema} for accepted in route.accepts}
        operation["requestBody"] = {"required": True, "content": content}
    if route.scope == "public":
        operation["security"] = []
    return operation


def _content(route: Route, signature: RouteSignature, schemas: _Schemas) -> dict[str, Any]:
    """Return the content of a successful response."""
    if route.status == NO_CONTENT:
        return {}
    response_type = _response_type(route, signature)
    media_type = "text/plain" if response_type is str else "application/json"
    return {"content": {media_type: {"schema": schemas[response_type]}}}


def _parameter(parameter: Parameter, place: str, schemas: _Schemas) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": parameter.required,
        "schema": schemas[parameter.kind],
    }
