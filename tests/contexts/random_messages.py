"""Random contexts of messages, and what must hold for each of them.

python -m tests.contexts.random_messages 100000 7    check this many, from a seed
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from headwater.contexts.budget import BudgetPolicy, Fitted, fit
from headwater.contexts.requests import RequestDraft, compose_kept, draft
from headwater.declarations.items import ContextItem
from headwater.errors import TokenBudgetError
from headwater.messages.composing import Composed
from headwater.messages.counting import counter_for
from headwater.messages.parts import Role, TextPart, Tool, ToolCall, ToolResult

MODELS = ("gpt-4o", "gpt-4", "gpt-5", "claude-sonnet-4", "gemini-2.5-pro", "some/model", None)
WORDS = (
    *(
        "parcel",
        "refund",
        "it’s",
        "漢字",
        "don't",
        "\n\n",
        "12345",
        "émigré",
        "//",
        "{}",
        "...",
        "-",
    ),
    *("😀", "a", "b", "c", "!", "?", "customer's\tcafé\r\n", "x=1;", "<|endoftext|>", "///"),
)
ROLES: tuple[Role, ...] = ("system", "user", "assistant")
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (640).to_bytes(4) + (480).to_bytes(4) + b"\x08\x06\0\0\0"


def text(random: Random) -> str:
    words = random.choices(WORDS, k=random.choice((0, 1, 2, 5, 12, 40)))
    return random.choice((" ", "", "\n")).join(words)


def items(random: Random) -> list[ContextItem]:
    """Return items of all kinds: texts, tools, images, reasoning, and calls with their results."""
    made: list[ContextItem] = []
    for number in range(random.randint(1, 12)):
        options: dict[str, Any] = {
            "priority": random.randint(0, 4),
            "required": random.random() < 0.2,
            "cache": random.random() < 0.1,
            "turn": random.choice((None, None, number)),
            "group": random.choice((None, None, None, "a", "b")),
        }
        match random.randint(0, 7):
            case 0:
                schema = {"type": "object", "properties": {text(random): {"type": "string"}}}
                made.append(ContextItem.tool(f"tool{number}", schema, text(random), **options))
            case 1:
                known = random.choice((None, 0, 40))
                image = random.choice((PNG, "https://example.com/a.png", PNG[:9]))
                made.append(ContextItem.image(image, known, **options))
            case 2:
                made.append(ContextItem.reasoning(text(random), **options))
            case 3:
                calls = range(random.randint(1, 2))
                ids = [f"c{number}-{call}" for call in calls]
                named = [{"id": call_id, **options} for call_id in ids]
                arguments = {"a": text(random), "b": 1.5}
                made += [ContextItem.tool_call("find", arguments, **named[call]) for call in calls]
                made += [ContextItem.tool_result(call_id, text(random)) for call_id in ids]
            case _:
                cut = random.random() < 0.3
                role = random.choice(ROLES)
                made.append(ContextItem(text(random), role=role, truncate=cut, **options))
    return made


def check(seed: int) -> str:
    """Raise AssertionError if a promise of the budget is broken; return how the fit ended."""
    random = Random(seed)
    offered = items(random)
    drafted = draft(offered, counter_for(random.choice(MODELS)))
    policy = BudgetPolicy(
        random.choice((None, random.randint(1, 60), random.randint(20, 400), 5_000)),
        random.choice(("\n\n", "\n", " ", "")),
        random.choice(("error", "flag")),
        random.random() < 0.3,
    )
    tokenizer = drafted.counter.tokenizer
    try:
        fitted = fit(drafted.candidates, policy, tokenizer, drafted.envelope)
    except TokenBudgetError as error:
        check_refusal(drafted, policy, error)
        return "refused"
    composed = compose_kept(offered, drafted, fitted, policy.separator)
    sent = counted(composed, offered, drafted, fitted, policy.separator)
    assert fitted.tokens == sent, (seed, fitted.tokens, sent)
    if policy.max_tokens is not None and not fitted.overflow:
        assert sent <= tokenizer.usable(policy.max_tokens), seed
    check_units(offered, drafted, fitted)
    check_missing_tokens(drafted, policy, fitted)
    check_complete(composed, offered, fitted)
    return "fits" if all(c.decision == "kept" for c in fitted.choices) else "some"


def check_refusal(drafted: RequestDraft, policy: BudgetPolicy, error: TokenBudgetError) -> None:
    """The budget that the error names is enough, and one token less is not."""
    tokenizer = drafted.counter.tokenizer
    for budget, is_enough in ((error.needed, True), (error.needed - 1, False)):
        try:
            other = BudgetPolicy(budget, policy.separator, "error", policy.backfill)
            fit(drafted.candidates, other, tokenizer, drafted.envelope)
        except TokenBudgetError:
            assert not is_enough
        else:
            assert is_enough


def check_missing_tokens(drafted: RequestDraft, policy: BudgetPolicy, fitted: Fitted) -> None:
    """An item is whole with as many tokens more as it names, and not with one less."""
    tokenizer, budget = drafted.counter.tokenizer, policy.max_tokens
    for place, choice in enumerate(fitted.choices):
        if choice.decision == "kept" or policy.backfill or budget is None:
            continue
        for more, is_enough in ((choice.short_by, True), (choice.short_by - 1, False)):
            other = BudgetPolicy(budget + more, policy.separator, "flag")
            again = fit(drafted.candidates, other, tokenizer, drafted.envelope)
            assert (again.choices[place].decision == "kept") is is_enough, (place, choice)


def counted(
    composed: Composed,
    offered: Sequence[ContextItem],
    drafted: RequestDraft,
    fitted: Fitted,
    separator: str,
) -> int:
    """Count the request again, message by message, without the arithmetic of the budget."""
    counter = drafted.counter
    tokens = counter.request_tokens + (counter.tools_tokens if composed.tools else 0)
    tokens += counter.message_tokens * len(composed.messages)
    texts: dict[int, list[str]] = {}
    numbers = drafted.envelope.layout.numbers
    for item, number, choice in zip(offered, numbers, fitted.choices, strict=True):
        if choice.emitted is None:
            continue
        if item.part is None:
            texts.setdefault(number, []).append(choice.emitted)
        else:
            tokens += counter.part_tokens(item.part) if item.tokens is None else item.tokens
    joined = (separator.join(filter(None, parts)) for parts in texts.values())
    return tokens + sum(map(counter.tokenizer.recount, joined))


def check_units(offered: Sequence[ContextItem], drafted: RequestDraft, fitted: Fitted) -> None:
    """Groups are whole, calls have their results, and required items are there."""
    is_there = [choice.emitted is not None for choice in fitted.choices]
    by_name: dict[object, set[bool]] = {}
    for item, there in zip(offered, is_there, strict=True):
        if item.content:
            if item.group is not None:
                by_name.setdefault(("group", item.group), set()).add(there)
            if isinstance(item.part, ToolCall | ToolResult):
                by_name.setdefault(("call", item.part.id), set()).add(there)
        assert there or not item.required
    assert all(len(answers) == 1 for answers in by_name.values()), by_name


def check_complete(composed: Composed, offered: Sequence[ContextItem], fitted: Fitted) -> None:
    """Everything that was kept is in the request, once and in its order."""
    tools = [
        item.part.name
        for item, choice in zip(offered, fitted.choices, strict=True)
        if isinstance(item.part, Tool) and choice.emitted is not None
    ]
    assert [tool.name for tool in composed.tools] == tools
    sent = [part for message in composed.messages for part in message.parts]
    others = [part for part in sent if not isinstance(part, TextPart)]
    kept = [
        item.part
        for item, choice in zip(offered, fitted.choices, strict=True)
        if choice.emitted is not None and item.part is not None and not isinstance(item.part, Tool)
    ]
    assert [type(part) for part in others] == [type(part) for part in kept]
    everything = "".join(part.content for part in sent if isinstance(part, TextPart))
    for item, choice in zip(offered, fitted.choices, strict=True):
        if item.part is None and choice.emitted:
            assert choice.emitted in everything


if __name__ == "__main__":
    contexts, seed = int(sys.argv[1]), int(sys.argv[2])
    endings: dict[str, int] = {}
    for number in range(contexts):
        ending = check(seed * 10_000_000 + number)
        endings[ending] = endings.get(ending, 0) + 1
    sys.stdout.write(f"{endings}\n")
