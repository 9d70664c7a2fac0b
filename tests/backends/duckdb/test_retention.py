"""Removing old rows of the embedded history: few segments change, and a crash loses nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.ports import Point, Pruned
from tests.backends.duckdb.embedded import GRACE, Embedded, after, change, embedded, series
from tests.backends.duckdb.pruning_process import SEGMENT_ROWS


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as opened:
        yield opened


async def stored(parts: Embedded) -> list[int]:
    rows = await parts.history.query("SELECT value_int FROM feature_history ORDER BY as_of", {})
    return [value for (value,) in rows.rows]


async def test_only_segments_with_rows_to_remove_are_written_again(parts: Embedded) -> None:
    await parts.online.put(series(5 * SEGMENT_ROWS))
    await parts.history.maintain()
    before = parts.live()
    pruned = await parts.history.prune(history=after(2.5 * SEGMENT_ROWS), events=None)
    assert pruned == Pruned(history=25)
    untouched = parts.live() & before
    assert len(before) == 5
    assert len(untouched) == 2
    assert len(parts.live()) == 3
    assert await stored(parts) == list(range(25, 50))
    parts.clock.advance(GRACE)
    await parts.history.maintain()
    assert parts.segment_files() == parts.live()


async def test_a_dry_run_writes_no_file(parts: Embedded) -> None:
    await parts.online.put(series(2 * SEGMENT_ROWS + 3))
    await parts.history.maintain()
    manifest, files = parts.tail.manifest(), parts.segment_files()
    pruned = await parts.history.prune(history=after(21), events=None, dry_run=True)
    assert pruned == Pruned(history=21)
    assert (parts.tail.manifest(), parts.segment_files()) == (manifest, files)
    assert parts.tail_rows() == 3


async def test_a_reader_of_a_retired_segment_goes_on_reading(parts: Embedded) -> None:
    await parts.online.put(series(SEGMENT_ROWS))
    await parts.history.maintain()
    (file,) = parts.segment_files()
    await parts.history.prune(history=after(5), events=None)
    await parts.history.maintain()
    assert file in parts.segment_files()


@pytest.mark.chaos
@pytest.mark.parametrize("replacements", [0, 2])
async def test_kill_9_while_pruning_loses_no_other_row_and_the_next_run_completes(
    parts: Embedded, replacements: int
) -> None:
    late = [change(90, entity_id="u2", as_of=after(1), written_at=after(60))]
    await parts.online.put([*series(35), *late])
    await parts.history.maintain()
    points = [Point(i, after(second)) for i in ("u1", "u2") for second in (33, 34, 60)]

    async def answers() -> list[object]:
        return [
            await parts.history.as_of(["clicks"], points, known=known) for known in (False, True)
        ]

    before = await answers()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.backends.duckdb.pruning_process"),
        *(str(parts.home.path), "33", str(replacements)),
    )
    assert await process.wait() == -signal.SIGKILL
    assert await answers() == before
    left = await stored(parts)
    assert len(left) > 3
    pruned = await parts.history.prune(history=after(33), events=None)
    assert pruned.history == len(left) - 3
    assert await answers() == before
    assert await stored(parts) == [90, 33, 34]
    parts.clock.advance(GRACE)
    await parts.history.maintain()
    assert parts.segment_files() == parts.live()
