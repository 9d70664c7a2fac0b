"""The sealed records that the cases start from."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from headwater.records.core import Core, Item
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
