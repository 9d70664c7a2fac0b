"""Typed routes: a method, a path and an async function whose signature is the interface."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope

from headwater.core.codec import encode_custom
from headwater.core.tracing import RequestHeaders, header_traceparent
from headwater.errors import FieldError
from headwater.http.routing.disconnects import Disconnects
from headwater.http.routing.request_parsing import (
    Upload,
    UploadedFile,
    convert_parameter,
    decode_json,
    header_last_event_id,
    parse_query,
    read_upload,
    receive_file,
    unquote_segment,
)
from headwater.http.routing.responses import ACCEPTED, NO_CONTENT, ApiResponse
from headwater.model.callers import AccessScope
from headwater.settings.groups import HttpSettings
from headwater.store.verbs.verb import BodyLimit, filter_fields

JSON_TYPES = ("application/json",)

RouteScope = AccessScope | Literal["public", "any"]
"""The scope that a key needs: none for a public route, any one for ``any``."""

# Reading can stop at any moment; a write goes on to its end after its client has gone.
_READING: frozenset[RouteScope] = frozenset({"read", "assemble", "records"})

_HEADERS: dict[str, Callable[[RequestHeaders], str | None]] = {
    "traceparent": header_traceparent,
    "last_event_id": header_last_event_id,
}
"""The parameters of a function that are taken from headers."""
_ROOT = "/"
_BELOW = "/*"  # the end of a path that stands for all paths below it
_ANY = ""  # the key of a parameter among literal segments, which are never empty

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


class Parameter(NamedTuple):
    """A parameter of the path or the query."""

    name: str
    kind: Any
    required: bool


class RouteSignature(NamedTuple):
    """The source of each argument of a route's function."""

    path: tuple[Parameter, ...]
    query: tuple[Parameter, ...]
    body: Any
    returns: Any
    headers: tuple[str, ...] = ()
    """The parameters that are taken from headers."""

    @property
    def returns_response(self) -> bool:
        """Whether the function returns a complete response and not only its body."""
        return isinstance(self.returns, type) and issubclass(self.returns, Response)


class Route(msgspec.Struct, frozen=True):
    """One row of the route table.

    A parameter of the function that the path names is taken from the path. ``body`` is the body,
    decoded into its Struct, undecoded as an ``Upload``, or in a file as an ``UploadedFile``, which
    the response closes; ``traceparent`` and ``last_event_id`` are
    headers, None if they are missing or invalid. All others are taken from the query.
    The function returns a Struct, a ``Response`` to set more than the body, or None with the
    status 204.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    scope: RouteScope
    function: Callable[..., Awaitable[Any]]
    status: int = 200
    accepts: tuple[str, ...] = JSON_TYPES
    returns: str = "application/json"
    """For OpenAPI: the media type of the response."""
    documents: Any = None
    """For OpenAPI: the type of an ``Upload`` or of the body of a ``Response``, or several."""
    failing_status: int | None = None
    """For OpenAPI: another status that the same body has."""
    applies_limits: bool = False
    """Whether the function applies the limits of a key; if not, limited keys are refused."""
    raises: tuple[type[Exception], ...] = ()
    """For OpenAPI: the errors beyond those of every route."""
    signature: RouteSignature | None = None
    """The source of each argument, if not the signature of the function."""
    max_bytes: BodyLimit = "max_body_bytes"
    """The setting with the largest size of the body."""
    is_pending: Callable[[Any], bool] | None = None
    """Returns whether the work of a result goes on, which makes its status 202."""
    ends_with_client: bool | str = False
    """Whether the function is cancelled if the client disconnects, as functions that read are; or
    the parameter of the query with which it is."""
    has_etag: bool = False
    """For OpenAPI: whether the response has an ETag, and is 304 if the client has it."""


def signature_of(route: Route) -> RouteSignature:
    """Return where the arguments of a route's function are taken from."""
    if route.signature is not None:
        return route.signature
    hints = get_type_hints(route.function, include_extras=True)
    in_path = re.findall(r"{(\w+)}", route.path)
    declared = inspect.signature(route.function).parameters
    parameters = {
        name: Parameter(name, _without_none(hints[name]), parameter.default is parameter.empty)
        for name, parameter in declared.items()
        if name != "body" and name not in _HEADERS and parameter.kind is not parameter.VAR_KEYWORD
    }
    parameters |= _unpacked(declared, hints)
    return RouteSignature(
        tuple(parameters[name] for name in in_path),
        tuple(p for name, p in parameters.items() if name not in in_path),
        hints["body"] if "body" in declared else None,
        hints["return"],
        tuple(name for name in _HEADERS if name in declared),
    )


