"""What `headwater doctor` finds in Redis."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.core.clock import Clock
from headwater.core.durations import format_duration
from headwater.core.masking import mask_address
from headwater.errors import BackendError, HeadwaterError
from headwater.model.health import Finding, Findings, add_clock_skew
from headwater.settings.schema import Settings

_FULL_SHARE = 0.8
_OLD_OUTBOX_SECONDS = 60.0
_MEBIBYTE = 1 << 20


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Examine the server that the settings name, whether or not a store is open."""
    findings = Findings("message bus", f"Redis at {mask_address(settings.redis.url)}")
    redis = Redis.of(settings.redis)
    keys = Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)
    try:
        await redis.open()
        await _inspect_servers(redis, keys, clock, findings)
        await _inspect_outbox(redis, keys, clock, findings)
    except HeadwaterError as error:
        findings.error(
            "connection", str(error), "start Redis or Valkey 7.0 or newer, or set redis.url"
        )
    finally:
        await redis.close()
    return findings.all


async def _inspect_servers(redis: Redis, keys: Keys, clock: Clock, findings: Findings) -> None:
    """Examine each server; those of a cluster are found by the partitions that they hold."""
    parts = keys.parts if redis.clustered else keys.parts[:1]
    replies = await redis.calls([command(part.probe, "INFO") for part in parts])
    infos = map(_parse_info, replies)
    servers = {info["run_id"]: (info, part.probe) for info, part in zip(infos, parts, strict=True)}
    for info, key in servers.values():
        name = "Valkey" if "valkey_version" in info else "Redis"
        version = info.get("valkey_version", info["redis_version"])
        uptime = format_duration(int(info.get("uptime_in_seconds", 0)) * 1_000)
        findings.ok("connection", f"{name} {version}, up for {uptime}")
        _add_memory(findings, info)
        _add_persistence(findings, info, await _appendfsync(redis, key))
        sent = time.perf_counter()
        seconds, microseconds = await redis.call(command(key, "TIME"))
        taken = time.perf_counter() - sent
        there = int(seconds) + int(microseconds) / 1e6
        add_clock_skew(findings, there - clock.now().timestamp() + taken / 2, taken)


def _parse_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _add_memory(findings: Findings, info: dict[str, str]) -> None:
    used, limit = int(info["used_memory"]), int(info.get("maxmemory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        findings.ok("eviction", "maxmemory-policy is noeviction")
    else:
        findings.error(
            "eviction",
            f"maxmemory-policy is {policy}: Redis may evict events and values",
            "set maxmemory-policy to noeviction",
        )
    shown = f"{used / _MEBIBYTE:,.0f} MiB used"
    if not limit:
        findings.ok("memory", f"{shown}, maxmemory is not set")
    elif used > limit * _FULL_SHARE:
        findings.warning(
            "memory",
            f"{shown} of {limit / _MEBIBYTE:,.0f} MiB (maxmemory); when it is full, events are "
            "refused",
            "raise maxmemory, add workers, or check that Postgres takes the history",
        )
    else:
        findings.ok("memory", f"{shown} of {limit / _MEBIBYTE:,.0f} MiB (maxmemory)")


async def _appendfsync(redis: Redis, key: str) -> str | None:
    try:
        reply = await redis.call(command(key, "CONFIG", "GET", "appendfsync"))
    except BackendError:
        return None  # a managed Redis may not allow CONFIG
    return reply[1].decode() if reply else None


def _add_persistence(findings: Findings, info: dict[str, str], appendfsync: str | None) -> None:
    if info.get("aof_enabled") != "1":
        findings.error(
            "fsync",
            "appendonly is off: acknowledged events are lost when Redis dies",
            "set appendonly to yes and appendfsync to always",
        )
    elif info.get("aof_last_write_status", "ok") != "ok":
        findings.error(
            "fsync",
            "the last write of the append-only file failed",
            "free space on the disk of Redis and see its log",
        )
    elif appendfsync is None:
        findings.unknown(
            "fsync",
            "appendonly is on; this Redis does not allow CONFIG GET",
            "make sure that appendfsync is always, or accept the loss of the last second",
        )
    elif appendfsync != "always":
        findings.warning(
            "fsync",
            f"appendfsync is {appendfsync}: the last second is lost when the machine dies",
            "set appendfsync to always, or accept that",
        )
    else:
        findings.ok("fsync", "appendonly is on, appendfsync is always")


async def _inspect_outbox(redis: Redis, keys: Keys, clock: Clock, findings: Findings) -> None:
    """Add the age of the oldest row that Postgres has not stored yet."""
    calls = [
        command(part.changes, "XRANGE", part.changes, "-", "+", "COUNT", 1) for part in keys.parts
    ]
    firsts = [reply[0][0] for reply in await redis.calls(calls) if reply]
    if not firsts:
        findings.ok("outbox", "no history waits to be copied to Postgres")
        return
    oldest = min(int(entry.partition(b"-")[0]) for entry in firsts)
    age = (clock.now() - datetime.fromtimestamp(oldest / 1_000, UTC)).total_seconds()
    shown = (
        f"history waits in {len(firsts)} of {len(keys.parts)} partitions, the oldest for "
        f"{format_duration(max(0, round(age * 1_000)))}"
    )
    if age <= _OLD_OUTBOX_SECONDS:
        findings.ok("outbox", shown)
    else:
        remedy = "check that Postgres is reachable and that workers run: they copy history to it"
        findings.warning("outbox", shown, remedy)
