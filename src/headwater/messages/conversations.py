"""Which messages of a conversation belong together, and in which order they are given up."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import replace

from headwater.errors import InvalidInputError
from headwater.messages.parts import Message, Part, Reasoning, ToolCall, ToolResult


class ConversationTurn(NamedTuple):
    """A message of a conversation; turns with one unit are kept or dropped together.

    `age` is 0 for a turn that is required, and else larger the sooner it may be dropped.
    """

    message: Message
    unit: int
    age: int


def plan_conversation(messages: Sequence[Message], keep_last: int) -> list[ConversationTurn]:
    """Return the turns of a conversation, of which the last ones and the system's are required.

    A question and what ends its answer are one unit; a call between them is one with its results,
    and is given up before the question that it serves.

    Raises:
        InvalidInputError: A result has no call before it.
    """
    paired = [message for message in _with_own_ids(messages) if message.parts]
    leader = list(range(len(paired)))

    def join(one: int, two: int) -> None:
        one, two = _leader(leader, one), _leader(leader, two)
        leader[max(one, two)] = min(one, two)

    spoken = [place for place, message in enumerate(paired) if message.role != "system"]
    calls: dict[str, int] = {}
    asked: list[int] = []
    for place, after in zip_longest(spoken, spoken[1:]):
        message = paired[place]
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = place
            elif isinstance(part, ToolResult):
                join(calls[part.id], place)
        if after is not None and _is_thought(message) and paired[after].role == "assistant":
            join(place, after)
        if message.role == "user":
            asked.append(place)
        if after is None or (paired[after].role == "user" and message.role != "user"):
            for question in asked:
                join(question, place)
            asked = []
    units = [_leader(leader, place) for place in range(len(paired))]
    last = spoken[-keep_last:] if keep_last else []
    required = {units[place] for place in last} | {*range(len(paired))}.difference(spoken)
    # The last message of a unit says how old it is.
    older = [unit for unit in dict.fromkeys(reversed(units)) if unit not in required]
    ages = {unit: age for age, unit in enumerate(older, 1)}
    return [
        ConversationTurn(message, unit, ages.get(unit, 0))
        for message, unit in zip(paired, units, strict=True)
    ]


def _with_own_ids(messages: Sequence[Message]) -> list[Message]:
    """Return messages in which no two calls have one id, which some models give repeatedly."""
    seen: dict[str, int] = defaultdict(int)
    unanswered: dict[str, deque[str]] = defaultdict(deque)

    def renamed(part: Part) -> Part:
        if isinstance(part, ToolCall):
            seen[part.id] += 1
            id = part.id if seen[part.id] == 1 else f"{part.id}-{seen[part.id]}"
            unanswered[part.id].append(id)
        elif isinstance(part, ToolResult):
            if not unanswered[part.id]:
                raise InvalidInputError(
                    f"the result of the tool call {part.id!r} has no call before it in the "
                    "conversation; if the list was cut between them, begin it with the message "
                    "that has the call, or leave the result out"
                )
            id = unanswered[part.id].popleft()
        else:
            return part
        return part if id == part.id else replace(part, id=id)

    return [
        replace(message, parts=tuple(renamed(part) for part in message.parts))
        for message in messages
    ]


def _is_thought(message: Message) -> bool:
    return all(isinstance(part, Reasoning) for part in message.parts)


def _leader(leader: list[int], place: int) -> int:
    while leader[place] != place:
        place = leader[place]
    return place
