"""Values and cores that Hypothesis makes up."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

import msgspec
from hypothesis import strategies as st

from headwater.core.canonical_json import LARGEST
from headwater.messages.parts import Blob, Message, Reasoning, TextPart, ToolCall, ToolResult
from headwater.model.outcomes import OutcomeFacts, OutcomeKind, Response, Score, Usage
from headwater.records.core import Core, Item, ItemSource, Output
from verifier.generator.samples import sample

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
# Keys on both sides of the one place where UTF-8 and UTF-16 disagree are drawn often.
KEYS = TEXTS | st.text("\ud7ff\ue000\uffff\U00010000😀az$~/", max_size=4)
EXACT = st.integers(-LARGEST, LARGEST)
JSON = st.recursive(
    st.none() | st.booleans() | EXACT | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ZONES = st.just(UTC) | st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | TEXTS
    | st.decimals()
    | st.datetimes(timezones=ZONES)
    | st.dates()
    | st.timedeltas()
    | st.binary()
    | st.uuids()
)
# A signalling NaN cannot be hashed, so it is a value but never a key.
_HASHABLE = st.recursive(
    st.integers() | st.booleans() | TEXTS | st.binary() | st.uuids() | st.dates(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(_HASHABLE, inner, max_size=3)
        | st.sets(_HASHABLE, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def cores(draw: st.DrawFn) -> Core:
    """A core with inputs, references and items of any kind, whose kept items make up the text."""
    texts = draw(st.lists(TEXTS, min_size=1, max_size=4))
    dropped = draw(st.sets(st.integers(0, 3)))
    items = tuple(
        Item(
            content=text,
            emitted=draw(st.none() | TEXTS),
            priority=draw(EXACT),
            required=draw(st.booleans()),
            truncate=draw(st.booleans()),
            section=draw(st.none() | TEXTS),
            source=ItemSource(kind="other", ref=draw(st.none() | VALUES)),
            tokens=0,
            emitted_tokens=0,
            decision="dropped" if at in dropped else "kept",
            reason=draw(TEXTS),
            short_by=0,
        )
        for at, text in enumerate(texts)
    )
    kept = [
        item.content if item.emitted is None else item.emitted
        for item in items
        if item.decision == "kept"
    ]
    given = sample()
    output = Output(
        content=given.policy.separator.join(str(text) for text in kept if text),
        tokens=0,
        items_kept=len(kept),
        items_dropped=len(items) - len(kept),
        items_truncated=0,
        cost_nano_usd=draw(st.none() | EXACT),
        overflow=draw(st.booleans()),
    )
    names = KEYS.filter(lambda key: not key.startswith("$"))
    return sample(
        items=items,
        output=output,
        inputs=draw(st.dictionaries(names, VALUES, max_size=3)),
        interaction_ref=draw(st.none() | st.dictionaries(names, VALUES, max_size=3)),
    )


_NAMES = st.text("aZ09-_/~é漢😀", min_size=1, max_size=40)
_COUNTS = st.none() | st.integers(0, LARGEST)
_ANY_JSON = st.recursive(
    JSON | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
_PARTS = (
    st.builds(TextPart, content=TEXTS)
    | st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=_ANY_JSON)
    | st.builds(ToolResult, id=TEXTS, response=_ANY_JSON)
    | st.builds(Blob, mime_type=TEXTS, content=st.binary())
    | st.builds(Reasoning, content=TEXTS, block=_ANY_JSON)
)
_MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        parts=st.lists(_PARTS, max_size=3).map(tuple),
        finish_reason=st.none() | TEXTS,
    ),
    min_size=1,
    max_size=3,
).map(tuple)
_USAGE = st.builds(
    Usage,
    input=_COUNTS,
    output=_COUNTS,
    cache_read=_COUNTS,
    cache_write=_COUNTS,
    reasoning=_COUNTS,
    raw=_ANY_JSON,
)
_ANSWERS = st.builds(
    Response,
    messages=_MESSAGES,
    response_id=st.none() | _NAMES,
    provider=st.none() | _NAMES,
    model_asked=st.none() | _NAMES,
    model=st.none() | _NAMES,
    finish_reasons=st.lists(_NAMES, max_size=3).map(tuple),
    usage=st.none() | _USAGE,
    latency_ms=st.none() | st.integers(0, 2**40).map(lambda micros: micros / 1_000),
    first_token_ms=st.none() | st.integers(0, 2**40).map(lambda micros: micros / 1_000),
)
_JUDGEMENTS = (
    st.fixed_dictionaries({"value": st.floats(allow_nan=False, allow_infinity=False)})
    | st.fixed_dictionaries({"label": _NAMES})
    | st.fixed_dictionaries({"flag": st.booleans()})
    | st.fixed_dictionaries({"text": TEXTS})
)
_SCORES = st.builds(
    lambda judgement, **known: Score(**judgement, **known),
    _JUDGEMENTS,
    name=_NAMES,
    explanation=st.none() | TEXTS,
    identifier=st.none() | _NAMES,
)


@st.composite
def outcome_facts(draw: st.DrawFn) -> OutcomeFacts:
    """Facts of any kind of outcome."""
    kinds: list[OutcomeKind] = ["response", "score", "correction", "error"]
    kind = draw(st.sampled_from(kinds))
    response = None if kind == "score" else draw(_ANSWERS)
    if kind == "error" and response is not None:
        response = msgspec.structs.replace(response, error_type=draw(_NAMES))
    links = st.dictionaries(_NAMES, _NAMES, max_size=3)
    source = draw(st.none() | _NAMES)
    return OutcomeFacts(
        kind=kind,
        response=response,
        score=draw(_SCORES) if kind == "score" else None,
        actor=draw(st.none() | _NAMES),
        judge=draw(st.none() | st.sampled_from(["human", "model", "code"])),
        links=draw(links),
        source=source,
        source_id=None if source is None else draw(st.none() | _NAMES),
    )
