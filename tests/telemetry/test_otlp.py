"""Exporting by OTLP to a real receiver, which decodes the requests."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from headwater.errors import MissingExtraError
from headwater.settings.schema import Settings
from headwater.telemetry import tracer_of

PROGRAM = """
import asyncio
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="purchase")
async def spend(user_id: str, event: ServiceEvent) -> float:
    return 1.0

async def main():
    async with store:
        await store.publish("purchase", "ada", {"amount": 5})
        await store.drain()

asyncio.run(main())
"""


class Receiver:
    """A collector that keeps the spans it was sent."""

    def __init__(self) -> None:
        self.received: list[ResourceSpans] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = ExportTraceServiceRequest.FromString(body)
                receiver.received += request.resource_spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    thread = threading.Thread(target=started.server.serve_forever, args=(0.01,))
    thread.start()
    yield started
    started.server.shutdown()
    thread.join()
    started.server.server_close()


async def test_a_program_that_ends_has_sent_its_spans_to_the_collector(
    receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "program.py"),
        cwd=tmp_path,
        env={
            "HEADWATER_TELEMETRY_ENABLED": "true",
            "HEADWATER_TELEMETRY_SERVICE_NAME": "shop",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "60",
            "OTEL_BSP_EXPORT_TIMEOUT": "60000",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        },
    )
    assert await process.wait() == 0
    (resource,) = {str(sent.resource): sent.resource for sent in receiver.received}.values()
    attributes = {each.key: each.value.string_value for each in resource.attributes}
    assert attributes["service.name"] == "shop"
    assert attributes["deployment.environment.name"] == "test"
    spans = [s for sent in receiver.received for scope in sent.scope_spans for s in scope.spans]
    assert {span.name for span in spans} == {
        *("publish", "process purchase", "feature spend", "commit")
    }
    assert len({span.trace_id for span in spans}) == 1


async def test_a_collector_that_is_down_is_one_log_record_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"import logging; logging.basicConfig(){PROGRAM}")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "program.py"),
        cwd=tmp_path,
        env={
            "HEADWATER_TELEMETRY_ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            # All spans are one batch, however long the program runs.
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        },
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 0
    assert stderr.count(b"spans not exported") == 1
    assert len(stderr.splitlines()) == 1


def test_without_its_extra_tracing_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "headwater.telemetry.open_telemetry", None)
    settings = Settings().replace(telemetry={"enabled": True, "service_name": "not installed"})
    with pytest.raises(MissingExtraError, match=r"headwater\[otel\]"):
        tracer_of(settings)


def test_a_store_that_is_not_traced_has_no_tracer() -> None:
    assert tracer_of(Settings()) is None
