"""The requests of the reference page get the responses that the page shows."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.store.loader import load_store
from tests.docs.pages import DOCS, blocks, rows, sections

PAGE = DOCS / "reference" / "http.md"

# Values of these members differ from run to run; their types do not.
VOLATILE = {
    "activated_at",
    "age_ms",
    "as_of",
    "assembly_ms",
    "assembly_us",
    "at",
    "changed_at",
    "context_id",
    "created_at",
    "current_at",
    "end",
    "event_id",
    "indexed_at",
    "last_fold",
    "latency_ms",
    "outcome_hash",
    "outcome_id",
    "read_at",
    "received_at",
    "record_hash",
    "request_id",
    "score",
    "searched_at",
    "stalest_ms",
    "timestamp",
    "version",
    "start",
    "written_at",
}


class Example(NamedTuple):
    """A ``curl`` command of the page and, if the page shows it, the response."""

    line: int
    command: str
    status: int
    body: Any


def examples() -> Iterator[Example]:
    """Find the commands, and the status and body that follow each."""
    found: Example | None = None
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for block in blocks(PAGE):
        if block.language == "json":
            status = re.match(r"`(\d{3})`", lines[block.line - 3])
            assert found, f"line {block.line}: no request comes before this response"
            assert status, f"line {block.line}: the status is missing above this response"
            found = found._replace(status=int(status[1]), body=msgspec.json.decode(block.text))
        elif block.language == "console":
            for command in block.text.replace("\\\n", "").removeprefix("$ ").split("\n$ "):
                if found:
                    yield found
                found = Example(block.line, command, 200, None)
            if "`204`" in lines[block.line + block.text.count("\n") + 2]:
                found = found and found._replace(status=204)
    assert found
    yield found


def arguments_of(command: str) -> dict[str, Any]:
    """Return the arguments of ``httpx.request`` that send the request of a ``curl`` command."""
    words = iter(shlex.split(command.partition(" | ")[0]))
    request: dict[str, Any] = {"method": "GET", "headers": {}}
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(": ")
            request["headers"][name] = value
        elif word in ("-d", "--data-binary"):
            method = "POST" if request["method"] == "GET" else request["method"]
            request |= {"method": method, "content": _content_of(next(words))}
        elif word == "-X":
            request["method"] = next(words)
        elif word not in ("curl", "-s"):
            request["url"] = f"http://{word}"
    return request


def _content_of(word: str) -> str:
    return FILES[word] if word.startswith("@") else word


FILES = {"@rows.csv": "user_id,timestamp\nada,2026-01-15T09:00:00Z\n"}
"""Files that examples upload."""


EXCERPTS = {"findings", "operations"}
"""Lists of which the page shows only some elements."""


def compare(shown: Any, actual: Any, name: str, values: dict[str, str]) -> None:
    """Check that two bodies are equal except for volatile values, and collect volatile texts."""
    assert type(shown) is type(actual), name
    if isinstance(shown, dict):
        assert list(shown) == list(actual), name
        for key, value in shown.items():
            compare(value, actual[key], key, values)
    elif name in EXCERPTS:
        assert all(one in actual for one in shown), name
    elif isinstance(shown, list):
        assert len(shown) == len(actual), name
        for one, other in zip(shown, actual, strict=True):
            compare(one, other, name, values)
    elif name not in VOLATILE:
        assert shown == actual, name
    elif isinstance(shown, str):
        values[shown] = actual


def test_every_route_is_in_the_table_of_routes() -> None:
    listed = [re.findall(r"`(.+?)`", row[0])[0] for row in rows(sections(PAGE)["Routes"])]
    routes = create_app(FeatureStore(settings=Settings())).typed_routes
    assert sorted(listed) == sorted(f"{route.method} {route.path}" for route in routes)


async def test_every_request_of_the_reference_gets_the_documented_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path / "home"))
    (features,) = [block for block in blocks(PAGE) if block.title]
    (tmp_path / features.title).write_text(features.text)
    store = load_store(tmp_path / features.title)
    transport = httpx.ASGITransport(create_app(store))
    values: dict[str, str] = {}
    async with store, httpx.AsyncClient(transport=transport) as client:
        for example in examples():
            command = example.command
            for shown, actual in values.items():
                command = command.replace(shown, actual)
            request = arguments_of(command)
            assert "url" in request, command
            response = await client.request(**request)
            assert response.status_code == example.status, f"line {example.line}: {response.text}"
            if example.body is not None:
                compare(example.body, response.json(), f"line {example.line}", values)
            await store.drain()
