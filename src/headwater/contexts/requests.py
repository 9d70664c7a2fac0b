"""Items of a context as a request: its candidates, its count, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from headwater.contexts.budget import BudgetPolicy, Candidate, Envelope, Fitted
from headwater.core.tokens import Tokenizer
from headwater.declarations.contexts import ContextDef
from headwater.declarations.items import ContextItem
from headwater.errors import InvalidInputError
from headwater.messages.composing import Composed, compose
from headwater.messages.counting import RequestCounter
from headwater.messages.parts import (
    Blob,
    Grade,
    ModelRequest,
    Part,
    Reasoning,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.rendering import losses
from headwater.messages.texts import Place, layout
from headwater.records import core as crs
from headwater.records.core import Core
from headwater.records.projection import group_of, recorded_layout

_Kind = Literal["text", "tool_call", "tool_result", "tool", "image", "reasoning"]
_KINDS: dict[type, _Kind] = {
    TextPart: "text",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
    Tool: "tool",
    Blob: "image",
    Uri: "image",
    Reasoning: "reasoning",
}


class RequestDraft(NamedTuple):
    """The items of a context of messages, before they are fitted."""

    groups: Sequence[int | None]
    counter: RequestCounter
    candidates: Sequence[Candidate]
    envelope: Envelope

    def without_margin(self) -> RequestDraft:
        """Return the draft for a budget that is checked by the count of the whole request."""
        tokenizer = replace(self.counter.tokenizer, margin_percent=0)
        return self._replace(counter=replace(self.counter, tokenizer=tokenizer))

    def recorded(self, grade: Grade, source: str, limit: int | None) -> crs.Counter:
        """Return what the record says about the count."""
        return crs.Counter(
            grade=grade,
            source=source,
            request_tokens=self.envelope.request,
            message_tokens=self.envelope.message,
            tools_tokens=self.envelope.tools,
            limit=limit,
        )


class SentRequest(NamedTuple):
    """How the items of a context are sent: as drafted, and counted."""

    draft: RequestDraft
    counter: crs.Counter
    request: ModelRequest
    losses: tuple[crs.Loss, ...]


def grouped(candidates: Sequence[Candidate], groups: Sequence[int | None]) -> list[Candidate]:
    """Return the candidates of texts in their groups, in which they cannot be shortened."""
    return [
        item if group is None else replace(item, truncate=False, group=group)
        for item, group in zip(candidates, groups, strict=True)
    ]


def has_messages(items: Sequence[ContextItem]) -> bool:
    """Return True if a context is messages: an item has a role, or is not text."""
    return any([item.role is not None or item.part is not None for item in items])


def with_called_tools(items: Sequence[ContextItem]) -> Sequence[ContextItem]:
    """Return the items, with tools that are worth as much as the calls of them.

    A provider may refuse a call whose tool is not in the request.
    """
    called: dict[str, tuple[bool, int]] = {}
    for item in items:
        if isinstance(item.part, ToolCall):
            name, worth = item.part.name, (item.required, item.priority)
            called[name] = max(worth, called.get(name, worth))
    if not called:
        return items
    return [
        _raised(item, called[item.part.name])
        if isinstance(item.part, Tool) and item.part.name in called
        else item
        for item in items
    ]


def _raised(tool: ContextItem, worth: tuple[bool, int]) -> ContextItem:
    required, priority = worth
    return replace(tool, required=tool.required or required, priority=max(tool.priority, priority))


def draft(items: Sequence[ContextItem], counter: RequestCounter) -> RequestDraft:
    """Return the candidates of items; raise InvalidInputError if a result has no call."""
    groups = groups_of(items)
    candidates = [
        Candidate(
            item.content,
            item.priority,
            item.required,
            item.truncate and group is None,
            None if item.part is None else _fixed(item, item.part, counter),
            group,
        )
        for item, group in zip(items, groups, strict=True)
    ]
    tokens = (counter.request_tokens, counter.message_tokens, counter.tools_tokens)
    return RequestDraft(groups, counter, candidates, Envelope(layout(map(_place, items)), *tokens))


def _place(item: ContextItem) -> Place:
    return Place(None if isinstance(item.part, Tool) else item.role or "user", item.turn)


def _fixed(item: ContextItem, part: Part | Tool, counter: RequestCounter) -> int:
    return counter.part_tokens(part) if item.tokens is None else item.tokens


def groups_of(items: Sequence[ContextItem]) -> list[int | None]:
    """Return the group of each item, named by its first item; None for an item on its own.

    A call and its result belong together, and so do all items of the group that either is in.
    """
    first: dict[tuple[str, str], int] = {}
    leader = list(range(len(items)))

    def join(key: tuple[str, str], place: int) -> None:
        one, two = _leader(leader, first.setdefault(key, place)), _leader(leader, place)
        leader[max(one, two)] = min(one, two)

    calls: set[str] = set()
    for place, item in enumerate(items):
        if item.group is not None:
            join(("group", item.group), place)
        if isinstance(item.part, ToolCall):
            if item.part.id in calls:
                raise InvalidInputError(
                    f"two tool calls have the id {item.part.id!r}; give each call its own"
                )
            calls.add(item.part.id)
            join(("call", item.part.id), place)
        elif isinstance(item.part, ToolResult):
            if item.part.id not in calls:
                raise InvalidInputError(
                    f"the result of the tool call {item.part.id!r} has no call before it; add "
                    "ContextItem.tool_call with this id, or leave the result out"
                )
            join(("call", item.part.id), place)
    leaders = [_leader(leader, place) for place in range(len(items))]
    shared = {one for place, one in enumerate(leaders) if one != place}
    return [one if one in shared else None for one in leaders]


def _leader(leader: list[int], place: int) -> int:
    while leader[place] != place:
        place = leader[place]
    return place


def within_window(policy: BudgetPolicy, window: int | None, definition: ContextDef) -> BudgetPolicy:
    """Return a policy that leaves room for the answer in the window of the model, if it is known.

    Raises:
        InvalidInputError: The answer needs all of the window.
    """
    if window is None:
        return policy
    room = window - (definition.max_output or 0)
    if room < 1:
        raise InvalidInputError(
            f"max_output of context {definition.name!r} is {definition.max_output}, but the window "
            f"of {definition.model} is {window} tokens; leave room for what is sent"
        )
    limit = room if policy.max_tokens is None else min(policy.max_tokens, room)
    return replace(policy, max_tokens=limit)


def compose_kept(
    items: Sequence[ContextItem], drafted: RequestDraft, fitted: Fitted, separator: str
) -> Composed:
    """Return the request of the items that were kept."""
    parts = [
        None if choice.emitted is None else _part(item, choice.emitted)
        for item, choice in zip(items, fitted.choices, strict=True)
    ]
    return compose(drafted.envelope.layout, parts, separator)


def _part(item: ContextItem, emitted: str) -> Part | Tool:
    if item.part is None:
        return TextPart(content=emitted, cache=item.cache)
    return replace(item.part, cache=True) if item.cache else item.part


def worst_grade(items: Sequence[ContextItem], drafted: RequestDraft, fitted: Fitted) -> Grade:
    """Return the grade of the count of everything that was kept."""
    kept = zip(items, fitted.choices, strict=True)
    parts = [item.part for item, choice in kept if choice.emitted is not None]
    grades = {drafted.counter.part_grade(part) for part in parts if part is not None}
    return "estimate" if "estimate" in grades else drafted.counter.grade


def request_of(composed: Composed, definition: ContextDef) -> ModelRequest:
    """Return the request of a context."""
    return ModelRequest(
        messages=composed.messages,
        tools=composed.tools,
        model=definition.model,
        max_output=definition.max_output,
        cache_key=definition.name,
    )


def recorded_losses(request: ModelRequest, composed: Composed) -> tuple[crs.Loss, ...]:
    """Return what the providers of the model cannot express, by the places of items."""
    return tuple(
        crs.Loss(
            name=loss.name,
            provider=loss.provider,
            item=composed.items.get((loss.message, loss.part)),
        )
        for loss in losses(request)
    )


def item_message(item: ContextItem, role: Role | None, group: int | None) -> crs.ItemMessage:
    """Return what the record says about an item in a message."""
    part = item.part
    return crs.ItemMessage(
        kind="text" if part is None else _KINDS[type(part)],
        role=role,
        turn=item.turn,
        group=group,
        cache=item.cache,
        data=part.content if isinstance(part, Blob) else None,
    )


def recorded_candidates(core: Core, texts: Sequence[str] | None = None) -> list[Candidate]:
    """Return the candidates of a record; ``texts`` replace their contents, which may be empty.

    The tokens of a part that is not text are the recorded ones.
    """
    candidates = []
    for at, item in enumerate(core.items):
        content, message = str(item.content) if texts is None else texts[at], item.message
        fixed, group = None, group_of(item)
        if message is not UNSET:
            fixed = None if message.kind == "text" else item.tokens
        truncate = item.truncate and group is None
        options = (item.priority, item.required, truncate, fixed, group)
        candidates.append(Candidate(content, *options))
    return candidates


def recorded_envelope(core: Core) -> Envelope | None:
    """Return the envelope that a record was counted with, or None without messages."""
    counter = core.tokenizer.counter
    if counter is UNSET:
        return None
    tokens = (counter.request_tokens, counter.message_tokens, counter.tools_tokens)
    return Envelope(recorded_layout(core), *tokens)


def tokenizer_of(core: Core) -> Tokenizer:
    """Return the tokenizer that a record was counted with."""
    counted = core.tokenizer
    return Tokenizer(counted.name, counted.exact, counted.margin_percent)
