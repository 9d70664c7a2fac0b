"""Columns of computed features: templates and derived features at each row's moment.

Each value is computed by the reader that serves values, from the values of that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import count, groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import asdict, replace

from headwater.core.batching import batched
from headwater.core.clock import from_micros, to_micros
from headwater.core.duckdb_session import Session, parquet, session
from headwater.declarations.features import FeatureDef
from headwater.errors import FeatureFailedError, HeadwaterError, InvalidInputError
from headwater.features.batch_state import BatchState, HandlerTransaction
from headwater.features.call_scope import CallScope, enter, leave, track_sources
from headwater.features.conversions import last_cell
from headwater.features.reader import Reader
from headwater.history.columns import Reading, is_of_its_computation
from headwater.history.past_reads import PastReads
from headwater.model.features import FeatureRow
from headwater.model.values import INTERNAL, Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import Change, Delivery, DocumentWrite

_ROWS = 10_000
_CONCURRENT = 200
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "text": "VARCHAR"}
_POINT_COLUMNS = {"row": "BIGINT", "entity_id": "VARCHAR", "at": "BIGINT"}
_encode_lines = msgspec.json.Encoder().encode_lines
LoadedValues = Mapping[tuple[str, str, int], Cell | None]
"""Past values, by series, entity id and moment."""


class _EntityMoment(msgspec.Struct, frozen=True):
    """An entity at a moment, in microseconds."""

    entity_id: str
    at: int


class _Missing(msgspec.Struct):
    """Features of one entity and the moments at which they are needed."""

    features: dict[str, FeatureDef] = {}
    points: dict[_EntityMoment, None] = {}


class Recomputation:
    """The computed features of one entity at the rows of a frame.

    The first row shows which features are read; those are read for all rows at once. Values that
    only other rows need are read for many rows together, after which these are computed again.
    """

    def __init__(self, reader: Reader, reads: PastReads, folder: Path, *, known: bool) -> None:
        self._reader = reader
        self._reads = reads
        self._folder = folder
        self._known = known
        self._loaded: dict[tuple[str, str, int], Cell | None] = {}
        self._learned: dict[str, FeatureDef] = {}
        self._numbers = count()
        self._duck: Session

    async def answer(
        self,
        features: Sequence[FeatureDef],
        points: Path,
        answer: Path,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Write the columns of features, as ``FrameReader.read_frame`` does for stored ones."""
        names = [feature.name for feature in features]
        with ExitStack() as stack:
            self._duck = await asyncio.to_thread(stack.enter_context, session(self._folder))
            start = await asyncio.to_thread(self._fetch, f"{_ordered([points])} LIMIT {_ROWS + 1}")
            if len(start) > _ROWS:
                # Of a single page, the values that are missing are read for all rows anyway.
                await self._compute(names, [_EntityMoment(*start[0][1:])])
            inputs = self._in_order(self._learned.values())
            answers = await self._read(points, inputs)
            lines, longest = self._new_file("ndjson"), 0
            with lines.open("wb") as output:
                async for page in self._pages(points, inputs, answers):
                    values = await self._compute(names, list(dict.fromkeys(page.values())))
                    length = await asyncio.to_thread(_write, output, features, page, values)
                    longest = max(longest, length)
                    self._loaded.clear()
                    if progress is not None:
                        progress(max(page) + 1)
            await asyncio.to_thread(self._to_parquet, features, lines, longest, answer)

    async def _pages(
        self, points: Path, inputs: Sequence[FeatureDef], answers: Sequence[Path]
    ) -> AsyncIterator[dict[int, _EntityMoment]]:
        """Yield the moments by row, a page at a time, with the values of the inputs loaded."""
        cursor = self._duck.connection.cursor()  # others run between two pages
        await asyncio.to_thread(cursor.execute, _ordered([points, *answers]))
        while rows := await asyncio.to_thread(cursor.fetchmany, _ROWS):
            self._load(inputs, [row[1:] for row in rows])
            yield {row[0]: _EntityMoment(row[1], row[2]) for row in rows}

    def _load(self, inputs: Sequence[FeatureDef], rows: Iterable[Sequence[Any]]) -> None:
        """Load values: rows of entity id, moment, and value and ``as_of`` of each input."""
        for entity_id, at, *columns in rows:
            for place, feature in enumerate(inputs):
                value, as_of = columns[2 * place], columns[2 * place + 1]
                self._loaded[feature.series, entity_id, at] = (
                    None
                    if as_of is None
                    else Cell(msgspec.Raw((value or "null").encode()), as_of, as_of, derived=False)
                )

    async def _compute(
        self, names: Sequence[str], moments: Sequence[_EntityMoment]
    ) -> dict[_EntityMoment, FeatureRow]:
        """Return the values of features at some moments; load values until none is missing."""
        done: dict[_EntityMoment, FeatureRow] = {}
        left = moments
        while left:
            missing: dict[str, _Missing] = {}
            for some in batched(left, _CONCURRENT):
                results = await asyncio.gather(*(self._one(names, moment) for moment in some))
                for moment, (row, unread) in zip(some, results, strict=True):
                    if row is not None:
                        done[moment] = row
                    for (series, entity_id), feature in unread.items():
                        group = missing.setdefault(feature.entity.name, _Missing())
                        group.features[series] = feature
                        group.points[_EntityMoment(entity_id, moment.at)] = None
                        if entity_id == moment.entity_id:
                            self._learned.setdefault(series, feature)
            for group in missing.values():
                await self._load_missing(group)
            left = [moment for moment in left if moment not in done]
        track_sources(
            part for row in done.values() for value in row.values() for part in value.provenance
        )
        return done

    async def _one(
        self, names: Sequence[str], moment: _EntityMoment
    ) -> tuple[FeatureRow | None, dict[tuple[str, str], FeatureDef]]:
        """Return the values at a moment, or the values to load first."""
        transaction = MomentTransaction(self._loaded, moment.at, known=self._known)
        token = enter(CallScope(transaction))
        row: FeatureRow | None = None
        failure: HeadwaterError | None = None
        try:
            (row,) = await self._reader.read(names, (moment.entity_id,))
        except HeadwaterError as error:
            failure = error
        finally:
            leave(token)
        if transaction.missing:
            return None, transaction.missing
        problem = transaction.refusal or failure
        if problem is not None:
            raise _failed(names, moment, problem) from failure
        return row, {}

    async def _load_missing(self, missing: _Missing) -> None:
        """Load features for some moments, also the ones that were not missing there."""
        inputs, points = self._in_order(missing.features.values()), self._new_file("parquet")
        await asyncio.to_thread(self._write_points, missing.points, points)
        answers = await self._read(points, inputs)
        rows = await asyncio.to_thread(self._fetch, _ordered([points, *answers]))
        self._load(inputs, [row[1:] for row in rows])

    def _write_points(self, moments: Iterable[_EntityMoment], points: Path) -> None:
        rows = [{"row": number, **asdict(moment)} for number, moment in enumerate(moments)]
        self._duck.load_rows("points", rows, _POINT_COLUMNS)
        self._duck.write("FROM points", points)
        self._duck.run("DROP TABLE points")

    def _fetch(self, sql: str) -> list[tuple[Any, ...]]:
        return self._duck.run(sql).fetchall()

    def _is_read_as_known(self, feature: FeatureDef) -> bool:
        return self._known or is_of_its_computation(feature)

    def _in_order(self, features: Iterable[FeatureDef]) -> list[FeatureDef]:
        """Return features in the order in which `_read` answers them."""
        return sorted(features, key=self._is_read_as_known)

    async def _read(self, points: Path, inputs: Sequence[FeatureDef]) -> list[Path]:
        """Read inputs from history, as JSON text, which the reader decodes as it does online."""
        answers = []
        for is_known, some in groupby(inputs, self._is_read_as_known):
            answers.append(self._new_file("parquet"))
            reading = Reading(list(some), is_known, as_json=True)
            await self._reads.read(points, reading, answers[-1])
        return answers

    def _to_parquet(
        self, features: Sequence[FeatureDef], lines: Path, longest: int, answer: Path
    ) -> None:
        columns = {"row": "BIGINT"}
        selected = ["row"]
        for place, feature in enumerate(features):
            kind = feature.codec.kind
            columns |= {f"v{place}": _TYPES.get(kind, "VARCHAR"), f"a{place}": "BIGINT"}
            value = f"CAST(v{place} AS TIMESTAMPTZ) AS v{place}" if kind == "time" else f"v{place}"
            selected += [value, f"a{place}"]
        self._duck.load("computed", lines, columns, longest=longest)
        self._duck.write(f"SELECT {', '.join(selected)} FROM computed ORDER BY row", answer)

    def _new_file(self, kind: str) -> Path:
        return self._folder / f"computed{next(self._numbers)}.{kind}"


