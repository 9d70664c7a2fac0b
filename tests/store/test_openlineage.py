"""OpenLineage events of training sets, exports and backfills, read by the official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from threading import Thread
from typing import Any

import pytest
from openlineage.client import event_v2, generated

from headwater import FeatureStore, ServiceEvent, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import HeadwaterError
from headwater.testing import ManualClock

_FACETS = {
    name: kind
    for module in iter_modules(generated.__path__)
    for name, kind in vars(import_module(f"{generated.__name__}.{module.name}")).items()
    if name.endswith("Facet")
}


def official(event: dict[str, Any]) -> event_v2.RunEvent:
    """Return an event in the classes of the official client, which check it."""
    assert event.pop("schemaURL") == event_v2.RunEvent._get_schema()  # noqa: SLF001
    run, job = event.pop("run"), event.pop("job")
    return event_v2.RunEvent(
        eventType=event_v2.RunState[event.pop("eventType")],
        run=event_v2.Run(**_with_facets(run)),
        job=event_v2.Job(**_with_facets(job)),
        inputs=[event_v2.InputDataset(**_with_facets(each)) for each in event.pop("inputs")],
        outputs=[event_v2.OutputDataset(**_with_facets(each)) for each in event.pop("outputs")],
        **event,
    )


def _with_facets(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: _facet(facet) for key, facet in value.items()} if "acets" in name else value
        for name, value in document.items()
    }


def _facet(document: dict[str, Any]) -> Any:
    url, producer = document.pop("_schemaURL"), document.pop("_producer")
    kind = _FACETS[url.rpartition("/")[2]]
    assert kind._get_schema() == url  # noqa: SLF001
    assert producer.startswith("urn:headwater:")
    return kind(**document)


@pytest.fixture
async def told(store: FeatureStore, user: type, tmp_path: Path) -> Path:
    """Return the file that a store with a feature tells its runs to."""

    @feature(entity=user, trigger="buy", default=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("total", user_id)) + int(event.payload["amount"])

    file = tmp_path / "events.ndjson"
    await tell(store, str(file))
    await store.publish("buy", "u1", {"amount": 5})
    await store.drain()
    return file


async def tell(store: FeatureStore, place: str) -> None:
    settings = store.settings.replace(lineage={"openlineage_url": place, "api_key": "secret"})
    await runtime_of(store).rebind(settings, store.clock)


def events(file: Path) -> list[event_v2.RunEvent]:
    return [official(json.loads(line)) for line in file.read_bytes().splitlines()]


async def test_a_training_set_names_its_series_and_its_file(
    store: FeatureStore, clock: ManualClock, told: Path, tmp_path: Path
) -> None:
    frame, output = tmp_path / "frame.csv", tmp_path / "values.parquet"
    frame.write_text(f"user_id,timestamp\nu1,{clock.now() + timedelta(hours=1)}\n")
    await store.get_historical_features(frame, ["total"], output=output)
    start, end = events(told)
    assert (start.eventType, end.eventType) == (event_v2.RunState.START, event_v2.RunState.COMPLETE)
    assert start.run.runId == end.run.runId
    assert end.job.name == "training_set.total"
    assert [dataset.name for dataset in end.inputs or ()] == ["history.total"]
    [written] = end.outputs or []
    assert (written.namespace, written.name) == ("file", str(output))


async def test_exports_and_backfills_tell_what_they_write(
    store: FeatureStore, told: Path, tmp_path: Path
) -> None:
    await store.history.export(tmp_path / "export")
    await store.backfills.run("total")
    *_, exported, _, backfilled = events(told)
    assert [dataset.name for dataset in exported.outputs or ()] == [str(tmp_path / "export")]
    assert [dataset.name for dataset in backfilled.inputs or ()] == ["events.buy"]
    assert [dataset.name for dataset in backfilled.outputs or ()] == ["history.total@2"]


async def test_a_failed_run_is_told_with_its_error(
    store: FeatureStore, told: Path, tmp_path: Path
) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "other").touch()
    with pytest.raises(HeadwaterError):
        await store.history.export(tmp_path / "export")
    failed = events(told)[-1]
    assert failed.eventType == event_v2.RunState.FAIL
    assert "not part of an export" in str((failed.run.facets or {})["errorMessage"])


@contextmanager
def receiver(status: int) -> Iterator[tuple[str, list[tuple[str | None, bytes]]]]:
    received: list[tuple[str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.headers["authorization"], body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [201, 503])
async def test_events_are_sent_with_the_key_and_a_receiver_that_fails_fails_no_run(
    store: FeatureStore, told: Path, tmp_path: Path, status: int
) -> None:
    with receiver(status) as (url, received):
        await tell(store, url)
        await store.history.export(tmp_path / "export")
    assert [key for key, _ in received] == ["Bearer secret"] * 2
    assert [official(json.loads(body)).producer for _, body in received]


async def test_nothing_is_told_without_a_receiver(
    store: FeatureStore, told: Path, tmp_path: Path
) -> None:
    await tell(store, "")
    await store.history.export(tmp_path / "export")
    assert not await asyncio.to_thread(told.exists)
