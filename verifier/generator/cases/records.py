"""The sealed records that the cases start from."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from headwater.messages.parts import (
    Blob,
    Part,
    Reasoning,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
)
from headwater.messages.texts import Place, layout, part_text, transcript
from headwater.model.values import WindowRead
from headwater.records.core import Core, Counter, Item, ItemMessage, KeptResults, Loss
from headwater.records.redaction import redact
from headwater.records.sealing import seal
from headwater.records.signing import parse_keyring, sign
from verifier.generator.samples import ED25519, HMAC, NOON, salts, sample, sample_item


class FutureItem(Item, frozen=True, kw_only=True):
    """An item of some later version."""

    language: str = "en"


class FutureCore(Core, frozen=True, kw_only=True):
    """A core of some later version."""

    items: tuple[FutureItem, ...] = ()
    region: str | None = None


FULL = seal(sample(), salts())
SIGNED = sign(FULL, parse_keyring(HMAC), NOON)
BY_ED25519 = sign(FULL, parse_keyring(ED25519), NOON)
OTHER = sign(
    seal(sample(context_id="019b7e9c-4c1b-7abc-8def-0123456789ab"), salts()),
    parse_keyring(HMAC),
    NOON,
)
REDACTED = redact(
    SIGNED, "/inputs/question", at=NOON + timedelta(days=1), reason="asked for by Ada", by="dpo"
)
FUTURE = seal(
    FutureCore(
        **msgspec.structs.asdict(sample())
        | {
            "version": 2,
            "region": "eu",
            "items": tuple(FutureItem(**msgspec.structs.asdict(item)) for item in sample().items),
        }
    ),
    salts(),
)
EXTERNAL = seal(sample(items=(), features=(), retrievals=(), contexts=()), salts())
WITH_EMPTY = seal(sample(items=(*sample().items, sample_item(""))), salts())
MISMATCH = seal(sample(items=sample().items[:2]), salts())


def _messages(data: bytes | None = None) -> Core:
    """Return a core of messages; ``data`` replaces the bytes of its image."""
    image = b"\x89PNG\r\n\x1a\n of one pixel"
    call = ToolCall(id="c-1", name="track", arguments={"parcel": "p-7", "share": 0.5})
    items: tuple[tuple[Part | Tool, Role | None, int | None, int | None], ...] = (
        (TextPart(content="You help customers."), "system", None, None),
        (Tool(name="track", description="Where a parcel is", parameters={}), None, None, None),
        (TextPart(content="Plan: gold"), "system", None, None),
        (TextPart(content="Hello"), "user", 0, None),
        (call, "assistant", 1, 4),
        (ToolResult(id="c-1", response="lost"), "tool", 2, 4),
        (Reasoning(content="Hm."), "assistant", 3, None),
        (Blob(mime_type="image/png", content=image), "user", None, None),
        (TextPart(content=""), "user", None, None),
        (TextPart(content="Where is it?"), "user", None, None),
    )
    kinds: dict[type, Any] = {
        Tool: "tool",
        ToolCall: "tool_call",
        ToolResult: "tool_result",
        Blob: "image",
    }
    kinds |= {TextPart: "text", Reasoning: "reasoning"}
    dropped = {"decision": "dropped", "reason": "outranked", "emitted_tokens": 0, "short_by": 9}
    sealed = tuple(
        sample_item(
            part_text(part),
            message=ItemMessage(
                kind=kinds[type(part)],
                role=role,
                turn=turn,
                group=group,
                cache=role == "system",
                data=(data or part.content) if isinstance(part, Blob) else None,
            ),
            **(dropped if isinstance(part, Reasoning) else {}),
        )
        for part, role, turn, group in items
    )
    places = layout(Place(role, turn) for _, role, turn, _ in items)
    texts = [None if isinstance(part, Reasoning) else part_text(part) for part, *_ in items]
    core = sample()
    counter = Counter(
        grade="exact", source="o200k", request_tokens=3, message_tokens=4, tools_tokens=9, limit=90
    )
    losses = (Loss(name="reasoning_dropped", provider="openai", item=6),)
    return msgspec.structs.replace(
        core,
        items=sealed,
        tokenizer=msgspec.structs.replace(core.tokenizer, counter=counter),
        policy=msgspec.structs.replace(core.policy, max_output=500),
        output=msgspec.structs.replace(
            core.output, content=transcript(places, texts, "\n\n"), losses=losses
        ),
    )


MESSAGES = seal(_messages(), salts())
OTHER_IMAGE = seal(_messages(b"another image"), salts())


def _windows() -> Core:
    """Return a core whose features are windows, of which one is empty."""
    core = sample()
    window = WindowRead(
        family="spend",
        aggregate="p95",
        window="1h",
        span_us=3_600_000_000,
        hop_us=60_000_000,
        relative_error="0.01",
        read_at=NOON,
        last_fold=NOON - timedelta(seconds=1, microseconds=1),
    )
    empty = msgspec.structs.replace(window, aggregate="max", relative_error=None, last_fold=None)
    read, missing = core.features[0], core.features[4]
    return msgspec.structs.replace(
        core,
        features=(
            msgspec.structs.replace(read, feature="spend_p95_1h", window=window),
            msgspec.structs.replace(missing, feature="spend_max_1h", window=empty),
        ),
    )


WINDOWS = seal(_windows(), salts())


def _kept() -> Core:
    """Return a core whose first search kept its results as a whole."""
    core = sample()
    search, *others = core.retrievals
    metadata = [{"page": place, "weight": 0.5, "at": NOON} for place in range(len(search.results))]
    kept = KeptResults(metadata=metadata, features=(0,))
    return msgspec.structs.replace(
        core, retrievals=(msgspec.structs.replace(search, kept=kept), *others)
    )


KEPT = seal(_kept(), salts())
