"""Faults of a Redis that runs out of disk or memory."""

from __future__ import annotations

import asyncio

from chaos.failover import ask
from chaos.waiting import until
from tests.servers import Machine

_FREED_WITHIN_SECONDS = 30.0
_ROOM = 100


async def fill_disk(machine: Machine, seconds: float, *, policy: str) -> None:
    """Let writes to the append-only file fail for some seconds.

    With ``always`` the server exits, because it cannot take back what it has executed; it is
    started again when there is room. With ``everysec`` it refuses to write meanwhile.

    With ``everysec`` no part of a write fits: in a file that a rewrite began, Valkey 9.1 leaves a
    hole where one did, and does not load that file again.
    """
    await ask(machine, "CONFIG SET", "appendfsync", policy)
    files = (machine.folder / "appendonlydir").glob("*.incr.aof")
    newest = max(files, key=lambda file: file.stat().st_mtime_ns)
    room = _ROOM if policy == "always" else 0
    machine.limit_files(newest.stat().st_size + room)
    if policy == "always":
        await asyncio.to_thread(machine.wait)
        await asyncio.sleep(seconds)
        machine.kill()
        await asyncio.to_thread(machine.start)
        return
    await asyncio.sleep(seconds)
    machine.limit_files(None)

    async def writes() -> bool:
        return bool((await ask(machine, "INFO", "persistence"))["aof_last_write_status"] == "ok")

    await until(writes, _FREED_WITHIN_SECONDS)
    await ask(machine, "CONFIG SET", "appendfsync", "always")


async def fill_memory(machine: Machine, seconds: float) -> None:
    """Let a server have more in its memory than it may, for some seconds."""
    await ask(machine, "CONFIG SET", "maxmemory", 1)
    await asyncio.sleep(seconds)
    await ask(machine, "CONFIG SET", "maxmemory", 0)
