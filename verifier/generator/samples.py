"""Sample cores and values for test vectors, the same in every run."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from itertools import count
from typing import Any
from uuid import UUID

from headwater.model.lineage import NestedLineage
from headwater.records.core import (
    ChunkOrigin,
    Core,
    Definition,
    FeatureInput,
    FeatureRead,
    Freshness,
    IndexRead,
    Item,
    ItemSource,
    Output,
    Policy,
    Result,
    Retrieval,
    Timing,
    TokenizerInfo,
    Versions,
    Violation,
    decimal_text,
)
from headwater.records.sealing import Salts

NOON = datetime(2026, 1, 2, 12, 0, 0, 250_000, tzinfo=UTC)
HMAC = "2026-01:correct horse battery staple"
OLD_HMAC = "2025-01:the secret of last year"
ED25519 = "ed25519:auditors:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
ED25519_PUBLIC = "ed25519-pub:auditors:A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="

GRAMMAR: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -1,
    "largest exact integer": 2**53 - 1,
    "smallest exact integer": -(2**53) + 1,
    "first integer beyond": 2**53,
    "big integer": 2**200,
    "big negative integer": -(2**64),
    "float": 1.5,
    "float that is an integer": 1.0,
    "float with an exponent": 1e22,
    "smallest float": 5e-324,
    "float of many digits": 0.1 + 0.2,
    "negative zero": -0.0,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "negative infinity": float("-inf"),
    "decimal": Decimal("1.10"),
    "decimal with an exponent": Decimal("1E+3"),
    "datetime in UTC": NOON,
    "datetime elsewhere": datetime(2026, 7, 1, 9, 30, tzinfo=timezone(timedelta(hours=5.5))),
    "date": date(2026, 2, 28),
    "duration": timedelta(days=1, microseconds=1),
    "negative duration": timedelta(seconds=-1),
    "bytes": b"\x00\xfb\xff?>",
    "no bytes": b"",
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "empty text": "",
    "text with every escape": "".join(map(chr, range(32))) + '"\\/\x7f',
    "text beyond ASCII": "é — 漢字 \u2028\u2029 \ufeff",
    "surrogate pair": "😀𝄞\U0010ffff",
    "combining and composed": "e\u0301 é",
    "right to left": "שלום",
    "special-token text": "<|endoftext|>",
    "array": [1, "2", None, [True]],
    "empty array": [],
    "tuple": (1, (2, "3")),
    "object": {"b": 1, "a": {"d": 2, "c": 3}, "A": 0},
    "empty object": {},
    "empty key": {"": 0},
    "keys in UTF-16 order": {"\ue000": 1, "😀": 2, "é": 3, "z": 4, "\r": 5, "1": 6, "\x80": 7},
    "key that JavaScript knows": {"__proto__": 1, "constructor": 2},
    "key that begins with a dollar": {"$sd": "not a commitment", "plain": 1},
    "integer keys": {10: "ten", 9: "nine"},
    "tuple keys": {("a", 1): 1.5},
    "set": {3, 1, 2},
    "frozen sets in a set": {frozenset({"b", "a"}), frozenset()},
    "deep nesting": None,
}
for _ in range(48):
    GRAMMAR["deep nesting"] = [GRAMMAR["deep nesting"]]


def salts() -> Salts:
    """Return deterministic salts, for test vectors only."""
    blocks = count()

    def draw(size: int) -> bytes:
        drawn = b""
        while len(drawn) < size:
            drawn += sha256(f"salt {next(blocks)}".encode()).digest()
        return drawn[:size]

    return draw


_TEXTS = ("You are a support agent.", "Customer: Ada “the first” 😀", "A long story. […]")


def sample_item(content: str, **known: Any) -> Item:
    fields: dict[str, Any] = {
        "priority": 50,
        "required": False,
        "truncate": False,
        "section": None,
        "source": ItemSource(kind="literal"),
        "tokens": 6,
        "emitted_tokens": 6,
        "decision": "kept",
        "reason": "fits",
        "short_by": 0,
    }
    return Item(content=content, **(fields | known))


def _items() -> tuple[Item, ...]:
    return (
        sample_item(_TEXTS[0], priority=100, required=True, section="system", reason="required"),
        sample_item(
            _TEXTS[1], priority=80, source=ItemSource(kind="template", ref="Customer: {name}")
        ),
        sample_item(
            "A long story. It goes on.",
            emitted=_TEXTS[2],
            truncate=True,
            emitted_tokens=5,
            decision="truncated",
            reason="cut at a sentence",
            short_by=3,
        ),
        sample_item(
            "Nobody needs this.\n\tReally.",
            priority=1,
            source=ItemSource(kind="retrieval", ref=("docs", 7)),
            emitted_tokens=0,
            decision="dropped",
            reason="over budget",
            short_by=6,
        ),
    )


def _features() -> tuple[FeatureRead, ...]:
    values: dict[str, Any] = {
        "total_spend": 0.1 + 0.2,
        "score": float("nan"),
        "balance": Decimal("1.10"),
        "visits": 2**64,
        "nickname": None,
    }
    reads = tuple(
        FeatureRead(
            feature=name,
            entity="User",
            entity_id="u/1~",
            value=value,
            as_of=None if value is None else NOON - timedelta(seconds=2),
            written_at=None if value is None else NOON - timedelta(seconds=1),
            source="missing" if value is None else "online",
            rule="age",
            current_at=None,
            age_ms=None if value is None else 2_000,
            sla_ms=300_000,
            fresh=value is not None,
            used=True,
        )
        for name, value in values.items()
    )
    return (*reads, _composed())


def _composed() -> FeatureRead:
    value = FeatureInput(
        feature="orders",
        entity="User",
        entity_id="u/1~",
        value=3,
        as_of=NOON - timedelta(days=1),
        written_at=NOON - timedelta(days=1),
        source="online",
        rule="caught_up",
        current_at=NOON,
        age_ms=0,
        sla_ms=60_000,
        fresh=True,
    )
    return FeatureRead(
        feature="blurb",
        entity="User",
        entity_id="u/1~",
        value="3 orders",
        as_of=value.as_of,
        written_at=None,
        source="computed",
        rule="inputs",
        current_at=NOON,
        age_ms=0,
        sla_ms=300_000,
        fresh=True,
        used=False,
        inputs=(value,),
    )


def _retrieval() -> Retrieval:
    return Retrieval(
        retriever="search_docs",
        arguments={"query": "Where is my parcel?", "top_k": 2},
        index=IndexRead(
            name="docs",
            version="7.1767268800000000",
            embedder="openai/text-embedding-3-small",
            mode="hybrid",
            query="Where is my parcel?",
            filters={"lang": "en", "year": {"$gte": 2020}},
        ),
        results=(
            Result(
                id="docs/parcels#0123456789abcdef",
                score=decimal_text(1e-7),
                content="Nobody needs this.",
                origin=ChunkOrigin(
                    document="parcels",
                    position=3,
                    content_hash="sha256:0123456789abcdef",
                    version=2,
                    indexed_at=NOON,
                ),
            ),
            Result(id=8, score=None, content=None),
        ),
        count=2,
        searched_at=NOON,
        age_ms=0,
        cache_hit=False,
        latency_us=1_234,
        sla_ms=None,
        fresh=True,
        failed=False,
    )


def sample(**known: Any) -> Core:
    """Return a core in which every kind of field is filled."""
    content = "\n\n".join(_TEXTS)
    fields: dict[str, Any] = {
        "context_id": "019b7e9c-4c1a-7abc-8def-0123456789ab",
        "created_at": NOON,
        "environment": "production",
        "versions": Versions(headwater="0.1.0", python="3.11.2", tokenizer="o200k_base"),
        "context": Definition(name="support", version="3", definition=f"sha256:{'0' * 64}"),
        "inputs": {
            "user_id": "u/1~",
            "question": "Where is my parcel?",
            "größe": 1.0,
            "": "an empty name",
            "a/b~c": "a name to escape",
            "\ue000": "a name that UTF-8 would put first",
            "😀": "a name that UTF-16 puts first",
        },
        "caller": "billing",
        "interaction_ref": {"call_id": "call-1", "turn_index": 3},
        "policy": Policy(
            max_tokens=20,
            separator="\n\n",
            on_overflow="error",
            backfill=False,
            model="gpt-4o",
            freshness_sla_ms=300_000,
            freshness_strict=False,
        ),
        "tokenizer": TokenizerInfo(name="o200k_base", exact=True, margin_percent=0),
        "items": _items(),
        "features": _features(),
        "retrievals": (_retrieval(),),
        "contexts": (
            NestedLineage(
                context_id="019b7e9c-4c19-7000-8000-000000000000",
                record_hash=f"sha256:{'1' * 64}",
                name="profile",
                freshness_status="degraded",
            ),
        ),
        "freshness": Freshness(
            status="degraded",
            sla_ms=300_000,
            stalest_ms=2_000,
            violations=(
                Violation(
                    kind="feature",
                    name="nickname",
                    entity_id="u/1~",
                    age_ms=None,
                    sla_ms=300_000,
                    reason="missing",
                ),
            ),
        ),
        "output": Output(
            content=content,
            tokens=19,
            items_kept=2,
            items_dropped=1,
            items_truncated=1,
            cost_nano_usd=47_500,
            overflow=False,
        ),
        "timing": Timing(started_at=NOON, assembly_us=900),
    }
    return Core(**(fields | known))
