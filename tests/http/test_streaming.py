"""Long actions: lines of progress, then the result or the problem; cancelled at disconnect."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headwater.errors import InvalidInputError
from headwater.http.routing import streaming
from headwater.http.routing.streaming import ProgressResponse, Reporter

SCOPE = {"type": "http", "method": "POST", "path": "/v1/rebuild"}


class Connection:
    """The two ends of a request whose client stays until a test says otherwise."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.has_progress = asyncio.Event()
        self.lines: list[dict[str, Any]] = []
        self.is_complete = False

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.lines.append(msgspec.json.decode(message["body"]))
            self.is_complete = not message["more_body"]
            self.has_progress.set()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send lines without a pause."""
    monkeypatch.setattr(streaming, "_SECONDS_BETWEEN_LINES", 0.001)


async def test_lines_of_progress_come_before_the_result() -> None:
    connection = Connection()

    async def action(progress: Reporter) -> list[int]:
        progress(3, 7)
        await connection.has_progress.wait()
        return [1]

    response = ProgressResponse(action, private=False)
    await response(SCOPE, connection.receive, connection.send)
    assert connection.lines[0] == {"progress": {"done": 3, "total": 7}}
    assert connection.lines[-1] == {"result": [1]}
    assert connection.is_complete
    assert response.headers["content-type"] == "application/x-ndjson"
    assert "content-length" not in response.headers


async def test_an_error_is_the_problem_of_the_last_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    connection = Connection()

    async def refuse(_: Reporter) -> None:
        raise InvalidInputError("no such thing")

    async def fail(_: Reporter) -> None:
        raise ValueError("secret")

    await ProgressResponse(refuse, private=False)(SCOPE, connection.receive, connection.send)
    (line,) = connection.lines
    assert (line["problem"]["status"], line["problem"]["detail"]) == (422, "no such thing")
    await ProgressResponse(fail, private=True)(SCOPE, connection.receive, connection.send)
    assert connection.lines[-1]["problem"]["status"] == 500
    assert "secret" not in str(connection.lines) + capsys.readouterr().err


async def test_the_action_is_cancelled_if_the_client_disconnects() -> None:
    connection = Connection()
    ended = asyncio.Event()

    async def action(_: Reporter) -> None:
        connection.gone.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await ProgressResponse(action, private=False)(SCOPE, connection.receive, connection.send)
    assert ended.is_set()
    assert not connection.is_complete


async def test_an_action_that_refuses_at_once_gives_the_response_its_status() -> None:
    async def refuse(_: Reporter) -> None:
        raise InvalidInputError("no such thing")

    with pytest.raises(InvalidInputError, match="no such thing"):
        await ProgressResponse(refuse, private=False).begun()


async def test_an_action_that_has_begun_runs_once() -> None:
    connection, runs = Connection(), 0

    async def action(_: Reporter) -> int:
        nonlocal runs
        runs += 1
        await connection.has_progress.wait()
        return runs

    response = await ProgressResponse(action, private=False).begun()
    await response(SCOPE, connection.receive, connection.send)
    assert connection.lines[-1] == {"result": 1}
