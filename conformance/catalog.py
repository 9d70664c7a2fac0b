"""Conformance tests of the ``Catalog`` port."""

from __future__ import annotations

import asyncio

import msgspec

from conformance.suite import START, Connect, Opened, Suite, after
from headwater.model.catalog import (
    BackfillState,
    CatalogEntry,
    CatalogState,
    DroppedFeature,
    FeatureVersion,
    Horizons,
    Meaning,
    VersionRun,
)


class CatalogConformance(Suite):
    """The versions of every feature: one document that is replaced as a whole."""

    async def test_load_returns_an_empty_catalog_if_there_is_none_yet(self, store: Opened) -> None:
        assert await store.catalog.load() == CatalogState()
        assert await store.catalog.revision() == 0

    async def test_a_catalog_is_stored_if_its_revision_is_the_next_one(
        self, store: Opened, other: Opened
    ) -> None:
        assert await store.catalog.replace(full_catalog(1))
        assert await other.catalog.load() == full_catalog(1)
        assert await other.catalog.replace(full_catalog(2))
        assert await store.catalog.revision() == 2
        for stale in (1, 2, 4):
            assert not await store.catalog.replace(CatalogState(revision=stale))
        assert await store.catalog.load() == full_catalog(2)

    async def test_of_concurrent_changes_one_is_stored(self, store: Opened, other: Opened) -> None:
        states = [
            CatalogState(revision=1, pruned=Horizons(history=after(number))) for number in range(8)
        ]
        stored = await asyncio.gather(
            *((store, other)[n % 2].catalog.replace(state) for n, state in enumerate(states))
        )
        assert sum(stored) == 1
        assert await other.catalog.load() == states[stored.index(True)]

    async def test_a_catalog_is_durable(self, connect: Connect) -> None:
        first = await Opened.by(connect)
        assert await first.catalog.replace(full_catalog(1))
        await first.lifecycle.close()
        assert await (await connect()).catalog.load() == full_catalog(1)


def full_catalog(revision: int) -> CatalogState:
    """Return a catalog in which every field has a value."""
    backfill = BackfillState(
        id="b1",
        since=START,
        group="backfill-b1",
        main_group="workers",
        start={0: "7", 1: ""},
        joined={0: "9"},
    )
    first = FeatureVersion(
        number=1,
        series="clicks",
        state="active",
        type="int",
        structure="a1",
        created_at=START,
        activated_at=START,
    )
    second = msgspec.structs.replace(
        first,
        number=2,
        series="clicks@2",
        state="joining",
        activated_at=None,
        retired_at=after(3),
        backfill=backfill,
    )
    meaning = Meaning(
        since=START, name="taps", entity="User", version=1, series="clicks", default="0"
    )
    entry = CatalogEntry(
        feature="clicks",
        entity="User",
        versions=[first, second],
        former_names=["taps"],
        meanings=[meaning],
        run_since=START,
    )
    return CatalogState(
        revision=revision,
        features={"clicks": entry},
        dropped=[DroppedFeature(meanings=[meaning], dropped_at=after(2))],
        pruned=Horizons(START, after(1)),
        worked_since=START,
        runs={"workers": {"clicks on tap": VersionRun(since=after(2), missed_since=START)}},
    )
