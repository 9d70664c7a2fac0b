"""Hostile documents: both verifiers take linear time, and give one verdict, at any size.

There is no stopwatch: an algorithm that is not linear needs minutes or gigabytes for these.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.core.canonical_json import canonical, parse
from headwater.errors import RecordDocumentError
from headwater.records.document import load
from headwater.records.record import hash_of
from headwater.records.verify import verify_document, verify_record
from tests.records.node import VERIFIER, run
from verifier.generator.cases.records import FULL
from verifier.generator.cases.vocabulary import resealed

MANY = 40_000
VECTORS = VERIFIER / "vectors" / "records"
MARK = {"$sd": "0" * 64}
NOTE = {"pointer": "/inputs/question", "redacted_at": "yesterday", "reason": " "}


def _core(change: Callable[[Any], object]) -> dict[str, Any]:
    return resealed(FULL, change)


def _document(**members: Any) -> dict[str, Any]:
    return _core(lambda tree: None) | members


def _items(tree: Any) -> None:
    tree["items"] = [{"content": MARK, "decision": "kept"}] * MANY


def _outcome(change: Callable[[Any], object] = lambda tree: None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((VECTORS / "outcome-alone.json").read_text("utf-8"))
    tree = parse(document["core"])
    change(tree)
    core = canonical(tree)
    return document | {"core": core.decode(), "outcome_hash": hash_of(core), "signature": None}


def _links(tree: Any) -> None:
    tree["links"] = dict.fromkeys(("k" * 1_000 + str(n) for n in range(MANY // 4)), MARK)


def _twice() -> str:
    keys = ",".join(f'"k{n}":0' for n in range(MANY))
    return f'{{{keys},"k{MANY - 1}":1}}'


CASES: dict[str, Callable[[], dict[str, Any] | str]] = {
    "commitments below a long key": lambda: _core(
        lambda tree: tree["inputs"].update(
            {"k" * 1_000_000: dict.fromkeys(map(str, range(MANY)), MARK)}
        )
    ),
    "values below a long key": lambda: _core(
        lambda tree: tree.update({"z" * 1_000_000: dict.fromkeys(map(str, range(MANY)), 0)})
    ),
    "items that are not disclosed": lambda: _core(_items),
    "invalid notes": lambda: _document(redactions=[NOTE] * 5 * MANY),
    "notes of nothing": lambda: _document(
        redactions=[NOTE | {"pointer": f"/nothing/{n}"} for n in range(MANY)]
    ),
    "disclosures of nothing": lambda: _document(
        disclosures=[{"pointer": f"/{n}", "salt": "", "value": n} for n in range(MANY)]
    ),
    "one disclosure again and again": lambda: _document(
        disclosures=_document()["disclosures"] + [_document()["disclosures"][0]] * MANY
    ),
    "a pointer of many steps": lambda: _document(
        disclosures=[{"pointer": "/0" * MANY, "salt": "", "value": 0}]
    ),
    "very many outcomes": lambda: _document(outcomes=[_outcome()] * (MANY // 8)),
    "an outcome of very many commitments": lambda: _document(outcomes=[_outcome(_links)]),
    "outcomes inside outcomes": lambda: _document(
        outcomes=[_outcome() | {"outcomes": [_outcome()] * MANY}]
    ),
    "a key twice": _twice,
    "a key twice in the core": lambda: _document(core=_twice()),
    "deep arrays": lambda: "[" * MANY + "]" * MANY,
    "deep objects": lambda: '{"a":' * MANY + "0" + "}" * MANY,
    "a core that is not closed": lambda: _document(core="[" * MANY),
    "a long number": lambda: _document(core="1" * 1_000_000),
    "a long fraction": lambda: _document(core="1." + "0" * 1_000_000),
    "many spaces": lambda: _document(core=" " * 1_000_000 + "x"),
    "a long text": lambda: _document(record_hash="\u0000\ue000😀" * 300_000),
    "a long signature": lambda: _document(
        signature={"statement": '"' + "x" * 1_000_000, "signature": "x" * 1_000_000}
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_verifiers_give_one_verdict_on_a_hostile_document(case: str, tmp_path: Path) -> None:
    hostile = CASES[case]()
    text = hostile if isinstance(hostile, str) else json.dumps(hostile, ensure_ascii=False)
    file = tmp_path / "record.json"
    file.write_text(text, encoding="utf-8")
    done = run(VERIFIER / "cli.mjs", file, "--json")
    try:
        report = verify_document(text)
    except RecordDocumentError:
        assert (done.returncode, "is not the document of a record" in done.stderr) == (2, True)
        return
    told = json.loads(done.stdout)
    outcomes = told.get("outcomes", [])
    for said, known in zip((told, *outcomes), (report, *report.outcomes), strict=True):
        assert {check["check"]: check["ok"] for check in said["checks"]} == {
            check.check: check.ok for check in known.checks
        }
    assert done.returncode == (0 if report.ok else 1)


def test_missing_values_are_counted_and_the_first_are_named() -> None:
    document = _core(lambda tree: tree["inputs"].update(dict.fromkeys(map(str, range(50)), MARK)))
    detail = verify_record(load(json.dumps(document))).of("disclosures").detail
    assert detail.count("is missing without a note") == 20
    assert "30 more are missing without a note" in detail


@pytest.mark.parametrize(
    "pointer", ["/items/00/content", "/items/+0/content", "items/0/content", "/inputs/que~2stion"]
)
def test_a_pointer_in_another_spelling_points_at_nothing(pointer: str, tmp_path: Path) -> None:
    first = _document()["disclosures"][0]
    document = _document(disclosures=[*_document()["disclosures"], first | {"pointer": pointer}])
    file = tmp_path / "record.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    said = f"{pointer} is disclosed, but the core commits to nothing there"
    assert said in verify_record(load(file.read_bytes())).of("disclosures").detail
    assert said in run(VERIFIER / "cli.mjs", file).stdout


def test_keys_in_utf16_order_are_sorted_at_any_depth_of_the_callers_stack() -> None:
    deep = '{"\ue000":' * 250 + '{"\ue000":1,"😀":2}' + "}" * 250

    def below(frames: int) -> bytes:
        return below(frames - 1) if frames else canonical(parse(deep))

    room = sys.getrecursionlimit()
    assert below(room // 4).endswith('{"😀":2,"\ue000":1}'.encode() + b"}" * 250)
