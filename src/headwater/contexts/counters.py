"""The counters of a store's models, whose margins follow the measured error."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from copy import copy

from msgspec.structs import replace

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.core.models import ModelTable
from headwater.core.tokens import Tokenizer, tokenizer_of
from headwater.errors import HeadwaterError
from headwater.messages.counting import Counters, RequestCounter
from headwater.ports import RecordLog, TokenCounter
from headwater.settings.schema import Settings

FEWEST = 10
"""Measurements from which on they count: a single answer may be to another request."""
ENOUGH = 100
"""Measurements from which on their error replaces the margin of the table."""

_REFRESH_SECONDS = 60.0
_MOST_MODELS = 1_024


def measured_margin(measured: Sequence[tuple[int, int]], margin_percent: int) -> int:
    """Return the margin of a model by predicted and billed tokens of its newest requests.

    It is the error that 99 of 100 requests stay within, rounded up, and never below it. Few
    measurements can only raise the margin of the table, and very few do not count.

    >>> measured_margin([(100, 100)] * 989 + [(100, 107)] * 11, 30)
    7
    >>> measured_margin([(100, 150)] * 10, 30)
    50
    >>> measured_margin([(100, 150)], 30)
    30
    >>> measured_margin([(100, 90)] * 10, 30)
    30
    """
    pairs = [pair for pair in measured if min(pair) > 0]
    if len(pairs) < FEWEST:
        return margin_percent
    error = error_percent(pairs)
    return error if len(pairs) >= ENOUGH else max(margin_percent, error)


def error_percent(measured: Sequence[tuple[int, int]]) -> int:
    """Return the error that 99 of 100 requests stay within, rounded up; less has no error."""
    errors = sorted(
        max(0, -(-(billed - predicted) * 100 // predicted)) for predicted, billed in measured
    )
    return errors[-(-len(errors) * 99 // 100) - 1]


class ModelCounters:
    """Counts the tokens of a store's models, by its settings and with measured margins.

    Margins are read in the background, at most once a minute for each model that is in use.
    """

    def __init__(self, settings: Settings, records: RecordLog, clock: Clock) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self._counters = Counters(ModelTable(settings.tokens.models))
        self._margins: dict[str, int] = {}
        self._read_at: dict[str, float] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._whole: dict[str | None, TokenCounter | None] = {}

    def tokenizer_for(self, model: str | None) -> Tokenizer:
        """Return the tokenizer of the text of a model."""
        # Its margin does not follow billed tokens, which include what is sent around the text.
        return tokenizer_of(self._counters.models.find(model))

    def counter_for(self, model: str | None) -> RequestCounter:
        """Return the counter of requests to a model."""
        counter = self._counters.counter_for(model)
        if model is None:
            return counter
        tokenizer = self._with_margin(counter.tokenizer, model)
        return counter if tokenizer is counter.tokenizer else replace(counter, tokenizer=tokenizer)

    def pinned(self, model: str | None, margin_percent: int) -> ModelCounters:
        """Return counters with the former margin of a model, for a replay."""
        pinned = copy(self)
        if model is not None:
            vars(pinned).update(_margins={model: margin_percent}, _read_at={model: math.inf})
        return pinned

    def whole_counter(self, model: str | None, *, ask_provider: bool) -> TokenCounter | None:
        """Return what counts whole requests; without `ask_provider` nothing that uses the network.

        The first call for an open model reads its files: `load` does that in a thread.
        """
        found = self._counters.models.find(model)
        if found.folder is None and not ask_provider:
            return None
        if model not in self._whole:
            from headwater.contexts.provider_counts import counter_of  # noqa: PLC0415 - loads httpx

            self._whole[model] = counter_of(found, self._settings, self._clock)
        return self._whole[model]

    def load(self, model: str | None) -> None:
        """Load what counts the tokens of a model, which takes up to half a second."""
        self.tokenizer_for(model).load()
        self._counters.counter_for(model)
        if self._counters.models.find(model).folder is not None:
            self.whole_counter(model, ask_provider=False)

    async def refresh(self, model: str) -> None:
        """Read the measured error of a model now."""
        table = self._counters.counter_for(model).tokenizer
        measured = await self._records.measured(model)
        self._margins[model] = measured_margin(measured, table.margin_percent) if measured else -1

    def _with_margin(self, tokenizer: Tokenizer, model: str) -> Tokenizer:
        self.refresh_later(model)
        margin = self._margins.get(model, -1)
        if margin in (-1, tokenizer.margin_percent):
            return tokenizer
        return replace(tokenizer, margin_percent=margin)

    def refresh_later(self, model: str) -> None:
        """Read the measured error of a model in the background, unless that was done just now."""
        now = time.monotonic()
        if now - self._read_at.get(model, -_REFRESH_SECONDS) < _REFRESH_SECONDS:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # in a thread; the next context on the loop reads it
        if len(self._read_at) >= _MOST_MODELS:
            self._read_at.clear()
        self._read_at[model] = now
        task = loop.create_task(self._try_refresh(model))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _try_refresh(self, model: str) -> None:
        try:
            await self.refresh(model)
        except HeadwaterError as error:
            log.warning("margin not read; keeping the last one", model=model, error=str(error))

    async def close(self) -> None:
        """End the reads and close the connections."""
        for task in [*self._reading]:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for counter in self._whole.values():
            if counter is not None:
                await counter.close()
