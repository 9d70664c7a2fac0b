"""Replays of a record: its text as stored, or made again from what is stored. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headwater.contexts.budget import BudgetPolicy as FitPolicy
from headwater.contexts.budget import Candidate, Fitted, fit
from headwater.contexts.tokens import Tokenizer
from headwater.errors import ReplayError
from headwater.records.core import Commitment, Core, Item
from headwater.records.diff import ContextDiff, diff
from headwater.records.lineage import Context
from headwater.records.record import content_hash, moment_text

Mode = Literal["show", "reassemble", "as_of", "live"]


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A context once more: what came of it, and how far that can be relied on.

    ``matches`` says whether the text is the recorded one, None where that cannot be said.
    """

    context_id: str
    mode: Mode
    fidelity: str
    content: str | None
    content_hash: str | None
    matches: bool | None
    context: Context | None = None
    differences: ContextDiff | None = None


def show(core: Core) -> Replay:
    """The text as it is stored."""
    text, recorded = core.output.content, core.output.content_hash
    if not isinstance(text, str):
        return Replay(
            context_id=core.context_id,
            mode="show",
            fidelity="the record withholds the text, or it was erased; its hash alone is kept",
            content=None,
            content_hash=recorded,
            matches=None,
        )
    actual = content_hash(text)
    same = actual == recorded
    return Replay(
        context_id=core.context_id,
        mode="show",
        fidelity="exact: the stored text, which has the recorded hash"
        if same
        else "broken: the stored text does not have the recorded hash",
        content=text,
        content_hash=actual,
        matches=same,
    )


def reassemble(core: Core, tokenizer_version: str) -> Replay:
    """The text that the fit makes of the stored candidates, under the stored rules."""
    withheld = [
        f"/items/{place}/content"
        for place, item in enumerate(core.items)
        if not isinstance(item.content, str)
    ]
    if withheld:
        raise ReplayError(core.context_id, "reassemble", withheld)
    fitted = _fitted(core)
    again = _core_of(core, fitted)
    same = again.output.content_hash == core.output.content_hash
    return Replay(
        context_id=core.context_id,
        mode="reassemble",
        fidelity=_reassembled(core, tokenizer_version, same=same),
        content=fitted.content,
        content_hash=again.output.content_hash,
        matches=same,
        differences=diff(core, again),
    )


def _fitted(core: Core) -> Fitted:
    rules = core.policy
    policy = msgspec.convert(
        {
            "max_tokens": rules.max_tokens,
            "separator": rules.separator,
            "on_overflow": rules.on_overflow,
            "backfill": rules.backfill,
        },
        FitPolicy,
    )
    counted = core.tokenizer
    tokenizer = Tokenizer(counted.name, counted.exact, counted.margin_percent)
    return fit([_candidate(item) for item in core.items], policy, tokenizer)


def _candidate(item: Item) -> Candidate:
    return Candidate(_plain(item.content), item.priority, item.required, item.truncate)


def _plain(text: Any) -> str:
    return "" if isinstance(text, Commitment) else text


def _core_of(core: Core, fitted: Fitted) -> Core:
    """The core as it would be had the fit decided so."""
    items = tuple(
        msgspec.structs.replace(
            item,
            emitted=choice.emitted if choice.decision == "truncated" else None,
            tokens=choice.tokens,
            emitted_tokens=choice.emitted_tokens,
            decision=choice.decision,
            reason=choice.reason,
            short_by=choice.short_by,
        )
        for item, choice in zip(core.items, fitted.choices, strict=True)
    )
    decisions = [choice.decision for choice in fitted.choices]
    output = msgspec.structs.replace(
        core.output,
        content=fitted.content,
        content_hash=content_hash(fitted.content),
        tokens=fitted.tokens,
        items_kept=decisions.count("kept"),
        items_dropped=decisions.count("dropped"),
        items_truncated=decisions.count("truncated"),
        overflow=fitted.overflow,
    )
    return msgspec.structs.replace(core, items=items, output=output)


def _reassembled(core: Core, tokenizer_version: str, *, same: bool) -> str:
    made = "the recorded items, fitted again under the recorded rules"
    if same:
        return f"exact: {made}, give the recorded text"
    if tokenizer_version != core.versions.tokenizer:
        return (
            f"different: {made}, give another text; tokens are counted by version "
            f"{tokenizer_version} here and were by {core.versions.tokenizer}"
        )
    return f"different: {made}, give another text than the recorded one"


def rerun(
    core: Core,
    mode: Mode,
    context: Context,
    again: Core,
    definition: str | None,
    *,
    searched: bool,
) -> Replay:
    """What came of running the function again, for which some retriever was asked or none."""
    same = context.content_hash == core.output.content_hash
    return Replay(
        context_id=core.context_id,
        mode=mode,
        fidelity=_rerun(core, mode, definition, same=same, searched=searched),
        content=context.content,
        content_hash=context.content_hash,
        matches=same,
        context=context,
        differences=diff(core, again),
    )


def _rerun(core: Core, mode: Mode, definition: str | None, *, same: bool, searched: bool) -> str:
    """How far a text can be relied on that the function as it is today has made."""
    words = ["the same text" if same else "another text"]
    words.append(
        "features as the record says that they were read, and others as they were known at "
        f"{moment_text(core.timing.started_at)}"
        if mode == "as_of"
        else "features as they are now"
    )
    if searched:
        words.append("retrievers asked now")
    if mode == "as_of":
        words.append("whatever is computed on demand or read elsewhere as it is now")
    if definition is None or core.context.definition is None:
        words.append("nobody knows whether the function has changed")
    elif definition != core.context.definition:
        words.append("the function has changed since")
    return f"{words[0]}: {'; '.join(words[1:])}"
