"""Concurrent callers share one run of a task."""

from __future__ import annotations

import asyncio
import gc

import pytest

from headwater.backends.postgres.outbox_consumer import CoalescedTask


class Work:
    """Work that waits for a signal and counts its runs."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0
        self.go_on = asyncio.Event()
        self.fails = False

    async def __call__(self) -> None:
        self.begun += 1
        await self.go_on.wait()
        if self.fails:
            raise ValueError("it failed")
        self.done += 1


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_concurrent_callers_share_a_run() -> None:
    work = Work()
    shared = CoalescedTask(work)
    asking = [asyncio.create_task(shared()) for _ in range(10)]
    await turns()
    work.go_on.set()
    await asyncio.gather(*asking)
    assert work.begun == 1


async def test_a_call_during_a_run_waits_for_the_next_run() -> None:
    work = Work()
    shared = CoalescedTask(work)
    first = asyncio.create_task(shared())
    await turns()
    later = [asyncio.create_task(shared()) for _ in range(10)]
    await turns()
    assert work.begun == 1
    work.go_on.set()
    await first
    assert not any(task.done() for task in later)
    await asyncio.gather(*later)
    assert (work.begun, work.done) == (2, 2)


async def test_a_failure_reaches_all_callers_and_the_next_call_runs_again() -> None:
    work = Work()
    shared = CoalescedTask(work)
    work.fails = True
    work.go_on.set()
    answers = await asyncio.gather(*(shared() for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["it failed"] * 3
    work.fails = False
    await shared()
    assert (work.begun, work.done) == (2, 1)


async def test_a_failure_without_callers_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # the garbage of other tests is theirs
    caplog.clear()
    work = Work()
    shared = CoalescedTask(work)
    work.fails = True
    asking = asyncio.create_task(shared())
    await turns()
    asking.cancel()
    work.go_on.set()
    await shared.close()
    del asking, shared
    gc.collect()
    assert caplog.records == []


async def test_closing_waits_for_running_and_scheduled_tasks() -> None:
    work = Work()
    shared = CoalescedTask(work)
    first = asyncio.create_task(shared())
    await turns()
    second = asyncio.create_task(shared())
    await turns()
    closing = asyncio.create_task(shared.close())
    await turns()
    assert not closing.done()
    work.go_on.set()
    await closing
    await asyncio.gather(first, second)
    assert work.done == 2
    await CoalescedTask(work).close()
