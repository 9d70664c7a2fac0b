"""The servers of a run: Redis, one, a cluster or a master with Sentinels, Postgres, and Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import NamedTuple

from chaos.network import Network
from chaos.postgres_pair import PostgresPair, prepare
from engines.brokers import kafka_brokers, url_of
from headwater.backends.connect import migrate
from headwater.settings.schema import Settings
from tests.cluster import cluster_machines
from tests.proxy import Proxy
from tests.sentinels import watched
from tests.servers import Machine, replica_of, restartable_postgres, restartable_valkey

_DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
# Only the failovers of the plan: one that a busy machine provokes may lose acknowledged writes.
_NO_FAILOVER = ("--cluster-replica-no-failover", "yes", "--cluster-node-timeout", "3000")


class Servers(NamedTuple):
    """The servers of a run and the settings of a store on them."""

    redis: Sequence[Machine]
    postgres: PostgresPair
    lines: Sequence[Proxy]
    """The proxies in front of the servers of Redis, in the same order."""
    postgres_lines: Sequence[Proxy]
    settings: Settings
    brokers: Sequence[Machine] = ()
    sentinels: Sequence[Machine] = ()


@asynccontextmanager
async def servers(
    worker: Mapping[str, float],
    *,
    cluster: bool = False,
    kafka: bool = False,
    sentinel: bool = False,
    declared_keys: bool = False,
) -> AsyncIterator[Servers]:
    """Start the servers and create the tables of a store on them."""
    with ExitStack() as stack:
        network = Network()
        stack.enter_context(network.open())
        brokers = stack.enter_context(kafka_brokers()) if kafka else []
        sentinels: Sequence[Machine] = ()
        lines = [network.proxy() for _ in range(4 if cluster else 2 if sentinel else 1)]
        redis_url = "redis://" + ",".join(f"127.0.0.1:{line.port}" for line in lines)
        machines: Sequence[Machine]
        if sentinel:
            # Only the failovers of the plan, as in a cluster.
            group = stack.enter_context(watched(*_DURABLE, down_after=60_000, proxies=lines))
            machines, sentinels, redis_url = group.servers, group.sentinels, group.url
        elif cluster:
            nodes = cluster_machines(*_DURABLE, *_NO_FAILOVER, replicas=1, proxies=lines)
            machines = stack.enter_context(nodes)
        else:
            _, machine = stack.enter_context(restartable_valkey())
            machines, lines[0].target = [machine], machine.port
        postgres_url, primary = stack.enter_context(restartable_postgres())
        await prepare(postgres_url)
        _, replica = stack.enter_context(replica_of(postgres_url))
        postgres_lines = [network.proxy(machine.port) for machine in (primary, replica)]
        settings = Settings().replace(
            env="production",
            partitions=8,
            redis={
                "url": redis_url,
                "timeout": 1.0,
                "connect_timeout": 1.0,
                "declared_keys": declared_keys,
            },
            postgres={
                "url": postgres_url,
                "hosts": ",".join(f"127.0.0.1:{line.port}" for line in postgres_lines),
                "timeout": 5.0,
                "connect_timeout": 2.0,
            },
            record={"required": True},
            worker=worker,
            bus={"url": url_of(brokers, "chaos"), "timeout": 60} if kafka else {},
            log={"level": "warning", "format": "json"},
        )
        await migrate(settings)
        postgres = PostgresPair(postgres_url, primary, replica)
        await postgres.connect_replica()
        yield Servers(machines, postgres, lines, postgres_lines, settings, brokers, sentinels)
