"""The difference between two records: items and features by identity, and the text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import unified_diff
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from headwater.core.canonical_json import canonical, to_tagged
from headwater.records.core import Commitment, Core, Decision, FeatureRead, Item, Result
from headwater.records.pairing import pairs_of

T = TypeVar("T")

Change = Literal["added", "removed", "changed", "same", "unknown"]
"""What became of something; unknown where one of the records withholds it."""


class ValueDiff(msgspec.Struct, frozen=True):
    """A named value on both sides: an input, a rule or a circumstance."""

    name: str
    change: Change
    before: Any
    after: Any


class ItemSide(msgspec.Struct, frozen=True, kw_only=True):
    """An item in one of the contexts; its place is that in the declared order, from 0."""

    place: int
    decision: Decision
    reason: str
    priority: int
    tokens: int
    emitted_tokens: int


class ItemDiff(msgspec.Struct, frozen=True, kw_only=True):
    """An item in both contexts, or in one of them."""

    identity: str
    change: Change
    flipped: bool
    """Whether it is in both, and was kept, shortened or dropped in one and not so in the other."""

    tokens_delta: int
    before: ItemSide | None
    after: ItemSide | None


class FeatureSide(msgspec.Struct, frozen=True, kw_only=True):
    """A feature's value in one of the contexts; None where it is withheld."""

    value: Any
    as_of: datetime | None
    age_ms: int | None
    source: str
    fresh: bool


class FeatureDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of one entity in both contexts, or in one of them."""

    feature: str
    entity: str
    entity_id: str | None
    change: Change
    before: FeatureSide | None
    after: FeatureSide | None


class ResultSide(msgspec.Struct, frozen=True, kw_only=True):
    """A result in one of the contexts; its rank is that among the results of its call, from 1."""

    rank: int
    score: str | None


class ResultDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a retriever found for both contexts, or for one of them.

    It has changed if its content, its rank or its score has.
    """

    retriever: str
    id: Any
    change: Change
    before: ResultSide | None
    after: ResultSide | None


class ContextDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in which one context differs from another."""

    before: str
    after: str
    same_content: bool
    tokens_before: int
    tokens_after: int
    tokens_delta: int
    items: Sequence[ItemDiff]
    features: Sequence[FeatureDiff]
    results: Sequence[ResultDiff]
    inputs: Sequence[ValueDiff]
    """Only those that are not the same, as of the interaction and the rules."""

    interaction_ref: Sequence[ValueDiff]
    rules: Sequence[ValueDiff]
    text: str | None
    """A unified diff; None where one of the texts is withheld."""


def diff(before: Core, after: Core) -> ContextDiff:
    """In what one context differs from another; both as their records open."""
    return ContextDiff(
        before=before.context_id,
        after=after.context_id,
        same_content=before.output.content_hash == after.output.content_hash,
        tokens_before=before.output.tokens,
        tokens_after=after.output.tokens,
        tokens_delta=after.output.tokens - before.output.tokens,
        items=_items(before, after),
        features=_features(before.features, after.features),
        results=_results(before, after),
        inputs=list(_values(before.inputs, after.inputs)),
        interaction_ref=list(_values(before.interaction_ref or {}, after.interaction_ref or {})),
        rules=list(_values(_rules(before), _rules(after))),
        text=_text(before, after),
    )


def _change(one: T | None, two: T | None, *parts: Callable[[T], Any]) -> Change:
    """What became of something of which these parts matter."""
    if one is None:
        return "added"
    if two is None:
        return "removed"
    sides = [(part(one), part(two)) for part in parts]
    # Salts are random, so the same commitment is the same value of the same record.
    sides = [(a, b) for a, b in sides if not (isinstance(a, Commitment) and a == b)]
    if any(isinstance(side, Commitment) for pair in sides for side in pair):
        return "unknown"
    return "same" if all(_form(a) == _form(b) for a, b in sides) else "changed"


def _form(value: Any) -> bytes:
    """One text for one value, in which 1, 1.0 and True are three."""
    return canonical(to_tagged(value))


def _shown(value: Any) -> Any:
    return None if isinstance(value, Commitment) else value


class _Placed(NamedTuple):
    """An item, its place, and the name of the inner context whose text it is."""

    place: int
    item: Item
    inner: str | None


def _items(before: Core, after: Core) -> list[ItemDiff]:
    withheld = any(isinstance(i.content, Commitment) for i in (*before.items, *after.items))
    identities = (_passage, _ref, _content, _inner, _role, *[_kind] * withheld)
    pairs = pairs_of(_placed(before), _placed(after), *identities)
    return [_item(one, two) for one, two in pairs]


def _placed(core: Core) -> list[_Placed]:
    names: dict[Any, str] = {inner.context_id: inner.name for inner in core.contexts}
    return [
        _Placed(place, item, names.get(item.source.ref) if item.source.kind == "context" else None)
        for place, item in enumerate(core.items)
    ]


def _ref(placed: _Placed) -> Hashable | None:
    source = placed.item.source
    if source.ref is None or isinstance(source.ref, Commitment):
        return None
    return (source.kind, _form(source.ref))


def _passage(placed: _Placed) -> Hashable | None:
    """One of several texts that have the same source."""
    content, ref = placed.item.content, _ref(placed)
    return None if ref is None or isinstance(content, Commitment) else (ref, content)


def _content(placed: _Placed) -> Hashable | None:
    content = placed.item.content
    if not isinstance(content, str) or _has_lasting_ref(placed):
        return None
    return (placed.inner, content)


def _has_lasting_ref(placed: _Placed) -> bool:
    """Says whether an item is called the same in every context; an inner one has new ids."""
    return placed.item.source.kind != "context" and _ref(placed) is not None


def _inner(placed: _Placed) -> Hashable | None:
    """What the text of an inner context is known by when it is another one."""
    return placed.inner


def _role(placed: _Placed) -> Hashable | None:
    """What an item without a name of its own is known by when its text is another one."""
    if placed.inner is not None or _has_lasting_ref(placed):
        return None
    withheld = isinstance(placed.item.source.ref, Commitment)
    return None if withheld else (_kind(placed), _shown(placed.item.section))


def _kind(placed: _Placed) -> Hashable | None:
    """All that is known of an item whose texts are withheld."""
    item = placed.item
    return (item.source.kind, item.priority, item.required)


def _item(one: _Placed | None, two: _Placed | None) -> ItemDiff:
    before, after = _item_side(one), _item_side(two)
    return ItemDiff(
        identity=next(_name(placed) for placed in (two, one) if placed is not None),
        change=_change(
            one,
            two,
            lambda of: of.item.content,
            lambda of: of.item.decision,
            lambda of: of.item.emitted,
        ),
        flipped=bool(before and after and before.decision != after.decision),
        tokens_delta=_emitted(after) - _emitted(before),
        before=before,
        after=after,
    )


def _item_side(placed: _Placed | None) -> ItemSide | None:
    if placed is None:
        return None
    item = placed.item
    return ItemSide(
        place=placed.place,
        decision=item.decision,
        reason=item.reason,
        priority=item.priority,
        tokens=item.tokens,
        emitted_tokens=item.emitted_tokens,
    )


def _emitted(side: ItemSide | None) -> int:
    return 0 if side is None else side.emitted_tokens


_LONGEST_NAME = 60


def _name(placed: _Placed) -> str:
    """How a person tells an item from the others."""
    item = placed.item
    if placed.inner is not None:
        return f"context {placed.inner}"
    if _ref(placed) is not None:
        return f"{item.source.kind} {item.source.ref}"
    if not isinstance(item.content, str):
        return f"item {placed.place} (withheld)"
    line = " ".join(item.content[: 2 * _LONGEST_NAME].split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"


def _features(before: Sequence[FeatureRead], after: Sequence[FeatureRead]) -> list[FeatureDiff]:
    withheld = any(isinstance(read.entity_id, Commitment) for read in (*before, *after))
    pairs = pairs_of(before, after, _whose, *[_which] * withheld)
    return [_feature(one, two) for one, two in pairs]


def _whose(read: FeatureRead) -> Hashable | None:
    if isinstance(read.entity_id, Commitment):
        return None
    return (read.feature, read.entity, read.entity_id)


def _which(read: FeatureRead) -> Hashable | None:
    return (read.feature, read.entity)


def _feature(one: FeatureRead | None, two: FeatureRead | None) -> FeatureDiff:
    feature, entity, entity_id = next(
        (read.feature, read.entity, read.entity_id) for read in (two, one) if read is not None
    )
    return FeatureDiff(
        feature=feature,
        entity=entity,
        entity_id=_shown(entity_id),
        change=_change(one, two, lambda read: read.value),
        before=_feature_side(one),
        after=_feature_side(two),
    )


def _feature_side(read: FeatureRead | None) -> FeatureSide | None:
    if read is None:
        return None
    return FeatureSide(
        value=_shown(read.value),
        as_of=read.as_of,
        age_ms=read.age_ms,
        source=read.source,
        fresh=read.fresh,
    )


class _Ranked(NamedTuple):
    """A result, and its rank in which call of its retriever, with which arguments."""

    retriever: str
    arguments: Any
    call: int
    rank: int
    result: Result


def _results(before: Core, after: Core) -> list[ResultDiff]:
    pairs = pairs_of(_ranked(before), _ranked(after), _found_for, _found)
    return [_result(one, two) for one, two in pairs]


def _ranked(core: Core) -> list[_Ranked]:
    calls = Counter[str]()
    ranked: list[_Ranked] = []
    for retrieval in core.retrievals:
        calls[retrieval.retriever] += 1
        call = calls[retrieval.retriever]
        ranked += (
            _Ranked(retrieval.retriever, retrieval.arguments, call, rank, result)
            for rank, result in enumerate(retrieval.results, 1)
        )
    return ranked


def _found_for(ranked: _Ranked) -> Hashable | None:
    """A result by what was asked: calls that run side by side end in any order."""
    if isinstance(ranked.arguments, Commitment):
        return None
    return (ranked.retriever, _form(ranked.arguments), _known(ranked))


def _found(ranked: _Ranked) -> Hashable | None:
    """A result by the call that found it, whatever that asked for."""
    return (ranked.retriever, ranked.call, _known(ranked))


def _known(ranked: _Ranked) -> Hashable:
    result = ranked.result
    known = result.content if result.id is None else result.id
    return ranked.rank if isinstance(known, Commitment) else _form(known)


def _result(one: _Ranked | None, two: _Ranked | None) -> ResultDiff:
    retriever, found = next(
        (ranked.retriever, ranked.result.id) for ranked in (two, one) if ranked is not None
    )
    return ResultDiff(
        retriever=retriever,
        id=_shown(found),
        change=_change(
            one,
            two,
            lambda ranked: ranked.result.content,
            lambda ranked: ranked.rank,
            lambda ranked: ranked.result.score,
        ),
        before=one and ResultSide(rank=one.rank, score=one.result.score),
        after=two and ResultSide(rank=two.rank, score=two.result.score),
    )


def _rules(core: Core) -> dict[str, Any]:
    """Everything besides the inputs that a context depends on."""
    versions = msgspec.structs.asdict(core.versions)
    return {
        **msgspec.structs.asdict(core.policy),
        "name": core.context.name,
        "version": core.context.version,
        "definition": core.context.definition,
        "environment": core.environment,
        "tokenizer": core.tokenizer.name,
        "freshness_status": core.freshness.status,
        **{f"versions.{program}": of for program, of in versions.items()},
    }


class _Value(NamedTuple):
    """A value that is there, be it None."""

    value: Any


def _values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ValueDiff]:
    """The values that are not the same on both sides."""
    for name in dict.fromkeys((*before, *after)):
        one = _Value(before[name]) if name in before else None
        two = _Value(after[name]) if name in after else None
        change = _change(one, two, lambda of: of.value)
        if change != "same":
            shown = (None if of is None else _shown(of.value) for of in (one, two))
            yield ValueDiff(name, change, *shown)


def _text(before: Core, after: Core) -> str | None:
    one, two = before.output.content, after.output.content
    if not isinstance(one, str) or not isinstance(two, str):
        return None
    lines = unified_diff(_lines(one), _lines(two), before.context_id, after.context_id, lineterm="")
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    """Lines that are the same only where the texts are, to the last line break."""
    return text.split("\n") if text else []
