"""Plans of frames: the points and the rows of history that each task reads.

A frame with few points and little history is one task. A larger one is divided by buckets, so that
each task needs a bounded amount of memory; the answers are put in order afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import msgspec

from headwater.backends.duckdb.kernel import FramePart
from headwater.backends.duckdb.segment_files import ALL_BUCKETS
from headwater.core.duckdb_session import glob_literal, parquet, private_folder, scalar, session
from headwater.core.partitioning import BUCKETS, bucket_of
from headwater.errors import HeadwaterError
from headwater.ports import FrameQuery, Runner, Segment

# A file disappears during a read only if the read takes longer than the grace period.
_ATTEMPTS = 3
MAX_POINTS = 2_000_000
MAX_ROWS = 20_000_000
"""A frame with at most so many points, and rows in history, is one task."""

_BUCKETS = """
CREATE TABLE buckets AS
SELECT entity_id, bucket_of(entity_id) AS bucket
FROM (SELECT DISTINCT entity_id FROM read_parquet({file}, hive_partitioning = false))
"""

_SPLIT = """
SELECT points.* FROM read_parquet({file}, hive_partitioning = false) AS points
JOIN buckets USING (entity_id) WHERE bucket BETWEEN {first} AND {last}
"""


class FrameSource(msgspec.Struct, frozen=True):
    """The rows of history at one moment: files in a folder and, if there is one, a tail."""

    folder: Path
    segments: Sequence[Segment]
    tail: Path | None = None
    longest: int = 0

    def files(self, buckets: tuple[int, int] = ALL_BUCKETS) -> list[Path]:
        """Return the files that may have rows of a range of buckets."""
        first, last = buckets
        return [
            self.folder / segment.name
            for segment in self.segments
            if segment.buckets[0] <= last and first <= segment.buckets[1]
        ]


class FramePlan:
    """A frame that is answered from one source, with a folder for the files in between."""

    def __init__(self, query: FrameQuery, source: FrameSource, answer: Path, folder: Path) -> None:
        self._query = query
        self._source = source
        self._answer = answer
        self._folder = folder

    async def run(self, runner: Runner, progress: Callable[[int], None] | None) -> None:
        """Answer the frame with the tasks that its size needs."""
        points = await asyncio.to_thread(self._count)
        rows = sum(segment.rows for segment in self._source.segments)
        groups = group_count(points, rows)
        if groups == 1:
            tasks = [self._part(self._query.points, None, self._answer)]
        else:
            tasks = await asyncio.to_thread(self._split, groups)
        done = 0
        async for count in runner.map(tasks):
            done += count
            if progress is not None:
                progress(done)
        if groups > 1:
            await asyncio.to_thread(self._merge, [task.answer for task in tasks])

    def _count(self) -> int:
        with session(self._folder) as duck:
            file = glob_literal(self._query.points)
            count: int = scalar(duck.run(f"SELECT count(*) FROM read_parquet({file})"))
            return count

    def _part(self, points: Path, buckets: tuple[int, int] | None, answer: Path) -> FramePart:
        return FramePart(
            points=points,
            columns=self._query.columns,
            known=self._query.known,
            extra=self._query.extra,
            files=self._source.files(buckets or ALL_BUCKETS),
            tail=self._source.tail,
            longest=self._source.longest,
            buckets=buckets,
            answer=answer,
            scratch=self._folder,
        )

    def _split(self, groups: int) -> list[FramePart]:
        """Divide the points by bucket into files."""
        tasks = []
        with session(self._folder) as duck:
            file = glob_literal(self._query.points)
            # DuckDB has no function for it.
            duck.connection.create_function("bucket_of", bucket_of, ["VARCHAR"], "USMALLINT")
            duck.run(_BUCKETS.format(file=file))
            for first, last in bucket_ranges(groups):
                part = self._folder / f"points-{first:04}-{last:04}.parquet"
                duck.write(_SPLIT.format(file=file, first=first, last=last), part)
                answer = self._folder / f"answer-{first:04}-{last:04}.parquet"
                tasks.append(self._part(part, (first, last), answer))
        return tasks

    def _merge(self, parts: Sequence[Path]) -> None:
        with session(self._folder) as duck:
            duck.write(f'{parquet(parts)} ORDER BY "row"', self._answer)


async def answer_frame(
    query: FrameQuery,
    answer: Path,
    source: Callable[[Path], FrameSource],
    runner: Runner,
    scratch: Path,
    progress: Callable[[int], None] | None,
    lost: Callable[[Sequence[str]], HeadwaterError],
) -> None:
    """Answer a frame from a source, which is called again if its files were merged meanwhile.

    The source is given a folder for its tail. ``lost`` is given the names of files that are gone.
    """
    for _ in range(_ATTEMPTS):
        with private_folder(scratch) as folder:
            rows = await asyncio.to_thread(source, folder)
            try:
                return await FramePlan(query, rows, answer, folder).run(runner, progress)
            except duckdb.OperationalError:
                gone = [file.name for file in rows.files() if not file.exists()]
                if not gone:
                    raise
    raise lost(gone)


def group_count(points: int, rows: int) -> int:
    """Return into how many ranges of buckets a frame is divided, a power of two."""
    groups = 1
    while groups < BUCKETS and (points > groups * MAX_POINTS or rows > groups * MAX_ROWS):
        groups *= 2
    return groups


def bucket_ranges(count: int) -> list[tuple[int, int]]:
    """Return the first and the last bucket of each of ``count`` equal ranges."""
    width = BUCKETS // count
    return [(first, first + width - 1) for first in range(0, BUCKETS, width)]
