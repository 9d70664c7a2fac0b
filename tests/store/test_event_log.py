"""Accepted events are listed and followed by filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings


@pytest.mark.both_environments
@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
async def test_a_text_that_no_event_can_have_finds_none(store: FeatureStore, text: str) -> None:
    end = (await store.bus.follow()).position
    await store.publish("visit", "ada")
    for name in ("event_type", "entity_id"):
        assert await store.bus.list(**{name: text}) == []  # type: ignore[arg-type]
        page = await store.bus.follow(end, **{name: text})  # type: ignore[arg-type]
        assert (page.events, page.has_more) == ([], False)
    assert await store.bus.list(event_id=text) == []


async def test_events_that_were_moved_to_a_file_before_they_were_followed_are_a_gap(
    home: Path,
) -> None:
    # Postgres keeps them in its table.
    store = FeatureStore(settings=Settings().replace(home=home, offline={"segment_rows": 4}))
    async with store:
        end = (await store.bus.follow()).position
        for number in range(4):
            await store.publish("visit", f"u{number}")
        await store.drain()
        await (await runtime_of(store).open()).backends.offline.maintain()
        page = await store.bus.follow(end)
        assert (page.events, page.skipped) == ([], 4)
        await store.publish("visit", "u4")
        for position in (end, page.position):
            (followed,) = (await store.bus.follow(position)).events
            assert followed.logged.event.entity_id == "u4"
        assert (await store.bus.follow(page.position)).skipped == 0
