"""Records whose signature is wrong."""

from __future__ import annotations

import json

from headwater.core.canonical_json import canonical
from headwater.records.document import export
from headwater.records.record import Record
from headwater.records.signing import parse_keyring, sign
from verifier.generator.cases.records import BY_ED25519, FULL, OTHER, SIGNED
from verifier.generator.cases.vocabulary import Case, Document, case, changed, disclosure, statement
from verifier.generator.samples import ED25519_PUBLIC, HMAC, NOON, OLD_HMAC


def broken_signatures() -> list[Case]:
    """Records whose signature is wrong."""

    def signature(record: Record, **members: str) -> Document:
        return changed(record, lambda document: document["signature"].update(members))

    def without_spec(document: Document) -> None:
        claims = json.loads(document["signature"]["statement"])
        del claims["spec"]
        document["signature"]["statement"] = canonical(claims).decode()

    genuine: str = json.loads(export(SIGNED))["signature"]["signature"]
    flipped = ("B" if genuine[0] == "A" else "A") + genuine[1:]
    made_up = signature(SIGNED, signature=flipped)
    statement(key_id="evil")(made_up)
    others = json.loads(export(OTHER))["signature"]
    ed25519 = {"key_id": "auditors", "algorithm": "HMAC-SHA256"}
    public_as_secret = f"{HMAC},{ED25519_PUBLIC}"
    return [
        case(
            "signature-bytes",
            "the signature was altered",
            signature(SIGNED, signature=flipped),
            "+x+++",
            "2026-01",
            keys=HMAC,
        ),
        case(
            "signature-ed25519-bytes",
            "the signature was altered",
            signature(BY_ED25519, signature=flipped),
            "+x+++",
            "auditors",
            keys=ED25519_PUBLIC,
        ),
        case(
            "signature-short",
            "the signature was cut",
            signature(SIGNED, signature=flipped[:20]),
            "+x+++",
            "2026-01",
            keys=HMAC,
        ),
        case(
            "signature-padded",
            "the signature is written in another way",
            signature(SIGNED, signature=genuine + "="),
            "+x+++",
            "2026-01",
            keys=HMAC,
        ),
        case(
            "signature-no-base64",
            "the signature is not base64",
            signature(SIGNED, signature="*"),
            "+x+++",
            "2026-01",
            keys=HMAC,
        ),
        case(
            "signed-at",
            "the time of the signature was altered",
            changed(SIGNED, statement(signed_at="2025-01-01T00:00:00.000000Z")),
            "+x+++",
            "2026-01",
            keys=HMAC,
        ),
        case(
            "signed-at-ed25519",
            "the time of the signature was altered",
            changed(BY_ED25519, statement(signed_at="2025-01-01T00:00:00.000000Z")),
            "+x+++",
            "auditors",
            keys=ED25519_PUBLIC,
        ),
        case(
            "key-id-known",
            "the signature names another key",
            changed(SIGNED, statement(key_id="2025-01")),
            "+x+++",
            "2025-01",
            keys=f"{HMAC},{OLD_HMAC}",
        ),
        case(
            "algorithm",
            "the signature names another algorithm",
            changed(SIGNED, statement(algorithm="Ed25519")),
            "+x+++",
            "HMAC-SHA256",
            "Ed25519",
            keys=HMAC,
        ),
        case(
            "algorithm-confused",
            "a public key cannot serve as a secret",
            changed(SIGNED, statement(**ed25519)),
            "+x+++",
            "auditors",
            "Ed25519",
            keys=public_as_secret,
        ),
        case(
            "algorithm-unknown",
            "the signature names an algorithm that is none",
            changed(SIGNED, statement(algorithm="none")),
            "+x+++",
            "none",
            keys=HMAC,
        ),
        case(
            "statement-id",
            "the signature is about another context",
            changed(SIGNED, statement(context_id=OTHER.context_id)),
            "+x+++",
            OTHER.context_id,
            keys=HMAC,
        ),
        case(
            "statement-spec",
            "the signature is of another kind",
            changed(SIGNED, statement(spec="CRS-002-SIG")),
            "+x+++",
            "CRS-002-SIG",
            keys=HMAC,
        ),
        case(
            "statement-no-spec",
            "the signature does not say of which kind it is, which shows without any key",
            changed(SIGNED, without_spec),
            "+x+++",
            "spec",
        ),
        case(
            "statement-space",
            "a space was put into the statement",
            changed(
                SIGNED, lambda d: d["signature"].update(statement=d["signature"]["statement"] + " ")
            ),
            "+x+++",
            "2026-01",
            keys=HMAC,
        ),
        case(
            "statement-unreadable",
            "the statement is not JSON",
            signature(SIGNED, statement="signed by me"),
            "+x+++",
            "not readable",
            keys=HMAC,
        ),
        case(
            "signature-of-another",
            "the signature of another record",
            changed(SIGNED, lambda d: d.update(signature=others)),
            "+x+++",
            OTHER.record_hash,
            keys=HMAC,
        ),
        case(
            "signature-of-another-unchecked",
            "that shows without any key",
            changed(SIGNED, lambda d: d.update(signature=others)),
            "+x+++",
            OTHER.record_hash,
        ),
        case(
            "signature-wrong-key",
            "the secret is another one",
            SIGNED,
            "+x+++",
            "2026-01",
            keys="2026-01:some other secret",
        ),
        case(
            "signature-removed",
            "a signature was expected",
            FULL,
            "+x+++",
            "not signed",
            fails="It is not signed.",
            signed=True,
        ),
        case(
            "signature-removed-known-keys",
            "a signature was expected by one who has keys",
            FULL,
            "+x+++",
            "although there are keys",
            fails="It is not signed.",
            keys=HMAC,
        ),
        case(
            "signature-made-up",
            "a signature was required, and no key was passed",
            made_up,
            "+x+++",
            "evil",
            fails="Its signature could not be checked.",
            signed=True,
        ),
        case(
            "signature-made-up-known-keys",
            "a signature was required, and it names an unknown key",
            made_up,
            "+x+++",
            "evil",
            fails="Its signature could not be checked.",
            keys=HMAC,
        ),
        case(
            "signature-unknown-key",
            "a signature was expected by one who has dropped the key that made it",
            sign(FULL, parse_keyring(OLD_HMAC), NOON),
            "+x+++",
            "2025-01",
            fails="Its signature could not be checked.",
            keys=HMAC,
        ),
        case(
            "signature-unchecked-and-altered",
            "a value was altered, and no key is at hand",
            changed(
                SIGNED,
                lambda d: disclosure(d, "/inputs/question").update(value="Where is my refund?"),
            ),
            "+xx++",
            "2026-01",
            signed=True,
        ),
    ]
