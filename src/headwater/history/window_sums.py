"""Counts and sums of windows by SQL: differences of running totals, which are exact for integers.

A window that counts up to a row is the total at the row without that of before it begins, so each
window takes one join, and a row several times less than with the kernel, which does all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwater.core.duckdb_session import Session, parquet, scalar
from headwater.declarations.windows import WindowDef
from headwater.windows.plan import Member, Window

_SUMS = frozenset({"sum", "avg"})
_COUNTS = frozenset({"count", "rate"})
_MICROSECONDS = 1_000_000
_LARGEST = 2**53
"""Up to it, integers are floats, and a division is rounded once, as that of the kernel is."""
_VALUES = """
CREATE TABLE contributed AS
SELECT entity_id, as_of, TRY_CAST(value AS BIGINT) AS value FROM ({rows}) WHERE value <> 'null'
"""
_TOTALS = """
CREATE TABLE totals AS
SELECT entity_id, as_of, sum(n) OVER earlier AS n, sum(total) OVER earlier AS total
FROM (SELECT entity_id, as_of, count(*) AS n, sum(value) AS total FROM contributed GROUP BY ALL)
WINDOW earlier AS (PARTITION BY entity_id ORDER BY as_of ROWS UNBOUNDED PRECEDING)
"""


def is_summable(windows: WindowDef, members: Sequence[Member | None], *, known: bool) -> bool:
    """Return whether members are exact by SQL: as they were true, of whole contributions."""
    exact = _COUNTS | _SUMS if windows.plan.is_int else _COUNTS
    return (
        not known
        and (windows.selects, windows.by, windows.value) == (None, None, None)
        and all(member is not None and member.aggregate.kind in exact for member in members)
    )


def beginning(window: Window) -> str:
    """Return the SQL of the moment at which a window of the moment ``at`` begins.

    DuckDB rounds quotients of negative numbers up.
    """
    moment, hop = f'("at" - {window.span})', window.hop
    return f"({moment} - ({moment} % {hop} + {hop}) % {hop})"


def add_sums(
    duck: Session, rows: Path, points: Path, windows: WindowDef, members: Sequence[Member]
) -> bool:
    """Create the table ``answers`` with ``row``, ``at`` and a column for each member, ``v0``…

    Return False, and create none, if a value is not an integer, or a sum too large to be exact.
    """
    spans = {member.window.name: member.window for member in members}
    names = {name: f"w{number}" for number, name in enumerate(spans)}
    duck.run(_VALUES.format(rows=parquet([rows])))
    if windows.plan.is_int and scalar(
        duck.run("SELECT count(*) FROM contributed WHERE value IS NULL")
    ):
        return False
    duck.run(_TOTALS)
    begins = "".join(f", {beginning(spans[name])} AS {table}" for name, table in names.items())
    duck.run(
        f'CREATE TABLE begun AS SELECT "row", entity_id, "at"{begins} FROM ({parquet([points])})'
    )
    counts = "".join(
        f", coalesce(upto.n, 0) - coalesce({table}.n, 0) AS n_{table},"
        f" coalesce(upto.total, 0) - coalesce({table}.total, 0) AS total_{table}"
        for table in names.values()
    )
    joins = "".join(
        f" ASOF LEFT JOIN totals AS {table}"
        f" ON {table}.entity_id = begun.entity_id AND {table}.as_of < begun.{table}"
        for table in names.values()
    )
    duck.run(
        f'CREATE TABLE counted AS SELECT begun."row", begun."at"{counts} FROM begun ASOF LEFT JOIN'
        f' totals AS upto ON upto.entity_id = begun.entity_id AND upto.as_of <= begun."at"{joins}'
    )
    largest = ", ".join(f"max(abs(total_{table}))" for table in names.values())
    if (scalar(duck.run(f"SELECT greatest({largest}) FROM counted")) or 0) >= _LARGEST:
        return False
    columns = "".join(
        f", {_value(member, names[member.window.name])} AS v{number}"
        for number, member in enumerate(members)
    )
    duck.run(f'CREATE TABLE answers AS SELECT "row", "at"{columns} FROM counted')
    return True


def _value(member: Member, table: str) -> str:
    count, total = f"CAST(n_{table} AS BIGINT)", f"CAST(total_{table} AS BIGINT)"
    match member.aggregate.kind:
        case "count":
            return count
        case "sum":
            return total
        case "rate":
            seconds = f"CAST({member.window.span} AS DOUBLE)"
            return f"CAST({count} * {_MICROSECONDS} AS DOUBLE) / {seconds}"
    return f"CASE WHEN {count} > 0 THEN CAST({total} AS DOUBLE) / CAST({count} AS DOUBLE) END"
