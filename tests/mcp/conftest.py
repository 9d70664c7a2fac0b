"""The store of a shop, and clients of its MCP server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import Client

from headwater import FeatureStore
from headwater.mcp.server import create_server
from headwater.mcp.transports import STDIO_CALLER
from headwater.model.callers import Caller, set_caller
from headwater.settings.schema import Settings
from headwater.store.loader import load_store

FEATURES = '''
import asyncio
from pathlib import Path
from headwater import ContextItem, FeatureStore, Index, ServiceEvent, context, entity, feature

print("a line that a features file prints")
store = FeatureStore()
Index(store, "help")

@entity(store)
class User:
    user_id: str

@feature(
    entity=User, trigger="purchase", freshness_sla="5m",
    description="What a user spends.", owner="shop", tags=["money"], unit="EUR",
)
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before = await store.get_feature("total_spend", user_id) or 0.0
    return before + event.payload["amount"]

@feature(entity=User)
def shout(user_id: str) -> str:
    print("a line that a function prints")
    return user_id.upper() + "!"

@feature(entity=User)
def broken(user_id: str) -> int:
    raise ValueError("the password is hunter2")

@context(store, max_tokens=200, freshness_sla="5m")
async def support(user_id: str, question: str, tone: str = "calm") -> list[ContextItem]:
    """All that an agent needs to answer a question."""
    spent = await store.get_feature("total_spend", user_id)
    return [ContextItem(f"Question: {question}"), ContextItem(f"{user_id} spent {spent}, {tone}")]

@context(store)
async def endless(folder: str) -> list[ContextItem]:
    try:
        Path(folder, "begun").touch()
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        Path(folder, "cancelled").touch()
        raise
    return []
'''

Meta = dict[str, Any]


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """The features file of the shop."""
    file = tmp_path / "features.py"
    file.write_text(FEATURES)
    return file


@pytest.fixture
def variables(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment variables of the settings, and set them."""
    given = {
        "HEADWATER_HOME": settings.home,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_REDIS_URL": settings.redis.url,
        "HEADWATER_REDIS_PREFIX": settings.redis.prefix,
        "HEADWATER_POSTGRES_URL": settings.postgres.url,
        "HEADWATER_POSTGRES_SCHEMA": settings.postgres.schema,
    }
    chosen = {name: str(value) for name, value in given.items() if value}
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    return chosen


@pytest.fixture
async def shop(features: Path, variables: dict[str, str]) -> AsyncIterator[FeatureStore]:
    """Yield the store of the shop, in each environment."""
    store = load_store(features)
    async with store:
        await store.publish("purchase", "ada", {"amount": 5.0})
        await store.drain()
        yield store


def as_caller(store: FeatureStore, caller: Caller = STDIO_CALLER, mode: str = "auto") -> Client:
    """Return a client of the server in this process, whose calls are those of a caller."""
    set_caller(caller)
    return Client(create_server(store), mode=mode)


async def call(client: Client, tool: str, **arguments: Any) -> tuple[Any, Meta]:
    """Return the result of a call that succeeds, and its facts."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content, facts(result.meta)


async def problem(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of a call that fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    assert isinstance(content, mcp_types.TextContent)
    return content.text


def facts(meta: Meta | None) -> Meta:
    """Return the facts of Headwater in a result."""
    prefix = "headwater/"
    found = meta or {}
    return {name.removeprefix(prefix): each for name, each in found.items() if prefix in name}
