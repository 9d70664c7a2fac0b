"""A steady stream of events, and a reader that polls for their values."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from bench.case import Figure
from bench.load import percentile

PER_SECOND = 1_000
SECONDS = 3.0  # of publishing for each second of a round: a percentile needs many values
WATCHED = 2  # every so many events one is looked for
AT_ONCE = 16  # so many of the next ones in each look
PAUSE = 0.0005  # between two looks, so that the reader leaves the machine to the others
PATIENCE = 30.0


def events_in(seconds: float) -> int:
    """How many events a round has."""
    return round(PER_SECOND * SECONDS * seconds)


def paced(seconds: float) -> Iterator[tuple[str, float]]:
    """The entities that something happens to, and for how long to sleep until then."""
    start = time.perf_counter()
    for number in range(events_in(seconds)):
        yield f"u{number}", max(0.0, start + number / PER_SECOND - time.perf_counter())


class Watch:
    """Which values to look for next, and how long each of those seen has taken to appear.

    A value is the moment its event was sent, by the clock that all processes of a machine share.
    """

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._missing: dict[str, None] = {}
        self._took: list[float] = []

    def looks(self, seconds: float) -> Iterator[list[str]]:
        """Yield the values to poll for until all have been seen."""
        self._took = []
        numbers = range(0, events_in(seconds), WATCHED)
        self._missing = dict.fromkeys(f"u{number}" for number in numbers)
        until = time.monotonic() + SECONDS * seconds + PATIENCE
        while self._missing:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self._missing)} values did not appear")
            yield list(islice(self._missing, AT_ONCE))
            time.sleep(PAUSE)

    def saw(self, ids: Sequence[str], values: Sequence[float | None]) -> None:
        now = time.monotonic()
        for entity_id, sent in zip(ids, values, strict=True):
            if sent is not None and sent != self._known.get(entity_id):
                self._known[entity_id] = sent
                self._took.append(now - sent)
                del self._missing[entity_id]

    def figure(self) -> Figure:
        took = sorted(self._took)
        p50, p99 = percentile(took, 0.50) * 1000, percentile(took, 0.99) * 1000
        return Figure(p50, {"p50_ms": p50, "p99_ms": p99})
