"""A real cluster of three masters for tests, with or without replicas, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from tests.proxy import Proxy, announced
from tests.servers import (
    ATTEMPTS,
    READY_WITHIN_SECONDS,
    Machine,
    ServerStartError,
    quiet_port,
    valkey_machine,
)

MASTERS = 3
SLOTS = 16_384
POLL_SECONDS = 0.05


@contextmanager
def cluster() -> Iterator[str]:
    """Yield the URL of one of three masters that share the slots."""
    # A master that an overloaded machine keeps waiting is not down.
    with cluster_machines("--cluster-node-timeout", "60000") as (first, *_):
        yield f"redis://127.0.0.1:{first.port}/0"


@contextmanager
def cluster_machines(
    *options: str, replicas: int = 0, proxies: Sequence[Proxy] = ()
) -> Iterator[list[Machine]]:
    """Yield three masters that share the slots, and the replicas of the first one.

    With a proxy for each of them, clients are told the ports of the proxies.
    """
    with ExitStack() as running:
        started = [
            _start_node(running, *options, *announced("cluster", proxies, number))
            for number in range(MASTERS + replicas)
        ]
        machines = [machine for machine, _ in started]
        for proxy, machine in zip(proxies, machines, strict=False):
            proxy.target = machine.port
        first_ports = (machines[0].port, started[0][1])
        nodes = [redis.Redis(port=machine.port) for machine in machines]
        for number, node in enumerate(nodes[:MASTERS]):
            first, last = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
            _ask(node, "CLUSTER ADDSLOTSRANGE", first, last)
        for node in nodes:
            _ask(node, "CLUSTER MEET", "127.0.0.1", *first_ports)
        _wait_until(lambda: all(_agrees(node, len(nodes)) for node in nodes))
        for node in nodes[MASTERS:]:
            _ask(node, "CLUSTER REPLICATE", _ask(nodes[0], "CLUSTER MYID"))
        _wait_until(lambda: _has_replicas(nodes[0], replicas))
        for node in nodes:
            node.close()
        yield machines


def _start_node(running: ExitStack, *options: str, attempts: int = ATTEMPTS) -> tuple[Machine, int]:
    """Start a node; return it with the port on which the nodes talk to each other.

    That port would otherwise be ten thousand higher than the node's, where none may be. Another
    server may take it before the node does, so several are tried.
    """
    talk = quiet_port()
    node = valkey_machine("--cluster-enabled", "yes", "--cluster-port", str(talk), *options)
    try:
        return running.enter_context(node), talk
    except ServerStartError:
        if attempts == 1:
            raise
    return _start_node(running, *options, attempts=attempts - 1)


def _wait_until(is_formed: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while not is_formed():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not form")
        time.sleep(POLL_SECONDS)


def _agrees(node: redis.Redis, count: int) -> bool:
    known = _ask(node, "CLUSTER INFO")
    return known["cluster_state"] == "ok" and int(known["cluster_known_nodes"]) == count


def _has_replicas(master: redis.Redis, count: int) -> bool:
    _, _, replicas = _ask(master, "ROLE")
    return len(replicas) == count


def keys_of_masters(url: str, pattern: str) -> list[int]:
    """Return how many keys of a pattern each master of a cluster has."""
    with redis.Redis.from_url(url) as seed:
        slots = _ask(seed, "CLUSTER SLOTS")
    counts = []
    for _, _, (host, port, *_), *_ in slots:
        with redis.Redis(host=host.decode(), port=port) as master:
            counts.append(len(_ask(master, "KEYS", pattern)))
    return counts


def _ask(node: redis.Redis, *command: object) -> Any:
    return node.execute_command(*command)  # type: ignore[no-untyped-call]
