"""A route's function says by its signature what the route takes."""

from typing import Any

import msgspec
import pytest

from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.http.problems import FieldError, MalformedError
from headwater.http.responses import Response
from headwater.http.routes import UNMATCHED, Route, Router


class Page(msgspec.Struct):
    """What the function was called with."""

    name: str
    number: int
    limit: int


async def page(name: str, number: int, limit: int = 10) -> Page:
    return Page(name, number, limit)


async def latest(name: str) -> Response:
    return Response(200, name.encode(), b"text/plain")


ROUTER = Router(
    [Route("GET", "/books/{name}/pages/{number}", page), Route("GET", "/books/{name}/new", latest)],
    max_body=100,
)


async def nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b""}


async def call(path: str, query: bytes = b"") -> Response:
    resource, segments = ROUTER.find(path)
    return await resource.endpoints["GET"].answer({"query_string": query}, nothing, segments)


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


async def test_a_function_may_answer_by_itself() -> None:
    assert await call("/books/a/new") == Response(200, b"a", b"text/plain")


@pytest.mark.parametrize("path", ["", "/", "/books", "/books/a", "/books//new", "/books/a/pages"])
def test_a_path_between_routes_is_none(path: str) -> None:
    resource, _ = ROUTER.find(path)
    assert resource.template == UNMATCHED
    assert resource.endpoints == {}


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


async def test_a_websocket_is_turned_away(store: FeatureStore) -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    await create_app(store)({"type": "websocket"}, nothing, send)
    assert said == [{"type": "websocket.close"}]
