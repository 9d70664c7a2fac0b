"""Recording that fails: within its time, counted, and with nothing wrong left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from headwater.backends.sqlite.home import Home
from headwater.errors import RecordingError
from headwater.settings.schema import Settings
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop
from tests.engine.support import PATIENCE_SECONDS, metric, records, until

UNRECORDED = "headwater_contexts_unrecorded_total"

Stalled = Callable[[], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _locked_file(home: Path) -> AsyncIterator[None]:
    lock = Home(home, 4).write_lock()
    with lock:
        yield
    lock.close()


@asynccontextmanager
async def _locked_table(settings: Settings) -> AsyncIterator[None]:
    db = await asyncpg.connect(settings.postgres.url)
    async with db.transaction():
        await db.execute(f"LOCK TABLE {settings.postgres.schema}._records IN SHARE MODE")
        yield
    await db.close()


@pytest.fixture
def stalled(settings: Settings) -> Stalled:
    """A while in which nothing can be recorded, and nothing says so."""
    if settings.postgres.url:
        return lambda: _locked_table(settings)
    return lambda: _locked_file(Path(settings.home))


async def until_recorded(shop: Shop) -> None:
    """Assemble contexts until one is recorded within its time, which a busy machine may exceed."""

    async def is_recorded() -> bool:
        with suppress(RecordingError):
            return bool((await shop.plain("again")).meta["recorded"])
        return False

    await until(is_recorded)


async def test_a_log_that_stands_still_holds_a_context_up_for_its_time_and_no_longer(
    opens: Opens, stalled: Stalled, capfd: pytest.CaptureFixture[str]
) -> None:
    shop = opens(record={"timeout": 0.2})
    await until_recorded(shop)
    capfd.readouterr()
    unrecorded = metric(UNRECORDED)
    async with stalled(), asyncio.timeout(PATIENCE_SECONDS):
        first = await shop.plain("a")
        # Later calls wait for their own timeout, not for the stuck one.
        later = await asyncio.gather(*(shop.plain(f"b{number}") for number in range(5)))
    for made in (first, *later):
        assert made.meta["recorded"] is False
    assert metric(UNRECORDED) == unrecorded + 6
    lines = records(capfd.readouterr().err, "context not recorded")
    assert {line["context_id"] for line in lines} == {made.context_id for made in (first, *later)}
    assert all("HEADWATER_RECORD_TIMEOUT" in line["error"] for line in lines)
    await until_recorded(shop)


async def test_a_record_stored_after_a_timeout_exists_once_and_whole(
    opens: Opens, stalled: Stalled, database: Database
) -> None:
    shop = opens(record={"timeout": 0.2})
    await until_recorded(shop)
    async with stalled():
        late = await shop.plain("late")
    assert late.meta["recorded"] is False
    # Records are stored in order, so the earlier one has been written.
    await until_recorded(shop)
    ids = [context_id for (context_id,) in await database.run("SELECT context_id FROM {records}")]
    assert ids.count(late.context_id) == 1
    assert (await shop.store.records.verify(late.context_id)).ok
    assert (await shop.store.get_context_at(late.context_id)).content == "late"


async def test_a_log_that_stands_still_is_an_error_where_records_are_required(
    opens: Opens, stalled: Stalled
) -> None:
    shop = opens(record={"timeout": 0.2, "required": True})
    await until_recorded(shop)
    unrecorded = metric(UNRECORDED)
    async with stalled():
        with pytest.raises(
            RecordingError, match=r"not stored within 0\.2 s.*HEADWATER_RECORD_TIMEOUT"
        ):
            await shop.plain("a")
    assert metric(UNRECORDED) == unrecorded + 1


async def test_a_context_that_was_refused_because_it_was_not_recorded_is_counted(
    opens: Opens, database: Database
) -> None:
    shop = opens(record={"required": True})
    await shop.plain("before")
    await database.run("ALTER TABLE {records} RENAME TO gone")
    unrecorded = metric(UNRECORDED)
    given = metric("headwater_context_freshness_status_total", status="guaranteed")
    with pytest.raises(RecordingError):
        await shop.plain("a")
    assert metric(UNRECORDED) == unrecorded + 1
    assert metric("headwater_context_freshness_status_total", status="guaranteed") == given


@pytest.mark.parametrize(
    "wanted",
    [{"chunk": "\ud800"}, {"feature": "\ud800"}, {"entity_id": "\ud800"}, {"chunk": "a\0b"}],
)
async def test_a_search_for_an_impossible_id_finds_nothing(
    shop: Shop, wanted: dict[str, Any]
) -> None:
    await shop.asks()
    assert (await shop.store.records.find(**wanted)).contexts == []


@pytest.mark.parametrize("hours", [10, -10])
async def test_a_list_may_use_the_extreme_datetimes(shop: Shop, hours: int) -> None:
    made = await shop.plain("a")
    zone = timezone(timedelta(hours=hours))
    page = await shop.store.list_contexts(
        datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
    )
    assert [summary.context_id for summary in page.contexts] == [made.context_id]
