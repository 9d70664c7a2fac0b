"""Contexts of evaluations for tests of what is reported about them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater.contexts.evaluation.results import RunFolder
from headwater.model.evaluations import (
    Cause,
    ChangedRecord,
    DeclarationChange,
    EvaluatedContext,
    EvaluationRun,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HASH = "sha256:" + "0" * 64
PROMPT = Cause(kind="context", name="support", alone=True)


def evaluated(number: int, status: Any = "identical", **facts: Any) -> EvaluatedContext:
    """Return the context with a number; without facts, both sides are the same."""
    fields: dict[str, Any] = {
        "tokens_before": 100,
        "tokens_after": 100,
        "cost_before": 1_000,
        "cost_after": 1_000,
        "freshness_before": "guaranteed",
        "freshness_after": "guaranteed",
        "content_after": f"sha256:{number:064}",
        "model": "gpt-4o",
    }
    return EvaluatedContext(
        context_id=f"ctx-{number:05}",
        record_hash=HASH,
        name="support",
        created_at=NOON,
        status=status,
        **fields | facts,
    )


def changed(number: int, *kinds: Any, **facts: Any) -> EvaluatedContext:
    """Return a context that the prompt changed."""
    return evaluated(
        number, "changed", **{"kinds": kinds or ("edited",), "causes": (PROMPT,)} | facts
    )


def run_folder(
    path: Path,
    contexts: list[EvaluatedContext],
    records: list[ChangedRecord] | None = None,
    **facts: Any,
) -> RunFolder:
    """Return the folder of a run that found this."""
    folder = RunFolder(path / "last-month" / "a1b2c3d4e5f6")
    fields: dict[str, Any] = {
        "run_id": "a1b2c3d4e5f6",
        "cohort": "last-month",
        "cohort_hash": HASH,
        "count": len(contexts),
        "file": "features.py",
        "base": "the cohort",
        "options": {},
        "changes": (
            DeclarationChange(
                kind="context", name="support", change="changed", location="features.py:31"
            ),
        ),
        "started_at": NOON,
        "finished_at": NOON,
        "portion": 250,
    }
    folder.begin(EvaluationRun(**fields | facts))
    folder.write(0, contexts, records or [])
    return folder
