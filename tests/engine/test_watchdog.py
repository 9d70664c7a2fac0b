"""A handler that blocks the event loop is named in the log, and ends its worker process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.core.deadlines import Deadline
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.watchdog import Watchdog
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records

FEATURES = """
import time
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="buy")
async def blocks(user_id: str, event: ServiceEvent) -> int:
    time.sleep(600)
    return 1
"""


class Blocked:
    """A place where a handler blocks the loop until the watchdog has logged a certain record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: str) -> None:
        self.logged: list[tuple[str, dict[str, object]]] = []
        self._released = threading.Event()

        def error(event: str, **fields: object) -> None:
            self.logged.append((event, fields))
            if event == until:
                self._released.set()

        monkeypatch.setattr(log, "error", error)

    def block(self) -> None:
        self._released.wait()


async def test_in_an_application_a_blocked_loop_is_logged_with_handler_and_stack(
    store: FeatureStore,
    user: type,
    settings: Settings,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = Blocked(monkeypatch, until="event loop still blocked")

    @feature(entity=user, trigger="buy")
    async def blocks(user_id: str, event: ServiceEvent) -> int:
        blocked.block()
        return 1

    await runtime_of(store).rebind(settings.replace(worker={"handler_timeout": 2.0}), clock)
    event = await store.publish("buy", "u1")
    await Worker(store).drain()
    # A busy machine may stall the loop outside of the handler as well.
    told = [(event, fields) for event, fields in blocked.logged if "feature" in fields]
    assert [event for event, _ in told] == ["event loop blocked", "event loop still blocked"]
    for _, fields in told:
        called = {name: fields[name] for name in ("feature", "entity_id", "event_id")}
        assert called == {"feature": "blocks", "entity_id": "u1", "event_id": event.event_id}
        stack = str(fields["stack"])
        assert "in blocks" in stack
        assert "blocked.block()" in stack
        assert "user_calls.py" not in stack
    assert await store.get_feature("blocks", "u1") == 1


async def test_a_stall_outside_of_handlers_is_logged_with_its_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = Blocked(monkeypatch, until="event loop blocked")
    with Watchdog(Deadline(4.0), owns_process=False):
        blocked.block()
    (_, fields), *_ = blocked.logged
    assert "feature" not in fields
    assert "blocked.block()" in str(fields["stack"])


class StopsAtTheEndOfAPause(threading.Event):
    """An event that is set when a wait for it has just ended without it."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog

    def wait(self, timeout: float | None = None) -> bool:
        if self.is_set():
            return True
        self._watchdog.__exit__()
        return False


async def test_a_watchdog_that_is_stopped_at_the_end_of_a_pause_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watchdog = Watchdog(Deadline(60.0), owns_process=False)
    monkeypatch.setattr(watchdog, "_is_stopped", StopsAtTheEndOfAPause(watchdog))
    before = set(threading.enumerate())
    watchdog.__enter__()
    # The loop does not run any more, as after `asyncio.run`.
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)
        assert not thread.is_alive()


def test_a_worker_process_whose_handler_blocks_the_loop_exits(tmp_path: Path) -> None:
    (tmp_path / "features.py").write_text(FEATURES)

    def headwater(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "headwater", *arguments],
            cwd=tmp_path,
            # Long enough that an import on a busy machine does not end the worker.
            env={**os.environ, "HEADWATER_WORKER_HANDLER_TIMEOUT": "5"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    published = headwater("events", "publish", "buy", "u1")
    assert published.returncode == 0, published.stderr
    ended = headwater("worker", "features.py")
    assert ended.returncode == os.EX_SOFTWARE
    warnings = records(ended.stderr, "event loop blocked")
    (warning,) = [record for record in warnings if "feature" in record]
    (last,) = records(ended.stderr, "worker exits: event loop blocked")
    for record in (warning, last):
        assert (record["feature"], record["entity_id"]) == ("blocks", "u1")
        assert "time.sleep(600)" in record["stack"]
