"""The files of the test vectors, by path."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from headwater.core.canonical_json import DEEPEST_TEXT, canonical, parse, to_tagged
from headwater.records.sealing import digest
from verifier.generator.cases.every import all_cases
from verifier.generator.samples import GRAMMAR

FOLDER = Path(__file__).parents[1]

JSON_TEXTS = {
    "the empty object": "{}",
    "space around everything": ' { "b" : [ 1 , 2 ] , "a" : null }\n',
    "keys in order of their length": '{"aaa":1,"aa":2,"a":3,"":4}',
    "keys in UTF-16 order": '{"\\ue000":1,"\\ud83d\\ude00":2,"\\ufb33":3,"\\u20ac":4,"1":5}',
    "digits as keys": '{"10":1,"9":2,"1":3}',
    "keys that JavaScript knows": '{"constructor":1,"__proto__":2}',
    "escapes that are not needed": '"\\u0041\\/\\u00e9\\ud83d\\ude00"',
    "escapes that are needed": '"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\"\\\\"',
    "characters that need no escape": '"\x7f\x80\u2028\u2029\ufeff\uffff"',
    "integers": "[0,-1,9007199254740991,-9007199254740991]",
    "literals": "[true,false,null]",
    "empty parts": '[{},[],"",{"":""}]',
    "deep nesting": "[" * DEEPEST_TEXT + "]" * DEEPEST_TEXT,
}
REFUSED_TEXTS = {
    "nothing": "",
    "a float": "1.5",
    "a float that is an integer": "1.0",
    "an exponent": "1e3",
    "negative zero": "-0",
    "an integer beyond": "9007199254740992",
    "a negative integer beyond": "-9007199254740992",
    "an integer of very many digits": "1" + "0" * 5000,
    "a leading zero": "01",
    "a plus": "+1",
    "not a number": "NaN",
    "infinity": "[Infinity]",
    "a key twice": '{"a":1,"a":1}',
    "a key twice, once escaped": '{"a":1,"\\u0061":1}',
    "a lone high surrogate": '"\\ud800"',
    "a lone low surrogate": '{"\\udc00":1}',
    "surrogates in the wrong order": '"\\ude00\\ud83d"',
    "a control character": '"\t"',
    "an unknown escape": '"\\x41"',
    "a single quote": "'a'",
    "a comma at the end": "[1,]",
    "a comma at the end of an object": '{"a":1,}',
    "a comment": "[1 /* one */]",
    "two values": "1 2",
    "an end too early": '{"a":[1,2',
    "a byte order mark": "\ufeff{}",
    "nesting too deep": "[" * (DEEPEST_TEXT + 1) + "]" * (DEEPEST_TEXT + 1),
}


def _canonical() -> dict[str, Any]:
    texts = {what: canonical(parse(text)) for what, text in JSON_TEXTS.items()}
    return {
        "accepted": [
            {
                "what": what,
                "json": JSON_TEXTS[what],
                "canonical": text.decode(),
                "sha256": sha256(text).hexdigest(),
            }
            for what, text in texts.items()
        ],
        "refused": [{"what": what, "json": text} for what, text in REFUSED_TEXTS.items()],
    }


def _grammar() -> list[dict[str, Any]]:
    salt, pointer = "AAECAwQFBgcICQoLDA0ODw", "/inputs/x"
    return [
        {
            "what": what,
            "python": repr(value) if not isinstance(value, set) else "a set",
            "tagged": (tagged := to_tagged(value)),
            "canonical": canonical(tagged).decode(),
            "salt": salt,
            "pointer": pointer,
            "digest": digest(salt, pointer, tagged),
        }
        for what, value in GRAMMAR.items()
    ]


def files() -> dict[str, str]:
    """Return every generated file, by its path."""
    cases = all_cases()
    manifest = []
    for case in cases:
        known = msgspec.to_builtins(case)
        del known["document"]
        manifest.append({"file": f"records/{case.name}.json"} | known)
    generated = {f"vectors/records/{case.name}.json": case.document for case in cases}
    for name, content in {
        "records": manifest,
        "canonical": _canonical(),
        "grammar": _grammar(),
    }.items():
        generated[f"vectors/{name}.json"] = json.dumps(content, ensure_ascii=True, indent=2) + "\n"
    return generated
