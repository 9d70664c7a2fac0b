"""Reads of history that many callers make at once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from headwater import FeatureStore
from headwater.contexts.evaluation.lookups import Lookups
from headwater.declarations.runtime import runtime_of
from headwater.ports import Point
from headwater.testing import ManualClock


@pytest.mark.both_environments
async def test_gathered_reads_give_what_single_reads_give(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    store.stored_feature("score", int, entity=user)
    moments: list[datetime] = []
    for number in range(6):
        for of in ("u1", "u2"):
            await store.set_feature("score", of, number)
        moments.append(clock.now())
        clock.advance("1m")
    offline = (await runtime_of(store).open()).backends.offline
    lookups = Lookups(offline)
    spans = [
        (start, end, limit)
        for start in (None, moments[1], moments[4])
        for end in (None, moments[3])
        for limit in (1, 2, 100)
    ]
    gathered = await asyncio.gather(
        *(
            lookups.rows("score", ["u2", "u1"], start=start, end=end, limit=limit)
            for start, end, limit in spans
        )
    )
    for (start, end, limit), pages in zip(spans, gathered, strict=True):
        single = await offline.rows("score", ["u2", "u1"], start=start, end=end, limit=limit)
        assert pages == single
    points = [
        [Point("u1", moment), Point("u2", moment - timedelta(seconds=1))] for moment in moments
    ]
    found = await asyncio.gather(
        *(lookups.as_of(["score"], some, known=known) for some in points for known in (True, False))
    )
    assert found == [
        await offline.as_of(["score"], some, known=known)
        for some in points
        for known in (True, False)
    ]
