"""A server that is ready is warm: its first requests load nothing."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations import definitions
from headwater.engine.worker.worker import Worker
from tests.engine.support import until

# In a process of its own: the tests before have loaded everything in this one.
PROGRAM = textwrap.dedent("""
    import asyncio, http.client, json, os, signal, sys, threading
    from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature
    from headwater.http.server.processes import serve

    store = FeatureStore()
    Index(store, "notes", embedder="lexical")

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase")
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @context(store, max_tokens=100, model="gpt-4o")
    async def support(user_id: str) -> str:
        return f"Spent: {await store.get_feature('total_spend', user_id)}"

    LOADS = {"import", "compile", "sqlite3.connect", "socket.connect", "ctypes.dlopen"}
    REQUESTS = {
        "read": ("GET", "/v1/features/total_spend?entity_id=u1", None),
        "ingest": ("POST", "/ingest/purchase", {"entity_id": "u1", "payload": {"amount": 2.5}}),
        "context": ("POST", "/v1/contexts/support", {"params": {"user_id": "u1"}}),
        "search": ("POST", "/v1/search/notes", {"query": "parcels"}),
        "metrics": ("GET", "/metrics", None),
    }
    loaded, watched = {}, None

    def audit(event, arguments):
        if watched is not None and event in LOADS and threading.current_thread() is not asking:
            watched.append(f"{event} {arguments[0]!r:.80}")

    def ask(port):
        global watched
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for name, (method, path, body) in {"ready": ("GET", "/readyz", None), **REQUESTS}.items():
            watched = [] if name in REQUESTS else None
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            loaded[name], watched = (response.status, watched), None
        connection.close()
        print(json.dumps(loaded))
        os.kill(os.getpid(), signal.SIGTERM)

    def ready(url):
        global asking
        asking = threading.Thread(target=ask, args=[int(url.rpartition(":")[2])])
        asking.start()

    sys.addaudithook(audit)
    asyncio.run(serve(store, host="127.0.0.1", port=0, worker=False, on_ready=ready))
""")


def test_the_first_requests_after_ready_load_no_module_and_open_no_connection(
    tmp_path: Path,
) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout) == {
        "ready": [200, None],
        "read": [200, []],
        "ingest": [202, []],
        "context": [200, []],
        "search": [200, []],
        "metrics": [200, []],
    }


async def test_a_worker_that_was_opened_has_hashed_the_code_of_its_handlers(
    store: FeatureStore,
) -> None:
    @entity(store)
    class Guest:
        guest_id: str

    @feature(entity=Guest, trigger="arrived")
    def arrivals(guest_id: str, event: ServiceEvent) -> int:
        return 1

    worker = Worker(store)
    await worker.open()
    hashed = definitions._definition.cache_info().misses  # noqa: SLF001 - the count of all hashes
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.health().ok)
    worker.stop()
    await running
    assert definitions._definition.cache_info().misses == hashed  # noqa: SLF001
