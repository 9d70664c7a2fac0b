"""How a context differs from the recorded one: what a model would see, values, tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from headwater.messages.texts import Place, layout
from headwater.model.evaluations import ChangeKind
from headwater.records.core import NOT_COUNTED, Commitment, Core, FeatureRead, Item
from headwater.records.diff import PlacedItem, is_same, item_pairs

WITHHELD_TEXTS = "the record withholds texts, so items are compared by kind and tokens"
OTHER_COUNT = "tokens are counted in another way than those of the record"

_UNSEEN = frozenset((NOT_COUNTED, "cache_mark_unsupported", "too_many_cache_marks"))
_KINDS: Sequence[ChangeKind] = get_args(ChangeKind)


class ContextDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How two contexts differ, in fields of `EvaluatedContext`; no kinds if in nothing.

    `reasons` say what cannot be compared exactly. Ids, ages, latencies, scores of searches and
    items that neither context shows are not compared.
    """

    kinds: tuple[ChangeKind, ...] = ()
    reasons: tuple[str, ...] = ()
    gained: int = 0
    lost: int = 0
    cut: int = 0
    lost_required: int = 0
    values: tuple[str, ...] = ()
    tokens_before: int
    tokens_after: int
    cost_before: int | None
    cost_after: int | None
    freshness_before: str
    freshness_after: str
    content_after: str
    model: str | None


def difference(before: Core, after: Core) -> ContextDifference:
    """Compare a recorded context, or one of the former code, with one of the present code."""
    was, now = before.output, after.output
    statuses = (before.freshness.status, after.freshness.status)
    # No model is shown what was refused on both sides.
    is_shown = statuses != ("refused", "refused")
    is_same = not is_shown or _is_same_text(before, after)
    text = _NO_CHANGES if is_same else _text_changes(before, after)
    values = _value_changes(before.features, after.features)
    changed = tuple(sorted(name for name, is_known in values.items() if is_known))
    is_same_model = before.policy.model == after.policy.model
    is_counted_alike = not is_same_model or _counted_by(before) == _counted_by(after)
    cost_before, cost_after = _costs(before, after)
    is_refusal = "refused" in statuses and statuses[0] != statuses[1]
    kinds: Mapping[ChangeKind, object] = {
        **dict.fromkeys(text.kinds, True),
        "values": changed,
        "tokens": is_shown and was.tokens != now.tokens and (is_counted_alike or text.kinds),
        "price": is_shown
        and (
            (None not in (cost_before, cost_after) and cost_before != cost_after)
            or (not text.kinds and _cache_marks(before) != _cache_marks(after))
        ),
        "freshness": statuses[0] != statuses[1] and not is_refusal,
        "refusal": is_refusal,
    }
    reasons = [
        *text.reasons,
        *(
            f"the record withholds values of {name}"
            for name, is_known in sorted(values.items())
            if not is_known
        ),
        *([OTHER_COUNT] if was.tokens != now.tokens and not is_counted_alike else []),
    ]
    return ContextDifference(
        kinds=tuple([kind for kind in _KINDS if kinds.get(kind)]),
        reasons=tuple(reasons),
        gained=text.gained,
        lost=text.lost,
        cut=text.cut,
        lost_required=text.lost_required,
        values=changed,
        tokens_before=was.tokens,
        tokens_after=now.tokens,
        cost_before=cost_before,
        cost_after=cost_after,
        freshness_before=statuses[0],
        freshness_after=statuses[1],
        content_after=now.content_hash,
        model=after.policy.model,
    )


def _is_same_text(before: Core, after: Core) -> bool:
    """Return whether a model is shown the same; nearly all contexts of an evaluation are."""
    return (
        before.output.content_hash == after.output.content_hash
        and _shape(before) == _shape(after)
        and _losses(before) == _losses(after)
    )


def _shape(core: Core) -> list[object]:
    """Return what the transcript of messages leaves open: which part of which message is what."""
    shown = [
        (item.message.kind, Place(item.message.role, item.message.turn))
        for item in core.items
        if item.message is not msgspec.UNSET and _is_shown(item)
    ]
    numbers = layout(place for _, place in shown).numbers
    shape = [
        (kind, place.role, number) for (kind, place), number in zip(shown, numbers, strict=True)
    ]
    # Neighbouring texts of one message read as one text.
    return [part for n, part in enumerate(shape) if part[0] != "text" or shape[n - 1 : n] != [part]]


def _losses(core: Core) -> list[tuple[str, str]]:
    """Return what providers cannot be sent of what a model would see."""
    losses = () if core.output.losses is msgspec.UNSET else core.output.losses
    return sorted((loss.name, loss.provider) for loss in losses if loss.name not in _UNSEEN)


