"""The production environment: one Valkey and one Postgres that all contestants share."""

import asyncio
import atexit
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from urllib.parse import urlsplit

import asyncpg
import redis

from bench.case import Contestant, ContestantFailedError, Effort, Figure, Measure, last_line
from bench.process import child, finished, free_port, measuring, scratch
from bench.startup import HEADWATER
from tests.servers import ServerStartError, lasting_postgres, postgres, valkey

API_KEY = "bench-key"

_servers = ExitStack()
atexit.register(_servers.close)


@cache
def redis_url() -> str:
    """Valkey, started when first needed and stopped with the bench; it writes nothing to disk."""
    try:
        return _servers.enter_context(valkey())
    except ServerStartError as failed:
        raise ContestantFailedError(last_line(str(failed))) from failed


@cache
def postgres_url() -> str:
    """Postgres, likewise."""
    try:
        return _servers.enter_context(postgres())
    except ServerStartError as failed:
        raise ContestantFailedError(last_line(str(failed))) from failed


def durable_postgres_url(effort: Effort) -> str:
    """A Postgres with durable commits, in a folder on the project's disk, if rounds count."""
    return _durable_postgres_url() if effort.is_timed else postgres_url()


@cache
def _durable_postgres_url() -> str:
    folder = _servers.enter_context(scratch("postgres"))
    try:
        # Its own account has to reach it.
        folder.chmod(0o755)
        return _servers.enter_context(lasting_postgres(folder, free_port()))
    except (ServerStartError, PermissionError) as failed:
        raise ContestantFailedError(last_line(str(failed))) from failed


def new_database() -> str:
    """Return the URL of a new database of the same Postgres, with pgvector, for a peer."""
    url, name = postgres_url(), f"peer_{secrets.token_hex(4)}"
    created = urlsplit(url)._replace(path=f"/{name}").geturl()

    async def create() -> None:
        for where, statement in (
            (url, f"CREATE DATABASE {name}"),
            (created, "CREATE EXTENSION vector"),
        ):
            connection = await asyncpg.connect(where)
            await connection.execute(statement)
            await connection.close()

    asyncio.run(create())
    return created


@contextmanager
def search_floor(effort: Effort) -> Iterator[Measure]:
    """A measure of search_floors.py over the same Postgres."""
    command = child("search_floors", "postgres", new_database(), effort)
    with measuring("postgres-search-floor", command) as measure:
        yield measure


def bare_redis_url() -> str:
    """The same Valkey for a floor, without what an earlier one has left there."""
    url = redis_url()
    with closing(redis.Redis.from_url(url)) as server:
        for key in list(server.scan_iter("floor:*", count=10_000)):
            server.unlink(key)
    return url


def new_store(postgres: str | None = None, valkey: str | None = None) -> dict[str, str]:
    """The environment variables of a new, empty store, on the shared servers or on these."""
    name = f"bench_{secrets.token_hex(4)}"
    settings = {
        "HEADWATER_ENV": "production",
        "HEADWATER_REDIS_URL": valkey or redis_url(),
        "HEADWATER_REDIS_PREFIX": name,
        "HEADWATER_POSTGRES_URL": postgres or postgres_url(),
        "HEADWATER_POSTGRES_SCHEMA": name,
    }
    done = finished([HEADWATER, "migrate"], settings)
    if done.returncode:
        raise ContestantFailedError(f"headwater migrate: {last_line(done.stderr)}")
    return settings


def ours(name: str, module: str = "ours") -> Contestant:
    """One of our own measures over a store in production."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        label = f"redis-ours-{name}"
        with (
            scratch(label) as folder,
            measuring(label, child(module, name, folder, effort), new_store()) as measure,
        ):
            yield measure

    return contestant


def assembling(name: str) -> Contestant:
    """A measure of contexts.py over a Postgres with durable commits."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        label = f"servers-contexts-{name}"
        store = new_store(durable_postgres_url(effort))
        with measuring(label, child("contexts", name, "", effort), store) as measure:
            yield measure

    return contestant


def context_floor(name: str) -> Contestant:
    """A measure of context_floors.py, over the same one."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        command = child("context_floors", name, durable_postgres_url(effort), effort)
        with measuring(f"servers-context-floor-{name}", command) as measure:
            yield measure

    return contestant


def floor(name: str) -> Contestant:
    """A measure of redis_floors.py over the same Valkey."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        command = child("redis_floors", name, bare_redis_url(), effort)
        with measuring(f"redis-floor-{name}", command) as measure:
            yield measure

    return contestant


def workers(processes: int) -> Contestant:
    """Events per second through a read-modify-write handler in so many worker processes."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        store = new_store()
        with ExitStack() as stack:

            def entered(name: str, number: int = 0) -> Measure:
                label = f"redis-ours-{name}-{number}-of-{processes}"
                return stack.enter_context(measuring(label, child("ours", name, "", effort), store))

            fill = entered("fill")
            drains = [entered("drain", number) for number in range(processes)]

            def measure() -> Figure:
                events = fill().value
                with ThreadPoolExecutor(processes) as pool:
                    taken = list(pool.map(lambda drain: drain(), drains))
                return Figure(events / max(figure.value for figure in taken))

            yield measure

    return contestant
