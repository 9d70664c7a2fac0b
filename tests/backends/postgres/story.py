"""Helpers of these tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.core.clock import to_micros
from headwater.core.codec import Kind
from headwater.model.values import Cell
from headwater.ports import Change, Point

START = datetime(2026, 1, 1, tzinfo=UTC)
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.01

Open = Callable[..., Awaitable[PostgresEnvironment]]


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def change(
    value: Any,
    second: float = 0,
    *,
    feature: str = "clicks",
    entity: str = "User",
    entity_id: str = "u1",
    kind: Kind = "int",
    written: float | None = None,
    cause: str = "test",
) -> Change:
    """Return a past value; bytes are taken as its JSON text."""
    text = value if isinstance(value, bytes) else msgspec.json.encode(value)
    as_of, written_at = after(second), after(second if written is None else written)
    cell = Cell(msgspec.Raw(text), to_micros(as_of), to_micros(written_at))
    return Change(feature, entity, entity_id, kind, cell, cause)


async def value_at(
    past: PostgresEnvironment, second: float, *, entity_id: str = "u1", known: bool = False
) -> Any:
    """Return the decoded value of ``clicks`` at a moment."""
    points = [Point(entity_id, after(second))]
    [[found]] = await past.offline.as_of(["clicks"], points, known=known)
    return None if found is None else msgspec.json.decode(found.value)


async def rows(past: PostgresEnvironment, sql: str) -> Sequence[Sequence[Any]]:
    return (await past.offline.query(sql, {})).rows


async def values(past: PostgresEnvironment, order: str = "as_of") -> list[int]:
    """Return all numbers in history, in some order."""
    found = await rows(past, f"SELECT value_int FROM feature_history ORDER BY {order}")
    return [value for (value,) in found]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, as long as a slow machine may need."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110 - it comes true in another process
            await asyncio.sleep(_POLL_SECONDS)
