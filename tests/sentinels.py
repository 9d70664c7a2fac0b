"""A real master with a replica and three Sentinels, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import redis

from tests.proxy import InFront, announced
from tests.servers import READY_WITHIN_SECONDS, Machine, sentinel_machine, valkey_machine

NAME = "shop"
POLL_SECONDS = 0.05


class Watched(NamedTuple):
    """A master, its replica, and the Sentinels that watch both."""

    servers: list[Machine]
    sentinels: list[Machine]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{NAME}?db=0"

    def master(self) -> Machine:
        """Return the server that most Sentinels take for the master."""
        ports = [
            int(ask(each, "SENTINEL GET-MASTER-ADDR-BY-NAME", NAME)[1]) for each in self.sentinels
        ]
        port = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == port)


@contextmanager
def watched(
    *options: str,
    down_after: int = 1_000,
    sentinel_options: tuple[str, ...] = (),
    proxies: Sequence[InFront] = (),
) -> Iterator[Watched]:
    """Yield the servers, once the Sentinels know the replica and each other.

    With a proxy for each server, Sentinels know the ports of the proxies.
    """
    with ExitStack() as running:

        def started(number: int) -> Machine:
            own = (*options, *announced("replica", proxies, number))
            no_delay = ("--repl-diskless-sync-delay", "0")
            machine = running.enter_context(valkey_machine(*own, *no_delay))
            if proxies:
                proxies[number].target = machine.port
            return machine

        master = started(0)
        place = ("127.0.0.1", str(proxies[0].port if proxies else master.port))
        replica = started(1)
        # Not as an option: once promoted, it starts again as the master.
        ask(replica, "REPLICAOF", *place)
        directives = (
            f"sentinel monitor {NAME} {' '.join(place)} 2",
            f"sentinel down-after-milliseconds {NAME} {down_after}",
            f"sentinel failover-timeout {NAME} 10000",
            *sentinel_options,
        )
        sentinels = [running.enter_context(sentinel_machine(*directives)) for _ in range(3)]
        both = Watched([master, replica], sentinels)
        wait_until(lambda: all(_knows_all(sentinel) for sentinel in sentinels))
        wait_until(lambda: ask(replica, "ROLE")[3] == b"connected")
        yield both


def _knows_all(sentinel: Machine) -> bool:
    (known,) = [dict(each) for each in [ask(sentinel, "SENTINEL MASTER", NAME)]]
    return int(known["num-slaves"]) == 1 and int(known["num-other-sentinels"]) == 2


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while True:
        with suppress(redis.RedisError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the servers did not get there in time")
        time.sleep(POLL_SECONDS)


def ask(machine: Machine, *words: object) -> Any:
    with redis.Redis(port=machine.port) as client:
        return client.execute_command(*words)
