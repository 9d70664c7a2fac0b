"""Moving rows between Postgres and DuckDB as CSV, without a Python object for each value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from headwater.backends.postgres.pool import Connection
from headwater.core.duckdb_session import glob_literal, identifier, text

# Characters that JSON does not contain, so that hardly any value needs quotes.
_DELIMITER = "\x1f"
_QUOTE = "\x1e"
_MIN_LINE_LIMIT = 2 << 20
_MIN_BUFFER = 32 << 20


class CsvFile:
    """Results of queries, all with the same columns, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._longest = 0
        path.unlink(missing_ok=True)

    async def add(self, connection: Connection, sql: str) -> None:
        """Append the rows of a query as they arrive."""
        with self.path.open("ab") as file:
            await self._copy(connection, sql, file)

    async def _copy(self, connection: Connection, sql: str, file: BinaryIO) -> None:
        async def write(data: bytes) -> None:
            # A row arrives in one piece, so no line is longer than the longest piece.
            self._longest = max(self._longest, len(data))
            self.size += len(data)
            file.write(data)

        await connection.copy_from_query(
            sql, output=write, format="csv", delimiter=_DELIMITER, quote=_QUOTE
        )

    def read(self, columns: Mapping[str, str]) -> str:
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


async def copy_in(connection: Connection, table: str, file: Path) -> None:
    """Append the rows of a CSV file that DuckDB wrote with ``TO_CSV`` to a table."""
    await connection.copy_to_table(table, source=file, format="csv")


TO_CSV = "(FORMAT csv, HEADER false, FORCE_QUOTE (entity_id))"
