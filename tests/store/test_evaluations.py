"""Evaluations that were run: their cohorts, runs, changed contexts, and both sides of each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from headwater import FeatureStore
from headwater.errors import InvalidInputError, UnknownContextError, UnknownEvaluationError
from headwater.records.record import Record
from headwater.settings.groups import EvalSettings
from headwater.settings.schema import Settings
from tests.client.conftest import shop
from tests.evaluations import RUN_ID, changed_record, evaluated, write_cohort, write_run


class World(NamedTuple):
    """A store with an evaluation of four contexts: changed, identical, failed, changed."""

    store: FeatureStore
    folder: Path
    records: list[Record]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = Settings(eval=EvalSettings(folder=str(tmp_path / "evals"))).replace(
        home=tmp_path / "home"
    )
    async with shop(settings) as store:
        await store.publish("purchase", "ada", {"amount": 25.0})
        await store.drain()
        contexts = [await store.assemble("support", {"user_id": "ada"}) for _ in range(5)]
        *records, after = [await store.records.get(ctx.context_id) for ctx in contexts]
        one, two, three, four = records
        folder = tmp_path / "evals"
        write_cohort(folder, "last-month", records)
        write_run(
            folder,
            "last-month",
            [
                evaluated(one, after),
                evaluated(two),
                evaluated(three, status="failed", error="KeyError: 'Ada'"),
                evaluated(four, after, causes=(), kinds=("tokens",), fidelity="approximate"),
            ],
            [changed_record(one, after), changed_record(four, after)],
            started_at=contexts[-1].created_at,
        )
        yield World(store, folder, records)


async def test_cohorts_are_listed_with_their_runs_the_newest_first(world: World) -> None:
    write_cohort(world.folder, "older", world.records[:1])
    later = (await world.store.records.get(world.records[3].context_id)).made_at()
    assert later is not None
    rows = [evaluated(world.records[0])]
    write_run(
        world.folder,
        "last-month",
        rows,
        [],
        started_at=later + timedelta(hours=1),
        run_id="aa",
        missing=3,
    )
    listed = await world.store.evaluations.list()
    assert [cohort.name for cohort in listed.cohorts] == ["last-month", "older"]
    running, finished = listed.cohorts[0].runs
    assert (running.run_id, running.changed, running.passed) == ("aa", None, None)
    assert (finished.run_id, finished.changed, finished.passed) == (RUN_ID, 2, False)
    (only,) = (await world.store.evaluations.list(limit=1)).cohorts
    assert [run.run_id for run in only.runs] == ["aa"]


async def test_a_store_without_evaluations_lists_none(tmp_path: Path) -> None:
    settings = Settings(eval=EvalSettings(folder=str(tmp_path / "none"))).replace(
        home=tmp_path / "home"
    )
    async with shop(settings) as store:
        assert (await store.evaluations.list()).cohorts == []


async def test_a_damaged_cohort_is_listed_without_its_facts(world: World) -> None:
    (world.folder / "broken.cohort").write_bytes(b"{")
    (world.folder / "empty.cohort").write_bytes(b"")
    broken = [each for each in (await world.store.evaluations.list()).cohorts if not each.contexts]
    assert sorted(each.name for each in broken) == ["broken", "empty"]


async def test_the_report_of_the_last_run_is_returned_unless_another_is_named(
    world: World,
) -> None:
    report = await world.store.evaluations.report("last-month")
    assert report.run.run_id == RUN_ID
    assert (report.summary.changed, report.summary.identical, report.summary.failed) == (2, 1, 1)
    assert report.summary.approximate["changed"] == 1
    later = report.run.started_at + timedelta(hours=1)
    rows = [evaluated(world.records[0])]
    write_run(
        world.folder, "last-month", rows, [], started_at=later, run_id="aa", missing=3
    )  # fmt: skip
    running = await world.store.evaluations.report("last-month")
    assert (running.run.run_id, running.run.finished_at, running.run.count) == ("aa", None, 4)
    assert (running.summary.contexts, running.gates) == (1, [])
    assert (await world.store.evaluations.report("last-month", RUN_ID)).run == report.run
    write_cohort(world.folder, "never", world.records)
    with pytest.raises(UnknownEvaluationError, match="'never' was not evaluated yet"):
        await world.store.evaluations.report("never")


async def test_a_report_quotes_no_errors_of_functions(world: World) -> None:
    report = await world.store.evaluations.report("last-month")
    assert "KeyError" not in repr(report)
    assert list(report.summary.reasons.values()) == [1]


async def test_changed_contexts_are_filtered_and_come_in_pages(world: World) -> None:
    changes = world.store.evaluations.changes
    one, two, three, four = [record.context_id for record in world.records]
    first = await changes("last-month", RUN_ID, limit=1)
    assert [each.context_id for each in first.contexts] == [one]
    rest = await changes("last-month", RUN_ID, limit=1, cursor=first.next_cursor)
    assert [each.context_id for each in rest.contexts] == [four]
    assert rest.next_cursor is None
    for filters, expected in (
        ({"kind": "edited"}, [one]),
        ({"kind": "tokens"}, [one, four]),
        ({"cause": "context support"}, [one]),
        ({"cause": "unexplained"}, [four]),
        ({"fidelity": "approximate"}, [four]),
        ({"fidelity": "approximate", "kind": "edited"}, []),
        ({"status": "identical"}, [two]),
        ({"status": "failed"}, [three]),
    ):
        page = await changes("last-month", RUN_ID, **filters)  # type: ignore[arg-type]
        assert [each.context_id for each in page.contexts] == expected, filters
    with pytest.raises(InvalidInputError, match="leave out the cursor"):
        await changes("last-month", RUN_ID, cursor="never")


async def test_both_sides_of_a_changed_context_are_those_of_the_xray(world: World) -> None:
    one, two, *_ = [record.context_id for record in world.records]
    compared = await world.store.evaluations.context("last-month", RUN_ID, one)
    assert compared.before is not None
    trace = await world.store.records.explain(one)
    assert compared.before == replace(trace, outcomes=compared.before.outcomes)
    assert compared.after is not None
    assert compared.diff is not None
    assert compared.diff.before == one
    same = await world.store.evaluations.context("last-month", RUN_ID, two)
    assert (same.context.status, same.before, same.withheld) == ("identical", None, "")
    with pytest.raises(UnknownContextError):
        await world.store.evaluations.context("last-month", RUN_ID, "0" * 36)


@pytest.mark.parametrize(
    ("cohort", "run_id", "hint"),
    [
        ("last-mouth", RUN_ID, "did you mean 'last-month'"),
        ("../evals/last-month", RUN_ID, "`headwater eval list` shows all"),
        ("last-month", "../last-month/" + RUN_ID, "did you mean"),
        ("last-month", "0", "choose one of"),
        ("/etc/passwd", RUN_ID, "choose one of last-month"),
    ],
)
async def test_names_that_are_not_in_the_folder_are_refused_with_a_hint(
    world: World, cohort: str, run_id: str, hint: str
) -> None:
    with pytest.raises(UnknownEvaluationError, match=hint):
        await world.store.evaluations.changes(cohort, run_id)


async def test_values_that_were_redacted_since_are_withheld(world: World) -> None:
    store, (one, _, three, _) = world.store, [each.context_id for each in world.records]
    await store.records.redact(one, "/output/content", reason="requested by Ada")
    compared = await store.evaluations.context("last-month", RUN_ID, one)
    assert (compared.before, compared.after, compared.diff) == (None, None, None)
    assert "because: requested by Ada; run the evaluation again" in compared.withheld
    (failed,) = (await store.evaluations.changes("last-month", RUN_ID, status="failed")).contexts
    assert failed.error == "KeyError: 'Ada'"
    await store.admin.forget("User", "ada", reason="the right to be forgotten")
    for id in (one, three):
        shown = await store.evaluations.context("last-month", RUN_ID, id)
        assert "KeyError" not in repr(shown) + shown.context.error
    (failed,) = (await store.evaluations.changes("last-month", RUN_ID, status="failed")).contexts
    assert "the right to be forgotten" in failed.error


async def test_a_redaction_that_the_run_knew_of_withholds_nothing_more(world: World) -> None:
    store, (one, *_, after) = world.store, world.records
    await store.records.redact(one.context_id, "/output/content", reason="requested by Ada")
    redacted = await store.records.get(one.context_id)
    rows, at = [evaluated(redacted, after)], redacted.made_at()
    assert at is not None
    write_run(
        world.folder, "last-month", rows, [changed_record(redacted, after)], started_at=at,
        run_id="bb",
    )  # fmt: skip
    compared = await store.evaluations.context("last-month", "bb", one.context_id)
    assert compared.before is not None
    assert compared.before.content is None


async def test_the_sides_of_a_record_that_was_pruned_are_withheld(world: World) -> None:
    one = world.records[0].context_id
    await world.store.admin.prune(records="1ms")
    compared = await world.store.evaluations.context("last-month", RUN_ID, one)
    assert compared.before is None
    assert "is not stored any more" in compared.withheld
