"""`headwater context export-outcomes` and `import-outcomes`: files of other systems."""

from __future__ import annotations

import json
from pathlib import Path

from headwater.model.lineage import Context
from tests.cli.conftest import Run


def test_outcomes_are_exported_to_a_file_that_is_imported_again(
    run: Run, folder: Path, made: Context
) -> None:
    added = run("context", "outcome", made.context_id, "--score", "helpful=4", "--judge", "human")
    assert added.code == 0
    ran = run("context", "export-outcomes", "--since", "1h", "--output", "outcomes.jsonl")
    assert (ran.code, ran.err) == (0, "Wrote 1 outcomes to outcomes.jsonl.\n")
    written = (folder / "outcomes.jsonl").read_text()
    assert "gen_ai.evaluation.result" in written
    assert run("context", "export-outcomes", made.context_id).out == written
    ran = run("context", "import-outcomes", "outcomes.jsonl", "--format", "otlp")
    assert (ran.code, ran.out) == (0, "0 added, 1 stored before, 0 failed.\n")
    assert run("context", "export-outcomes", made.context_id, "--name", "x").code == 2
    again = run("context", "export-outcomes", "--output", "outcomes.jsonl")
    assert (again.code, "exists already" in again.err) == (1, True)


def test_bad_lines_of_an_import_are_printed_with_their_numbers(
    run: Run, folder: Path, made: Context
) -> None:
    table = f"context_id,score,value\n{made.context_id},helpful,4\n{made.context_id},helpful,many\n"
    (folder / "scores.csv").write_text(table)
    ran = run("context", "import-outcomes", "scores.csv", "--format", "csv")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        "1 added, 0 stored before, 1 failed.",
        "line 3: value is 'many', which is not valid",
    ]
    ran = run("context", "import-outcomes", "scores.csv", "--format", "csv", "--json")
    assert json.loads(ran.out) == {
        "added": 0,
        "known": 1,
        "failed": 1,
        "problems": [{"line": 3, "problem": "value is 'many', which is not valid"}],
    }
    missing = run("context", "import-outcomes", "no.csv", "--format", "csv")
    assert (missing.code, "cannot read no.csv" in missing.err) == (1, True)
    (folder / "bad.csv").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in run("context", "import-outcomes", "bad.csv", "--format", "csv").err
