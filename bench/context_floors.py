"""The unavoidable parts of a context: count its tokens, hash it, make it durable."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg

from bench.case import Effort
from bench.floors import Measuring, Rate, calls_per_second, micros
from bench.paragraphs import paragraphs
from bench.tables import database, insert

CORE = b"c" * 6_500  # as long as our own, whose texts are twice in the disclosures
COMMITMENTS = 20
KEYS = 6
TOKEN_BYTES = 4

ADD_RECORD = insert(
    "records",
    *("context_id", "record_hash", "content_hash", "created_at", "core", "disclosures"),
    name="'support'",
    freshness_status="'guaranteed'",
    redactions="'[]'",
    keys="'[]'",
)
ADD_KEY = insert("waiting_keys", "key", "created_at", "context_id")

Row = tuple[str, str, str, int, bytes, bytes]

encode = import_module("splintr").Tokenizer.from_pretrained("o200k_base").encode_flat


def record() -> Row:
    """A row of the log: the tokens counted once, and every byte hashed."""
    texts = paragraphs()
    content = "\n\n".join(texts)
    tokens = len(encode(content)) // TOKEN_BYTES
    for text in (*texts, content):
        sha256(text.encode()).digest()
    for _ in range(COMMITMENTS - len(texts) - 1):
        sha256(b"a value and its salt").digest()
    raw = content.encode()
    context_id = str(uuid4())
    core = CORE + context_id.encode() + str(tokens).encode()
    hashed = sha256(core).hexdigest()
    return context_id, hashed, sha256(raw).hexdigest(), micros(), core, raw + raw


def add(db: sqlite3.Connection, rows: list[Row]) -> None:
    """One durable commit."""
    db.execute("BEGIN IMMEDIATE")
    for row in rows:
        db.execute(ADD_RECORD, row)
        keys = [(f"key {number}".encode(), row[3], row[0]) for number in range(KEYS)]
        db.executemany(ADD_KEY, keys)
    db.execute("COMMIT")


def embedded(clients: int) -> Callable[[str, Effort], AbstractContextManager[Rate]]:
    """Contexts per second over SQLite, as many to a commit as there are clients."""

    @contextmanager
    def measuring(where: str, effort: Effort) -> Iterator[Rate]:
        with closing(database(Path(where) / "floor.db")) as db:

            def commit() -> None:
                add(db, [record() for _ in range(clients)])

            yield lambda: clients * calls_per_second(commit, effort.seconds)

    return measuring


TABLES = """
DROP SCHEMA IF EXISTS floor CASCADE;
CREATE SCHEMA floor;
CREATE TABLE floor.records (
    context_id text COLLATE "C" PRIMARY KEY, record_hash text COLLATE "C" NOT NULL UNIQUE,
    content_hash text COLLATE "C" NOT NULL, created_at bigint NOT NULL,
    core bytea NOT NULL, disclosures bytea NOT NULL
);
ALTER TABLE floor.records
    ALTER core SET STORAGE EXTERNAL, ALTER disclosures SET STORAGE EXTERNAL;
CREATE INDEX ON floor.records (created_at, context_id);
CREATE TABLE floor.keys (
    key bytea, created_at bigint, context_id text COLLATE "C",
    PRIMARY KEY (key, created_at, context_id)
);
"""
KEEP = """
WITH kept AS (
    INSERT INTO floor.records
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bytea[], $6::bytea[])
)
INSERT INTO floor.keys SELECT * FROM unnest($7::bytea[], $8::bigint[], $9::text[])
"""


async def keep(connection: Any, rows: list[Row]) -> None:
    """One durable commit, in one round trip."""
    keys = [(f"key {number}".encode(), row[3], row[0]) for row in rows for number in range(KEYS)]
    await connection.execute(KEEP, *map(list, zip(*rows, strict=True)), *zip(*keys, strict=True))


def on_servers(clients: int) -> Callable[[str, Effort], AbstractContextManager[Rate]]:
    """The same over Postgres."""

    @contextmanager
    def measuring(url: str, effort: Effort) -> Iterator[Rate]:
        with asyncio.Runner() as runner:
            connection: Any = runner.run(asyncpg.connect(url))
            runner.run(connection.execute(TABLES))

            async def rate() -> float:
                commits, start = 0, time.perf_counter()
                while (elapsed := time.perf_counter() - start) < effort.seconds:
                    await keep(connection, [record() for _ in range(clients)])
                    commits += 1
                return clients * commits / elapsed

            yield lambda: runner.run(rate())
            runner.run(connection.close())

    return measuring


MEASURES: dict[str, Measuring] = {
    "one_client": embedded(1),
    "eight_clients": embedded(8),
    "one_client_on_servers": on_servers(1),
    "eight_clients_on_servers": on_servers(8),
}
