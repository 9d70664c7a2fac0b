"""Thousands of records, appended to the log of an embedded store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.ports import StoredRecord
from headwater.records.ids import ContextIds
from headwater.settings.schema import Settings

_AT_ONCE = 500


def append_records(home: Path, number: int) -> None:
    """Append records of the last six days to a store, in a thread with its own event loop.

    Playwright's own loop runs in the thread of the test.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _append(home, list(_records(number)))).result()


async def _append(home: Path, records: list[StoredRecord]) -> None:
    backends = await connect(Settings().replace(home=str(home)), SystemClock())
    try:
        for start in range(0, len(records), _AT_ONCE):
            portion = records[start : start + _AT_ONCE]
            await asyncio.gather(*(backends.records.append(each, []) for each in portion))
    finally:
        await backends.lifecycle.close()


def _records(number: int) -> Iterator[StoredRecord]:
    ids, now = ContextIds(), datetime.now(UTC)
    for place in range(number):
        days = 6 * (1 - place / number)
        # More by day than by night.
        at = now - timedelta(days=days + 0.12 * math.sin(2 * math.pi * days))
        context_id = ids.new(int(at.timestamp() * 1000))
        core = context_id.encode()
        yield StoredRecord(
            context_id=context_id,
            record_hash=f"sha256:{sha256(core).hexdigest()}",
            content_hash=f"sha256:{sha256(b'text').hexdigest()}",
            name=("support", "fraud_brief", "onboarding")[place % 7 % 3],
            created_at=at,
            freshness_status=_status(place),
            caller=("web", "batch", None)[place % 3],
            model="gpt-4o",
            tokens=300 + place * 37 % 700,
            max_tokens=1_000,
            cost_nano_usd=750_000 + place * 92_500 % 1_750_000,
            items_dropped=place % 5 // 3,
            is_signed=place % 2 == 0,
            is_redacted=place % 97 == 0,
            core=core,
            disclosures=b"[]",
        )


def _status(place: int) -> str:
    if place % 211 == 0:
        return "refused"
    return "degraded" if place // 400 % 5 == 4 and place % 3 == 0 else "guaranteed"
