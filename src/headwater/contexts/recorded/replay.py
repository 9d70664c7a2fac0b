"""Replays from a record alone: the stored text, or the stored items fitted again. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headwater.contexts.budget import BudgetPolicy, Candidate, Fitted, fit
from headwater.core.canonical_json import to_tagged
from headwater.core.tokens import Tokenizer
from headwater.errors import ReplayError
from headwater.features.call_scope import ReplayedSearch
from headwater.model.contexts import Mode, Replay
from headwater.model.lineage import Context
from headwater.records.core import Commitment, Core, FeatureRead, disclosed
from headwater.records.diff import diff
from headwater.records.record import content_hash, moment_text

_SHOWN = {
    True: "exact: the stored text, which has the recorded hash",
    False: "broken: the stored text does not have the recorded hash",
    None: "the text is withheld or erased; only its hash is stored",
}


def show(core: Core) -> Replay:
    """Return the stored text."""
    text, recorded = disclosed(core.output.content), core.output.content_hash
    actual = recorded if text is None else content_hash(text)
    matches = None if text is None else actual == recorded
    refused = "; it was refused" if core.freshness.status == "refused" else ""
    return Replay(
        context_id=core.context_id,
        mode="show",
        fidelity=_SHOWN[matches] + refused,
        content=text,
        content_hash=actual,
        matches=matches,
    )


def reassemble(core: Core, tokenizer_version: str) -> Replay:
    """Fit the stored candidates again, under the stored rules."""
    withheld = [
        f"/items/{place}/content"
        for place, item in enumerate(core.items)
        if not isinstance(item.content, str)
    ]
    if withheld:
        raise ReplayError(core.context_id, "reassemble", withheld)
    fitted = _fitted(core)
    again = _with_fit(core, fitted)
    same = again.output.content_hash == core.output.content_hash
    return Replay(
        context_id=core.context_id,
        mode="reassemble",
        fidelity=_reassemble_fidelity(core, tokenizer_version, same=same),
        content=fitted.content,
        content_hash=again.output.content_hash,
        matches=same,
        differences=diff(core, again),
    )


def _fitted(core: Core) -> Fitted:
    policy = msgspec.convert(core.policy, BudgetPolicy, from_attributes=True)
    counted = core.tokenizer
    tokenizer = Tokenizer(counted.name, counted.exact, counted.margin_percent)
    candidates = [Candidate(str(i.content), i.priority, i.required, i.truncate) for i in core.items]
    return fit(candidates, policy, tokenizer)


def _with_fit(core: Core, fitted: Fitted) -> Core:
    """Return the core with the decisions of another fit."""
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


def _reassemble_fidelity(core: Core, tokenizer_version: str, *, same: bool) -> str:
    source = "the recorded items, fitted again under the recorded rules"
    if same:
        return f"exact: {source}, give the recorded text"
    if tokenizer_version != core.versions.tokenizer:
        return (
            f"different: {source}, give another text; the tokenizer's version is "
            f"{tokenizer_version} and was {core.versions.tokenizer}"
        )
    return f"different: {source}, give another text than the recorded one"


def rerun(
    core: Core,
    mode: Mode,
    context: Context,
    again: Core,
    definition: str | None,
    *,
    searches: Sequence[ReplayedSearch],
    names: Mapping[str, str | None],
) -> Replay:
    """Return the replay of a function that ran again, and made these searches.

    ``names`` are the present names of the features in the record.
    """
    same = context.content_hash == core.output.content_hash
    fidelity = _rerun_fidelity(
        core,
        mode,
        definition,
        same=same,
        searches=searches,
        unlike=unlike(core, again, names) if mode == "as_of" else (),
        is_policy_changed=again.policy != core.policy,
    )
    if core.freshness.status == "refused":
        is_refused_again = again.freshness.status == "refused"
        fidelity = f"{'refused again' if is_refused_again else 'no longer refused'}, {fidelity}"
    return Replay(
        context_id=core.context_id,
        mode=mode,
        fidelity=fidelity,
        content=context.content,
        content_hash=context.content_hash,
        matches=same,
        context=context,
        differences=diff(core, again),
    )


def unlike(core: Core, again: Core, names: Mapping[str, str | None]) -> list[str]:
    """Return the features of which a replay read other stored values than the record has.

    A feature that has no name any more was not read at all.
    """
    stored = [stored_read for stored_read in core.features if stored_read.source != "computed"]
    recorded: dict[tuple[str | None, str], list[Any]] = {}
    for read in stored:
        if not _is_withheld(read):
            key = (names[read.feature], str(read.entity_id))
            recorded.setdefault(key, []).append(to_tagged(read.value))
    other = {
        read.feature
        for read in again.features
        if (values := recorded.get((read.feature, str(read.entity_id))))
        and to_tagged(read.value) not in values
    }
    return sorted(
        other
        | {stored_read.feature for stored_read in stored if names[stored_read.feature] is None}
    )


def _is_withheld(read: FeatureRead) -> bool:
    return isinstance(read.entity_id, Commitment) or isinstance(read.value, Commitment)


def _search_words(core: Core, searches: Sequence[ReplayedSearch]) -> Iterator[str]:
    """Yield as of when the replay searched."""
    kinds = {search.as_of for search in searches}
    if "now" in kinds:
        yield "retrievers called now"
    if "recorded" in kinds:
        yield "indexes in their recorded versions"
    if "moment" in kinds:
        yield f"unrecorded searches of indexes as of {moment_text(core.timing.started_at)}"
    if "gone" in kinds:
        gone = sorted({search.name for search in searches if search.as_of == "gone"})
        yield (
            f"present contents of {', '.join(gone)}, because the version of that time is no longer "
            "kept (see keep_versions)"
        )


def _rerun_fidelity(
    core: Core,
    mode: Mode,
    definition: str | None,
    *,
    same: bool,
    searches: Sequence[ReplayedSearch],
    unlike: Sequence[str],
    is_policy_changed: bool,
) -> str:
    """Return how reliable a text of the current function is."""
    words = ["the same text" if same else "another text"]
    words.append(
        "features as the record says they were read, and others as they were at "
        f"{moment_text(core.timing.started_at)}"
        if mode == "as_of"
        else "features as they are now"
    )
    if unlike:
        words.append(f"but not the recorded values of {', '.join(unlike)}")
    words += _search_words(core, searches)
    if is_policy_changed:
        words.append("budget and rules as declared now")
    if mode == "as_of":
        words.append("computed features and other data as they are now")
    if definition is None or core.context.definition is None:
        words.append("it is unknown whether the function has changed")
    elif definition != core.context.definition:
        words.append("the function has changed since")
    return f"{words[0]}: {'; '.join(words[1:])}"
