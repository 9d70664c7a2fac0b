"""Typed routes: parameters, paths, and the Starlette router below them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from headwater import FeatureStore
from headwater.errors import FieldError
from headwater.http.app import create_app
from headwater.http.routing.disconnects import Disconnects
from headwater.http.routing.request_errors import MalformedError
from headwater.http.routing.route import Endpoint, Route, RouteTree
from headwater.settings.groups import HttpSettings
from tests.http.conftest import client_of


class Page(msgspec.Struct):
    """The arguments of the function."""

    name: str
    number: int
    limit: int


async def page(name: str, number: int, limit: int = 10) -> Page:
    return Page(name, number, limit)


async def latest(name: str) -> Response:
    return PlainTextResponse(name)


async def remove(name: str) -> None:
    assert name


ROUTES = RouteTree(
    [
        Route("GET", "/books/{name}/pages/{number}", "any", page),
        Route("GET", "/books/{name}/new", "any", latest),
        Route("DELETE", "/books/{name}", "any", remove, status=204),
    ],
    HttpSettings(),
)
ROUTES.add(
    "GET",
    "/files/*",
    Endpoint(Route("GET", "/files/{name}", "any", latest), HttpSettings(), Disconnects()),
)


async def nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b""}


async def call(path: str, query: bytes = b"", method: str = "GET") -> Response:
    found = ROUTES.find(path)
    assert found
    resource, parameters = found
    return await resource.endpoints[method].respond({"query_string": query}, nothing, parameters)


async def test_parameters_come_in_their_annotated_type() -> None:
    answer = await call("/books/a%20b/pages/7", b"limit=3")
    assert msgspec.json.decode(answer.body, type=Page) == Page("a b", 7, 3)


async def test_a_parameter_with_a_default_may_be_left_out() -> None:
    answer = await call("/books/a/pages/7")
    assert msgspec.json.decode(answer.body, type=Page).limit == 10


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [("/books/a/pages/x", b"", "number"), ("/books/a/pages/7", b"limit=all", "limit")],
)
async def test_a_parameter_of_another_type_is_refused(path: str, query: bytes, field: str) -> None:
    with pytest.raises(FieldError) as caught:
        await call(path, query)
    assert caught.value.field == field


async def test_a_path_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(MalformedError):
        await call("/books/%FF/pages/7")


async def test_a_function_may_return_any_response_of_starlette() -> None:
    response = await call("/books/a/new")
    assert response.body == b"a"
    assert response.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_response_without_a_body_has_no_headers_of_a_body() -> None:
    response = await call("/books/a", method="DELETE")
    assert (response.status_code, response.body) == (204, b"")
    assert {"content-type", "content-length"}.isdisjoint(response.headers)


@pytest.mark.parametrize("path", ["", "/", "/books", "/books//new", "/books/a/pages"])
def test_a_path_between_routes_has_no_route(path: str) -> None:
    assert ROUTES.find(path) is None


@pytest.mark.parametrize("rest", ["", "a", "a/b", "a//b/"])
def test_a_path_below_a_star_is_found_with_its_rest(rest: str) -> None:
    found = ROUTES.find(f"/files/{rest}")
    assert found
    assert (found[0].path, found[1]) == ("/files/*", [rest])
    assert ROUTES.find("/files") is None


async def test_the_store_opens_and_closes_with_the_server_that_runs_the_application(
    store: FeatureStore,
) -> None:
    told = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    said: list[str] = []

    async def receive() -> dict[str, Any]:
        return next(told)

    async def send(message: Any) -> None:
        said.append(message["type"])

    await create_app(store)({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_closed(store: FeatureStore) -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    await create_app(store)({"type": "websocket", "path": "/"}, nothing, send)
    assert [message["type"] for message in said] == ["websocket.close"]


async def test_static_files_can_be_mounted_below_the_routes(
    store: FeatureStore, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text("a page")
    app = create_app(store)
    app.mount("/pages", StaticFiles(directory=tmp_path))
    async with client_of(app) as client:
        assert (await client.get("/pages/page.html")).text == "a page"
        assert (await client.get("/v1/features/shout?entity_id=u1")).json()["value"] == "U1!"
        assert (await client.get("/nowhere")).headers["content-type"] == "application/problem+json"
