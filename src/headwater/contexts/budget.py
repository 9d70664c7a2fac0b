"""Fitting: choose the items of a context so that its text stays within a token budget.

Required items come first, then the others by descending priority; among equals, the one declared
first. The kept items appear in the order of their declaration. Empty items are kept and cost
nothing: no separator is written for them.

Items of one group are kept or dropped together. The items of a context of messages belong to
messages, each with an envelope of tokens of its own.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple

import msgspec

from headwater.core.tokens import Edges, Tokenizer
from headwater.errors import InvalidInputError, TokenBudgetError
from headwater.messages.texts import Layout, transcript
from headwater.model.lineage import Decision

ChoiceReason = Literal["required", "fits", "shortened", "over_budget", "outranked", "missing"]


class Candidate(msgspec.Struct, frozen=True):
    """An item that is offered to the context."""

    content: str
    priority: int = 0
    required: bool = False
    truncate: bool = False
    """True if it may be shortened when it is the first that does not fit."""
    fixed: int | None = None
    """The tokens of a tool, or of a part of a message that is not text."""
    group: int | None = None
    """Candidates with the same number are kept or dropped together."""


class Envelope(NamedTuple):
    """The messages of a request, and the tokens around their parts.

    The tokens are those of the request, of each message, and of all tools.
    """

    layout: Layout
    request: int
    message: int
    tools: int


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

    def without(self, missing: Set[int]) -> Fitted:
        """Return the fit with the decision that these items, which are empty, were left out."""
        if not missing:
            return self
        choices = (
            _MISSING if place in missing else choice for place, choice in enumerate(self.choices)
        )
        return msgspec.structs.replace(self, choices=tuple(choices))


_MISSING = Choice("dropped", "missing", None, 0, 0, 0)


def fit(
    candidates: Sequence[Candidate],
    policy: BudgetPolicy,
    tokenizer: Tokenizer,
    envelope: Envelope | None = None,
    limit: int | None = None,
) -> Fitted:
    """Choose the items that are kept within the budget; deterministic.

    With an ``envelope``, the candidates are those of messages. A ``limit`` of counted tokens
    replaces that of the policy.

    Raises:
        TokenBudgetError: The required items do not fit, and the policy is not to flag that.
    """
    if limit is None:
        limit = sys.maxsize if policy.max_tokens is None else tokenizer.usable(policy.max_tokens)
    everything = _everything(candidates, policy, tokenizer, limit, envelope)
    if everything is not None:
        return everything
    units = _units(candidates)
    required = {place for place, unit in enumerate(units) if unit.required and unit.is_present}
    whole = {place for place in required if not units[place].truncate}

    def filling_of(budget: int, reserved: set[int]) -> _Filling:
        return _Filling(candidates, units, policy, tokenizer, budget, reserved, envelope)

    filling = filling_of(limit, whole)
    if not required.isdisjoint(filling.dropped):
        filling = filling_of(limit, required)
    if filling.reserved > limit and policy.on_overflow == "error":

        def holds_required(budget: int) -> bool:
            shortened = filling_of(budget, whole)
            return shortened.reserved <= budget and required.isdisjoint(shortened.dropped)

        enough = min(filling.reserved, filling.everything)
        budgets = range(limit + 1, enough)
        needed = budgets.start + bisect_left(budgets, x=True, key=holds_required)
        places = sorted(place for unit in required for place in units[unit].places)
        raise TokenBudgetError(
            needed=tokenizer.budget_for(needed),
            available=policy.max_tokens or 0,
            items={place: _tokens(candidates[place], tokenizer) for place in places},
        )
    choices = filling.choices()
    texts = [choice.emitted for choice in choices]
    overflow = filling.reserved > limit
    if envelope is not None:
        content = transcript(envelope.layout, texts, policy.separator)
        return Fitted(content, filling.tokens, overflow, choices)
    content = policy.separator.join(text for text in texts if text)
    return Fitted(content, filling.tokens, overflow, choices)


def _everything(
    candidates: Sequence[Candidate],
    policy: BudgetPolicy,
    tokenizer: Tokenizer,
    limit: int,
    envelope: Envelope | None,
) -> Fitted | None:
    """Return the fit with all candidates, or None if the budget is too small for all."""
    counts: list[int] = []
    remaining = limit
    for candidate in candidates:
        counts.append(_tokens(candidate, tokenizer))
        remaining -= counts[-1]
        if remaining < 0:
            return None
    if envelope is None:
        texts = [candidate.content for candidate in candidates if candidate.content]
        tokens = tokenizer.count_joined(texts, policy.separator, alone=limit - remaining)
    else:
        tokens = request_tokens(candidates, policy.separator, tokenizer, envelope)
    if tokens > limit:
        return None
    choices = (
        Choice("kept", "required" if item.required else "fits", item.content, count, count, 0)
        for item, count in zip(candidates, counts, strict=True)
    )
    if envelope is None:
        content = policy.separator.join(texts)
    else:
        contents = [item.content for item in candidates]
        content = transcript(envelope.layout, contents, policy.separator)
    return Fitted(content, tokens, overflow=False, choices=tuple(choices))


def _tokens(candidate: Candidate, tokenizer: Tokenizer) -> int:
    return tokenizer.count(candidate.content) if candidate.fixed is None else candidate.fixed


def request_tokens(
    candidates: Sequence[Candidate], separator: str, tokenizer: Tokenizer, envelope: Envelope
) -> int:
    """Return the tokens of a request with all candidates."""
    tokens = envelope.request
    texts: dict[int, list[str]] = {}
    for number, item in zip(envelope.layout.numbers, candidates, strict=True):
        if item.content:
            message = texts.setdefault(number, [])
            if item.fixed is None:
                message.append(item.content)
            else:
                tokens += item.fixed
    for number, joined in texts.items():
        tokens += envelope.tools if number < 0 else envelope.message
        tokens += tokenizer.count_joined(joined, separator)
    return tokens


class _Unit(NamedTuple):
    """Candidates that are kept or dropped together."""

    places: tuple[int, ...]
    priority: int
    required: bool
    truncate: bool
    is_present: bool
    """False if all its texts are empty."""

    def joined(self, other: _Unit) -> _Unit:
        """Return both as one unit, which cannot be shortened."""
        priority, required = max(self.priority, other.priority), self.required or other.required
        is_present = self.is_present or other.is_present
        places = self.places + other.places
        return _Unit(places, priority, required, truncate=False, is_present=is_present)


def _units(candidates: Sequence[Candidate]) -> list[_Unit]:
    """Return the units in the order of their first candidates."""
    units: list[_Unit] = []
    numbers: dict[int | None, int] = {}
    for place, item in enumerate(candidates):
        truncate = item.truncate and item.fixed is None
        unit = _Unit((place,), item.priority, item.required, truncate, item.content != "")
        if item.group is None or item.group not in numbers:
            numbers[item.group] = len(units)
            units.append(unit)
        else:
            units[numbers[item.group]] = units[numbers[item.group]].joined(unit)
    return units


def added_tokens(texts: Sequence[str], separator: str, tokenizer: Tokenizer) -> list[int]:
    """Return how many tokens each text adds to those before it, with the separator between them.

    Their sum is the number of tokens of the joined text. Empty texts are not joined and add none.
    """
    draft, added = _Draft(_Seams(separator, tokenizer)), []
    for place, text in enumerate(texts):
        before = draft.tokens
        if text:
            draft.fill(draft.slot((place,), {place: tokenizer.edges(text, separator)}))
        added.append(draft.tokens - before)
    return added


def added_to_messages(
    candidates: Sequence[Candidate], layout: Layout, separator: str, tokenizer: Tokenizer
) -> list[int]:
    """Return the same for the items of messages, without their envelope."""
    seams, drafts, added = _Seams(separator, tokenizer), dict[int, _Draft](), []
    for place, (number, item) in enumerate(zip(layout.numbers, candidates, strict=True)):
        draft = drafts.setdefault(number, _Draft(seams))
        before = draft.tokens
        if item.content and item.fixed is None:
            draft.fill(draft.slot((place,), {place: tokenizer.edges(item.content, separator)}))
        added.append(draft.tokens - before + (item.fixed or 0 if item.content else 0))
    return added


class _Filling:
    """A draft that is filled with one unit after another until the budget is used up."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        units: Sequence[_Unit],
        policy: BudgetPolicy,
        tokenizer: Tokenizer,
        limit: int,
        reserved: set[int],
        envelope: Envelope | None,
    ) -> None:
        self._candidates = candidates
        self._units = units
        self._policy = policy
        self._tokenizer = tokenizer
        self._limit = limit
        self._edges = {
            place: tokenizer.edges(item.content if item.fixed is None else "", policy.separator)
            for place, item in enumerate(candidates)
        }
        self._counts = [
            self._edges[place].tokens if item.fixed is None else item.fixed
            for place, item in enumerate(candidates)
        ]
        self._draft: _Draft | _RequestDraft = _Draft(_Seams(policy.separator, tokenizer))
        if envelope is not None:
            self._draft = _RequestDraft(candidates, policy.separator, tokenizer, envelope)
        self._needs: dict[int, int] = {}
        """The tokens of the smallest text that would keep a unit, of those that do not fit."""
        self._first: int | None = None
        self._shortened: str | None = None
        """As much of the first unit that does not fit as fits."""
        for unit in sorted(reserved):
            self._draft.fill(self._draft.slot(units[unit].places, self._edges))
        self.reserved = self.tokens = self._draft.tokens
        """The tokens of everything that is in the text."""
        ranks = [
            (not unit.required, -unit.priority, number)
            for number, unit in enumerate(units)
            if unit.is_present and number not in reserved
        ]
        self._offer(number for _, _, number in sorted(ranks))
        # All items together may have fewer tokens than some of them; then all are kept.
        together = max(sum(self._counts), self._draft.tokens)
        self.everything = sys.maxsize if policy.backfill else together

    def _offer(self, ranked: Iterable[int]) -> None:
        """Put one unit after another into the draft, as long as they fit."""
        draft, edges, units = self._draft, self._edges, self._units
        limit, backfill, least = self._limit, self._policy.backfill, self.reserved
        for unit in ranked:
            slot = draft.slot(units[unit].places, edges)
            needed = slot[0] if slot[0] > least else least
            if needed <= limit:
                draft.fill(slot)
                self.tokens = slot[0]
                continue
            self._needs[unit] = needed
            if self._first is None:
                self._first = unit
                if units[unit].truncate:
                    self._shorten(unit)
            if not backfill:
                # An item of lower priority is kept only by a budget that keeps this one, too.
                least = needed
                draft.fill(slot)

    def _shorten(self, unit: int) -> None:
        """Emit as much of an item as fits."""
        places = (place,) = self._units[unit].places
        content, separator = self._candidates[place].content, self._policy.separator
        # The seams may cost fewer tokens than estimated, hence the two; or more, hence the loop.
        empty = self._tokenizer.edges("", separator)
        remaining = self._limit - self._draft.slot(places, {place: empty})[0] + 2
        remaining = min(remaining, self._counts[place] - 1)
        while remaining > 0 and (text := self._tokenizer.shorten(content, remaining)):
            slot = self._draft.slot(places, {place: self._tokenizer.edges(text, separator)})
            if slot[0] <= self._limit:
                self._shortened, self.tokens = text, slot[0]
                if self._policy.backfill:
                    self._draft.fill(slot)
                return
            remaining -= slot[0] - self._limit

    @property
    def dropped(self) -> Set[int]:
        """The units of which nothing is in the text."""
        return self._needs.keys() - (set() if self._shortened is None else {self._first})

    def choices(self) -> tuple[Choice, ...]:
        """Return the decision about each candidate."""
        counts, budget, everything = self._counts, self._policy.max_tokens or 0, self.everything
        outranked: ChoiceReason = "over_budget" if self._policy.backfill else "outranked"
        choices = [_MISSING] * len(counts)
        for number, unit in enumerate(self._units):
            needed = self._needs.get(number)
            kept: ChoiceReason = "required" if unit.required else "fits"
            for place in unit.places:
                tokens = counts[place]
                if needed is None:
                    text = self._candidates[place].content
                    choices[place] = Choice("kept", kept, text, tokens, tokens, 0)
                    continue
                short_by = self._tokenizer.budget_for(min(needed, everything)) - budget
                if number == self._first:
                    choices[place] = self._first_unfitting(tokens, short_by)
                else:
                    choices[place] = Choice("dropped", outranked, None, tokens, 0, short_by)
        return tuple(choices)

    def _first_unfitting(self, tokens: int, short_by: int) -> Choice:
        """Return the decision about a candidate of the first unit that does not fit as a whole."""
        if (text := self._shortened) is None:
            return Choice("dropped", "over_budget", None, tokens, 0, short_by)
        emitted = self._tokenizer.count(text)
        return Choice("truncated", "shortened", text, tokens, emitted, short_by)


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


