"""Accepted events are listed and followed by filters."""

from __future__ import annotations

import pytest

from headwater import FeatureStore


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
