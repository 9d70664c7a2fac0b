"""A server that is killed again and again while clients publish."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store
from tests.servers import quiet_port

pytestmark = pytest.mark.chaos

FEATURES = Path(__file__).with_name("features.py")
ACCOUNTS = 50
EVENTS_EACH = 40
KILLS = 2


class Server:
    """The real `headwater serve`, started on one port as often as it is killed."""

    def __init__(self, home: Path, port: int) -> None:
        self._command = [sys.executable, "-m", "headwater", "serve", str(FEATURES)]
        self._environment = {
            **os.environ,
            "HEADWATER_HOME": str(home),
            "HEADWATER_HTTP_PORT": str(port),
            "HEADWATER_LOG_LEVEL": "error",
        }
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)

    def kill_and_restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


class Client:
    """Publish one account's numbers in order over one connection, until each is acknowledged."""

    def __init__(self, port: int, account_id: str, acknowledged: Acknowledged) -> None:
        self._port = port
        self._account_id = account_id
        self._acknowledged = acknowledged
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self) -> None:
        for number in range(EVENTS_EACH):
            while not await self._accepted(number):
                await self._acknowledged.pause()
            await self._acknowledged.add()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def _accepted(self, number: int) -> bool:
        """Send one request; the event's id makes it safe to repeat it if the response was lost."""
        body = msgspec.json.encode(
            {
                "entity_id": self._account_id,
                "payload": {"number": number},
                "event_id": f"{self._account_id}/{number}",
            }
        )
        head = (
            "POST /ingest/step HTTP/1.1\r\nhost: localhost\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            self._hang_up()
            return False
        return answer.startswith(b"HTTP/1.1 202")


class Acknowledged:
    """Counts acknowledged events, and waits for a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Condition()

    async def add(self) -> None:
        async with self._more:
            self.count += 1
            self._more.notify_all()

    async def reach(self, count: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: self.count >= count)

    async def pause(self) -> None:
        """Wait a moment before the next attempt."""
        await asyncio.sleep(0.02)


async def kill_on_the_way(server: Server, acknowledged: Acknowledged) -> None:
    """Kill the server each time another share of the events has been acknowledged."""
    total = ACCOUNTS * EVENTS_EACH
    for share in range(1, KILLS + 1):
        await acknowledged.reach(total * share // (KILLS + 1))
        server.kill_and_restart()


@pytest.mark.timeout(180)
async def test_acknowledged_events_take_effect_once_and_in_order_although_the_server_is_killed(
    tmp_path: Path,
) -> None:
    port = quiet_port()
    server = Server(tmp_path / "home", port)
    acknowledged = Acknowledged()
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(ACCOUNTS):
                group.create_task(Client(port, f"a{number}", acknowledged).run())
            group.create_task(kill_on_the_way(server, acknowledged))
    finally:
        status = server.stop()
    assert status == 0
    assert acknowledged.count == ACCOUNTS * EVENTS_EACH
    store = load_store(FEATURES)
    await runtime_of(store).rebind(store.settings.replace(home=tmp_path / "home"), store.clock)
    async with store:
        await store.drain()
        accounts = [f"a{n}" for n in range(ACCOUNTS)]
        found = await store.get_features(["steps"], accounts)
    expected = {"steps": list(range(EVENTS_EACH))}
    assert {account: steps for account, steps in found.items() if steps != expected} == {}
