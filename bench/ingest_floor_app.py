"""The floor of ingest: a bare ASGI app that adds one entry to a stream and does nothing else."""

import sys
import uuid
from datetime import UTC, datetime

import msgspec
import uvicorn
from redis.asyncio import Redis

from bench.floor_app import App, Message, Receive, Send

ROUTE = "/ingest/"
STREAM = "floor:ingested"


def app_over(server: Redis) -> App:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        sent = msgspec.json.decode(body or b"{}")
        event = {
            "event_id": str(uuid.uuid4()),
            "event_type": scope["path"].removeprefix(ROUTE),
            "entity_id": sent.get("entity_id"),
            "timestamp": datetime.now(UTC),
        }
        text = msgspec.json.encode({**event, "payload": sent.get("payload")})
        await server.xadd(STREAM, {"e": text})
        answer = msgspec.json.encode(event)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def main() -> None:
    url, port = sys.argv[1:]
    uvicorn.run(
        app_over(Redis.from_url(url)),
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
