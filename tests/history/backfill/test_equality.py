"""Random streams of events: a replay gives what a feature has that was there from the first day."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.clock import from_micros
from headwater.declarations.runtime import runtime_of
from headwater.history.backfill.replay import last_cells, replay_failures
from headwater.model.values import Cells
from headwater.testing import ManualClock
from tests.effort import scaled
from tests.history.backfill.support import history, job_of, replay_all

Published = tuple[str, str, int, bool]
"""An event: entity, type, seconds that it is late, and whether its handler fails."""

_EVENTS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["ada", "bob"]),
            st.sampled_from(["buy", "refund"]),
            st.sampled_from([0, 0, 0, 1, 30]),
            st.sampled_from([False, False, False, True]),
        ),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=4,
)
"""The events of some moments, which are half a minute apart."""

_FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "by_time": {"order": "event_time"},
    "expiring": {"ttl": "20s"},
    "expiring_by_time": {"ttl": "40s", "order": "event_time"},
}


def _declare(store: FeatureStore, name: str) -> None:
    @entity(store)
    class User:
        user_id: str

    options = _FEATURES[name]

    def in_a_thread(user_id: str, event: ServiceEvent) -> list[str]:
        before = store.sync.get_feature(name, user_id) or []
        if event.payload["fails"]:
            raise ValueError(event.event_id)
        return [*before, f"{event.event_type} {event.payload['number']}"]

    async def in_the_loop(user_id: str, event: ServiceEvent) -> list[str]:
        before = await store.get_feature(name, user_id) or []
        await store.set_feature(name, user_id, ["overwritten"])
        if event.payload["fails"]:
            raise ValueError(event.event_id)
        return [*before, f"{event.event_type} {event.payload['number']}"]

    declare = feature(entity=User, name=name, trigger=["buy", "refund"], max_retries=0, **options)
    declare(in_the_loop if "order" in options else in_a_thread)


@given(moments=_EVENTS, name=st.sampled_from(sorted(_FEATURES)))
@hypothesis(max_examples=scaled(8))
async def test_random_events_give_the_same_values_in_a_replay(
    moments: Sequence[Sequence[Published]], name: str
) -> None:
    clock = ManualClock()
    with TemporaryDirectory(prefix="hw-") as folder:
        async with FeatureStore(home=folder, clock=clock) as store:
            _declare(store, name)
            await _publish(store, clock, moments)
            job = await job_of(store, name, Path(folder))
            report = await replay_all(store, job)
            failing = [event for moment in moments for event in moment if event[3]]
            assert report.failures == len(failing) == len(list(replay_failures(job)))
            assert await history(store, f"{name}@2") == await history(store, name)
            replayed = {i: c for page in last_cells(job) for i, c in page.items()}
            assert _shown(replayed, f"{name}@2") == _shown(await _online(store, name), name)


async def _publish(
    store: FeatureStore,
    clock: ManualClock,
    moments: Sequence[Sequence[Published]],
) -> None:
    """Publish the events of each moment, and handle them at that moment."""
    numbers = itertools.count()
    for moment in moments:
        for user_id, event_type, late, fails in moment:
            payload = {"number": next(numbers), "fails": fails}
            at = clock.now() - timedelta(seconds=late)
            await store.publish(event_type, user_id, payload, timestamp=at)
        await store.drain()
        clock.advance("30s")


async def _online(store: FeatureStore, name: str) -> dict[str, Cells]:
    online = (await runtime_of(store).open()).backends.online
    ids = ["ada", "bob"]
    cells = dict(zip(ids, await online.get("User", ids), strict=True))
    return {i: found for i, found in cells.items() if name in found}


def _shown(cells: dict[str, Cells], series: str) -> dict[str, Any]:
    """Return values with their times, except when they were written."""
    return {
        i: (bytes(found[series].value), found[series].as_of, _expiry(found[series].expires_at))
        for i, found in cells.items()
    }


def _expiry(micros: int | None) -> Any:
    # Of values of one moment each is written a microsecond after the one before.
    return None if micros is None else from_micros(micros).replace(microsecond=0)
