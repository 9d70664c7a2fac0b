"""Fitting: choose the items of a context so that its text stays within a token budget.

Required items come first, then the others by descending priority; among equals, the one declared
first. The kept items appear in the order of their declaration. Empty items are kept and cost
nothing: no separator is written for them.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import msgspec

from headwater.core.tokens import Edges, Tokenizer
from headwater.errors import InvalidInputError, TokenBudgetError
from headwater.model.lineage import Decision

ChoiceReason = Literal["required", "fits", "shortened", "over_budget", "outranked"]


class Candidate(msgspec.Struct, frozen=True):
    """An item that is offered to the context."""

    content: str
    priority: int = 0
    required: bool = False
    truncate: bool = False
    """True if it may be shortened when it is the first that does not fit."""


class BudgetPolicy(msgspec.Struct, frozen=True):
    """The token budget of a context, and the rules for items that exceed it."""

    max_tokens: int | None = None
    separator: str = "\n\n"
    on_overflow: Literal["error", "flag"] = "error"
    backfill: bool = False
    """True if smaller items of lower priority may be kept after one that did not fit."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidInputError(
                f"max_tokens is {self.max_tokens}; give a number above zero, or None for no budget"
            )
        if self.on_overflow not in ("error", "flag"):
            raise InvalidInputError(f"on_overflow is {self.on_overflow!r}; use 'error' or 'flag'")


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The decision about a candidate, and its reason."""

    decision: Decision
    reason: ChoiceReason
    emitted: str | None
    """Its text in the context; None if it was dropped."""

    tokens: int
    """The tokens of its whole content alone."""

    emitted_tokens: int
    short_by: int
    """By how much the budget was too small to keep it whole; 0 if it was kept whole.

    The number is exact: with that much more it is kept, with one token less it is not. With
    backfill, where a larger budget may admit other items, it assumes the same other items.
    """


class Fitted(msgspec.Struct, frozen=True):
    """A context's text, its number of tokens, and a choice for each candidate."""

    content: str
    tokens: int
    overflow: bool
    """True if the required items alone exceed the budget."""

    choices: tuple[Choice, ...]