_Slot = tuple[int, Any]
"""The tokens of a draft with a unit, and where the unit goes; not a class, to be made quickly."""


class _Draft:
    """A text to which items are added in any order, and its number of tokens.

    Between the last break of one item and the first break of the next, tokens depend on both items:
    a seam. Adding an item counts only its seams; an item without a break is part of a seam.
    """

    def __init__(self, seams: _Seams) -> None:
        self.tokens = 0
        self._places: list[int] = []
        self._edges: list[Edges] = []
        self._seams = seams

    def slot(self, places: Sequence[int], edges: Mapping[int, Edges]) -> _Slot:
        """Return the slot of a unit."""
        if len(places) > 1:
            return self._slot_of_group(places, edges)
        (place,), around, seams = places, self._edges, self._seams
        item, at = edges[place], bisect_left(self._places, place)
        before = after = None
        if at:
            side = around[at - 1]
            before = side.right if side.breaks else self._before(at)
        if at < len(around):
            side = around[at]
            after = side.left if side.breaks else self._after(at)
        tokens = self.tokens - seams[before, after]
        if item.breaks:
            tokens += seams[before, item.left] + item.inner + seams[item.right, after]
        else:
            tokens += seams[seams.joined(before, item.left), after]
        return tokens, ((at, place, item),)

    def _slot_of_group(self, places: Sequence[int], edges: Mapping[int, Edges]) -> _Slot:
        """Return the slot of several items, of which empty ones are not joined."""
        draft, inserts = self.copy(), []
        for place in places:
            if edges[place].breaks or edges[place].left:
                slot = draft.slot((place,), edges)
                draft.fill(slot)
                inserts += slot[1]
        return draft.tokens, inserts

    def fill(self, slot: _Slot) -> None:
        """Put a unit into its slot, one item after the other."""
        self.tokens, inserts = slot
        for at, place, edges in inserts:
            self._places.insert(at, place)
            self._edges.insert(at, edges)

    def copy(self) -> _Draft:
        """Return a draft that can be filled on its own."""
        draft = _Draft(self._seams)
        draft.tokens, draft._places = self.tokens, self._places.copy()
        draft._edges = self._edges.copy()
        return draft

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


