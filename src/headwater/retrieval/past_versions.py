"""The version of an index at a past moment."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from headwater.core.clock import MICROSECOND, Clock, from_micros, to_micros
from headwater.core.durations import format_duration, to_timedelta
from headwater.declarations.indexes import IndexDef
from headwater.errors import DurationError, IndexVersionGoneError, InvalidInputError
from headwater.features.call_scope import ScopeClock
from headwater.model.indexes import Generation
from headwater.model.values import OUT_OF_RANGE, has_supported_year
from headwater.ports import IndexVersion, VectorIndex

AsOf = datetime | str
"""A moment, the text of one, a duration before now, or the text of a version of an index."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,18})", re.ASCII)


class _Moment(NamedTuple):
    """A time in microseconds, and the generation that was searched then, if it is known."""

    micros: int
    generation: int | None = None


async def version_at(
    vectors: VectorIndex, index: IndexDef, as_of: AsOf, clock: Clock
) -> IndexVersion | None:
    """Return the version that an index had at a moment; None if it had none yet.

    Raise InvalidInputError for a moment in the future, or one whose versions may be gone.
    """
    moment = _parse(as_of, ScopeClock(clock))
    current = await vectors.version(index.name)
    # The clock of the process that made the last change may be ahead of this one's.
    now = max(clock.micros(), 0 if current is None else current.changed_at)
    if moment.micros > now:
        raise InvalidInputError(f"as_of {_shown(moment)} is in the future")
    generations = await vectors.generations(index.name)
    generation = _generation(generations, moment)
    if generation is None:
        # Its first generation tells when an index began, unless that is gone.
        first = generations[0] if generations else None
        is_before_all = first is None or (
            first.number == 1 and to_micros(first.created_at) > moment.micros
        )
        if moment.generation is None and is_before_all:
            return None
        raise _gone(index, moment)
    if (
        current is not None
        and current.generation == generation.number
        and current.changed_at <= moment.micros
    ):
        return current  # nothing has changed since then
    if moment.micros < now - index.keep_versions // MICROSECOND:
        raise _gone(index, moment)
    return IndexVersion(index.name, generation.number, generation.spec, moment.micros)


def _parse(as_of: AsOf, clock: Clock) -> _Moment:
    if isinstance(as_of, str) and (version := _VERSION.fullmatch(as_of)):
        return _Moment(int(version[2]), int(version[1]))
    time = _time(as_of, clock)
    if time is None:
        raise InvalidInputError(
            f"as_of {reprlib.repr(as_of)} is neither a duration such as '2h', nor a time such as "
            "'2026-01-31T12:00:00Z', nor the version of an index as records show it, such as "
            "'1.1763260000000000'"
        )
    if time.tzinfo is None:
        raise InvalidInputError(
            f"as_of {time.isoformat()} needs a time zone, as in '{time.isoformat()}Z' or "
            "datetime.now(UTC)"
        )
    if not has_supported_year(time):
        raise InvalidInputError(f"as_of {time.isoformat()} is {OUT_OF_RANGE}")
    return _Moment(to_micros(time))


def _time(as_of: object, clock: Clock) -> datetime | None:
    """Return the time that was given, or that a text stands for; None if it stands for none."""
    if isinstance(as_of, datetime):
        return as_of
    if isinstance(as_of, str):
        with suppress(DurationError, OverflowError):
            return clock.now() - to_timedelta(as_of)
        with suppress(ValueError):
            return datetime.fromisoformat(as_of)
    return None


def _generation(generations: Sequence[Generation], moment: _Moment) -> Generation | None:
    """Return the generation that was searched at a moment, if it is still there."""
    if moment.generation is not None:
        return next((gen for gen in generations if gen.number == moment.generation), None)
    for generation in generations:
        began, ended = generation.activated_at, generation.retired_at
        has_begun = began is not None and to_micros(began) <= moment.micros
        if has_begun and (ended is None or moment.micros < to_micros(ended)):
            return generation
    return None


def _gone(index: IndexDef, moment: _Moment) -> IndexVersionGoneError:
    kept = format_duration(index.keep_versions // timedelta(milliseconds=1))
    return IndexVersionGoneError(index.name, _shown(moment), kept)


def _shown(moment: _Moment) -> str:
    if moment.generation is not None:
        return f"'{moment.generation}.{moment.micros}'"
    return from_micros(moment.micros).isoformat()
