"""Fitting: which items go into a context, so that its text keeps to a budget of tokens.

Required items come first, then the others from the highest priority down; of equals, the one
declared first. The items that are kept appear in the order in which they were declared.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from headwater.errors import InvalidInputError, TokenBudgetError
from headwater.tokens import Edges, Tokenizer

Decision = Literal["kept", "truncated", "dropped"]
Reason = Literal["required", "fits", "shortened", "over_budget", "outranked"]


class Candidate(msgspec.Struct, frozen=True):
    """An item that would like to be in the context."""

    content: str
    priority: int = 0
    required: bool = False
    truncate: bool = False
    """Whether it may be shortened when it is the first that does not fit."""


class Policy(msgspec.Struct, frozen=True):
    """What a context may take, and what happens when its required items take more."""

    max_tokens: int | None = None
    separator: str = "\n\n"
    on_overflow: Literal["error", "flag"] = "error"
    backfill: bool = False
    """Whether smaller items may take the room of a larger one that did not fit."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidInputError(
                f"max_tokens is {self.max_tokens}; give a number above zero, or None for no budget"
            )
        if self.on_overflow not in ("error", "flag"):
            raise InvalidInputError(f"on_overflow is {self.on_overflow!r}; it is 'error' or 'flag'")


class Choice(msgspec.Struct, frozen=True, gc=False):
    """What became of a candidate, and why."""

    decision: Decision
    reason: Reason
    emitted: str | None
    """Its text in the context; None if it was dropped."""

    tokens: int
    """Those of its content by itself."""

    emitted_tokens: int
    short_by: int
    """How much larger the budget had to be to keep it whole; 0 if it was.

    Exact: with that much more it is kept, with one less it is not. With backfill, where a larger
    budget may admit others instead, it holds for this candidate with everything else as it was.
    """


class Fitted(msgspec.Struct, frozen=True):
    """A context's text, its tokens counted anew, and a choice for each candidate."""

    content: str
    tokens: int
    overflow: bool
    """Whether the required items alone take more than the budget."""

    choices: tuple[Choice, ...]


def fit(candidates: Sequence[Candidate], policy: Policy, tokenizer: Tokenizer) -> Fitted:
    """Chooses what is kept within the budget; the same for the same input.

    Raises `TokenBudgetError` if the required items do not fit, unless the policy is to flag that.
    """
    limit = sys.maxsize if policy.max_tokens is None else tokenizer.usable(policy.max_tokens)
    required = {place for place, candidate in enumerate(candidates) if candidate.required}
    whole = {place for place in required if not candidates[place].truncate}
    filling = _Filling(candidates, policy, tokenizer, limit, whole)
    if not required <= filling.emitted.keys():
        filling = _Filling(candidates, policy, tokenizer, limit, required)
    if filling.reserved > limit and policy.on_overflow == "error":
        raise TokenBudgetError(
            needed=tokenizer.budget_for(filling.reserved),
            available=policy.max_tokens or 0,
            items={place: tokenizer.count(candidates[place].content) for place in sorted(required)},
        )
    content = policy.separator.join(filling.emitted[place] for place in sorted(filling.emitted))
    return Fitted(
        content=content,
        tokens=tokenizer.count(content),
        overflow=filling.reserved > limit,
        choices=tuple(filling.choice(place) for place in range(len(candidates))),
    )


