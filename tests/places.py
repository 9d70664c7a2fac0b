"""Everything that a store has written, wherever it is, to look for texts in it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import duckdb

from headwater.backends.redis.client import Redis, command
from headwater.settings.schema import Settings

_PARTITION = re.compile(r"^p\d+:")
_READ: dict[bytes, tuple[Any, ...]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"list": ("LRANGE", 0, -1),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1),
    b"stream": ("XRANGE", "-", "+"),
}
_RELATIONS = """
SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relkind = 'r'
"""


async def everything(settings: Settings) -> AsyncIterator[tuple[str, bytes]]:
    """Yield each place of a store, named as in the list of places, and all that is in it."""
    with TemporaryDirectory() as folder:
        await asyncio.to_thread(_copy, settings.home, folder)
        for place in files(Path(folder)):
            yield place
    if settings.redis.url:
        async for place in keys(settings):
            yield place
        async for place in relations(settings):
            yield place


def _copy(home: str, folder: str) -> None:
    """Copy a home in another process: to close a file here would end SQLite's locks on it."""
    subprocess.run(["cp", "-a", f"{home}/.", folder], check=True)


def files(home: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of a home: raw, and of databases and Parquet files also the rows."""
    for file in sorted(home.rglob("*")):
        if not file.is_file():
            continue
        place = f"file:{file.relative_to(home)}"
        yield place, file.read_bytes()
        if file.suffix == ".parquet":
            with duckdb.connect() as duck:
                yield place, _bytes(duck.execute(f"FROM read_parquet('{file}')").fetchall())
        elif file.name == "headwater.db":
            yield from tables(file)


def tables(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every table of an embedded database, also those inside of virtual ones."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        found = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        for (name,) in found.fetchall():
            rows = db.execute(f'SELECT * FROM "{name}"').fetchall()
            if name == "cache":
                for row in rows:
                    yield f"sqlite:cache:{row[0]}", _bytes(row)
            else:
                yield f"sqlite:{name}", _bytes(rows)


async def keys(settings: Settings) -> AsyncIterator[tuple[str, bytes]]:
    """Yield every key of a store in Redis, named without its prefix and its partition."""
    redis = Redis(settings.redis.url, settings.redis.timeout, settings.redis.connect_timeout)
    await redis.open()
    try:
        async for names in redis.scan(""):
            for name in names:
                if name.lstrip("{").startswith(f"{settings.redis.prefix}:"):
                    contents = await _contents(redis, name)
                    yield redis_place(settings.redis.prefix, name), name.encode() + contents
    finally:
        await redis.close()


def redis_place(prefix: str, key: str) -> str:
    """Return a key as the list of places names it: without hash tag, prefix and partition."""
    plain = key.replace("{", "").replace("}", "").removeprefix(f"{prefix}:")
    return f"redis:{_PARTITION.sub('', plain)}"


async def _contents(redis: Redis, name: str) -> bytes:
    kind = await redis.call(command(name, "TYPE", name))
    if kind == b"none":  # expired since
        return b""
    verb, *words = _READ[kind]
    return _bytes(await redis.call(command(name, verb, name, *words)))


async def relations(settings: Settings) -> AsyncIterator[tuple[str, bytes]]:
    """Yield every table of a store in Postgres; a partition counts as its table."""
    database = await asyncpg.connect(settings.postgres.url)
    try:
        for row in await database.fetch(_RELATIONS, settings.postgres.schema):
            found = await database.fetch(f'SELECT * FROM "{settings.postgres.schema}"."{row[0]}"')
            yield f"postgres:{row[0]}", _bytes([tuple(each) for each in found])
    finally:
        await database.close()


def _bytes(value: Any) -> bytes:
    """Return all texts and bytes in a value, at any depth."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, Iterable) and not isinstance(value, str):
        return b"\0".join(map(_bytes, value))
    return str(value).encode(errors="surrogatepass")


async def find(settings: Settings, texts: Iterable[str]) -> dict[str, set[str]]:
    """Return the places that have one of the texts, each with the texts that it has."""
    wanted = list(texts)
    found: dict[str, set[str]] = {}
    async for place, contents in everything(settings):
        there = {text for text in wanted if has_text(contents, text)}
        if there:
            found.setdefault(place, set()).update(there)
    return found


def has_text(contents: bytes, text: str) -> bool:
    """Return whether a text is in some bytes, also inside of bytes that are written as Base64."""
    given = text.encode()
    return given in contents or any(form in contents for form in base64_forms(given))


def base64_forms(given: bytes) -> list[bytes]:
    """Return how bytes look in Base64, after any number of other bytes and before others."""
    forms = []
    for skipped in range(3):
        whole = given[skipped : skipped + (len(given) - skipped) // 3 * 3]
        forms.append(b64encode(whole))
    return forms
