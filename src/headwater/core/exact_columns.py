"""SQL of values that JSON would change: decimals as texts, and blobs as base64."""

from __future__ import annotations

from typing import Any

from duckdb.sqltypes import DuckDBPyType

from headwater.core.duckdb_session import identifier

BLOBS = ("BLOB",)
INEXACT = (*BLOBS, "DECIMAL")


def is_inexact(kind: DuckDBPyType, types: tuple[str, ...] = INEXACT) -> bool:
    """Return whether values of a type may have parts of some types."""
    return any(name in str(kind) for name in types)


def exact(
    value: str, kind: DuckDBPyType, types: tuple[str, ...] = INEXACT, *, depth: int = 0
) -> str:
    """Return the SQL of a value with texts in place of its parts of some types."""
    item = f"item{depth}"

    def each(values: str, kind: Any) -> str:
        return f"list_transform({values}, lambda {item}: {inside(item, kind)})"

    def inside(part: str, kind: Any) -> str:
        return exact(part, kind, types, depth=depth + 1)

    if not is_inexact(kind, types):
        return value
    match kind.id:
        case "blob":
            return f"base64({value})"
        case "decimal":
            return f"CAST({value} AS VARCHAR)"
        case "list":
            return each(value, kind.children[0][1])
        case "map":
            made = f"map(map_keys({value}), {each(f'map_values({value})', kind.children[1][1])})"
        case "struct":
            names = [(identifier(name), part) for name, part in kind.children]
            fields = (f"{name} := {inside(f'{value}.{name}', part)}" for name, part in names)
            made = f"struct_pack({', '.join(fields)})"
        case _:
            return value
    return f"CASE WHEN {value} IS NOT NULL THEN {made} END"
