"""The writer: in the event loop where that delays no one, else in its thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.backends.sqlite import writer as writing
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.writer import Job, Writer
from headwater.errors import ClosedError

_LONG = 3_600.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no commit count as long and no turn as busy, however slow this machine is."""
    monkeypatch.setattr(writing, "_SHORT_SECONDS", _LONG)
    monkeypatch.setattr(writing, "_IDLE_SECONDS", _LONG)


@pytest.fixture
def opened(home: Path) -> Iterator[Home]:
    opened = Home(home, 4)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def writer(opened: Home) -> Iterator[Writer]:
    with closing(Writer(opened, wake=lambda: None)) as writer:
        yield writer


def putting(value: str) -> Job[str]:
    """Return a job that writes a value and returns the name of its thread."""

    def put(db: sqlite3.Connection) -> str:
        db.execute("INSERT INTO meta VALUES (?, ?)", (f"test {value}", value))
        return threading.current_thread().name

    return put


put = putting("1")


def here() -> str:
    return threading.current_thread().name


async def test_a_single_statement_that_comes_alone_runs_in_the_event_loop(
    writer: Writer, opened: Home
) -> None:
    assert await writer.run(put, single=True) == here()
    assert opened.read("SELECT value FROM meta WHERE key = 'test 1'") == [("1",)]


async def test_other_jobs_run_in_the_thread(writer: Writer) -> None:
    assert await writer.run(put) != here()


async def test_other_tasks_run_between_the_writes_of_a_loop(writer: Writer) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for number in range(5):
        await writer.run(putting(str(number)), single=True)
    counting.cancel()
    assert turns >= 5


async def test_writes_that_come_together_run_in_the_thread_in_the_order_of_their_calls(
    writer: Writer,
) -> None:
    ran: list[tuple[int, str]] = []

    def noting(number: int) -> Job[None]:
        return lambda _: ran.append((number, here()))

    await asyncio.gather(*(writer.run(noting(n), single=n != 1) for n in range(4)))
    assert [number for number, _ in ran] == [0, 1, 2, 3]
    assert here() not in {thread for _, thread in ran}


async def test_the_loop_does_not_wait_for_the_lock_of_another_process(
    writer: Writer, opened: Home
) -> None:
    with closing(opened.write_lock()) as lock:
        lock.acquire()
        write = asyncio.create_task(writer.run(put, single=True))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not write.done()
        lock.release()
        assert await write != here()


async def test_the_loop_leaves_checkpoints_to_the_thread(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_COMMITS_PER_CHECKPOINT", 3)
    threads = [await writer.run(putting(str(n)), single=True) for n in range(3)]
    assert [thread == here() for thread in threads] == [True, True, False]


async def test_after_a_long_commit_the_loop_commits_nothing_for_a_while(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_SHORT_SECONDS", 0.0)
    monkeypatch.setattr(writing, "_PAUSE", 1e9)
    assert await writer.run(put, single=True) == here()
    assert await writer.run(putting("2"), single=True) != here()


async def test_a_busy_loop_commits_nothing(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_IDLE_SECONDS", 0.0)
    assert await writer.run(put, single=True) != here()


async def test_a_refused_statement_raises_in_the_loop_and_the_next_is_written(
    writer: Writer,
) -> None:
    await writer.run(put, single=True)
    with pytest.raises(Exception, match="UNIQUE"):
        await writer.run(put, single=True)
    assert await writer.run(putting("2"), single=True) == here()


async def test_closing_finishes_a_write_that_has_just_come(opened: Home) -> None:
    writer = Writer(opened, wake=lambda: None)
    write = asyncio.create_task(writer.run(put, single=True))
    await asyncio.sleep(0)
    writer.close()
    assert await write != here()
    with pytest.raises(ClosedError):
        await writer.run(put)


@pytest.mark.parametrize("single", [True, False], ids=["in the loop", "in the thread"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_bug_in_a_job_fails_it_and_closes_the_writer(writer: Writer, single: bool) -> None:
    def job(_: sqlite3.Connection) -> None:
        raise AssertionError("a bug")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    with pytest.raises(ClosedError, match="failed"):
        await writer.run(job, single=single)
    with pytest.raises(ClosedError):
        await writer.run(put)
