"""The servers of a run: Redis, one, a cluster or a master with Sentinels, Postgres, and Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import NamedTuple

from engines.brokers import kafka_brokers, url_of
from headwater.backends.connect import migrate
from headwater.settings.schema import Settings
from tests.cluster import cluster_machines
from tests.sentinels import watched
from tests.servers import Machine, restartable_postgres, restartable_valkey

_DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
# Only the failovers of the plan: one that a busy machine provokes may lose acknowledged writes.
_NO_FAILOVER = ("--cluster-replica-no-failover", "yes", "--cluster-node-timeout", "3000")


class Servers(NamedTuple):
    """The servers of a run and the settings of a store on them."""

    redis: Sequence[Machine]
    postgres: Machine
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
) -> AsyncIterator[Servers]:
    """Start the servers and create the tables of a store on them."""
    with ExitStack() as stack:
        brokers = stack.enter_context(kafka_brokers()) if kafka else []
        sentinels: Sequence[Machine] = ()
        if sentinel:
            # Only the failovers of the plan, as in a cluster.
            group = stack.enter_context(watched(*_DURABLE, down_after=60_000))
            machines, sentinels, redis_url = group.servers, group.sentinels, group.url
        else:
            machines = stack.enter_context(_cluster() if cluster else _single())
            redis_url = "redis://" + ",".join(f"127.0.0.1:{each.port}" for each in machines)
        postgres_url, postgres = stack.enter_context(restartable_postgres())
        settings = Settings().replace(
            env="production",
            partitions=8,
            redis={"url": redis_url},
            postgres={"url": postgres_url},
            worker=worker,
            bus={"url": url_of(brokers, "chaos"), "timeout": 60} if kafka else {},
            log={"level": "warning", "format": "json"},
        )
        await migrate(settings)
        yield Servers(machines, postgres, settings, brokers, sentinels)


@contextmanager
def _single() -> Iterator[list[Machine]]:
    with restartable_valkey() as (_, machine):
        yield [machine]


@contextmanager
def _cluster() -> Iterator[list[Machine]]:
    with cluster_machines(*_DURABLE, *_NO_FAILOVER, replicas=1) as machines:
        yield machines
