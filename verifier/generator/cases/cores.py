"""Records whose core was altered, or what is on file about it."""

from __future__ import annotations

import json

from headwater.canonical import DEEPEST_TEXT, parse
from verifier.generator.cases.records import FULL, OTHER, SIGNED
from verifier.generator.cases.vocabulary import (
    Case,
    case,
    changed,
    deep,
    recored,
    resealed,
    with_core,
)
from verifier.generator.samples import HMAC


def broken_cores() -> list[Case]:
    """Records whose core, or what is filed about it, was altered."""
    text = FULL.core.decode()
    other = f"sha256:{'2' * 64}"
    return [
        case(
            "core-number",
            "a number in the core was altered",
            with_core(SIGNED, '"tokens":19', '"tokens":18'),
            "xx+++",
            "record_hash",
            keys=HMAC,
        ),
        case(
            "core-text",
            "a text in the core was altered",
            with_core(FULL, "production", "staging"),
            "x.+++",
            "record_hash",
        ),
        case(
            "core-key",
            "a key in the core was altered",
            with_core(FULL, '"environment"', '"environmenT"'),
            "x.+++",
            "record_hash",
        ),
        case(
            "core-literal",
            "a boolean in the core was altered",
            with_core(FULL, '"cache_hit":false', '"cache_hit":true'),
            "x.+++",
            "record_hash",
        ),
        case(
            "core-space",
            "a space was put into the core",
            with_core(FULL, ":", ": "),
            "x.+++",
            "record_hash",
            "canonical form",
        ),
        case(
            "core-escape",
            "a character was written as an escape",
            with_core(FULL, "gpt", "\\u0067pt"),
            "x.+++",
            "record_hash",
            "canonical form",
        ),
        case(
            "core-digest",
            "a commitment was altered",
            with_core(FULL, '"question":{"$sd":"', '"question":{"$sd":"0'),
            "x.x++",
            "record_hash",
        ),
        case(
            "core-cut",
            "the last byte is gone",
            changed(FULL, lambda d: d.update(core=text[:-1])),
            "x....",
            "not readable",
        ),
        case(
            "core-deep",
            "it is nested one level too deeply, and its hash fits",
            deep(FULL, DEEPEST_TEXT),
            "x....",
            "nested deeper",
        ),
        case(
            "core-very-deep",
            "it is nested beyond what a stack holds, and its hash fits",
            deep(FULL, 6_000),
            "x....",
            "nested deeper",
        ),
        case(
            "core-longer",
            "a line end was added",
            changed(FULL, lambda d: d.update(core=text + "\n")),
            "x.+++",
            "canonical form",
        ),
        case(
            "core-empty",
            "the core is empty",
            changed(FULL, lambda d: d.update(core="")),
            "x....",
            "not readable",
        ),
        case(
            "core-twice",
            "a key is there twice, and the hash was made to fit",
            recored(FULL, text.replace('"version":1,', '"version":1,"version":2,')),
            "x....",
            "twice",
        ),
        case(
            "core-float",
            "a number is no integer, and the hash was made to fit",
            recored(FULL, text.replace('"tokens":19', '"tokens":19.0')),
            "x....",
            "19.0",
        ),
        case(
            "core-negative-zero",
            "a zero is negative, and the hash was made to fit",
            recored(FULL, text.replace('"age_ms":0', '"age_ms":-0')),
            "x....",
            "-0",
        ),
        case(
            "core-big-integer",
            "an integer is not exact in every reader",
            recored(FULL, text.replace('"tokens":19', '"tokens":9007199254740992')),
            "x....",
            "9007199254740992",
        ),
        case(
            "core-order",
            "keys are not in order, and the hash was made to fit",
            recored(
                FULL,
                json.dumps(
                    dict(reversed(list(parse(text).items()))),
                    ensure_ascii=False,
                    separators=(",", ":"),
                ),
            ),
            "x.+++",
            "canonical form",
        ),
        case(
            "core-other-spec",
            "the core is of another kind",
            resealed(FULL, lambda t: t.update(spec="CRS-002")),
            "x.+++",
            "CRS-002",
        ),
        case(
            "core-no-record",
            "the core is no record at all",
            recored(FULL, "{}"),
            "x....",
            "not that of a record",
        ),
        case(
            "core-rehashed",
            "the core was altered and its hash made to fit: the signature tells",
            resealed(SIGNED, lambda t: t["output"].update(tokens=18)),
            "+x+++",
            SIGNED.record_hash,
            keys=HMAC,
        ),
        case(
            "core-rehashed-digest",
            "a commitment was altered and the hash made to fit",
            resealed(FULL, lambda t: t["inputs"].update(question={"$sd": "0" * 64})),
            "+.x++",
            "/inputs/question",
        ),
        case(
            "record-hash",
            "the hash on file was altered",
            changed(SIGNED, lambda d: d.update(record_hash=other)),
            "x++++",
            other,
            keys=HMAC,
        ),
        case(
            "context-id",
            "it is on file under another id",
            changed(FULL, lambda d: d.update(context_id=OTHER.context_id)),
            "x.+++",
            OTHER.context_id,
        ),
        case(
            "content-hash",
            "the text's hash on file was altered",
            changed(FULL, lambda d: d.update(content_hash=other)),
            "x.+++",
            other,
        ),
        case(
            "another-hash",
            "it is another record than the one asked for",
            FULL,
            "x.+++",
            other,
            fails="It is not the record that was expected.",
            expect=other,
        ),
        case(
            "another-id",
            "it is another record than the one asked for",
            FULL,
            "x.+++",
            OTHER.context_id,
            fails="It is not the record that was expected.",
            expect=OTHER.context_id,
        ),
        case(
            "another-empty",
            "it was asked for by nothing",
            FULL,
            "x.+++",
            "another record",
            fails="It is not the record that was expected.",
            expect="",
        ),
        case(
            "another-and-unsigned",
            "it is another record than the one asked for, and not signed",
            FULL,
            "xx+++",
            other,
            fails="It is not the record that was expected. It is not signed.",
            expect=other,
            signed=True,
        ),
        case(
            "another-and-altered",
            "it is another record than the one asked for, and was altered",
            changed(FULL, lambda d: d.update(content_hash=other)),
            "x.+++",
            "another record",
            expect=OTHER.context_id,
        ),
    ]