def _ordered(files: Sequence[Path]) -> str:
    """Return the query of points and answers, in the order of their rows."""
    points, *answers = files
    joins = "".join(
        f" JOIN ({parquet([file])}) AS e{n} USING (row)" for n, file in enumerate(answers)
    )
    others = "".join(f", e{n}.* EXCLUDE row" for n in range(len(answers)))
    return f'SELECT row, entity_id, "at"{others} FROM ({parquet([points])}){joins} ORDER BY row'


def _write(
    output: BinaryIO,
    features: Sequence[FeatureDef],
    page: Mapping[int, _EntityMoment],
    values: Mapping[_EntityMoment, FeatureRow],
) -> int:
    """Write a page as lines of JSON; return the length of the longest one."""
    lines = _encode_lines(
        [{"row": row} | dict(_cells(features, values[moment])) for row, moment in page.items()]
    )
    output.write(lines)
    return max(map(len, lines.splitlines()))


def _cells(features: Sequence[FeatureDef], row: FeatureRow) -> Iterator[tuple[str, Any]]:
    for place, feature in enumerate(features):
        value, plain = row[feature.name], None
        if value.value is not None:
            # In the form of its column: JSON text of an object, else the value itself.
            encoded = feature.codec.encode(value.value)
            plain = encoded.decode() if feature.codec.kind == "json" else msgspec.Raw(encoded)
        yield f"v{place}", plain
        yield f"a{place}", None if value.as_of is None else to_micros(value.as_of)