def _cache_marks(core: Core) -> list[bool]:
    return [
        item.message.cache
        for item in core.items
        if item.message is not msgspec.UNSET and _is_shown(item)
    ]


def _text_of(item: Item) -> str | Commitment:
    return item.content if item.emitted is None else item.emitted


def _is_shown(item: Item) -> bool:
    return item.decision != "dropped" and _text_of(item) != ""


class _TextChanges(msgspec.Struct):
    """The differences of what a model is shown, item by item."""

    kinds: set[ChangeKind] = msgspec.field(default_factory=set)
    reasons: list[str] = msgspec.field(default_factory=list)
    gained: int = 0
    lost: int = 0
    cut: int = 0
    lost_required: int = 0

    def compare(self, before: Item | None, after: Item | None) -> None:
        """Count the differences of an item that at least one of the contexts shows."""
        if before is None:
            self.gained += 1
            self.kinds.add("gained")
        elif after is None:
            self.lost += 1
            self.lost_required += before.required
            self.kinds.add("lost")
        else:
            self._compare_texts(before, after)

    def _compare_texts(self, before: Item, after: Item) -> None:
        one, two = _text_of(before), _text_of(after)
        is_withheld = isinstance(one, Commitment) or isinstance(two, Commitment)
        is_same_content = is_withheld or before.content == after.content
        if after.decision == "truncated" and (
            before.decision == "kept"
            or (is_same_content and after.emitted_tokens < before.emitted_tokens)
        ):
            self.cut += 1
            self.kinds.add("cut")
            if is_same_content and _part(before) == _part(after):
                return
        is_same_text = before.emitted_tokens == after.emitted_tokens if is_withheld else one == two
        if not is_same_text or _part(before) != _part(after):
            self.kinds.add("edited")


_NO_CHANGES = _TextChanges()


def _part(item: Item) -> tuple[str, str | None] | None:
    """Return what an item is in a message; its text has the hash of an image."""
    return None if item.message is msgspec.UNSET else (item.message.kind, item.message.role)


def _text_changes(before: Core, after: Core) -> _TextChanges:
    changes = _TextChanges()
    places: list[int] = []
    for one, two in _shown_pairs(before, after):
        changes.compare(one and one.item, two and two.item)
        if one and two:
            places.append(two.place)
    if places != sorted(places):
        changes.kinds.add("reordered")
    if any(isinstance(item.content, Commitment) for item in (*before.items, *after.items)):
        changes.reasons.append(WITHHELD_TEXTS)
    if not changes.kinds:  # separators, borders of messages, or texts that are withheld
        changes.kinds.add("edited")
    return changes


def _shown_pairs(
    before: Core, after: Core
) -> Iterator[tuple[PlacedItem | None, PlacedItem | None]]:
    """Yield the items that are shown, each with the one of the other context if that shows it."""
    for one, two in item_pairs(before, after):
        shown = one if one and _is_shown(one.item) else None
        also = two if two and _is_shown(two.item) else None
        if shown or also:
            yield shown, also


def _value_changes(before: Sequence[FeatureRead], after: Sequence[FeatureRead]) -> dict[str, bool]:
    """Return the features that both contexts read with different values.

    It is False for a feature of which the record withholds a value, so that it may have changed.
    """
    recorded: dict[tuple[str, str, Any], list[Any]] = {}
    withheld = set[str]()
    for read in before:
        if isinstance(read.entity_id, Commitment) or isinstance(read.value, Commitment):
            withheld.add(read.feature)
        else:
            recorded.setdefault((read.feature, read.entity, read.entity_id), []).append(read.value)
    changes: dict[str, bool] = {}
    for read in after:
        values = recorded.get((read.feature, read.entity, read.entity_id))
        if values is not None and not any(is_same(value, read.value) for value in values):
            changes[read.feature] = True
        elif read.feature in withheld:
            changes.setdefault(read.feature, False)
    return changes


def _counted_by(core: Core) -> object:
    """Return how the tokens were counted."""
    counter = core.tokenizer.counter
    source = None if counter is msgspec.UNSET else (counter.grade, counter.source)
    return (core.tokenizer.name, core.versions.tokenizer, source)


def _costs(before: Core, after: Core) -> tuple[int | None, int | None]:
    """Return both costs; the price of a model that was set since the record is no difference."""
    was, now = before.output, after.output
    if before.policy.model == after.policy.model and was.tokens == now.tokens:
        return was.cost_nano_usd, was.cost_nano_usd
    return was.cost_nano_usd, now.cost_nano_usd
