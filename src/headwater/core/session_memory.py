"""The memory that each DuckDB session of this process may use; sets it without loading DuckDB."""

from __future__ import annotations

DEFAULT_BYTES = 1 << 30
_bytes = DEFAULT_BYTES


def limit_session_memory(size: int) -> None:
    """Limit the sessions that this process opens from now on, in bytes."""
    global _bytes
    _bytes = size


def session_memory() -> int:
    """Return the limit, in bytes."""
    return _bytes
