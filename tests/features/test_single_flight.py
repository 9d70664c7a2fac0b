"""Single flight: callers share a task; its error reaches them, or is reported without them."""

from __future__ import annotations

import asyncio

import pytest

from headwater import FeatureStore, retriever
from headwater.declarations.runtime import runtime_of
from headwater.features.running_calls import UserCall
from headwater.features.single_flight import SingleFlight
from tests.engine.support import until


@pytest.fixture
def call(store: FeatureStore) -> UserCall:
    @retriever(store)
    async def search() -> list[str]:
        return []

    return UserCall(runtime_of(store).registry.retrievers["search"], {})


async def test_all_callers_get_the_error_of_the_task_that_they_share(call: UserCall) -> None:
    flights: SingleFlight[None] = SingleFlight()
    runs: list[int] = []
    reported: list[BaseException] = []

    async def fail() -> None:
        runs.append(1)
        raise OSError("away")

    callers = [flights.do("key", call, fail, reported.append) for _ in range(2)]
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(result) for result in results] == [OSError] * 2
    assert (runs, reported) == ([1], [])


@pytest.mark.parametrize("stays", [True, False])
async def test_an_error_is_reported_only_if_no_caller_waits_for_it(
    call: UserCall, *, stays: bool
) -> None:
    flights: SingleFlight[None] = SingleFlight()
    started, may_fail = asyncio.Event(), asyncio.Event()
    reported: list[BaseException] = []

    async def fail() -> None:
        started.set()
        await may_fail.wait()
        raise OSError("away")

    callers = [
        asyncio.ensure_future(flights.do("key", call, fail, reported.append)) for _ in range(2)
    ]
    await started.wait()  # both callers have joined: neither waits for anything before
    callers[0].cancel()
    if not stays:
        callers[1].cancel()
    may_fail.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    expected = [asyncio.CancelledError, OSError if stays else asyncio.CancelledError]
    assert [type(result) for result in results] == expected
    await until(lambda: stays or bool(reported))
    assert [type(error) for error in reported] == ([] if stays else [OSError])
