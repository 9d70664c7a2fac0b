"""Valid records."""

from __future__ import annotations

import json
from datetime import timedelta

import msgspec

from headwater.core.canonical_json import DEEPEST_TEXT
from headwater.records.document import export
from headwater.records.redaction import redact
from headwater.records.signing import parse_keyring, sign
from verifier.generator.cases.records import (
    BY_ED25519,
    EXTERNAL,
    FULL,
    FUTURE,
    KEPT,
    MESSAGES,
    REDACTED,
    SIGNED,
    WINDOWS,
    WITH_EMPTY,
)
from verifier.generator.cases.vocabulary import Case, case, changed, deep, statement
from verifier.generator.samples import ED25519_PUBLIC, HMAC, NOON, OLD_HMAC


def holding() -> list[Case]:
    """Return valid records."""
    private = SIGNED.private()
    compact = json.dumps(json.loads(export(FULL)), ensure_ascii=True, separators=(",", ":"))
    old = sign(FULL, parse_keyring(OLD_HMAC), NOON - timedelta(days=365))
    everything = FULL
    for each in FULL.disclosures[:-1]:
        everything = redact(everything, each.pointer, at=NOON, reason="all of it")
    return [
        case("full", "every value is disclosed", FULL, "+.+++"),
        case(
            "messages",
            "messages with a tool, a call, an image and an empty text",
            MESSAGES,
            "+.+++",
        ),
        case(
            "messages-redacted-image",
            "the bytes of an image were erased",
            redact(MESSAGES, "/items/7/message/data", at=NOON, reason="a face"),
            "+.+++",
            "/items/7/message/data",
        ),
        case("windows", "values of windows, one of them empty", WINDOWS, "+.+++"),
        case("kept-results", "a search whose results are kept with their metadata", KEPT, "+.+++"),
        case("private", "no value is disclosed", FULL.private(), "+...."),
        case(
            "redacted",
            "one value was erased, with a note",
            REDACTED,
            "+++++",
            "/inputs/question",
            keys=HMAC,
        ),
        case(
            "redacted-item",
            "the text of a kept item was erased",
            redact(FULL, "/items/0/content", at=NOON, reason="a name"),
            "+.++.",
            "/items/0/content",
        ),
        case("redacted-almost-all", "one value is left", everything, "+.+.."),
        case(
            "private-after-redaction",
            "a private copy keeps the notes",
            REDACTED.private(),
            "++...",
            keys=HMAC,
        ),
        case("signed-hmac", "signed with a shared secret", SIGNED, "+++++", keys=HMAC),
        case(
            "signed-hmac-private",
            "the signature holds without the values",
            private,
            "++...",
            keys=HMAC,
        ),
        case(
            "signed-hmac-old-key",
            "signed with a key that was rotated out",
            old,
            "+++++",
            keys=f"{HMAC},{OLD_HMAC}",
        ),
        case(
            "signed-ed25519",
            "signed with a private key, checked with the public one",
            BY_ED25519,
            "+++++",
            keys=ED25519_PUBLIC,
            signed=True,
        ),
        case("signed-unchecked", "signed, and verified without a key", SIGNED, "+.+++"),
        case(
            "signed-unknown-key",
            "signed with an unknown key, which the caller accepts",
            old,
            "+.+++",
            keys=HMAC,
            signed=False,
        ),
        case(
            "key-id",
            "the signature names an unknown key, which the caller accepts",
            changed(SIGNED, statement(key_id="2027-01")),
            "+.+++",
            keys=HMAC,
            signed=False,
        ),
        case(
            "unsigned-known-keys",
            "not signed although there are keys, which the caller accepts",
            FULL,
            "+.+++",
            keys=HMAC,
            signed=False,
        ),
        case("expected-hash", "expected by its hash", FULL, "+.+++", expect=FULL.record_hash),
        case("expected-id", "expected by its id", FULL, "+.+++", expect=FULL.context_id),
        case(
            "expected-bare-hash",
            "expected by its hash without prefix, in capitals",
            FULL,
            "+.+++",
            expect=FULL.record_hash.removeprefix("sha256:").upper(),
        ),
        case(
            "expected-id-in-space",
            "expected by its id, with white space around it",
            FULL,
            "+.+++",
            expect=f"\t\xa0{FULL.context_id}\x1f\x85\n",
        ),
        case(
            "core-almost-too-deep",
            "nested as deep as a core may be",
            deep(FULL, DEEPEST_TEXT - 1),
            "+.+++",
        ),
        case("empty-item", "a kept item is empty and adds no separator", WITH_EMPTY, "+.+++"),
        case("later-version", "a later version added fields", FUTURE, "+.+++"),
        case("external", "a text that another program assembled has no items", EXTERNAL, "+.++."),
        msgspec.structs.replace(
            case(
                "other-layout", "the document has another layout and other escapes", FULL, "+.+++"
            ),
            document=compact,
        ),
    ]
