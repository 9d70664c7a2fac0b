"""Checks of a running store: health, workers, lag, dead letters, breakers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from headwater.core.durations import format_duration
from headwater.core.findings import Finding, Findings
from headwater.errors import HeadwaterError
from headwater.ports import ConsumerLag
from headwater.store.feature_store import FeatureStore

_LATE_SECONDS = 60.0
_LETTERS_SHOWN = 1_000


async def findings(store: FeatureStore, open_breakers: Sequence[str] | None) -> list[Finding]:
    """Examine the work of a store that can be opened."""
    found = Findings("workload", f"consumer group {store.settings.worker.consumer_group}")
    try:
        await _add_health(store, found)
        await _add_lag(store, found)
        await _add_dead_letters(store, found)
    except HeadwaterError as error:
        found.error("store", str(error), "see the message; `headwater doctor` changes nothing")
    _add_breakers(open_breakers, found)
    return found.all


async def _add_health(store: FeatureStore, found: Findings) -> None:
    for part in await store.admin.health():
        if part.ok:
            found.ok("health", f"{part.name} can be read and written", part.name)
        else:
            remedy = "see the message" if part.needed else "events are still accepted meanwhile"
            found.error("health", part.detail, remedy, part.name)


async def _add_lag(store: FeatureStore, found: Findings) -> None:
    partitions = await store.admin.lag()
    unowned = [each for each in partitions if each.owner is None]
    waiting = sum(each.waiting for each in partitions)
    if unowned and waiting:
        found.error(
            "partitions",
            f"{len(unowned)} of {len(partitions)} have no worker, and {_waiting_text(waiting)}",
            "start `headwater worker FILE`, or see the logs of the workers",
        )
    elif unowned:
        found.warning(
            "partitions",
            f"{len(unowned)} of {len(partitions)} have no worker; nothing waits yet",
            "start `headwater serve FILE` or `headwater worker FILE`",
        )
    else:
        owners = len({each.owner for each in partitions})
        workers = "1 worker has" if owners == 1 else f"{owners} workers have"
        found.ok("partitions", f"{workers} all {len(partitions)}")
    _add_oldest(partitions, waiting, store.clock.now(), found)


def _add_oldest(
    partitions: Sequence[ConsumerLag], waiting: int, now: datetime, found: Findings
) -> None:
    oldest = min((each.oldest_at for each in partitions if each.oldest_at), default=None)
    if oldest is None:
        found.ok("lag", "no event waits")
        return
    seconds = max(0.0, (now - oldest).total_seconds())
    shown = f"{_waiting_text(waiting)}, the oldest for {format_duration(round(seconds * 1_000))}"
    if seconds > _LATE_SECONDS:
        found.warning("lag", shown, "add workers, or look for slow handlers in `headwater lag`")
    else:
        found.ok("lag", shown)


def _waiting_text(number: int) -> str:
    return "1 event waits" if number == 1 else f"{number} events wait"


async def _add_dead_letters(store: FeatureStore, found: Findings) -> None:
    letters = await store.dead_letters.list(limit=_LETTERS_SHOWN)
    if not letters:
        found.ok("dead letters", "none")
        return
    features = sorted({letter.feature or "(all)" for letter in letters})
    number = f"{len(letters)}{' or more' if len(letters) == _LETTERS_SHOWN else ''}"
    found.warning(
        "dead letters",
        f"{number}, of {', '.join(features[:5])}",
        "read the errors with `headwater dlq list`, then redrive or discard them",
    )


def _add_breakers(open_breakers: Sequence[str] | None, found: Findings) -> None:
    if open_breakers is None:
        found.unknown(
            "circuit breakers",
            "they are in the memory of the workers",
            "ask a running server: `headwater doctor --url URL`",
        )
    elif open_breakers:
        found.warning(
            "circuit breakers",
            f"open for {', '.join(sorted(open_breakers))}: their events get one attempt each",
            "read their errors with `headwater dlq list`; a success closes the breaker",
        )
    else:
        found.ok("circuit breakers", "all closed")
