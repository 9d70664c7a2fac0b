"""The worker processes of `headwater serve --workers N`."""

import http.client
import os
import re
import signal
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from headwater.settings.schema import Settings
from tests.cli.conftest import PATIENCE_SECONDS, Process, Start, wait_until
from tests.cli.test_serving import ask

DEADLY = """
import os
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    return await store.get_feature("visits", user_id) + 1

@feature(entity=User, trigger="poison")
def poison(user_id: str, event: ServiceEvent) -> int:
    os._exit(7)
"""


PATIENT = """
import asyncio, pathlib
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="visit")
async def visits(user_id: str, event: ServiceEvent) -> int:
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return 1
"""


PROCESSED = '\nheadwater_events_processed_total{{event_type="visit"}} {}.0\n'


def started_worker(server: Process) -> int:
    """Wait until one more worker process has started, and return its process id."""
    line = server.errors_until('"event":"worker started"').splitlines()[-1]
    return int(msgspec.json.decode(line)["worker"].rsplit("-", 2)[1])


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; one that no parent has waited for counts as ended."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def metrics(url: str) -> str:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/metrics")
    try:
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def visits(url: str) -> object:
    return ask(url, "GET", "/v1/features/visits?entity_id=u1")[1]["value"]


def visit(url: str) -> None:
    assert ask(url, "POST", "/ingest/visit", {"entity_id": "u1"})[0] == 202


def test_a_worker_process_that_ends_is_restarted_and_the_api_goes_on(start: Start) -> None:
    server = start("serve", "--port", "0", "--workers", "1")
    url = server.next_line()["url"]
    first = started_worker(server)
    visit(url)
    wait_until(lambda: PROCESSED.format(1) in metrics(url))
    os.kill(first, signal.SIGKILL)
    said = server.errors_until("process ended; restarting")
    assert '"exit_status":"SIGKILL"' in said
    assert ask(url, "GET", "/healthz")[0] == 200
    assert PROCESSED.format(1) in metrics(url)
    visit(url)
    assert started_worker(server) != first
    wait_until(lambda: visits(url) == 2)
    wait_until(lambda: PROCESSED.format(2) in metrics(url))
    assert "headwater_worker_restarts_total 1.0" in metrics(url)
    assert server.end().code == 0


def test_a_handler_that_ends_its_process_does_not_end_the_api(folder: Path, start: Start) -> None:
    (folder / "features.py").write_text(DEADLY)
    server = start("serve", "--port", "0", "--workers", "1", HEADWATER_WORKER_MAX_DELIVERIES="1")
    url = server.next_line()["url"]
    assert ask(url, "POST", "/ingest/poison", {"entity_id": "u1"})[0] == 202
    assert '"exit_status":7' in server.errors_until("process ended; restarting")
    assert ask(url, "GET", "/healthz")[0] == 200
    server.errors_until('"event":"event given up"')
    visit(url)
    wait_until(lambda: visits(url) == 1)
    assert server.end().code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_api_and_worker_processes(start: Start, number: signal.Signals) -> None:
    server = start("serve", "--port", "0", "--workers", "2")
    server.next_line()
    workers = [started_worker(server), started_worker(server)]
    ended = server.end(number)
    assert ended.code == 0
    assert ended.err.count('"event":"worker stopped"') == 2
    assert "restarting" not in ended.err
    assert all(has_ended(worker) for worker in workers)


def test_worker_processes_end_with_a_server_that_is_killed(start: Start) -> None:
    server = start("serve", "--port", "0", "--workers", "2")
    server.next_line()
    workers = [started_worker(server), started_worker(server)]
    ended = server.end(signal.SIGKILL)
    assert ended.err.count('"event":"stopping with the server"') == 2
    wait_until(lambda: all(has_ended(worker) for worker in workers))


def test_a_signal_to_all_processes_lets_running_handlers_finish(folder: Path, start: Start) -> None:
    (folder / "features.py").write_text(PATIENT)
    server = start("serve", "--port", "0", "--workers", "1")
    url = server.next_line()["url"]
    worker = started_worker(server)
    visit(url)
    wait_until((folder / "begun").exists)
    # As systemd does when it stops a service.
    os.kill(worker, signal.SIGTERM)
    server.send(signal.SIGTERM)
    server.errors_until('"event":"stopping with the server"')
    (folder / "go").touch()
    ended = server.end(None)
    assert ended.code == 0
    assert '"event":"event processed"' in ended.err
    assert '"event":"worker stopped"' in ended.err


def test_metrics_and_readiness_of_the_server_include_its_worker_processes(start: Start) -> None:
    # Nothing reads the log meanwhile, and a full pipe would block the server.
    server = start("serve", "--port", "0", "--workers", "2", HEADWATER_HTTP_ACCESS_LOG="0")
    url = server.next_line()["url"]
    started_worker(server)
    hung = started_worker(server)
    visit(url)

    text = ""

    def reported() -> bool:
        nonlocal text
        text = metrics(url)
        measured = re.findall(r'^headwater_lag_events\{worker="[12]"\} 0.0$', text, re.M)
        return PROCESSED.format(1) in text and len(measured) == 2

    wait_until(reported)
    assert re.findall(r"^headwater_event_processing_seconds_count.*$", text, re.M) == [
        "headwater_event_processing_seconds_count 1.0"
    ]
    assert not re.search(r"^headwater_lag_events NaN$", text, re.M)
    assert text.count("# TYPE headwater_lag_events gauge") == 1

    def readiness() -> tuple[int, str, dict[str, bool]]:
        status, body = ask(url, "GET", "/readyz")
        return status, body["status"], {part["name"]: part["ok"] for part in body["parts"]}

    def is_degraded() -> bool:
        *answer, parts = readiness()
        return answer == [200, "degraded"] and sorted(parts.values()) == [False, True, True]

    ready = (200, "ready", {"sqlite": True, "worker 1": True, "worker 2": True})
    wait_until(lambda: readiness() == ready)
    os.kill(hung, signal.SIGSTOP)
    try:
        wait_until(is_degraded)
        assert PROCESSED.format(1) in metrics(url)
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_until(lambda: readiness() == ready)
    assert server.end().code == 0


def test_without_worker_processes_events_wait(start: Start) -> None:
    server = start("serve", "--port", "0", "--workers", "0")
    url = server.next_line()["url"]
    visit(url)
    assert "headwater_lag_events NaN" in metrics(url)
    ended = server.end()
    assert ended.code == 0
    assert "worker started" not in ended.err


def test_in_production_a_server_starts_one_worker_process(
    production: Settings, start: Start
) -> None:
    environment = {
        "HEADWATER_REDIS_URL": production.redis.url,
        "HEADWATER_REDIS_PREFIX": production.redis.prefix,
        "HEADWATER_POSTGRES_URL": production.postgres.url,
        "HEADWATER_POSTGRES_SCHEMA": production.postgres.schema,
        "HEADWATER_ENV": "production",
        "HEADWATER_API_KEY": "sesame",
    }
    assert start("migrate", **environment).end(None).code == 0
    server = start("serve", "--port", "0", **environment)
    server.next_line()
    worker = started_worker(server)
    assert not has_ended(worker)
    assert worker != server.pid
    ended = server.end()
    assert ended.code == 0
    assert ended.err.count('"event":"worker stopped"') == 1
    assert has_ended(worker)
