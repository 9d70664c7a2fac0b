"""Every text that a store was given is in a place of the list, and goes as the list says."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.backends.redis.keys import Keys
from headwater.declarations.runtime import runtime_of
from headwater.engine.places import PLACES, WITHOUT_DATA, DataPlace
from headwater.model.catalog import Horizons
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.canaries import (
    CANARIES,
    OF_CONTEXTS,
    OF_OTHERS,
    USER,
    declare,
    fill,
)
from tests.places import everything, find, redis_place

SOURCE = "postgres:people"
"""The table of a user that a SQL feature reads."""
DATABASE = "file:headwater.db*"

Found = Mapping[str, set[str]]


@pytest.fixture
def small(settings: Settings) -> Settings:
    """Return settings with which a few rows are enough for a file of history and of events."""
    return settings.replace(offline={"segment_rows": 3})


@asynccontextmanager
async def filled(
    settings: Settings, clock: ManualClock, folder: Path
) -> AsyncIterator[FeatureStore]:
    """Yield a store whose every input was given a text."""
    async with FeatureStore(settings=settings, clock=clock) as store:
        declare(store)
        await fill(store, folder)
        await maintained(store)
        yield store


async def maintained(store: FeatureStore) -> None:
    """Move rows from tables to files, and delete files that nothing uses any more."""
    await (await runtime_of(store).open()).backends.offline.maintain()


def places_of(location: str) -> list[DataPlace]:
    return [place for place in PLACES if place.has(location)]


def has_no_data(location: str) -> bool:
    return any(fnmatchcase(location, pattern) for pattern in WITHOUT_DATA)


def named(found: Iterable[str]) -> set[str]:
    """Return the names of the places that some locations belong to."""
    return {place.name for location in found for place in places_of(location)}


def stored(found: Found) -> Iterator[tuple[str, set[str]]]:
    """Yield what is in tables, keys and files, except in the pages of the embedded database."""
    for location, texts in found.items():
        if location != SOURCE and not fnmatchcase(location, DATABASE):
            yield location, texts


@pytest.mark.both_environments
async def test_every_text_that_a_store_was_given_is_in_one_place_of_the_list(
    small: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    async with filled(small, clock, tmp_path):
        found = await find(small, CANARIES)
        locations = {location async for location, _ in everything(small)} - {SOURCE}
    assert {at: sorted(found[at]) for at, _ in stored(found) if len(places_of(at)) != 1} == {}
    assert sorted(at for at in locations if not places_of(at) and not has_no_data(at)) == []
    assert sorted(at for at in locations if places_of(at) and has_no_data(at)) == []
    # The test would miss a place that it does not reach.
    erased = {place.name for place in PLACES if place.erase is not None}
    reached = named(found) | ({"pages of the database"} if small.redis.url else set())
    assert erased | {"documents of indexes", "audit log"} <= reached
    assert set().union(*found.values()) == CANARIES


@pytest.mark.both_environments
async def test_after_an_erasure_its_texts_are_only_where_the_list_says_that_they_stay(
    small: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    async with filled(small, clock, tmp_path) as store:
        await store.admin.forget("User", USER, reason="request 12")
        clock.advance("1h")  # longer than the grace of Parquet files
        await maintained(store)
        found = await find(small, CANARIES)
    of_user = {at: texts - OF_OTHERS for at, texts in stored(found)}
    left = {at: texts for at, texts in of_user.items() if texts}
    assert {at: left[at] for at in left if any(place.erase for place in places_of(at))} == {}
    assert named(left) <= {"ids of events", "audit log", "documents of indexes"}
    # No page of the database has more than its tables.
    rows = set().union(*(texts for at, texts in found.items() if at.startswith("sqlite:")))
    for location, texts in found.items():
        if fnmatchcase(location, DATABASE):
            assert texts <= rows


@pytest.mark.both_environments
async def test_without_content_a_text_is_only_where_the_list_says_that_it_is_clear(
    small: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    private = small.replace(record={"include_content": False})
    async with filled(private, clock, tmp_path):
        found = await find(private, CANARIES)
    hidden = {"hashed", "absent"}
    places = {at: places_of(at) for at, _ in stored(found)}
    assert [at for at in places if any(place.private in hidden for place in places[at])] == []
    assert {at: texts & OF_CONTEXTS for at, texts in found.items() if texts & OF_CONTEXTS} == {}
    assert named(found) >= {"events", "current values", "documents of indexes", "dead letters"}


@pytest.mark.both_environments
async def test_old_events_and_records_are_pruned_from_every_place_that_the_list_names(
    small: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    parts = ("events", "records")
    async with filled(small, clock, tmp_path) as store:
        await store.backfills.cancel("counted")
        clock.advance("1h")
        await store.admin.prune(events="1m", records="1m")
        clock.advance("1h")
        await maintained(store)
        found = dict(stored(await find(small, CANARIES)))
    left = {at: found[at] for at in found if any(each.kept in parts for each in places_of(at))}
    assert left == {}


def test_no_location_is_in_two_places_of_the_list() -> None:
    listed = [location for place in PLACES for location in place.where]
    assert [each for each, count in Counter(listed).items() if count > 1] == []


def test_every_part_of_retention_is_that_of_a_place() -> None:
    assert {place.kept for place in PLACES} - {None} == set(Horizons.__struct_fields__)


def test_every_key_of_redis_is_on_the_list() -> None:
    keys = Keys("prefix", 1, "group")
    names = [
        name
        for each in (keys, *keys.parts)
        for name in vars(each).values()
        if isinstance(name, str) and name.lstrip("{").startswith("prefix:")
    ]
    assert len(names) > 20
    known = {name: redis_place("prefix", name) for name in names}
    missing = [
        name
        for name, at in known.items()
        if not (places_of(at) or has_no_data(at) or has_no_data(f"{at}x"))
        and not at.endswith(("entity:", "ids:", "cache:"))
    ]
    assert missing == []
