"""Texts that are not the document of a record."""

from __future__ import annotations

from headwater.core.canonical_json import DEEPEST_TEXT
from headwater.records.document import export
from verifier.generator.cases.records import FULL, REDACTED
from verifier.generator.cases.vocabulary import Case, changed, text_of


def unreadable() -> list[Case]:
    """Texts that are not the document of a record."""
    good = export(FULL).decode()
    at = '"disclosures": ['
    texts = {
        "no-json": ("no JSON", "no record"),
        "no-object": ("not an object", "[]"),
        "no-core": ("a member is missing", text_of(changed(FULL, lambda d: d.pop("core")))),
        "core-object": (
            "the core is not a text",
            text_of(changed(FULL, lambda d: d.update(core={}))),
        ),
        "other-format": ("another format", text_of(changed(FULL, lambda d: d.update(format="x")))),
        "twice": ("a key is there twice", good.replace('"format"', '"core": "",\n  "format"', 1)),
        "float": (
            "a number is not an integer",
            good.replace(at, at + '{"pointer": "/x", "salt": "", "value": 1.0},', 1),
        ),
        "negative-zero": (
            "a zero is negative",
            good.replace(at, at + '{"pointer": "/x", "salt": "", "value": -0},', 1),
        ),
        "lone-surrogate": (
            "a text is not Unicode",
            good.replace(at, at + '{"pointer": "/x", "salt": "", "value": "\\ud800"},', 1),
        ),
        "redaction-by-number": (
            "`by` of a note is not a text",
            text_of(changed(REDACTED, lambda d: d["redactions"][0].update(by=5))),
        ),
        "disclosures-null": (
            "the disclosures are not a list",
            text_of(changed(FULL, lambda d: d.update(disclosures=None))),
        ),
        "redactions-null": (
            "the notes are not a list",
            text_of(changed(FULL, lambda d: d.update(redactions=None))),
        ),
        "deep": (
            "it is nested too deeply",
            good.replace("{", '{"zz": ' + "[" * DEEPEST_TEXT + "]" * DEEPEST_TEXT + ",", 1),
        ),
        "no-salt": (
            "a disclosure has no salt",
            good.replace(at, at + '{"pointer": "/x", "value": 1},', 1),
        ),
    }
    return [
        Case(name=f"unreadable-{name}", what=what, document=text)
        for name, (what, text) in texts.items()
    ]
