"""Fitting the items of a context into its budget, as text or as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headwater.contexts.budget import BudgetPolicy, Candidate, Envelope, Fitted, fit
from headwater.contexts.counters import ModelCounters
from headwater.contexts.requests import (
    RequestDraft,
    SentRequest,
    compose_kept,
    draft,
    grouped,
    groups_of,
    has_messages,
    recorded_losses,
    request_of,
    within_window,
    worst_grade,
)
from headwater.core.logging import log
from headwater.core.tokens import Tokenizer
from headwater.declarations.contexts import ContextDef
from headwater.declarations.interceptors import Interceptor
from headwater.declarations.items import ContextItem
from headwater.errors import TokenBudgetError, TokenCountError
from headwater.messages.parts import ModelRequest
from headwater.ports import TokenCounter
from headwater.records import core as crs

# Tokenising this many characters takes a fraction of a millisecond, and at worst 25 ms.
_LONGEST_INLINE = 16_384


class FittedItems(NamedTuple):
    """The decisions about the items of a context, and the policy that they followed.

    `sent` says how they are sent, if they are messages. `groups` has the group of each item of a
    text; it is empty if there is none.
    """

    policy: BudgetPolicy
    tokenizer: Tokenizer
    fitted: Fitted
    sent: SentRequest | None
    groups: Sequence[int | None] = ()


class _Attempt(NamedTuple):
    """A fit of messages, and its request."""

    fitted: Fitted
    request: ModelRequest
    losses: tuple[crs.Loss, ...]


class ItemFitter:
    """Fits items by the counters of a store."""

    def __init__(self, counters: ModelCounters, interceptors: Interceptor) -> None:
        self._counters = counters
        self._fit = interceptors.call("fit", _fit)

    async def fit(
        self, items: Sequence[ContextItem], policy: BudgetPolicy, definition: ContextDef
    ) -> FittedItems:
        """Choose the items that are kept."""
        model = definition.model
        if has_messages(items):
            return await self._fit_messages(items, policy, definition)
        if definition.max_output is not None:
            policy = within_window(policy, self._counters.counter_for(model).window, definition)
        tokenizer = self._counters.tokenizer_for(model)
        candidates = [Candidate(i.content, i.priority, i.required, i.truncate) for i in items]
        groups: Sequence[int | None] = ()
        for item in items:
            if item.group is not None:
                groups = groups_of(items)
                candidates = grouped(candidates, groups)
                break
        fitted = await self._fit(candidates, policy, tokenizer)
        return FittedItems(policy, tokenizer, fitted, None, groups)

    async def _fit_messages(
        self, items: Sequence[ContextItem], policy: BudgetPolicy, definition: ContextDef
    ) -> FittedItems:
        """Fit by the local count, and by that of the whole request if something counts it."""
        model = definition.model
        counter = self._counters.counter_for(model)
        policy = within_window(policy, counter.window, definition)
        whole = self._counters.whole_counter(model, ask_provider=definition.count == "provider")
        drafted = draft(items, counter)
        if whole is not None:
            try:
                return await self._fit_counted(
                    items, drafted.without_margin(), policy, definition, whole
                )
            except TokenCountError as error:
                log.warning("tokens not counted by the provider", model=model, error=str(error))
        tokenizer = counter.tokenizer
        limit = None if policy.max_tokens is None else tokenizer.usable(policy.max_tokens)
        attempt = await self._attempt(items, drafted, policy, definition, limit)
        fitted, request, losses = attempt
        if whole is not None or definition.count == "provider":
            asked = str(model) if whole is None else whole.source
            losses += (crs.Loss(name=crs.NOT_COUNTED, provider=asked, item=None),)
        grade = worst_grade(items, drafted, fitted)
        info = drafted.recorded(grade, counter.source, limit)
        return FittedItems(policy, tokenizer, fitted, SentRequest(drafted, info, request, losses))

    async def _fit_counted(
        self,
        items: Sequence[ContextItem],
        drafted: RequestDraft,
        policy: BudgetPolicy,
        definition: ContextDef,
        whole: TokenCounter,
    ) -> FittedItems:
        """Fit so that the count of the whole request stays within the budget.

        If it does not, the lowest items are taken back, in the proportion of the two counts.
        """
        budget = limit = policy.max_tokens
        local = tokens = 1
        while True:
            try:
                attempt = await self._attempt(items, drafted, policy, definition, limit)
            except TokenBudgetError as error:
                needed = -(-error.needed * tokens // local)
                raise TokenBudgetError(needed, error.available, error.items) from None
            local, tokens = attempt.fitted.tokens, await whole.count(attempt.request)
            if budget is None or tokens <= budget or attempt.fitted.overflow:
                break
            limit = min(local * budget // tokens, local - 1)
        info = drafted.recorded(whole.grade, whole.source, limit)
        sent = SentRequest(drafted, info, attempt.request, attempt.losses)
        fitted = replace(attempt.fitted, tokens=tokens)
        return FittedItems(policy, drafted.counter.tokenizer, fitted, sent)

    async def _attempt(
        self,
        items: Sequence[ContextItem],
        drafted: RequestDraft,
        policy: BudgetPolicy,
        definition: ContextDef,
        limit: int | None,
    ) -> _Attempt:
        tokenizer = drafted.counter.tokenizer
        fitted = await self._fit(drafted.candidates, policy, tokenizer, drafted.envelope, limit)
        composed = compose_kept(items, drafted, fitted, policy.separator)
        request = request_of(composed, definition)
        return _Attempt(fitted, request, recorded_losses(request, composed))


async def _fit(
    candidates: Sequence[Candidate],
    policy: BudgetPolicy,
    tokenizer: Tokenizer,
    envelope: Envelope | None = None,
    limit: int | None = None,
) -> Fitted:
    """Fit the candidates here if they are short, and otherwise in a thread."""
    if sum([len(candidate.content) for candidate in candidates]) <= _LONGEST_INLINE:
        return fit(candidates, policy, tokenizer, envelope, limit)
    return await asyncio.to_thread(fit, candidates, policy, tokenizer, envelope, limit)
