"""The HTTP floor: a bare ASGI app that reads one row, answers it as JSON and does nothing else."""

import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from bench.floors import READ_STATE, fill_states
from bench.load import IDS
from bench.tables import database

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

FEATURE = "total_spend"


def app_over(db: sqlite3.Connection) -> App:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        entity_id = scope["query_string"].removeprefix(b"entity_id=").decode()
        [state] = db.execute(READ_STATE, (entity_id,)).fetchone()
        value, as_of, *_ = msgspec.json.decode(state)[FEATURE]
        body = msgspec.json.encode(
            {"feature": FEATURE, "entity_id": entity_id, "value": value, "as_of": as_of}
        )
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def main() -> None:
    home, port = sys.argv[1:]
    db = database(Path(home) / "floor.db")
    fill_states(db, [f"u{number}" for number in range(IDS)], [FEATURE])
    uvicorn.run(
        app_over(db),
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