class _RequestDraft:
    """The messages and tools of a request, to which units of items are added in any order."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        separator: str,
        tokenizer: Tokenizer,
        envelope: Envelope,
    ) -> None:
        self.tokens = envelope.request
        self._candidates = candidates
        self._numbers = envelope.layout.numbers
        self._envelope = envelope
        self._seams = _Seams(separator, tokenizer)
        self._messages: dict[int, _Draft] = {}

    def slot(self, places: Sequence[int], edges: Mapping[int, Edges]) -> _Slot:
        """Return the slot of a unit: the drafts of its messages with it."""
        drafts: dict[int, _Draft] = {}
        tokens = self.tokens
        for place in places:
            number, item = self._numbers[place], self._candidates[place]
            if not item.content:
                continue
            draft = drafts.get(number)
            if draft is None:
                draft = drafts[number] = self._draft(number)
                if number not in self._messages:
                    tokens += self._envelope.tools if number < 0 else self._envelope.message
            if item.fixed is not None:
                tokens += item.fixed
            else:
                before = draft.tokens
                draft.fill(draft.slot((place,), edges))
                tokens += draft.tokens - before
        return tokens, drafts

    def _draft(self, number: int) -> _Draft:
        draft = self._messages.get(number)
        return _Draft(self._seams) if draft is None else draft.copy()

    def fill(self, slot: _Slot) -> None:
        """Add a unit."""
        self.tokens, drafts = slot
        self._messages |= drafts
