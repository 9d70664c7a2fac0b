"""The store of a shop behind the HTTP API, in this process or on a port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.doctor import overview
from headwater.http.app import App, create_app
from headwater.http.routes import health
from headwater.http.server.processes import serve
from headwater.settings.schema import Settings

KEY = "a key of the tests"
PATIENCE_SECONDS = 60.0

MakeStore = Callable[..., FeatureStore]
Serving = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@dataclass
class Address:
    """A value with fields."""

    city: str
    since: datetime


class Gate:
    """Two events with which a test holds and releases a slow function."""

    def __init__(self) -> None:
        self.entered = Event()
        self.open = Event()


def shop(settings: Settings, gate: Gate) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Order:
        order_id: int

    declare_triggered(store, User)
    declare_on_demand(User, Order, gate)
    return store


def declare_triggered(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="purchase", max_retries=0)
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        before: float = await store.get_feature("total_spend", user_id) or 0.0
        return before + float(event.payload["amount"])

    @feature(entity=user, trigger="moved")
    def address(user_id: str, event: ServiceEvent) -> Address:
        return Address(event.payload["city"], event.timestamp)

    @feature(entity=user, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        visits: int = await store.get_feature("visits", user_id)
        return visits + 1


def declare_on_demand(user: type, order: type, gate: Gate) -> None:
    @feature(entity=user)
    def shout(user_id: str) -> str:
        return user_id.upper() + "!"

    @feature(entity=user, template="{shout} has spent {total_spend}")
    def blurb(user_id: str) -> str:
        return ""

    @feature(entity=user)
    def slow(user_id: str) -> str:
        gate.entered.set()
        assert gate.open.wait(30)
        return "done"

    @feature(entity=user)
    def broken(user_id: str) -> int:
        raise ValueError("the password is hunter2")

    @feature(entity=order)
    def next_number(order_id: int) -> int:
        return order_id + 1


@pytest.fixture(autouse=True)
def patient_probes() -> Iterator[None]:
    """Let a store on a busy machine take longer than a second to say how it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "_ANSWER_SECONDS", PATIENCE_SECONDS)
        patch.setattr(overview, "_ANSWER_SECONDS", PATIENCE_SECONDS)
        patch.setattr(overview, "_FIRST_INSPECTION_SECONDS", PATIENCE_SECONDS)
        yield


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def make_store(tmp_path: Path, gate: Gate) -> AsyncIterator[MakeStore]:
    """Return a function that makes the store of the shop; all stores are closed at the end."""
    stores: list[FeatureStore] = []

    def make(**settings: Any) -> FeatureStore:
        given = {"api_key": KEY, "home": str(tmp_path / "home"), **settings}
        stores.append(shop(Settings().replace(**given), gate))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def store(make_store: MakeStore) -> FeatureStore:
    return make_store()


def client_of(
    served: FeatureStore | App, key: str | None = KEY, **transport: Any
) -> httpx.AsyncClient:
    """Return a client that calls the application in this process."""
    app = served if isinstance(served, App) else create_app(served)
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, **transport),
        base_url="http://localhost",
        headers={"X-API-Key": key} if key else {},
    )


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(store) as client:
        yield client


@pytest.fixture
def serving() -> Serving:
    """Return a context manager that serves a store on a free port."""

    @asynccontextmanager
    async def serving(
        store: FeatureStore, *, worker: bool = True
    ) -> AsyncIterator[httpx.AsyncClient]:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(
            serve(store, host="127.0.0.1", port=0, worker=worker, on_ready=ready.set_result)
        )
        first: set[asyncio.Future[Any]] = {server, ready}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            server.result()
        async with httpx.AsyncClient(
            base_url=ready.result(), headers={"X-API-Key": KEY}, timeout=PATIENCE_SECONDS
        ) as client:
            yield client
        server.cancel()
        with suppress(asyncio.CancelledError):
            await server

    return serving


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return as soon as a condition is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - the condition is on the other side of HTTP
            await asyncio.sleep(0.01)


async def damage(store: FeatureStore) -> None:
    """Overwrite the database of a store."""
    await store.open()
    await store.close()
    overwrite(store.settings.home)


def overwrite(home: str) -> None:
    for file in Path(home).glob("headwater.db*"):
        file.write_bytes(b"x" * 10_000)


def problem_of(response: httpx.Response) -> dict[str, Any]:
    """Return the problem in a response; check the members that every problem has."""
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    assert problem["type"].startswith("urn:headwater:problem:")
    assert problem["title"]
    assert problem["detail"]
    return problem