def _failed(names: Sequence[str], moment: _EntityMoment, problem: HeadwaterError) -> HeadwaterError:
    at = from_micros(moment.at).isoformat()
    if isinstance(problem, FeatureFailedError):
        return HeadwaterError(f"{problem} (at {at}); return None where a value is missing")
    return InvalidInputError(f"{', '.join(names)} of {moment.entity_id!r} at {at}: {problem}")


class NotLoadedError(HeadwaterError):
    """A past value that has to be loaded before the function can run."""


class MomentTransaction(HandlerTransaction):
    """One computation at a moment of the past, from values that have been loaded.

    A read of any other value is listed in ``missing`` and ends the computation, which is repeated
    when that value has been loaded.
    """

    __slots__ = ("_at", "_known", "_values", "missing", "refusal")

    is_past = True

    def __init__(self, values: LoadedValues, at: int, *, known: bool) -> None:
        super().__init__(_NOTHING, at, at, _NO_EVENT)
        self._values = values
        self._at = at
        self._known = known
        self.missing: dict[tuple[str, str], FeatureDef] = {}
        """The features to load, by series and entity id."""
        self.refusal: HeadwaterError | None = None
        """The first thing that the function did and that has no past, also if it was caught."""

    @property
    def known_at(self) -> datetime | None:
        """The moment, if the values are those that were served then."""
        return from_micros(self._at) if self._known else None

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return a value that has been loaded; raise KeyError for any other one."""
        if not feature.lineage:
            return self._values[feature.series, key[1], self._at]
        chain = [series for series, _ in feature.chain]
        return last_cell(feature, {s: self._values[s, key[1], self._at] for s in chain})

    async def get(
        self, entity: str, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return the values of features at the moment."""
        read = [feature for feature in features if self._known or not feature.derived]
        cells = [self._cells((entity, entity_id), read) for entity_id in entity_ids]
        if self.missing:
            raise NotLoadedError("a past value is not loaded yet")
        return cells

    def _cells(self, key: EntityKey, features: Sequence[FeatureDef]) -> Cells:
        cells: Cells = {}
        for feature in features:
            try:
                cell = self.cell(key, feature)
            except KeyError:
                for series, _ in feature.chain:
                    self.missing[series, key[1]] = replace(feature, series=series)
            else:
                if cell is not None:
                    cells[feature.series] = cell
        return cells

    def is_computable(self, feature: FeatureDef) -> bool:
        """Return whether a value without a past is computed again, and not missing."""
        if feature.derived:
            return True
        if not feature.has_history:
            raise self._refused(
                f"it reads {feature.name!r}, which has no history because it is computed at every "
                "read; declare that one with derived=True or log=True"
            )
        return False

    def check_allowed(self, verb: str) -> None:
        """Raise an error for every verb that is not a read of features."""
        raise self._refused(
            f"its function calls {verb}, and a derived feature depends on nothing but the features "
            "that it reads; declare it with log=True instead of derived=True"
        )

    async def add_to_history(self, change: Change) -> None:
        """Do nothing: a value of the past that is computed now was never served."""

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Refuse a write."""
        self.check_allowed("set_feature")

    def stage_document(self, write: DocumentWrite) -> None:
        """Refuse a write."""
        self.check_allowed("index")

    def _refused(self, problem: str) -> HeadwaterError:
        error = InvalidInputError(problem)
        self.refusal = self.refusal or error
        return error


_NO_EVENT = Delivery("0", ServiceEvent(f"{INTERNAL}moment", "none"))
_NOTHING = BatchState()
