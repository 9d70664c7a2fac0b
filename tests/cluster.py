"""A real cluster of three masters for tests, on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from tests.servers import READY_WITHIN_SECONDS, free_port, valkey_node

MASTERS = 3
SLOTS = 16_384
POLL_SECONDS = 0.05


@contextmanager
def cluster() -> Iterator[str]:
    """Yield the URL of one of three masters that share the slots."""
    with ExitStack() as running:
        # The masters' own talk would otherwise be ten thousand ports higher, where none may be.
        talks = [str(free_port()) for _ in range(MASTERS)]
        ports = [
            running.enter_context(valkey_node("--cluster-enabled", "yes", "--cluster-port", talk))
            for talk in talks
        ]
        nodes = [redis.Redis(port=port) for port in ports]
        for number, node in enumerate(nodes):
            first, last = number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS - 1
            _ask(node, "CLUSTER ADDSLOTSRANGE", first, last)
            _ask(node, "CLUSTER MEET", "127.0.0.1", ports[0], talks[0])
        _wait_until_all_agree(nodes)
        for node in nodes:
            node.close()
        yield f"redis://127.0.0.1:{ports[0]}/0"


def _wait_until_all_agree(nodes: list[redis.Redis]) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while not all(_is_ok(node) for node in nodes):
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not form")
        time.sleep(POLL_SECONDS)


def _is_ok(node: redis.Redis) -> bool:
    known = _ask(node, "CLUSTER INFO")
    return known["cluster_state"] == "ok" and int(known["cluster_known_nodes"]) == MASTERS


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
