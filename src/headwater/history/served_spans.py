"""Known values of features that were served from several series, or with several defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from headwater.core.clock import from_micros, to_micros
from headwater.core.duckdb_session import parquet, session
from headwater.core.sql_literals import text
from headwater.declarations.features import FeatureDef
from headwater.declarations.meanings import FeatureSince, PastNames, default_text
from headwater.history.column_types import column_type, from_json
from headwater.history.columns import Reading


class VersionedReading(msgspec.Struct, frozen=True):
    """A reading of every version that was served, and what its columns are chosen from."""

    reading: Reading
    columns: Sequence[Sequence[tuple[FeatureSince, int]]]
    """For each column of the answer, the spans of its feature and their places in the reading."""

    def write(self, points: Path, every: Path, answer: Path) -> None:
        """Write the answer: for each row the value of the version that was served at its moment.

        The default of that moment stands where there was no value.
        """
        selected = ["row"]
        for place, spans in enumerate(self.columns):
            selected.append(f"{_chosen(spans, _value)} AS v{place}")
            selected.append(f"{_chosen(spans, lambda _, number: f'a{number}')} AS a{place}")
        with session(answer.parent) as duck:
            duck.write(
                f"SELECT {', '.join(selected)} FROM ({parquet([every])})"
                f' JOIN (SELECT row, "at" FROM ({parquet([points])})) USING (row) ORDER BY row',
                answer,
            )


class ServedSpans(msgspec.Struct, frozen=True):
    """The requested features as they were served, and those that were not always the same."""

    features: Sequence[FeatureDef] = ()
    changed: Mapping[str, Sequence[FeatureSince]] = {}

    def versioned(self, reading: Reading) -> VersionedReading | None:
        """Return how a reading is answered if one of its features was not always the same."""
        if not any(feature.name in self.changed for feature in reading.features):
            return None
        every: dict[str, FeatureDef] = {}
        spans = [
            self.changed.get(feature.name, [FeatureSince(_EVER, feature)])
            for feature in reading.features
        ]
        for span in (span for of_feature in spans for span in of_feature):
            every.setdefault(span.feature.series, span.feature)
        places = {series: place for place, series in enumerate(every)}
        return VersionedReading(
            replace(reading, features=list(every.values())),
            [[(span, places[span.feature.series]) for span in of_feature] for of_feature in spans],
        )


_EVER = from_micros(0)


def served_spans(features: Sequence[FeatureDef], names: PastNames, points: Path) -> ServedSpans:
    """Return features as they were served at the moments of some points."""
    with session(points.parent) as duck:
        row = duck.run(f'SELECT min("at"), max("at") FROM ({parquet([points])})').fetchone()
    if row is None or row[0] is None:
        return ServedSpans(features)
    start, end = from_micros(row[0]), from_micros(row[1])
    spans = {feature.name: names.spans(feature, start, end) for feature in features}
    changed = {name: some for name, some in spans.items() if len(some) > 1}
    # The default of a row's moment is in the answer; none of the present stands in for it.
    return ServedSpans(
        [
            replace(feature, default=None)
            if feature.name in changed
            else spans[feature.name][0].feature
            for feature in features
        ],
        changed,
    )


def _chosen(
    spans: Sequence[tuple[FeatureSince, int]], expression: Callable[[FeatureDef, int], str]
) -> str:
    """Return the SQL that chooses by the moment of a row."""
    sql = expression(spans[0][0].feature, spans[0][1])
    for span, place in spans[1:]:
        later = expression(span.feature, place)
        sql = f'CASE WHEN "at" >= {to_micros(span.since)} THEN {later} ELSE {sql} END'
    return sql


def _value(feature: FeatureDef, place: int) -> str:
    default = default_text(feature)
    if default is None:
        return f"v{place}"
    kind = feature.codec.kind
    fallback = text(default) if kind == "json" else from_json(text(default), column_type(feature))
    return f"CASE WHEN a{place} IS NULL THEN {fallback} ELSE v{place} END"
