"""Records whose values were altered, or were inconsistent when they were sealed."""

from __future__ import annotations

import json
from typing import Any

from headwater.records.document import export
from verifier.generator.cases.records import FULL, MISMATCH, REDACTED
from verifier.generator.cases.vocabulary import Case, Document, case, changed, disclosure, resealed


def broken_disclosures() -> list[Case]:
    """Return records whose values, salts or notes are wrong."""

    def change(at: str, **members: Any) -> Document:
        return changed(FULL, lambda document: disclosure(document, at).update(members))

    def remove(document: Document) -> None:
        document["disclosures"].remove(disclosure(document, "/inputs/question"))

    def swap(document: Document) -> None:
        one, two = (disclosure(document, f"/items/{at}/content") for at in (0, 1))
        one["value"], two["value"] = two["value"], one["value"]

    def move(document: Document) -> None:
        one, two = (disclosure(document, f"/items/{at}/content") for at in (0, 1))
        one["pointer"], two["pointer"] = two["pointer"], one["pointer"]

    def note(pointer: str) -> Document:
        added = {
            "pointer": pointer,
            "redacted_at": "2026-01-03T00:00:00.000000Z",
            "reason": "asked for by Ada",
            "by": None,
        }
        return changed(FULL, lambda document: document["redactions"].append(added))

    def noted(**members: str) -> Document:
        return changed(REDACTED, lambda document: document["redactions"][0].update(members))

    def false_hash(tree: Any) -> None:
        tree["output"]["content_hash"] = f"sha256:{'2' * 64}"

    false = resealed(FULL, false_hash) | {"content_hash": f"sha256:{'2' * 64}"}
    extra = {"pointer": "/inputs/extra", "salt": "AAAAAAAAAAAAAAAAAAAAAA", "value": 1}
    first = json.loads(export(FULL))["disclosures"][0]
    return [
        case(
            "value",
            "a value was altered",
            change("/inputs/question", value="Where is my money?"),
            "+.x++",
            "/inputs/question",
        ),
        case(
            "value-content",
            "the text was altered",
            change("/output/content", value="Something else."),
            "+.x.+",
            "/output/content",
        ),
        case(
            "value-item",
            "an item's text was altered",
            change("/items/1/content", value="Customer: Bob"),
            "+.x+.",
            "/items/1/content",
        ),
        case(
            "value-kind",
            "a number became a text",
            change("/retrievals/0/results/1/id", value="8"),
            "+.x++",
            "/retrievals/0/results/1/id",
        ),
        case(
            "value-tag",
            "a tag was altered",
            change("/inputs/größe", value={"$decimal": "1.0"}),
            "+.x++",
            "/inputs/größe",
        ),
        case(
            "value-null",
            "a value was blanked out",
            change("/inputs/question", value=None),
            "+.x++",
            "/inputs/question",
        ),
        case(
            "value-normalised",
            "a text was normalised",
            change("/items/1/content", value='Customer: Ada "the first" 😀'),
            "+.x+.",
            "/items/1/content",
        ),
        case(
            "salt",
            "a salt was altered",
            change("/inputs/question", salt="AAAAAAAAAAAAAAAAAAAAAA"),
            "+.x++",
            "/inputs/question",
        ),
        case(
            "pointer",
            "a value was moved to a pointer without a commitment",
            change("/inputs/question", pointer="/inputs/answer"),
            "+.x++",
            "/inputs/answer",
            "/inputs/question",
        ),
        case(
            "pointer-unescaped",
            "a pointer is not escaped",
            change("/inputs/a~1b~0c", pointer="/inputs/a/b~c"),
            "+.x++",
            "/inputs/a/b~c",
            "/inputs/a~1b~0c",
        ),
        case(
            "values-swapped",
            "two values changed places",
            changed(FULL, swap),
            "+.x+.",
            "/items/0/content",
            "/items/1/content",
        ),
        case(
            "pointers-swapped",
            "two disclosures changed places",
            changed(FULL, move),
            "+.x+.",
            "/items/0/content",
            "/items/1/content",
        ),
        case(
            "missing",
            "a value is missing without a note",
            changed(FULL, remove),
            "+.x++",
            "/inputs/question",
        ),
        case(
            "extra",
            "a value was added",
            changed(FULL, lambda d: d["disclosures"].append(extra)),
            "+.x++",
            "/inputs/extra",
        ),
        case(
            "of-another",
            "a value of another record was added",
            changed(
                FULL, lambda d: d["disclosures"].append(extra | {"pointer": "/items/9/content"})
            ),
            "+.x++",
            "/items/9/content",
        ),
        case(
            "twice",
            "a value occurs twice",
            changed(FULL, lambda d: d["disclosures"].append(first)),
            "+.x++",
            first["pointer"],
        ),
        case(
            "redacted-still-there",
            "a value is noted as erased, but is there",
            note("/inputs/question"),
            "+.x++",
            "/inputs/question",
        ),
        case(
            "redacted-nothing",
            "a note has a pointer without a commitment",
            note("/inputs/answer"),
            "+.x++",
            "/inputs/answer",
        ),
        case(
            "redacted-never",
            "a note has no valid time",
            noted(redacted_at="never"),
            "+.x++",
            "/inputs/question",
            "never",
        ),
        case(
            "redacted-at-no-day",
            "a note has a date that does not exist",
            noted(redacted_at="2026-02-30T12:00:00.250000Z"),
            "+.x++",
            "/inputs/question",
            "2026-02-30",
        ),
        case(
            "redacted-at-other-form",
            "the time of a note is not written as records write it",
            noted(redacted_at="2026-01-03T12:00:00.25Z"),
            "+.x++",
            "/inputs/question",
            "12:00:00.25Z",
        ),
        case(
            "redacted-before",
            "a note is older than its record by more than the tolerance",
            noted(redacted_at="2026-01-02T11:50:00.249999Z"),
            "+.x++",
            "/inputs/question",
            "before the record was made",
        ),
        case(
            "redacted-by-a-clock-behind",
            "a note is older than its record, within the tolerance",
            noted(redacted_at="2026-01-02T11:50:00.250000Z"),
            "+.+++",
        ),
        case(
            "redacted-without-reason",
            "a note gives no reason",
            noted(reason=" \n"),
            "+.x++",
            "/inputs/question",
            "without a reason",
        ),
        case(
            "false-content-hash",
            "sealed with the hash of another text",
            false,
            "+.+xx",
            "/output/content",
        ),
        case(
            "false-items",
            "sealed with items that do not make up the text",
            MISMATCH,
            "+.++x",
            "kept items",
        ),
    ]
