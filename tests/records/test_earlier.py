"""Records of earlier versions: they open, verify and read as they did when they were written.

`first.json` was written when sections stood in clear, and searches and inner contexts did not say
whether they were fresh.
"""

from __future__ import annotations

from pathlib import Path

from headwater.records.document import export, load
from headwater.records.explain import explain, past_context
from headwater.records.sealing import open_core
from headwater.records.signing import parse_keyring
from headwater.records.verify import verify
from tests.records.node import VERIFIER, run
from verifier.generator.samples import HMAC

FIRST = Path(__file__).parent / "earlier" / "first.json"
RECORD = load(FIRST.read_bytes())


def test_a_record_of_the_first_version_still_verifies() -> None:
    report = verify(RECORD, parse_keyring(HMAC), signed=True)
    assert [check.ok for check in report.checks] == [True] * 5
    assert export(RECORD) == FIRST.read_bytes()
    done = run(VERIFIER / "cli.mjs", FIRST, "--key", HMAC, "--signed")
    assert (done.returncode, "Nothing is broken." in done.stdout) == (0, True), done


def test_a_record_of_the_first_version_still_reads_as_it_did() -> None:
    core = open_core(RECORD)
    past, told = past_context(RECORD, core), explain(RECORD, core)
    assert past.content is not None
    assert past.content.startswith("You are a support agent.")
    assert [item.section for item in told.items] == ["system", "facts", "documents", None]
    assert open_core(RECORD.private()).items[0].section == "system"
    assert [nested.freshness_status for nested in past.lineage.contexts] == [None]
    # Which of two calls of one retriever rested on nothing, such a record cannot say.
    assert [call.fresh for call in past.lineage.retrievers] == [False, False]