def fit(candidates: Sequence[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer) -> Fitted:
    """Choose the items that are kept within the budget; deterministic.

    Raises:
        TokenBudgetError: The required items do not fit, and the policy is not to flag that.
    """
    limit = sys.maxsize if policy.max_tokens is None else tokenizer.usable(policy.max_tokens)
    everything = _everything(candidates, policy, tokenizer, limit)
    if everything is not None:
        return everything
    required = {place for place, item in enumerate(candidates) if item.required and item.content}
    whole = {place for place in required if not candidates[place].truncate}
    filling = _Filling(candidates, policy, tokenizer, limit, whole)
    if not required <= filling.emitted.keys():
        filling = _Filling(candidates, policy, tokenizer, limit, required)
    if filling.reserved > limit and policy.on_overflow == "error":

        def holds_required(budget: int) -> bool:
            shortened = _Filling(candidates, policy, tokenizer, budget, whole)
            return shortened.reserved <= budget and required <= shortened.emitted.keys()

        enough = min(filling.reserved, filling.everything)
        budgets = range(limit + 1, enough)
        needed = budgets.start + bisect_left(budgets, x=True, key=holds_required)
        raise TokenBudgetError(
            needed=tokenizer.budget_for(needed),
            available=policy.max_tokens or 0,
            items={place: tokenizer.count(candidates[place].content) for place in sorted(required)},
        )
    texts = [filling.emitted[place] for place in sorted(filling.emitted)]
    return Fitted(
        content=policy.separator.join(texts),
        tokens=tokenizer.count_joined(texts, policy.separator),
        overflow=filling.reserved > limit,
        choices=tuple(filling.choice(place) for place in range(len(candidates))),
    )


def _everything(
    candidates: Sequence[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer, limit: int
) -> Fitted | None:
    """Return the fit with all candidates, or None if the budget is too small for all."""
    counts: list[int] = []
    remaining = limit
    for candidate in candidates:
        counts.append(tokenizer.count(candidate.content))
        remaining -= counts[-1]
        if remaining < 0:
            return None
    texts = [candidate.content for candidate in candidates if candidate.content]
    tokens = tokenizer.count_joined(texts, policy.separator)
    if tokens > limit:
        return None
    choices = (
        Choice("kept", "required" if item.required else "fits", item.content, count, count, 0)
        for item, count in zip(candidates, counts, strict=True)
    )
    content = policy.separator.join(texts)
    return Fitted(content, tokens, overflow=False, choices=tuple(choices))


def added_tokens(texts: Sequence[str], separator: str, tokenizer: Tokenizer) -> list[int]:
    """Return how many tokens each text adds to those before it, with the separator between them.

    Their sum is the number of tokens of the joined text. Empty texts are not joined and add none.
    """
    draft, added = _Draft(separator, tokenizer), []
    for place, text in enumerate(texts):
        before = draft.tokens
        if text:
            edges = tokenizer.edges(text, separator)
            draft.fill(draft.slot(place, edges), place, edges)
        added.append(draft.tokens - before)
    return added


class _Filling:
    """A draft that is filled with one item after another until the budget is used up."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        policy: BudgetPolicy,
        tokenizer: Tokenizer,
        limit: int,
        reserved: set[int],
    ) -> None:
        self._candidates = candidates
        self._policy = policy
        self._tokenizer = tokenizer
        self._limit = limit
        self._edges = [tokenizer.edges(item.content, policy.separator) for item in candidates]
        self._draft = _Draft(policy.separator, tokenizer)
        self.emitted: dict[int, str] = {}
        self._needs: dict[int, int] = {}
        self._first: int | None = None
        for place in sorted(reserved):
            self._keep(place, self._draft.slot(place, self._edges[place]))
        self.reserved = self._least = self._draft.tokens
        ranks = [(not item.required, -item.priority, n) for n, item in enumerate(candidates)]
        for _, _, place in sorted(ranks):
            if place not in reserved and candidates[place].content:
                self._offer(place)
        # All items together may have fewer tokens than some of them; then all are kept.
        counts = sum(edges.tokens for edges in self._edges)
        self.everything = sys.maxsize if policy.backfill else max(counts, self._draft.tokens)

    def _keep(self, place: int, slot: Slot) -> None:
        self.emitted[place] = self._candidates[place].content
        self._draft.fill(slot, place, self._edges[place])

    def _offer(self, place: int) -> None:
        edges = self._edges[place]
        slot = _, tokens = self._draft.slot(place, edges)
        needed = tokens if tokens > self._least else self._least
        if needed <= self._limit:
            self._keep(place, slot)
            return
        self._needs[place] = needed
        if self._first is None:
            self._first = place
            if self._candidates[place].truncate:
                self._shorten(place)
        if not self._policy.backfill:
            # An item of lower priority is kept only by a budget that keeps this one, too.
            self._least = needed
            self._draft.fill(slot, place, edges)

    def _shorten(self, place: int) -> None:
        """Emit as much of an item as fits."""
        content, separator = self._candidates[place].content, self._policy.separator
        # The seams may cost fewer tokens than estimated, hence the two; or more, hence the loop.
        empty = self._tokenizer.edges("", separator)
        _, tokens = self._draft.slot(place, empty)
        remaining = self._limit - tokens + 2
        remaining = min(remaining, self._edges[place].tokens - 1)
        while remaining > 0 and (text := self._tokenizer.shorten(content, remaining)):
            edges = self._tokenizer.edges(text, separator)
            slot = _, tokens = self._draft.slot(place, edges)
            if tokens <= self._limit:
                self.emitted[place] = text
                if self._policy.backfill:
                    self._draft.fill(slot, place, edges)
                return
            remaining -= tokens - self._limit

    def choice(self, place: int) -> Choice:
        """Return the decision about a candidate."""
        item = self._candidates[place]
        tokens = self._edges[place].tokens
        needed = self._needs.get(place)
        if needed is None:
            reason: ChoiceReason = "required" if item.required else "fits"
            return Choice("kept", reason, item.content, tokens, tokens, 0)
        budget = self._tokenizer.budget_for(min(needed, self.everything))
        short_by = budget - (self._policy.max_tokens or 0)
        text = self.emitted.get(place)
        if text is not None:
            emitted = self._tokenizer.count(text)
            return Choice("truncated", "shortened", text, tokens, emitted, short_by)
        reason = "over_budget" if place == self._first or self._policy.backfill else "outranked"
        return Choice("dropped", reason, None, tokens, 0, short_by)


class _Seams(dict[tuple[str | None, str | None], int]):
    """Token counts of two texts with a separator between them, each counted once."""

    def __init__(self, separator: str, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._separator = separator
        self._tokenizer = tokenizer

    def __missing__(self, sides: tuple[str | None, str | None]) -> int:
        self[sides] = tokens = self._tokenizer.count(self.joined(*sides))
        return tokens

    def joined(self, before: str | None, after: str | None) -> str:
        if before is None or after is None:
            return before or after or ""
        return before + self._separator + after


Slot = tuple[int, int]
"""An index in a draft, and the number of tokens of the draft when it is filled."""


class _Draft:
    """A text to which items are added in any order, and its number of tokens.

    Between the last break of one item and the first break of the next, tokens depend on both items:
    a seam. Adding an item counts only its seams; an item without a break is part of a seam.
    """

    def __init__(self, separator: str, tokenizer: Tokenizer) -> None:
        self.tokens = 0
        self._places: list[int] = []
        self._edges: list[Edges] = []
        self._seams = _Seams(separator, tokenizer)

    def slot(self, place: int, edges: Edges) -> Slot:
        """Return the index of an item, and the number of tokens of the draft with it."""
        at = bisect_left(self._places, place)
        return at, self._tokens_with(at, edges)

    def fill(self, slot: Slot, place: int, edges: Edges) -> None:
        """Put an item into its slot."""
        at, self.tokens = slot
        self._places.insert(at, place)
        self._edges.insert(at, edges)

    def _tokens_with(self, at: int, edges: Edges) -> int:
        around, seams = self._edges, self._seams
        before = after = None
        if at:
            side = around[at - 1]
            before = side.right if side.breaks else self._before(at)
        if at < len(around):
            side = around[at]
            after = side.left if side.breaks else self._after(at)
        others = self.tokens - seams[before, after]
        if not edges.breaks:
            return others + seams[seams.joined(before, edges.left), after]
        return others + seams[before, edges.left] + edges.inner + seams[edges.right, after]

    def _before(self, at: int) -> str | None:
        """Return the text between an index and the last break before it."""
        text = None
        while at:
            at -= 1
            edges = self._edges[at]
            text = edges.right if text is None else self._seams.joined(edges.right, text)
            if edges.breaks:
                break
        return text

    def _after(self, at: int) -> str | None:
        """Return the text between an index and the first break after it."""
        text = None
        while at < len(self._edges):
            edges = self._edges[at]
            text = edges.left if text is None else self._seams.joined(text, edges.left)
            if edges.breaks:
                break
            at += 1
        return text
