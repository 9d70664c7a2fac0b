"""Records of every released version stay readable."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.records.diff import diff
from headwater.records.document import load_all
from headwater.records.outcomes import OutcomeCore
from headwater.records.projection import CountedTokens, explain, past_context
from headwater.records.record import Record
from headwater.records.redaction import redact
from headwater.records.sealing import open_core
from headwater.records.verify import verify_document, verify_record
from tests.records.node import VERIFIER

ROOT = VERIFIER.parent
FILES = sorted((VERIFIER / "released").iterdir())
CASES = [
    pytest.param(case, id=f"{file.stem} {case['name']}")
    for file in FILES
    for case in json.loads(file.read_text(encoding="utf-8"))
]


def test_every_version_of_the_changelog_has_a_file_and_the_newest_is_that_of_the_package() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", changelog, flags=re.M)
    assert {file.stem for file in FILES} == {*versions}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert versions[0] == project["version"]


@pytest.mark.parametrize("case", CASES)
def test_a_record_of_a_released_version_is_verified_and_read(case: dict[str, Any]) -> None:
    document = json.dumps(case["document"])
    report = verify_document(document, case["keys"], expect=case["expect"], signed=case["signed"])
    assert report.ok
    # Later versions may check more.
    assert case["expected"]["checks"].items() <= {c.check: c.ok for c in report.checks}.items()
    sealed, outcomes = load_all(document)
    if isinstance(sealed, Record):
        core = open_core(sealed)
        assert past_context(sealed, core).context_id == sealed.context_id
        counted = CountedTokens([item.tokens for item in core.items], 0)
        assert len(explain(sealed, core, {}, counted).items) == len(core.items)
        assert diff(core, core).same_content
        for disclosure in sealed.disclosures[:1]:
            erased = redact(sealed, disclosure.pointer, at=datetime.now(UTC), reason="asked")
            assert verify_record(erased).ok
    else:
        outcomes = (sealed,)
    for outcome in outcomes:
        assert open_core(outcome, OutcomeCore).context_id == outcome.context_id
