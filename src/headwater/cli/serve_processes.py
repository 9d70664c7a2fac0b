"""`headwater serve --processes N`: API processes that share a port, and their supervisor."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from prometheus_client import Counter

from headwater.access.guard import check_address
from headwater.cli.child_processes import ChildProcesses, ProcessKind
from headwater.cli.supervisor_link import SupervisorLink
from headwater.http.routing.mounts import AsgiMount
from headwater.http.server.processes import announce_address, serve, supervise
from headwater.http.server.web_server import reserve_port
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

WORKER_RESTARTS = Counter(
    "headwater_worker_restarts_total",
    "Worker processes of `headwater serve` that ended and were started again.",
)
API_RESTARTS = Counter(
    "headwater_api_restarts_total",
    "API processes of `headwater serve --processes N` that ended and were started again.",
)


def worker_processes(file: Path, count: int) -> ProcessKind:
    """Return the worker processes of a features file."""
    return ProcessKind("worker", ["worker", str(file)], count, WORKER_RESTARTS)


async def serve_with_processes(
    settings: Settings,
    file: Path,
    address: tuple[str, int],
    processes: int,
    workers: int,
    on_ready: Callable[[str], None],
) -> None:
    """Supervise API processes and workers until a stop signal; serve nothing in this process.

    This process keeps the port reserved, and each API process listens on it, so that the kernel
    distributes the connections; on one socket, a process would accept all that arrive together.
    """
    host, port = address
    check_address(settings, host)
    with reserve_port(host, port) as reserved:
        api = ProcessKind(
            "api",
            ["serve", str(file), "--host", host, "--port", str(reserved.getsockname()[1])],
            processes,
            API_RESTARTS,
            reports_ready=True,
        )
        children = ChildProcesses(
            [api, worker_processes(file, workers)],
            on_ready=partial(announce_address, host, reserved, on_ready),
        )
        await supervise(children, settings.worker.drain_timeout)


async def serve_supervised(
    store: FeatureStore, address: tuple[str, int], mounts: Sequence[AsgiMount], supervisor: int
) -> None:
    """Serve in a process that `headwater serve --processes N` has started."""
    link = SupervisorLink(supervisor, store.settings.worker.drain_timeout)
    link.serve()
    await serve(
        store,
        host=address[0],
        port=address[1],
        worker=False,
        processes=link,
        mounts=mounts,
        on_ready=lambda _: link.report_ready(),
        shares_port=True,
    )
