"""A sync handler that hangs fails one event of one feature, and its thread is replaced."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, context, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import ClosedError, TooManyHungThreadsError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, metric, until
from tests.features.sync_time import SyncTime

TIMEOUT = 60.0


class Hang:
    """A place where sync handlers hang, and the only one where their time passes."""

    def __init__(self, sync_time: SyncTime) -> None:
        self._time = sync_time
        self._released = threading.Event()

    def __call__(self) -> None:
        self._time.advance(2 * TIMEOUT)
        self._released.wait()

    def release(self) -> None:
        """Let the handlers that hang go on."""
        self._released.set()


@pytest.fixture
def hang(sync_time: SyncTime) -> Iterator[Hang]:
    place = Hang(sync_time)
    yield place
    place.release()


@pytest.fixture
async def limited(
    store: FeatureStore, settings: Settings, clock: ManualClock, sync_time: SyncTime
) -> FeatureStore:
    """A store with one thread for sync handlers."""
    assert sync_time is not None
    worker = {"handler_timeout": TIMEOUT, "threads": 1, "max_hung_threads": 2}
    await runtime_of(store).rebind(settings.replace(worker=worker), clock)
    return store


@pytest.mark.both_environments
async def test_a_hung_sync_handler_fails_the_one_event_and_feature(
    limited: FeatureStore, user: type, hang: Hang
) -> None:
    @feature(entity=user, trigger="buy")
    def before(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, trigger="buy", max_retries=0)
    def hangs(user_id: str, event: ServiceEvent) -> int:
        if user_id == "u1":
            hang()
        return 2

    @feature(entity=user, trigger="buy")
    async def after(user_id: str, event: ServiceEvent) -> int:
        return 3

    for user_id in ("u1", "u2", "u3"):
        await limited.publish("buy", user_id)
    await limited.drain()
    rows = await limited.get_features(["before", "hangs", "after"], ["u1", "u2", "u3"])
    assert rows["u1"] == {"before": 1, "hangs": None, "after": 3}
    assert rows["u2"] == rows["u3"] == {"before": 1, "hangs": 2, "after": 3}
    (letter,) = await limited.dead_letters.list()
    assert (letter.feature, letter.event.entity_id, letter.attempts) == ("hangs", "u1", 1)
    assert letter.error == (
        "HandlerTimeoutError: feature 'hangs' failed for 'u1': it timed out after 60 s"
    )


async def test_an_attempt_that_hangs_is_followed_by_a_retry_in_another_thread(
    limited: FeatureStore, user: type, hang: Hang
) -> None:
    threads: list[int] = []

    @feature(entity=user, trigger="buy", max_retries=1)
    def hangs_once(user_id: str, event: ServiceEvent) -> int:
        threads.append(threading.get_ident())
        if len(threads) == 1:
            hang()
        return len(threads)

    await limited.publish("buy", "u1")
    await limited.drain()
    assert await limited.get_feature("hangs_once", "u1") == 2
    assert await limited.dead_letters.list() == []
    assert len(set(threads)) == 2


@pytest.mark.both_environments
async def test_an_abandoned_thread_writes_nothing_when_it_wakes(
    limited: FeatureStore, user: type, hang: Hang
) -> None:
    refused: list[str] = []
    is_over = threading.Event()

    @feature(entity=user, trigger="other")
    def other(user_id: str, event: ServiceEvent) -> int:
        return 1

    def refuses(verb: str, *arguments: object) -> None:
        try:
            getattr(limited.sync, verb)(*arguments)
        except ClosedError as error:
            refused.append(f"{verb}: {error}")

    @feature(entity=user, trigger="buy", max_retries=0)
    def hangs(user_id: str, event: ServiceEvent) -> int:
        limited.sync.set_feature("other", user_id, 5)
        hang()
        refuses("set_feature", "other", user_id, 6)
        refuses("set_feature", "other", "friend", 7)
        refuses("publish", "other", user_id)
        is_over.set()
        return 8

    await limited.publish("buy", "u1")
    await limited.drain()
    hang.release()
    await until(is_over.is_set)
    await limited.drain()
    reason = "'hangs' has timed out; what it does now has no effect"
    assert refused == [f"{verb}: {reason}" for verb in ("set_feature", "set_feature", "publish")]
    values = await limited.get_features(["other", "hangs"], ["u1", "friend"])
    assert values == {name: {"other": None, "hangs": None} for name in ("u1", "friend")}


async def test_a_handler_that_waits_for_the_store_when_its_time_is_over_is_woken(
    limited: FeatureStore, user: type, sync_time: SyncTime
) -> None:
    ended = threading.Event()

    @context(limited, timeout="10m")
    async def slow(user_id: str) -> str:
        sync_time.advance(2 * TIMEOUT)
        await asyncio.Event().wait()
        return user_id

    @feature(entity=user, trigger="buy", max_retries=0)
    def waits(user_id: str, event: ServiceEvent) -> str:
        try:
            return limited.sync.assemble("slow", {"user_id": user_id}).content
        finally:
            ended.set()

    await limited.publish("buy", "u1")
    await limited.drain()
    await until(ended.is_set)
    (letter,) = await limited.dead_letters.list()
    assert letter.error.startswith("HandlerTimeoutError: feature 'waits' failed")


@pytest.mark.both_environments
async def test_a_worker_with_too_many_hung_threads_commits_its_batches_and_ends(
    limited: FeatureStore, user: type, hang: Hang
) -> None:
    @feature(entity=user, trigger="buy")
    def hangs(user_id: str, event: ServiceEvent) -> int:
        hang()
        return 1

    @feature(entity=user, trigger="buy")
    def healthy(user_id: str, event: ServiceEvent) -> int:
        return 2

    ids = [f"u{number}" for number in range(5)]
    for user_id in ids:
        await limited.publish("buy", user_id)
    with pytest.raises(
        TooManyHungThreadsError, match=r"2 in .hangs.\), and worker\.max_hung_threads is 2"
    ):
        await Worker(limited, owns_process=True).run()
    assert metric("headwater_hung_threads") == 2
    hang.release()
    await until(lambda: metric("headwater_hung_threads") == 0)
    # The next worker finds no partition that its owner left unreleased: nothing is quarantined.
    await limited.drain()
    rows = await limited.get_features(["healthy"], ids)
    assert rows == {user_id: {"healthy": 2} for user_id in ids}
    assert {letter.feature for letter in await limited.dead_letters.list()} <= {"hangs"}
    assert await backlog(limited) == 0


async def test_in_an_application_a_worker_goes_on_without_the_function_that_hangs(
    limited: FeatureStore, user: type, hang: Hang
) -> None:
    calls: list[str] = []

    @feature(entity=user, trigger="buy", max_retries=0)
    def hangs(user_id: str, event: ServiceEvent) -> int:
        calls.append(user_id)
        hang()
        return 1

    @feature(entity=user, trigger="buy")
    def healthy(user_id: str, event: ServiceEvent) -> int:
        return 2

    ids = [f"u{number}" for number in range(5)]
    for user_id in ids:
        await limited.publish("buy", user_id)
    await limited.drain()
    assert len(calls) == 2
    assert await limited.get_features(["healthy"], ids) == {each: {"healthy": 2} for each in ids}
    errors = [letter.error for letter in await limited.dead_letters.list()]
    assert len(errors) == 5
    (refusal,) = {error.split("failed for ")[1][6:] for error in errors if "not called" in error}
    assert refusal == (
        "it was not called: 2 of its earlier calls still hang, and with 2 hung threads the process "
        "has reached worker.max_hung_threads; the log shows where they hang, and a restart ends "
        "them"
    )
    hang.release()


HANGING = """
import asyncio, threading
from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.settings.schema import Settings

settings = Settings().replace(home={home!r}, worker={{"handler_timeout": 0.5}})
store = FeatureStore(settings=settings)

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="buy", max_retries=0)
def hangs(user_id: str, event: ServiceEvent) -> int:
    threading.Event().wait()
    return 1

async def main() -> None:
    async with store:
        await store.publish("buy", "u1")
        await store.drain()
        print(len(await store.dead_letters.list()))

asyncio.run(main())
"""


def test_a_script_whose_handler_hangs_can_exit(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING.format(home=str(tmp_path))],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (ended.returncode, ended.stdout) == (0, "1\n")