def _unpacked(
    declared: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> dict[str, Parameter]:
    """Return the parameters of ``**filters: Unpack[Filters]``, all of which are optional."""
    return {
        field.name: Parameter(field.name, field.kind, required=False)
        for parameter in declared.values()
        if parameter.kind is parameter.VAR_KEYWORD
        for field in filter_fields(hints[parameter.name])
    }


def _without_none(kind: Any) -> Any:
    """Return the type of a parameter's text: only an absent parameter is None."""
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return Union[tuple(member for member in get_args(kind) if member is not NoneType)]  # noqa: UP007 - of a tuple


def _as_text(parameter: Parameter, shortest: int) -> Parameter:
    """Return a parameter as text if it needs no checks, so that it is not converted."""
    kind, *checks = get_args(parameter.kind) or (parameter.kind,)
    has_checks = any(
        (check.min_length or 0) > shortest or check.max_length or check.pattern for check in checks
    )
    return parameter if has_checks or kind is not str else parameter._replace(kind=str)


class AnyEndpoint(Protocol):
    """What answers the requests of one method at one path, and who may send them."""

    scope: RouteScope
    applies_limits: bool

    async def respond(self, scope: Scope, receive: Receive, path: Sequence[str]) -> Response: ...


class Endpoint:
    """A route that is ready to be called."""

    def __init__(self, route: Route, settings: HttpSettings, disconnects: Disconnects) -> None:
        signature = signature_of(route)
        self.scope = route.scope
        self.applies_limits = route.applies_limits
        self._function = route.function
        self._watching = disconnects
        self._watched_with = route.ends_with_client
        is_watched = route.scope in _READING or route.ends_with_client is True
        self._disconnects = disconnects if is_watched else None
        self._status = route.status
        self._is_pending = route.is_pending
        self._accepts = route.accepts
        self._is_file = signature.body is UploadedFile
        self._max_body: int = getattr(settings, route.max_bytes)
        self._path = tuple(_as_text(parameter, shortest=1) for parameter in signature.path)
        self._query = {field.name: _as_text(field, shortest=0) for field in signature.query}
        self._required = frozenset(p.name for p in signature.query if p.required)
        self._has_body = signature.body is not None
        self._headers = signature.headers
        self._returns_response = signature.returns_response
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if self._has_body and signature.body not in (Upload, UploadedFile):
            self._decoder = msgspec.json.Decoder(signature.body)

    async def respond(self, scope: Scope, receive: Receive, path: Sequence[str]) -> Response:
        """Call the function with the arguments of a request."""
        arguments = self._query_arguments(parse_query(scope))
        for (name, kind, _), segment in zip(self._path, path, strict=True):
            text = unquote_segment(segment) if "%" in segment else segment
            arguments[name] = text if kind is str else convert_parameter(text, kind, name)
        if self._is_file:
            return await self._with_file(scope, receive, arguments)
        if self._has_body:
            upload = await read_upload(scope, receive, self._accepts, self._max_body)
            arguments["body"] = decode_json(upload.data, self._decoder) if self._decoder else upload
        for name in self._headers:
            arguments[name] = _HEADERS[name](scope["headers"])
        watching = self._watching if self._watched_with in arguments else self._disconnects
        call = self._function(**arguments)
        result = await (watching.run(receive, call) if watching else call)
        if self._returns_response:
            response: Response = result
            return response
        body = b"" if self._status == NO_CONTENT else _encode(result)
        is_pending = self._is_pending is not None and self._is_pending(result)
        return ApiResponse(body, ACCEPTED if is_pending else self._status)

    async def _with_file(
        self, scope: Scope, receive: Receive, arguments: dict[str, Any]
    ) -> Response:
        """Call the function with a file, which the response closes."""
        file = await receive_file(scope, receive, self._accepts, self._max_body)
        try:
            call = self._function(**arguments, body=file)
            response: Response = await (
                self._disconnects.run(receive, call) if self._disconnects else call
            )
        except BaseException:
            file.close()
            raise
        return response

    def _query_arguments(self, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, text in pairs:
            parameter = self._query.get(name)
            if parameter is None:
                raise FieldError.unknown("unknown query parameter", name, self._query)
            if name in arguments:
                raise FieldError(f"query parameter {name!r} occurs twice; send it once", name)
            kind = parameter.kind
            arguments[name] = text if kind is str else convert_parameter(text, kind, name)
        if not self._required <= arguments.keys():
            missing = min(self._required - arguments.keys())
            raise FieldError(f"query parameter {missing!r} is required", missing)
        return arguments


class Resource:
    """A node in the tree of paths: the endpoints of its path, by method, and its children."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.endpoints: dict[str, AnyEndpoint] = {}
        self.children: dict[str, Resource] = {}


class RouteTree:
    """Finds the routes of a path, segment by segment.

    Starlette's router tries a regular expression for each route, which makes reads 5 % slower.
    """

    def __init__(self, routes: Iterable[Route], settings: HttpSettings) -> None:
        self._root = Resource("")
        self._below: dict[str, Resource] = {}
        disconnects = Disconnects()
        for route in routes:
            self.add(route.method, route.path, Endpoint(route, settings, disconnects))

    def add(self, method: str, path: str, endpoint: AnyEndpoint) -> None:
        """Add the endpoint of a method at a path, or with ``/*`` at all paths below one."""
        if path.endswith(_BELOW):
            node = self._below.setdefault(path.removesuffix("*"), Resource(path))
        else:
            node = self._node(path)
        node.endpoints[method] = endpoint
        if method == "GET":
            node.endpoints["HEAD"] = endpoint

    def alias(self, path: str, other: str) -> None:
        """Answer requests for a path as those for another, which the documentation has."""
        self._node(path).endpoints = self._node(other).endpoints

    def _node(self, path: str) -> Resource:
        node = self._root
        for segment in path[1:].split("/") if path != _ROOT else ():
            key = _ANY if segment.startswith("{") else segment
            node = node.children.setdefault(key, Resource(path))
        node.path = path
        return node

    def find(self, path: str) -> tuple[Resource, list[str]] | None:
        """Return the resource at a path and the path's parameters, or None if it has no routes."""
        node = self._root
        if path == _ROOT:
            return (node, []) if node.endpoints else None
        parameters: list[str] = []
        for segment in path[1:].split("/"):
            child = node.children.get(segment)
            if child is None:
                child = node.children.get(_ANY)
                parameters.append(segment)
            if child is None or not segment:
                return self._find_below(path)
            node = child
        return (node, parameters) if node.endpoints else self._find_below(path)

    def _find_below(self, path: str) -> tuple[Resource, list[str]] | None:
        """Return the resource of all paths below one, and the rest of the path."""
        for root, resource in self._below.items():
            if path.startswith(root):
                return resource, [path[len(root) :]]
        return None
