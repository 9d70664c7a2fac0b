"""The HTTP floor: a bare ASGI app that reads rows, answers them as JSON and does nothing else."""

import multiprocessing
import signal
import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from bench.floors import READ_STATE, fill_states, read_states
from bench.load import IDS
from bench.tables import connected, database

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = dict[str, Any]
App = Callable[[Message, Receive, Send], Awaitable[None]]

FEATURE = "total_spend"


def app_over(db: sqlite3.Connection) -> App:
    def read_one(entity_id: str) -> Answer:
        [state] = db.execute(READ_STATE, (entity_id,)).fetchone()
        value, as_of, *_ = msgspec.json.decode(state)[FEATURE]
        return {"feature": FEATURE, "entity_id": entity_id, "value": value, "as_of": as_of}

    def read_many(entity_ids: list[str]) -> Answer:
        states = read_states(db, entity_ids)
        return {entity_id: {FEATURE: states[entity_id][FEATURE][:2]} for entity_id in entity_ids}

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            asked = msgspec.json.decode((await receive())["body"])
            body = msgspec.json.encode(read_many(asked["entity_ids"]))
        else:
            entity_id = scope["query_string"].removeprefix(b"entity_id=").decode()
            body = msgspec.json.encode(read_one(entity_id))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def serve(file: Path, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app_over(connected(file)),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )
    uvicorn.Server(config).run([listener])


def main() -> None:
    """Serve in this process, or in so many that share the port."""
    home, port, *processes = sys.argv[1:]
    file = Path(home) / "floor.db"
    with closing(database(file)) as db:
        fill_states(db, [f"u{number}" for number in range(IDS)], [FEATURE])
    number, address = int(processes[0]) if processes else 1, ("127.0.0.1", int(port))
    listeners = [socket.create_server(address, reuse_port=True) for _ in range(number)]
    if number == 1:
        serve(file, listeners[0])
        return
    # An exit ends the daemons too, which the signal alone would not.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for listener in listeners:
        multiprocessing.Process(target=serve, args=(file, listener), daemon=True).start()
    signal.pause()


if __name__ == "__main__":
    main()
