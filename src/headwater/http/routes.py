"""Typed routes: a method, a path and an async function whose signature says what it takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.types import Receive, Scope

from headwater.errors.hints import closest
from headwater.http.problems import FieldError, MethodError, NoRouteError, RequestError
from headwater.http.request_parsing import (
    Upload,
    converted,
    decode_json,
    query_of,
    read_upload,
    unquoted,
)
from headwater.http.responses import Response

JSON_TYPES = ("application/json",)

UNMATCHED = "(unmatched)"
"""The template of paths that no route has: callers choose them, so they are not counted apart."""

_encode = msgspec.json.Encoder().encode


class Route(msgspec.Struct, frozen=True):
    """One row of the route table.

    A parameter of the function that is named in the path comes from there; ``body`` is the body,
    decoded into its Struct or, as an ``Upload``, as it was sent; every other one comes from the
    query. The function returns a Struct, or an ``Answer`` if it says more than a body.
    """

    method: Literal["GET", "POST"]
    path: str
    function: Callable[..., Awaitable[Any]]
    status: int = 200
    public: bool = False
    accepts: tuple[str, ...] = JSON_TYPES
    documents: Any = None
    """For the document: what an Upload holds, or an Answer's body is."""


class Parameter(NamedTuple):
    """A parameter of the path or the query."""

    name: str
    kind: Any
    required: bool


class RouteSignature(NamedTuple):
    """Where each argument of a route's function comes from."""

    path: tuple[Parameter, ...]
    query: tuple[Parameter, ...]
    body: Any
    returns: Any


def signature_of(route: Route) -> RouteSignature:
    """Reads a function's signature, once, when the route is made."""
    hints = get_type_hints(route.function, include_extras=True)
    in_path = re.findall(r"{(\w+)}", route.path)
    given = inspect.signature(route.function).parameters
    parameters = {
        name: Parameter(name, _written(hints[name]), parameter.default is parameter.empty)
        for name, parameter in given.items()
        if name != "body"
    }
    return RouteSignature(
        tuple(parameters[name] for name in in_path),
        tuple(p for name, p in parameters.items() if name not in in_path),
        hints["body"] if "body" in given else None,
        hints["return"],
    )


def _written(kind: Any) -> Any:
    """The type of what is written for a parameter: absence is None, but no text is."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(member for member in get_args(kind) if member is not NoneType)]  # noqa: UP007 - of a tuple


class Endpoint:
    """A route ready to be called."""

    def __init__(self, route: Route, max_body: int) -> None:
        signature = signature_of(route)
        self.public = route.public
        self._function = route.function
        self._status = route.status
        self._accepts = route.accepts
        self._max_body = max_body
        self._path = signature.path
        self._query = {parameter.name: parameter for parameter in signature.query}
        self._required = frozenset(p.name for p in signature.query if p.required)
        self._has_body = signature.body is not None
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if self._has_body and signature.body is not Upload:
            self._decoder = msgspec.json.Decoder(signature.body)

    async def answer(self, scope: Scope, receive: Receive, segments: Sequence[str]) -> Response:
        """Calls the function with what the request brings."""
        given = self._from_query(query_of(scope))
        for (name, kind, _), segment in zip(self._path, segments, strict=True):
            text = unquoted(segment)
            given[name] = text if kind is str else converted(text, kind, name)
        if self._has_body:
            upload = await read_upload(scope, receive, self._accepts, self._max_body)
            given["body"] = decode_json(upload.data, self._decoder) if self._decoder else upload
        result = await self._function(**given)
        return result if type(result) is Response else Response(self._status, _encode(result))

    def _from_query(self, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, text in pairs:
            parameter = self._query.get(name)
            if parameter is None:
                raise self._unknown(name)
            if name in given:
                raise FieldError(f"parameter {name!r} is given twice", name)
            kind = parameter.kind
            given[name] = text if kind is str else converted(text, kind, name)
        if not self._required <= given.keys():
            missing = min(self._required - given.keys())
            raise FieldError(f"parameter {missing!r} is missing in the query", missing)
        return given

    def _unknown(self, name: str) -> FieldError:
        near = closest(name, self._query)
        known = f"there is {', '.join(self._query)}" if self._query else "there is none"
        hint = f"did you mean {near!r}?" if near else known
        return FieldError(f"unknown parameter {name!r} in the query; {hint}", name, near)


class Resource:
    """A place in the tree of paths: what may be done there, and what lies below."""

    def __init__(self) -> None:
        self.template = UNMATCHED
        self.children: dict[str, Resource] = {}
        self.any: Resource | None = None
        self.endpoints: dict[str, Endpoint] = {}

    def refusal(self, method: str) -> RequestError:
        """Why a method is not answered here."""
        return MethodError(method, sorted(self.endpoints)) if self.endpoints else NoRouteError()


_NOWHERE = Resource()


class Router:
    """Finds what answers a path, segment by segment; a name goes before a parameter."""

    def __init__(self, routes: Iterable[Route], max_body: int) -> None:
        self._root = Resource()
        for route in routes:
            self._add(route, Endpoint(route, max_body))

    def _add(self, route: Route, endpoint: Endpoint) -> None:
        place = self._root
        for segment in route.path[1:].split("/"):
            if segment.startswith("{"):
                place.any = place.any or Resource()
                place = place.any
            else:
                place = place.children.setdefault(segment, Resource())
        place.template = route.path
        place.endpoints[route.method] = endpoint
        if route.method == "GET":
            place.endpoints["HEAD"] = endpoint

    def find(self, path: str) -> tuple[Resource, list[str]]:
        """What lies at a path, and the segments that are parameters."""
        place = self._root
        segments: list[str] = []
        for segment in path[1:].split("/"):
            below = place.children.get(segment)
            if below is None:
                below = place.any
                if below is None or not segment:
                    return _NOWHERE, segments
                segments.append(segment)
            place = below
        return place, segments
