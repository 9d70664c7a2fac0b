"""The API processes of `headwater serve --processes N`."""

import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from headwater.settings.schema import Settings
from tests.cli.conftest import PATIENCE_SECONDS, Process, Start, wait_until
from tests.cli.test_serving import ask
from tests.cli.test_worker_processes import has_ended, metrics, visit, visits

SLOW = """
import pathlib, time
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User)
def slow(user_id: str) -> str:
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return "done"
"""


def children(server: Process) -> list[int]:
    """Return the process ids of the children of a server, in the order of their start."""
    path = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    return [int(each) for each in path.read_text().split()]


def parts(url: str) -> dict[str, bool]:
    return {part["name"]: part["ok"] for part in ask(url, "GET", "/readyz")[1]["parts"]}


def count_of(text: str, metric: str) -> float:
    """Return the sum of a metric over all its labels."""
    return sum(float(value) for value in re.findall(rf"^{metric}(?:{{.*}})? (\S+)$", text, re.M))


def test_every_api_process_shows_the_events_and_numbers_of_all(start: Start) -> None:
    options = ("--port", "0", "--processes", "2", "--workers", "1")
    server = start("serve", *options, HEADWATER_HTTP_ACCESS_LOG="0")
    url = server.next_line()["url"]
    with ExitStack() as connections:
        # Each has a connection of its own, which any process may accept.
        tails = [connections.enter_context(tail(url)) for _ in range(6)]
        visit(url)
        for lines in tails:
            shown = next(line for line in lines if line.startswith(b"data: "))
            assert json.loads(shown.removeprefix(b"data: "))["event"]["event_type"] == "visit"

    def is_one() -> bool:
        answers = [ask(url, "GET", "/v1/series")[1] for _ in range(8)]
        return answers[0]["waiting"][-1] == 0 and answers == [answers[0]] * len(answers)

    wait_until(is_one)
    assert server.end().code == 0


@contextmanager
def tail(url: str) -> Iterator[http.client.HTTPResponse]:
    """Open the live tail of events."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    with closing(connection):
        connection.request("GET", "/v1/events/tail")
        with connection.getresponse() as lines:
            yield lines


def test_api_processes_share_a_port_metrics_and_readiness_and_are_restarted(start: Start) -> None:
    server = start(
        "serve", "--port", "0", "--processes", "2", "--workers", "1", HEADWATER_HTTP_ACCESS_LOG="0"
    )
    url = server.next_line()["url"]
    healthy = {"sqlite": True, "api 1": True, "api 2": True, "worker 1": True}
    wait_until(lambda: parts(url) == healthy)
    for _ in range(20):
        visit(url)
    wait_until(lambda: visits(url) == 20)
    ingested = (
        r'headwater_http_requests_total{method="POST",route="/ingest/{event_type}",status="202"'
    )
    wait_until(lambda: f"\n{ingested}}} 20.0\n" in metrics(url))
    text = ""

    def is_reported_by_all() -> bool:
        # A process that is too busy to answer soon is left out.
        nonlocal text
        text = metrics(url)
        processes = ('api="1"', 'api="2"', 'worker="1"')
        measured = re.search(r'^headwater_lag_events{worker="1"} \d', text, re.M)
        memory = [f"process_resident_memory_bytes{{{each}}}" in text for each in processes]
        return all(memory) and measured is not None

    wait_until(is_reported_by_all)
    assert text.count("# TYPE headwater_http_requests_total counter") == 1
    assert not re.search(r"^headwater_lag_events\S* NaN$", text, re.M)

    port = url.rsplit(":", 1)[1]
    assert (
        f"port {port} of 127.0.0.1 is in use"
        in start("serve", "--port", port, "--processes", "2").end(None).err
    )

    first, second, worker = children(server)
    os.kill(first, signal.SIGKILL)
    said = server.errors_until("process ended; restarting")
    assert '"child":"api 1","exit_status":"SIGKILL"' in said
    assert visits(url) == 20
    wait_until(lambda: parts(url) == healthy)
    wait_until(lambda: count_of(metrics(url), "headwater_api_restarts_total") == 1)
    assert f"\n{ingested}}} 20.0\n" in metrics(url)

    running = children(server)
    assert {second, worker} < set(running)
    assert server.end().code == 0
    assert all(has_ended(each) for each in running)


def test_a_running_request_is_answered_while_all_processes_stop(folder: Path, start: Start) -> None:
    (folder / "features.py").write_text(SLOW)
    server = start("serve", "--port", "0", "--processes", "2", "--workers", "0")
    url = server.next_line()["url"]
    answers: list[object] = []
    reading = threading.Thread(
        target=lambda: answers.append(ask(url, "GET", "/v1/features/slow?entity_id=u1"))
    )
    reading.start()
    wait_until((folder / "begun").exists)
    server.send(signal.SIGTERM)
    wait_until(lambda: is_refused(url))
    (folder / "go").touch()
    reading.join(PATIENCE_SECONDS)
    assert answers[0][1]["value"] == "done"  # type: ignore[index]
    assert server.end(None).code == 0


def is_refused(url: str) -> bool:
    try:
        ask(url, "GET", "/healthz")
    except (OSError, http.client.HTTPException):
        return True
    return False


def test_all_processes_end_with_a_supervisor_that_is_killed(start: Start) -> None:
    server = start("serve", "--port", "0", "--processes", "2")
    server.next_line()
    running = children(server)
    assert len(running) == 3
    ended = server.end(signal.SIGKILL)
    assert ended.err.count('"event":"stopping with the server"') == 3
    wait_until(lambda: all(has_ended(each) for each in running))


def test_processes_that_cannot_start_end_the_server(folder: Path, start: Start) -> None:
    (folder / "file").touch()
    server = start(
        "serve", "--port", "0", "--processes", "2", "--workers", "0", HEADWATER_HOME="file"
    )
    ended = server.end(None)
    assert ended.code == 1
    assert re.search(r"^error: process 'api [12]' ended with 1 while it started", ended.err, re.M)
    assert "Traceback" not in ended.err


def test_api_processes_serve_a_store_on_servers(production: Settings, start: Start) -> None:
    environment = {
        "HEADWATER_REDIS_URL": production.redis.url,
        "HEADWATER_REDIS_PREFIX": production.redis.prefix,
        "HEADWATER_POSTGRES_URL": production.postgres.url,
        "HEADWATER_POSTGRES_SCHEMA": production.postgres.schema,
        "HEADWATER_HTTP_PROCESSES": "2",
    }
    assert start("migrate", **environment).end(None).code == 0
    server = start("serve", "--port", "0", **environment)
    url = server.next_line()["url"]
    visit(url)
    wait_until(lambda: visits(url) == 1)
    wait_until(lambda: all(parts(url).values()) and len(children(server)) == 3)
    assert server.end().code == 0


def test_the_overview_counts_results_of_workers_elsewhere(start: Start, folder: Path) -> None:
    config = '[objectives.features.visits]\nfreshness = "1h"\nlatency = "1h"\n'
    (folder / "headwater.toml").write_text(config)
    options = ("--port", "0", "--workers", "0")
    url = start("serve", *options, HEADWATER_HTTP_ACCESS_LOG="0").next_line()["url"]
    start("worker", "--metrics-port", "0").next_line()
    for _ in range(3):
        visit(url)

    def are_counted() -> bool:
        stated = ask(url, "GET", "/v1/overview")[1]["objectives"]
        return {(each["objective"], each["total"]) for each in stated} == {
            ("freshness", 3),
            ("latency", 3),
        }

    wait_until(are_counted)
