"""Draining: every row arrives, once, in order and letter for letter."""

from __future__ import annotations

import asyncio
import json

import pytest

from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.errors import BackendError
from headwater.ports import Point
from tests.postgres.outbox import MemoryOutbox, event_row, value_row
from tests.postgres.story import Open, after, rows, value_at, values


async def test_what_the_outbox_holds_is_in_history_at_once(
    past: PostgresEnvironment, outbox: MemoryOutbox
) -> None:
    for number in range(5):
        outbox.put(value_row(number, number), partition=number % 3)
        assert await value_at(past, number) == number
    assert await outbox.filled() == set()
