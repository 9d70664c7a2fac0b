"""`headwater plan` estimates what a load needs, with numbers that hold for a load that is run."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from msgspec import structs

from bench import sizes
from headwater.cli.plan import Load, bytes_text, measured, plan_for, worker_cores
from headwater.settings.schema import Settings
from tests.cli.conftest import Run
from tests.servers import valkey_node

DAY = timedelta(days=1)


def planned(load: sizes.Load) -> Load:
    """Return the load to plan for, whose events are all of one day."""
    return Load(
        events_per_second=load.events / DAY.total_seconds(),
        entities=load.entities,
        features=load.features,
        retention=DAY,
        values_per_event=load.features,
        value_bytes=load.value_bytes,
        payload_bytes=load.payload_bytes,
        windows=load.windows,
    )


async def test_a_plan_is_that_of_loads_that_are_run(new_production: Settings) -> None:
    many_values = sizes.Load(3_000, 6, 9_000, value_bytes=40, payload_bytes=120, remembered=True)
    many_entities = sizes.Load(6_000, 2, 6_000, value_bytes=12, payload_bytes=300, remembered=True)
    spent = [await compared(new_production, load) for load in (many_values, many_entities)]
    # Machines and their other work differ, but not how many times more work the values are.
    assert 0.5 < spent[0] / spent[1] < 2


async def compared(settings: Settings, load: sizes.Load) -> float:
    """Compare the bytes with a plan; return the CPU time of the worker, as a part of the plan's."""
    schema = f"{settings.postgres.schema}_{load.features}"
    with valkey_node() as port:
        servers = {"redis": {"url": f"redis://127.0.0.1:{port}/0"}, "postgres": {"schema": schema}}
        taken = await sizes.measure(settings.replace(**servers), load)
    plan = plan_for(planned(load))
    assert plan.redis_bytes.amount == pytest.approx(taken.redis, rel=0.25)
    assert plan.postgres_bytes.amount == pytest.approx(taken.postgres, rel=0.25)
    assert plan.postgres_bytes.parts["events"] == pytest.approx(taken.events, rel=0.25)
    assert plan.lake_bytes.parts["history"] == pytest.approx(taken.lake_history, rel=0.25)
    assert plan.lake_bytes.parts["events"] == pytest.approx(taken.lake_events, rel=0.25)
    return taken.worker / (worker_cores(planned(load), measured().worker) * DAY.total_seconds())


def test_the_command_needs_no_store(run: Run) -> None:
    load = ("--events-per-second", "5000", "--entities", "1000000", "--features", "10")
    done = run("plan", *load, "--retention", "30d", "--windows", "1")
    lines = {line.split("  ")[0]: line for line in done.out.splitlines()}
    assert lines.keys() >= {"partitions", "worker processes", "Redis memory", "Postgres disk"}
    assert "remembered events" in lines["Redis memory"]
    answer = json.loads(run("plan", *load, "--retention", "30d", "--json").out)
    assert answer["partitions"] == 16
    assert answer["redis_bytes"]["amount"] == sum(answer["redis_bytes"]["parts"].values())


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--entities", "0", "--entities"),
        ("--retention", "soon", "soon"),
        ("--windows", "-1", "--windows"),
    ],
)
def test_an_impossible_load_is_refused(run: Run, option: str, value: str, reason: str) -> None:
    load = {"--events-per-second": "1", "--entities": "1", "--features": "1", option: value}
    done = run("plan", *(text for pair in load.items() for text in pair))
    assert done.code != 0
    assert reason in done.err


def test_twice_the_events_need_twice_the_disk_and_more_workers() -> None:
    load = Load(
        events_per_second=20_000,
        entities=1_000,
        features=10,
        retention=DAY,
        values_per_event=2,
        value_bytes=10,
        payload_bytes=100,
        windows=0,
    )
    once, twice = plan_for(load), plan_for(structs.replace(load, events_per_second=40_000))
    events = [plan.postgres_bytes.parts["events"] for plan in (once, twice)]
    assert events[1] == pytest.approx(2 * events[0])
    assert twice.worker_processes == pytest.approx(2 * once.worker_processes, abs=1)
    assert twice.partitions >= 4 * twice.worker_processes
    # As many ids are remembered as the settings allow.
    assert once.redis_bytes == twice.redis_bytes


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_100_000_000, "2.1 GB")]
)
def test_bytes_are_shown_with_a_unit(count: int, text: str) -> None:
    assert bytes_text(count) == text
