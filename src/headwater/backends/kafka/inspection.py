"""What `headwater doctor` finds in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from headwater.backends.kafka.address import TopicAddress, parse_url
from headwater.backends.kafka.client import TopicConsumer
from headwater.backends.kafka.environment import ENVELOPE_BYTES, group_of
from headwater.core.clock import Clock
from headwater.core.durations import format_duration
from headwater.errors import HeadwaterError
from headwater.model.health import Finding, Findings
from headwater.settings.schema import Settings

_DAY_MS = 24 * 60 * 60 * 1_000
_REPLICAS = 2


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Examine the brokers and the topic that the settings name."""
    findings = Findings("event log", "bus.url")
    try:
        address = parse_url(settings.bus.url, settings.bus)
        findings = Findings("event log", f"Kafka, {address}")
        consumer = TopicConsumer(address, group_of(address), settings.bus.timeout)
        try:
            replicas = await consumer.partitions()
        finally:
            await consumer.close()
    except HeadwaterError as error:
        remedy = "start the brokers, or correct bus.url, bus.options and bus.password"
        findings.error("connection", str(error), remedy)
        return findings.all
    if not replicas:
        findings.error("topic", "the topic does not exist", "create it with `headwater migrate`")
        return findings.all
    if len(replicas) != settings.partitions:
        found = f"the topic has {len(replicas)} partitions, the store {settings.partitions}"
        findings.error("topic", found, "name another topic in bus.url; the numbers are fixed")
    else:
        findings.ok("topic", f"{len(replicas)} partitions")
    config = await asyncio.to_thread(_config, address, settings.bus.timeout)
    if config is None:
        remedy = "give the user the right to describe the topic's configuration"
        findings.unknown("configuration", "the brokers do not tell it", remedy)
        return findings.all
    _add_replicas(findings, min(map(len, replicas.values())), config)
    _add_retention(findings, config)
    _add_size(findings, config, settings)
    return findings.all


def _config(address: TopicAddress, timeout: float) -> Mapping[str, str] | None:
    admin = AdminClient({**address.options, "bootstrap.servers": address.brokers, "log_level": 2})
    resource = ConfigResource(ResourceType.TOPIC, address.topic)
    try:
        (answer,) = admin.describe_configs([resource], request_timeout=timeout).values()
        return {name: str(entry.value) for name, entry in answer.result().items()}
    except KafkaException:
        return None


def _add_replicas(findings: Findings, replicas: int, config: Mapping[str, str]) -> None:
    in_sync = int(config.get("min.insync.replicas", 1))
    shown = f"{replicas} replicas, min.insync.replicas is {in_sync}"
    if min(replicas, in_sync) < _REPLICAS:
        findings.warning(
            "replication",
            f"{shown}: an accepted event may be on one broker alone, and is lost with it",
            "use three replicas and set min.insync.replicas of the topic to 2",
        )
    elif replicas == in_sync:
        found = f"{shown}: events are refused while any broker is down"
        findings.warning("replication", found, "use one replica more than min.insync.replicas")
    else:
        findings.ok("replication", shown)
    if config.get("unclean.leader.election.enable") == "true":
        findings.error(
            "elections",
            "unclean.leader.election.enable is true: a broker that lacks accepted events may lead",
            "set it to false for the topic",
        )


def _add_retention(findings: Findings, config: Mapping[str, str]) -> None:
    kept, cleanup = int(config.get("retention.ms", -1)), config.get("cleanup.policy", "delete")
    shown = "for ever" if kept < 0 else f"for {format_duration(kept)}"
    if "compact" in cleanup:
        found = "cleanup.policy is compact: of an entity only the last event is kept"
        findings.error("retention", found, "set cleanup.policy of the topic to delete")
    elif 0 <= kept < _DAY_MS or config.get("retention.bytes", "-1") != "-1":
        findings.warning(
            "retention",
            f"records are kept {shown}, and up to {config.get('retention.bytes')} bytes (-1: all): "
            "those that no worker takes in that time are lost",
            "keep them for longer than workers may be down, without a limit of bytes",
        )
    else:
        findings.ok("retention", f"records are kept {shown}, also those of erased entities")


def _add_size(findings: Findings, config: Mapping[str, str], settings: Settings) -> None:
    most, largest = int(config.get("max.message.bytes", 0)), settings.ingest.max_event_bytes
    if most < largest + ENVELOPE_BYTES:
        findings.warning(
            "size",
            f"max.message.bytes is {most}, ingest.max_event_bytes {largest}: the brokers refuse "
            "some events that Headwater accepts",
            f"set max.message.bytes of the topic to at least {largest + ENVELOPE_BYTES}",
        )
    else:
        findings.ok("size", f"max.message.bytes is {most}")
