"""The keys by which records are found: hashes with a secret of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.contexts.recorder import ProvenanceIndex, _cached_key
from headwater.declarations.runtime import runtime_of
from headwater.doctor.workload import findings
from headwater.errors import IndexKeyChangedError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop


async def keys_of(database: Database) -> set[bytes]:
    keys = {bytes(key) for (key,) in await database.run("SELECT key FROM {record_keys}")}
    assert keys
    return keys


async def test_every_store_has_an_index_key_of_its_own(
    opens: Opens, settings: Settings, clock: ManualClock, database: Database, tmp_path: Path
) -> None:
    one = opens()
    await one.asks()
    before = await keys_of(database)
    log = (await runtime_of(one.store).open()).backends.records
    key = await log.index_key()
    assert len(key) == 32
    await one.store.close()
    again = opens()
    await again.asks()
    assert await keys_of(database) == before
    assert await (await runtime_of(again.store).open()).backends.records.index_key() == key
    elsewhere = settings.replace(
        home=tmp_path,
        redis={"prefix": settings.redis.prefix + "-b"},
        postgres={"schema": settings.postgres.schema + "_b"},
    )
    async with FeatureStore(settings=elsewhere, clock=clock) as other:
        assert await (await runtime_of(other).open()).backends.records.index_key() != key


async def test_concurrent_processes_create_one_index_key(opens: Opens) -> None:
    logs = [(await runtime_of(opens().store).open()).backends.records for _ in range(4)]
    assert (
        len({bytes(key) for key in await asyncio.gather(*(log.index_key() for log in logs))}) == 1
    )


async def test_a_configured_key_wins_and_earlier_records_are_still_found(
    opens: Opens, database: Database
) -> None:
    before = opens()
    await before.spends("u1", 5)
    old = await before.asks()
    own = await keys_of(database)
    shop = opens(record={"index_key": "x" * 100}, signing_key="k:correct horse battery")
    new = await shop.asks()
    assert len(await keys_of(database)) == 2 * len(own) + 1  # the mark of the configured key
    page = await shop.store.records.find(feature="total", entity_id="u1")
    assert {each.context_id for each in page.contexts} == {old.context_id, new.context_id}


async def with_key(opens: Opens, key: str) -> Shop:
    shop = opens(record={"index_key": key})
    await shop.spends("u1", 5)
    await shop.asks()
    return shop


@pytest.mark.parametrize("now", ["another", ""])
async def test_records_of_another_index_key_are_never_left_out_without_a_word(
    opens: Opens, now: str
) -> None:
    await with_key(opens, "former")
    shop = opens(record={"index_key": now})
    await shop.asks()
    searches: list[Callable[[], Awaitable[object]]] = [
        lambda: shop.store.records.find(entity="User", entity_id="u1"),
        lambda: shop.store.records.find(feature="total"),
        lambda: shop.store.records.histogram(feature="total"),
        lambda: shop.store.admin.forget("User", "u1", reason="asked"),
        lambda: shop.store.admin.forget("User", "u1", reason="asked", dry_run=True),
    ]
    for search in searches:
        with pytest.raises(IndexKeyChangedError, match=r"another record\.index_key.*former key"):
            await search()
    assert await shop.store.get_feature("total", "u1") == 5  # nothing was erased
    assert len((await shop.store.list_contexts()).contexts) == 2
    (found,) = [each for each in await findings(shop.store, ()) if each.check == "index key"]
    assert found.severity == "error"
    assert "HEADWATER_RECORD_INDEX_KEY to the former key" in found.remedy


async def test_the_former_index_key_finds_its_records_again(opens: Opens) -> None:
    await with_key(opens, "former")
    shop = await with_key(opens, "former")
    assert len((await shop.store.records.find(feature="total")).contexts) == 2
    assert not [each for each in await findings(shop.store, ()) if each.check == "index key"]


async def test_another_index_key_is_used_once_the_records_of_the_former_are_gone(
    opens: Opens, clock: ManualClock
) -> None:
    await with_key(opens, "former")
    clock.advance("2d")
    shop = opens(record={"index_key": "another"})
    new = await shop.asks()
    with pytest.raises(IndexKeyChangedError):
        await shop.store.records.find(feature="total")
    await shop.store.admin.prune(records="1d")
    page = await shop.store.records.find(feature="total")
    assert [each.context_id for each in page.contexts] == [new.context_id]


@pytest.mark.parametrize(
    "changes", [{"signing_key": "k2:the second secret"}, {"signature_mode": "off"}]
)
async def test_records_are_found_after_the_signing_key_is_changed_or_removed(
    opens: Opens, changes: dict[str, str]
) -> None:
    before = opens(signing_key="k1:the very first one")
    await before.spends("u1", 5)
    old = await before.asks()
    page = await opens(**changes).store.records.find(entity="User", entity_id="u1")
    assert [each.context_id for each in page.contexts] == [old.context_id]


def test_long_ids_are_not_remembered() -> None:
    index, before = ProvenanceIndex(b"secret"), _cached_key.cache_info().currsize
    assert index.key("chunk", "x" * 10_000) != index.key("chunk", "y" * 10_000)
    assert _cached_key.cache_info().currsize == before
