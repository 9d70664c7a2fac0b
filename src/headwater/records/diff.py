"""Comparing two records: items, features, results, rules and the text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple, TypeVar

import msgspec

from headwater.core.canonical_json import canonical, to_tagged
from headwater.model.contexts import (
    Change,
    ContextDiff,
    FeatureDiff,
    FeatureSide,
    ItemDiff,
    ItemSide,
    ResultDiff,
    ResultSide,
    ValueDiff,
)
from headwater.records.core import Commitment, Core, FeatureRead, Item, Result, disclosed


def diff(before: Core, after: Core) -> ContextDiff:
    """Compare two contexts by the opened cores of their records."""
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
        interaction_ref=list(_references(before.interaction_ref, after.interaction_ref)),
        rules=list(_values(_rules(before), _rules(after))),
        text=_text(before, after),
    )


def _change(before: Sequence[Any] | None, after: Sequence[Any] | None) -> Change:
    """Return how an element changed, given the values that are compared; None if it is absent."""
    if before is None:
        return "added"
    if after is None:
        return "removed"
    # Salts are random, so equal commitments mean the same value of the same record.
    pairs = [
        (a, b)
        for a, b in zip(before, after, strict=True)
        if not (isinstance(a, Commitment) and a == b)
    ]
    if any(isinstance(value, Commitment) for pair in pairs for value in pair):
        return "unknown"
    return "same" if all(is_same(a, b) for a, b in pairs) else "changed"


_PLAIN = frozenset((str, int, bool, type(None)))


def is_same(one: Any, two: Any) -> bool:
    """Return whether two values are equal and of the same type."""
    if type(one) is type(two) and type(one) in _PLAIN:
        return bool(one == two)
    return _form(one) == _form(two)


def _form(value: Any) -> bytes:
    """Return bytes that are equal only for equal values of the same type."""
    return canonical(to_tagged(value))


class PlacedItem(NamedTuple):
    """An item, its place, and the name of the inner context that it quotes, if any."""

    place: int
    item: Item
    inner: str | None

    def compared(self) -> Sequence[Any]:
        return (self.item.content, self.item.decision, self.item.emitted)


def _items(before: Core, after: Core) -> list[ItemDiff]:
    return [_item(one, two) for one, two in item_pairs(before, after)]


def item_pairs(before: Core, after: Core) -> list[tuple[PlacedItem | None, PlacedItem | None]]:
    """Pair the items of two contexts, in the order of the first."""
    withheld = any(isinstance(i.content, Commitment) for i in (*before.items, *after.items))
    identities = (_passage, _ref, _content, _inner, _role, *[_kind] * withheld)
    return pairs_of(_placed(before), _placed(after), *identities)


def _placed(core: Core) -> list[PlacedItem]:
    names: dict[Any, str] = {inner.context_id: inner.name for inner in core.contexts}
    return [
        PlacedItem(
            place, item, names.get(item.source.ref) if item.source.kind == "context" else None
        )
        for place, item in enumerate(core.items)
    ]


def _ref(placed: PlacedItem) -> Hashable | None:
    source = placed.item.source
    if source.ref is None or isinstance(source.ref, Commitment):
        return None
    return (source.kind, _form(source.ref))


def _passage(placed: PlacedItem) -> Hashable | None:
    """Identify one of several texts with the same source."""
    content, ref = placed.item.content, _ref(placed)
    return None if ref is None or isinstance(content, Commitment) else (ref, content)


def _content(placed: PlacedItem) -> Hashable | None:
    content = placed.item.content
    if not isinstance(content, str) or _has_stable_ref(placed):
        return None
    return (placed.inner, content)


def _has_stable_ref(placed: PlacedItem) -> bool:
    """Return True if the source's name is the same in every context.

    Ids of contexts are not, and a template may be edited.
    """
    return placed.item.source.kind not in ("context", "template") and _ref(placed) is not None


def _inner(placed: PlacedItem) -> Hashable | None:
    """Identify the text of an inner context whose text changed."""
    return placed.inner


def _role(placed: PlacedItem) -> Hashable | None:
    """Identify an item without a source whose text changed, by its kind and section."""
    if placed.inner is not None or _has_stable_ref(placed):
        return None
    withheld = isinstance(placed.item.source.ref, Commitment)
    return None if withheld else (_kind(placed), disclosed(placed.item.section))


def _kind(placed: PlacedItem) -> Hashable | None:
    """Identify an item whose text is withheld, by its kind, priority and requirement."""
    item = placed.item
    return (item.source.kind, item.priority, item.required)


def _item(one: PlacedItem | None, two: PlacedItem | None) -> ItemDiff:
    before, after = _item_side(one), _item_side(two)
    return ItemDiff(
        identity=next(_name(placed) for placed in (two, one) if placed is not None),
        change=_change(one and one.compared(), two and two.compared()),
        flipped=bool(before and after and before.decision != after.decision),
        tokens_delta=(after.emitted_tokens if after else 0)
        - (before.emitted_tokens if before else 0),
        before=before,
        after=after,
    )


def _item_side(placed: PlacedItem | None) -> ItemSide | None:
    if placed is None:
        return None
    names = set(ItemSide.__struct_fields__) - {"place"}
    return ItemSide(place=placed.place, **{name: getattr(placed.item, name) for name in names})


_LONGEST_NAME = 60


def _name(placed: PlacedItem) -> str:
    """Return a short name of an item for people."""
    item = placed.item
    if placed.inner is not None:
        return f"context {placed.inner}"
    if _ref(placed) is not None:
        name = f"{item.source.kind} {item.source.ref}"
        return _line(name) if item.source.kind == "template" else name
    if not isinstance(item.content, str):
        return f"item {placed.place} (withheld)"
    return _line(item.content)


def _line(text: str) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text[: 2 * _LONGEST_NAME].split())
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"


def _features(before: Sequence[FeatureRead], after: Sequence[FeatureRead]) -> list[FeatureDiff]:
    withheld = any(isinstance(read.entity_id, Commitment) for read in (*before, *after))
    pairs = pairs_of(before, after, _by_entity, *[_by_name] * withheld)
    return [_feature(one, two) for one, two in pairs]


def _by_entity(read: FeatureRead) -> Hashable | None:
    if isinstance(read.entity_id, Commitment):
        return None
    return (read.feature, read.entity, read.entity_id)


def _by_name(read: FeatureRead) -> Hashable | None:
    return (read.feature, read.entity)


def _feature(one: FeatureRead | None, two: FeatureRead | None) -> FeatureDiff:
    feature, entity, entity_id = next(
        (read.feature, read.entity, read.entity_id) for read in (two, one) if read is not None
    )
    values = [None if read is None else (read.value, _window(read)) for read in (one, two)]
    return FeatureDiff(
        feature=feature,
        entity=entity,
        entity_id=disclosed(entity_id),
        change=_change(*values),
        before=_feature_side(one),
        after=_feature_side(two),
    )


def _window(read: FeatureRead) -> Sequence[Any] | None:
    """Return what a value is an aggregate of; every read of it is of another moment."""
    window = read.window
    if window is msgspec.UNSET:
        return None
    return [window.aggregate, window.span_us, window.hop_us]


def _feature_side(read: FeatureRead | None) -> FeatureSide | None:
    if read is None:
        return None
    names = FeatureSide.__struct_fields__
    return FeatureSide(**{name: disclosed(getattr(read, name)) for name in names})


class _Ranked(NamedTuple):
    """A result, its rank, and the call of the retriever that returned it."""

    retriever: str
    arguments: Any
    call: int
    rank: int
    result: Result

    def compared(self) -> Sequence[Any]:
        return (self.result.content, self.rank, self.result.score)


def _results(before: Core, after: Core) -> list[ResultDiff]:
    pairs = pairs_of(_ranked(before), _ranked(after), _by_arguments, _by_call)
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


def _by_arguments(ranked: _Ranked) -> Hashable | None:
    """Identify a result by the arguments of its call: concurrent calls end in any order."""
    if isinstance(ranked.arguments, Commitment):
        return None
    return (ranked.retriever, _form(ranked.arguments), _result_key(ranked))


def _by_call(ranked: _Ranked) -> Hashable | None:
    """Identify a result by the number of its call."""
    return (ranked.retriever, ranked.call, _result_key(ranked))


def _result_key(ranked: _Ranked) -> Hashable:
    result = ranked.result
    key = result.content if result.id is None else result.id
    return ranked.rank if isinstance(key, Commitment) else _form(key)


def _result(one: _Ranked | None, two: _Ranked | None) -> ResultDiff:
    retriever, result = next(
        (ranked.retriever, ranked.result.id) for ranked in (two, one) if ranked is not None
    )
    return ResultDiff(
        retriever=retriever,
        id=disclosed(result),
        change=_change(one and one.compared(), two and two.compared()),
        before=one and ResultSide(rank=one.rank, score=one.result.score),
        after=two and ResultSide(rank=two.rank, score=two.result.score),
    )


def _rules(core: Core) -> dict[str, Any]:
    """Return everything besides the inputs that a context depends on."""
    versions = msgspec.structs.asdict(core.versions)
    indexes = [call.index for call in core.retrievals if call.index is not None]
    return {
        **msgspec.to_builtins(core.policy),
        "name": core.context.name,
        "version": core.context.version,
        "definition": core.context.definition,
        "environment": core.environment,
        "tokenizer": core.tokenizer.name,
        "freshness_status": core.freshness.status,
        **{f"versions.{program}": of for program, of in versions.items()},
        **{f"indexes.{index.name}": index.version for index in indexes},
    }


def _values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ValueDiff]:
    """Yield the values that differ."""
    for name in dict.fromkeys((*before, *after)):
        one = (before[name],) if name in before else None
        two = (after[name],) if name in after else None
        change = _change(one, two)
        if change != "same":
            yield ValueDiff(name, change, *(side and disclosed(side[0]) for side in (one, two)))


def _references(before: Any, after: Any) -> Iterator[ValueDiff]:
    """Yield the entries that differ; the whole, if one side does not disclose them."""
    if isinstance(before, Commitment) or isinstance(after, Commitment):
        sides = [{} if each is None else {"interaction_ref": each} for each in (before, after)]
        return _values(*sides)
    return _values(before or {}, after or {})


def _text(before: Core, after: Core) -> str | None:
    one, two = before.output.content, after.output.content
    if not isinstance(one, str) or not isinstance(two, str):
        return None
    lines = unified_diff(_lines(one), _lines(two), before.context_id, after.context_id, lineterm="")
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    """Split a text into lines that are equal only if the texts are, line breaks included."""
    return text.split("\n") if text else []


T = TypeVar("T")


Identity = Callable[[T], Hashable | None]
"""Returns the identity of an element, or None if it has none of this kind."""


def pairs_of(
    before: Sequence[T], after: Sequence[T], *identities: Identity[T]
) -> list[tuple[T | None, T | None]]:
    """Pair elements by the first identity that both share; unmatched ones pair with None."""
    partners: dict[int, int] = {}
    for identity in identities:
        taken, unmatched = set(partners.values()), dict[Hashable, list[int]]()
        for place, element in enumerate(after):
            key = identity(element)
            if place not in taken and key is not None:
                unmatched.setdefault(key, []).append(place)
        for place, element in enumerate(before):
            places = None if place in partners else unmatched.get(identity(element))
            if places:
                partners[place] = places.pop(0)
    taken = set(partners.values())
    return [
        *((one, after[partners[n]] if n in partners else None) for n, one in enumerate(before)),
        *((None, other) for place, other in enumerate(after) if place not in taken),
    ]
