"""Cohorts and runs on disk, made of recorded contexts, to look at without an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from headwater.contexts.evaluation.differences import difference
from headwater.contexts.evaluation.results import RunFolder
from headwater.contexts.evaluation.summary import summarize
from headwater.model.evaluations import (
    Cause,
    ChangedRecord,
    CohortEntry,
    CohortHeader,
    CohortSeal,
    DeclarationChange,
    EvaluatedContext,
    EvaluationReport,
    EvaluationRun,
    GateResult,
)
from headwater.records.diff import diff
from headwater.records.document import export
from headwater.records.record import Record
from headwater.records.sealing import open_core

RUN_ID = "5f0c1a9be2d4"

CHANGES = (
    DeclarationChange(kind="context", name="support", change="changed", location="features.py:41"),
    DeclarationChange(
        kind="feature",
        name="rank",
        change="changed",
        location="features.py:12",
        problem="it runs by a schedule",
    ),
)
GATES = (
    GateResult(gate="max_changed", limit="2%", value="50%", passed=False),
    GateResult(gate="new_refusals", limit="0", value="0", passed=True),
)


def write_cohort(folder: Path, name: str, records: Sequence[Record]) -> None:
    """Write a cohort of records, without a signature."""
    folder.mkdir(exist_ok=True)
    made_at = max(open_core(record).created_at for record in records)
    header = CohortHeader(
        name=name,
        created_at=made_at,
        chosen={"context": "support"},
        features="features.py",
        code={},
    )
    lines = [header, *map(_entry, records)]
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    digest = f"sha256:{sha256(text).hexdigest()}"
    seal = msgspec.json.encode(CohortSeal(count=len(records), cohort_hash=digest))
    (folder / f"{name}.cohort").write_bytes(text + seal + b"\n")


def _entry(record: Record) -> CohortEntry:
    core = open_core(record)
    return CohortEntry(
        context_id=record.context_id,
        record_hash=record.record_hash,
        name=core.context.name,
        created_at=core.created_at,
        inputs={},
    )


def evaluated(before: Record, after: Record | None = None, **fields: Any) -> EvaluatedContext:
    """Return a context that is identical, or that another record shows with the present code."""
    was, now = open_core(before), open_core(after or before)
    known: dict[str, Any] = {"status": "identical"}
    if after is not None:
        kinds = difference(was, now).kinds or ("edited", "tokens")
        causes = (Cause(kind="context", name="support", alone=True),)
        known = {"status": "changed", "kinds": kinds, "causes": causes}
    return EvaluatedContext(
        context_id=before.context_id,
        record_hash=before.record_hash,
        name=was.context.name,
        created_at=was.created_at,
        **msgspec.structs.asdict(difference(was, now)) | known | fields,
    )


def changed_record(before: Record, after: Record) -> ChangedRecord:
    """Return both sides of a context."""
    return ChangedRecord(
        context_id=before.context_id,
        before=msgspec.json.decode(export(before)),
        after=msgspec.json.decode(export(after)),
        diff=diff(open_core(before), open_core(after)),
    )


def write_run(
    folder: Path,
    cohort: str,
    contexts: Sequence[EvaluatedContext],
    changed: Sequence[ChangedRecord],
    *,
    started_at: datetime,
    run_id: str = RUN_ID,
    missing: int = 0,
) -> None:
    """Write a run of a cohort, which has not finished if contexts are missing."""
    run = EvaluationRun(
        run_id=run_id,
        cohort=cohort,
        cohort_hash=f"sha256:{'0' * 64}",
        count=len(contexts) + missing,
        file="features.py",
        base="the cohort",
        options={"max_tokens": 60},
        changes=CHANGES,
        started_at=started_at,
        portion=250,
    )
    results = RunFolder(folder / cohort / run_id)
    results.begin(run)
    results.write(0, contexts, changed)
    if missing == 0:
        finished = msgspec.structs.replace(run, finished_at=started_at)
        summary = summarize(contexts)
        results.finish(EvaluationReport(run=finished, summary=summary, gates=GATES))


def write_evaluation(folder: Path, record: Record) -> None:
    """Write the cohort "last-month" of one context, and a run in which it changed."""
    write_cohort(folder, "last-month", [record])
    rows, sides = [evaluated(record, record)], [changed_record(record, record)]
    write_run(folder, "last-month", rows, sides, started_at=datetime(2026, 1, 15, tzinfo=UTC))