class _Filling:
    """A draft that is filled with one item after another until the budget is used up."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        policy: Policy,
        tokenizer: Tokenizer,
        limit: int,
        reserved: set[int],
    ) -> None:
        self._candidates = candidates
        self._policy = policy
        self._tokenizer = tokenizer
        self._limit = limit
        self._draft = _Draft(policy.separator, tokenizer)
        self.emitted: dict[int, str] = {}
        self._needs: dict[int, int] = {}
        self._first: int | None = None
        for place in sorted(reserved):
            self._keep(place, candidates[place].content)
        self.reserved = self._least = self._draft.tokens
        ranks = [(not item.required, -item.priority, n) for n, item in enumerate(candidates)]
        for _, _, place in sorted(ranks):
            if place not in reserved:
                self._offer(place)

    def _keep(self, place: int, text: str) -> None:
        self.emitted[place] = text
        self._draft.add(place, text)

    def _offer(self, place: int) -> None:
        item = self._candidates[place]
        needed = max(self._least, self._draft.tokens_with(place, item.content))
        if needed <= self._limit:
            self._keep(place, item.content)
            return
        self._needs[place] = needed
        if self._first is None:
            self._first = place
            if item.truncate and (text := self._shortened(place)):
                self.emitted[place] = text
        if not self._policy.backfill:
            # A lower one is kept only by a budget that keeps this one, too.
            self._least = needed
            self._draft.add(place, item.content)
        elif place in self.emitted:
            self._draft.add(place, self.emitted[place])

    def _shortened(self, place: int) -> str | None:
        """What of an item there is room for."""
        content = self._candidates[place].content
        # Its edges may come out cheaper than this says, hence the two; dearer, and it is tried
        # again with less.
        room = self._limit - self._draft.tokens_with(place, "") + 2
        room = min(room, self._tokenizer.count(content) - 1)
        while room > 0 and (text := self._tokenizer.shorten(content, room)):
            excess = self._draft.tokens_with(place, text) - self._limit
            if excess <= 0:
                return text
            room -= excess
        return None

    def choice(self, place: int) -> Choice:
        """What became of a candidate."""
        item = self._candidates[place]
        tokens = self._tokenizer.edges(item.content, self._policy.separator).tokens
        needed = self._needs.get(place)
        if needed is None:
            reason: Reason = "required" if item.required else "fits"
            return Choice("kept", reason, item.content, tokens, tokens, 0)
        short_by = self._tokenizer.budget_for(needed) - (self._policy.max_tokens or 0)
        text = self.emitted.get(place)
        if text is not None:
            emitted = self._tokenizer.count(text)
            return Choice("truncated", "shortened", text, tokens, emitted, short_by)
        reason = "over_budget" if place == self._first or self._policy.backfill else "outranked"
        return Choice("dropped", reason, None, tokens, 0, short_by)


class _Piece(NamedTuple):
    text: str
    edges: Edges


class _Draft:
    """A text that grows by items in any order, and how many tokens it has.

    Between the last break of an item and the first break of the next, its tokens depend on both;
    only that seam is counted when an item comes in between.
    """

    def __init__(self, separator: str, tokenizer: Tokenizer) -> None:
        self.tokens = 0
        self._separator = separator
        self._tokenizer = tokenizer
        self._places: list[int] = []
        self._pieces: list[_Piece] = []

    def add(self, place: int, text: str) -> None:
        """Puts an item in its place."""
        self.tokens = self.tokens_with(place, text)
        at = bisect_left(self._places, place)
        self._places.insert(at, place)
        self._pieces.insert(at, _Piece(text, self._tokenizer.edges(text, self._separator)))

    def tokens_with(self, place: int, text: str) -> int:
        """How many tokens the draft would have with one more item."""
        edges = self._tokenizer.edges(text, self._separator)
        before, after = self._surroundings(place)
        seam = self._seam(*before, *after)
        if edges.left is None or edges.right is None:
            return self.tokens - seam + self._seam(*before, text, *after)
        left, right = self._seam(*before, edges.left), self._seam(edges.right, *after)
        return self.tokens - seam + left + edges.inner + right

    def _seam(self, *texts: str) -> int:
        return self._tokenizer.count(self._separator.join(texts))

    def _surroundings(self, place: int) -> tuple[list[str], list[str]]:
        """The texts from the last break before a place, and those to the first one after it."""
        low = high = bisect_left(self._places, place)
        before, after = [], []
        while low and (piece := self._pieces[(low := low - 1)]):
            before.append(piece.text if piece.edges.right is None else piece.edges.right)
            if piece.edges.right is not None:
                break
        while high < len(self._pieces) and (piece := self._pieces[high]):
            high += 1
            after.append(piece.text if piece.edges.left is None else piece.edges.left)
            if piece.edges.left is not None:
                break
        return before[::-1], after
