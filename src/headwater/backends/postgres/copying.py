"""Moving rows between Postgres and DuckDB as CSV, without a Python object for each value."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

from headwater.backends.postgres.connections import Connection
from headwater.core.duckdb_session import Session, glob_literal, identifier, session
from headwater.core.sql_literals import text
from headwater.model.values import new_id

T = TypeVar("T")

BYTES_AT_ONCE = 16 << 20
# Characters that JSON does not contain, so that hardly any value needs quotes.
_DELIMITER = "\x1f"
_QUOTE = "\x1e"
_MIN_LINE_LIMIT = 2 << 20
_MIN_BUFFER = 32 << 20

TO_CSV = "(FORMAT csv, HEADER false, FORCE_QUOTE (entity_id))"
"""How DuckDB writes the rows for ``copy_in``."""


class DuckThread:
    """A DuckDB session in a thread, which does one thing after the other."""

    def __init__(self, duck: Session, executor: Executor) -> None:
        self.duck = duck
        self._executor = executor

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, work)


@asynccontextmanager
async def duckdb_thread(scratch: Path) -> AsyncIterator[DuckThread]:
    """Open a DuckDB session in a thread."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1, "headwater-duckdb")
    stack = ExitStack()
    try:
        duck = await loop.run_in_executor(executor, stack.enter_context, session(scratch))
        try:
            yield DuckThread(duck, executor)
        except BaseException:
            duck.interrupt()
            raise
    finally:
        # After the running work, also if the caller was cancelled and no longer waits for it.
        closing = loop.run_in_executor(executor, stack.close)
        executor.shutdown(wait=False)
        await closing


# Elements of an array of Postgres, as DuckDB writes them.
_ELEMENTS = {
    "bigint": "{0}::VARCHAR",
    "text": """'"' || replace(replace({0}, '\\', '\\\\'), '"', '\\"') || '"'""",
}


class GivenRows:
    """Rows for the statements of a transaction: arrays in settings of the session.

    A replica has no temporary tables, and statements with the rows in their text would fill the
    server's log and statistics.
    """

    def __init__(self, columns: Mapping[str, Literal["bigint", "text"]]) -> None:
        self._columns = columns
        names = ", ".join(map(identifier, columns))
        arrays = ", ".join(
            f"current_setting('headwater.{name}')::{kind}[]" for name, kind in columns.items()
        )
        self.sql = f"unnest({arrays}) AS given ({names})"

    async def set(self, connection: Connection, thread: DuckThread, rows: str) -> None:
        """Pass the rows of a query of DuckDB, in the order of its column ``n``."""
        elements = [
            _ELEMENTS[kind].format(identifier(name)) for name, kind in self._columns.items()
        ]
        arrays = ", ".join(
            f"'{{' || string_agg({element}, ',' ORDER BY n) || '}}'" for element in elements
        )
        row = await thread.run(lambda: thread.duck.run(f"SELECT {arrays} FROM ({rows})").fetchone())
        settings = ", ".join(
            f"set_config('headwater.{name}', ${number}, true)"
            for number, name in enumerate(self._columns, 1)
        )
        await connection.execute(f"SELECT {settings}", *row or ())


class CsvFile:
    """Results of queries, all with the same columns, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._longest = 0

    async def add(self, connection: Connection, sql: str) -> None:
        """Append the rows of a query as they arrive."""
        size = self.size

        async def write(data: bytes) -> None:
            nonlocal size
            # A row arrives in one piece, so no line is longer than the longest piece.
            self._longest = max(self._longest, len(data))
            size += file.write(data)

        with self.path.open("ab") as file:
            file.truncate(size)  # an earlier attempt may have lost its connection
            await connection.copy_from_query(
                sql, output=write, format="csv", delimiter=_DELIMITER, quote=_QUOTE
            )
        self.size = size

    def rows(self, columns: Mapping[str, str]) -> str:
        """Return an expression of DuckDB for the rows."""
        types = ", ".join(f"{identifier(name)}: {text(kind)}" for name, kind in columns.items())
        longest = max(_MIN_LINE_LIMIT, self._longest + 1)
        return (
            f"read_csv({glob_literal(self.path)}, columns = {{{types}}}, auto_detect = false,"
            f" header = false, delim = {text(_DELIMITER)}, quote = {text(_QUOTE)},"
            f" escape = {text(_QUOTE)}, new_line = '\\n', allow_quoted_nulls = false,"
            f" hive_partitioning = false, max_line_size = {longest},"
            f" buffer_size = {max(_MIN_BUFFER, 2 * longest)})"
        )


class Collector:
    """Passes the rows of many queries to DuckDB, while the server finds the next ones."""

    def __init__(self, thread: DuckThread, collect: Callable[[CsvFile], None]) -> None:
        self._thread = thread
        self._collect = collect
        self._names = itertools.cycle(f"{new_id()}.csv" for _ in range(2))
        self._file = self._next_file()
        self._collecting: asyncio.Future[None] | None = None

    def _next_file(self) -> CsvFile:
        path = self._thread.duck.folder / next(self._names)
        path.unlink(missing_ok=True)
        return CsvFile(path)

    async def add(self, connection: Connection, sql: str) -> None:
        await self._file.add(connection, sql)
        if self._file.size >= BYTES_AT_ONCE:
            await self._pass_on()

    async def finish(self) -> None:
        """Return when all rows are collected."""
        if self._file.size:
            await self._pass_on()
        if self._collecting is not None:
            await self._collecting

    async def _pass_on(self) -> None:
        if self._collecting is not None:
            await self._collecting
        file, self._file = self._file, self._next_file()
        self._collecting = self._thread.run(lambda: self._collect(file))


async def copy_in(connection: Connection, table: str, file: Path) -> None:
    """Append the rows of a CSV file to a table."""
    await connection.copy_to_table(table, source=file, format="csv")
