"""What `headwater doctor` finds in Redis."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.memory import OWN, shares, store_bytes
from headwater.core.clock import Clock
from headwater.core.durations import format_duration
from headwater.core.masking import mask_address
from headwater.core.tls import exposure
from headwater.errors import BackendError, HeadwaterError
from headwater.model.health import Finding, Findings, add_clock_skew, add_encryption
from headwater.settings.schema import Settings

_VERIFIED = "let redis.url begin with rediss://, and leave redis.tls.verify on"
_FULL_SHARE = 0.8
_OLD_OUTBOX_SECONDS = 60.0
_MEBIBYTE = 1 << 20
_NEIGHBOURS = 4


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Examine the server that the settings name, whether or not a store is open."""
    findings = Findings("message bus", f"Redis at {mask_address(settings.redis.url)}")
    redis = Redis.of(settings.redis)
    keys = Keys(settings.redis.prefix, settings.partitions, settings.worker.consumer_group)
    try:
        await redis.open()
        if settings.env == "production":
            transport = next(iter(redis.connections.values())).transport
            told = exposure(*map(transport.get_extra_info, ("peername", "ssl_object")))
            add_encryption(findings, told, _VERIFIED)
        await _inspect_servers(redis, keys, clock, findings)
        await _inspect_store(redis, keys, settings.redis.max_memory, findings)
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
    calls = [command(part.probe, "INFO") for part in parts]
    answers = await redis.calls_apart(calls, redis.timeout)
    servers: dict[str, tuple[dict[str, str], str]] = {}
    for answer, part in zip(answers, parts, strict=True):
        if isinstance(answer, BackendError):
            # A managed Redis may not allow INFO.
            findings.ok("connection", f"version {redis.version}")
            findings.unknown("memory", str(answer), "see the memory in the service's own metrics")
            break
        info = _parse_info(answer)
        servers.setdefault(info.get("run_id", ""), (info, part.probe))
    is_tight = False
    for info, key in servers.values():
        name = "Valkey" if "valkey_version" in info else "Redis"
        version = info.get("valkey_version", redis.version)
        uptime = format_duration(int(info.get("uptime_in_seconds", 0)) * 1_000)
        findings.ok("connection", f"{name} {version}, up for {uptime}")
        _add_memory(findings, info)
        is_tight = is_tight or _is_tight(info)
        _add_persistence(findings, info, await _appendfsync(redis, key))
        sent = time.perf_counter()
        seconds, microseconds = await redis.call(command(key, "TIME"))
        taken = time.perf_counter() - sent
        there = int(seconds) + int(microseconds) / 1e6
        add_clock_skew(findings, there - clock.now().timestamp() + taken / 2, taken)
    if is_tight:
        await _add_neighbours(redis, keys, findings)


async def _inspect_store(redis: Redis, keys: Keys, limit: int, findings: Findings) -> None:
    """Add what the store takes of the memory that it may."""
    if not limit:
        return
    check, taken = "store memory", await store_bytes(redis, keys)
    if taken is None:
        findings.unknown(
            check,
            "this server refuses MEMORY USAGE, SCAN or DBSIZE, so redis.max_memory has no effect",
        )
        return
    shown = f"about {_mebibytes(taken)} of {_mebibytes(limit)} (redis.max_memory)"
    remedy = "add workers, check that Postgres takes the history, or raise redis.max_memory"
    if taken > limit:
        findings.error(check, f"{shown}: events are refused", remedy)
    elif taken > limit * _FULL_SHARE:
        findings.warning(check, shown, remedy)
    else:
        findings.ok(check, shown)


def _is_tight(info: dict[str, str]) -> bool:
    """Return whether a server has little memory left, or has evicted keys."""
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    is_full = limit and int(info.get("used_memory", 0)) > limit * _FULL_SHARE
    return bool(is_full or int(info.get("evicted_keys", 0)))


async def _add_neighbours(redis: Redis, keys: Keys, findings: Findings) -> None:
    """Add who takes the memory of a server that has little left."""
    largest = (await shares(redis, keys))[:_NEIGHBOURS]
    if not largest:
        return
    is_measured = all(share.of_memory is not None for share in largest)
    parts = ", ".join(
        f"{(share.of_keys if share.of_memory is None else share.of_memory):.0%} {share.owner}"
        for share in largest
    )
    unit = "memory of keys" if is_measured else "keys, as the sizes of others are not shown"
    found = f"of the {unit}, by a sample: {parts}"
    if largest[0].owner == OWN:
        findings.ok("neighbours", found)
    else:
        findings.warning(
            "neighbours",
            found,
            f"{largest[0].owner} takes most of this server: move it or this store to another one, "
            "set redis.max_memory of other stores, or let other keys expire",
        )


def _mebibytes(number: int) -> str:
    return f"{number / _MEBIBYTE:,.1f} MiB"


def _parse_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _add_memory(findings: Findings, info: dict[str, str]) -> None:
    if "used_memory" not in info:
        return  # a service may leave it out
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
    if "aof_enabled" not in info:
        remedy = "make sure that the service keeps acknowledged writes when a node is lost"
        findings.unknown("fsync", "this server does not tell how it persists", remedy)
    elif info["aof_enabled"] != "1":
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
