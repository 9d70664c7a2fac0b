"""The explanation of a recorded context, with its tokens counted again."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.contexts.budget import added_tokens
from headwater.core.tokens import tokenizer_for
from headwater.model.lineage import ContextTrace
from headwater.records import projection
from headwater.records.core import Commitment, Core, Item
from headwater.records.projection import CountedTokens
from headwater.records.record import Record
from headwater.records.spans import Templates


def explained(record: Record, core: Core, templates: Templates) -> ContextTrace:
    """Return the explanation of a record; it blocks, because it counts the tokens of all texts."""
    counted = CountedTokens(_widths(core), _short_by(core))
    return projection.explain(record, core, templates, counted)


def _widths(core: Core) -> Sequence[int | None]:
    """Return the tokens that each item adds to the text; None where they cannot be counted."""
    added = _added(core, [_emitted(item) for item in core.items])
    if added is None or sum(added) != core.output.tokens:
        return [None] * len(core.items)
    decided = zip(core.items, added, strict=True)
    return [None if item.decision == "dropped" else tokens for item, tokens in decided]


def _emitted(item: Item) -> str | Commitment | None:
    if item.decision == "dropped":
        return ""
    return item.emitted if item.decision == "truncated" else item.content


def _added(core: Core, texts: Sequence[str | Commitment | None]) -> list[int] | None:
    """Return the tokens that each text adds; None if one is withheld or the tokenizer changed."""
    disclosed = [text for text in texts if isinstance(text, str)]
    tokenizer, recorded = tokenizer_for(core.policy.model), core.tokenizer
    if len(disclosed) < len(texts) or tokenizer.name != recorded.name:
        return None
    return added_tokens(disclosed, core.policy.separator, tokenizer)


def _short_by(core: Core) -> int | None:
    """Return the number of tokens by which the budget was too small to keep all items whole."""
    budget, tokens = core.policy.max_tokens, core.output.tokens
    if budget is None:
        return 0
    short = [item.short_by for item in core.items if item.short_by]
    if len(short) > 1 and core.policy.backfill:
        # Each number assumes the same other items, so all together need more than the largest.
        added = _added(core, [item.content for item in core.items])
        if added is None:
            return None
        tokens = sum(added)
    needed = -(-tokens * (100 + core.tokenizer.margin_percent) // 100)
    return max(0, needed - budget, *short)
