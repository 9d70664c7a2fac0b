"""Scripts touch the keys that their calls declare, and no others."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis import client
from headwater.backends.redis.client import Call, Redis, Script, _all_scripts, _script
from headwater.backends.redis.keys import Keys
from headwater.errors import BackendError, BackendUnavailableError
from headwater.settings.schema import Settings
from tests.backends.whole_store import use_everything

pytestmark = pytest.mark.timeout(300)

# The server itself says which arguments of a command are keys.
GUARD = """
local declared, server = {}, redis
for _, key in ipairs(KEYS) do
  declared[key] = true
end
local function guarded(run)
  return function(...)
    local keys = server.pcall('COMMAND', 'GETKEYS', ...)
    for _, key in ipairs(keys.err and {} or keys) do
      if not declared[key] then
        error('the key ' .. key .. ' is not declared')
      end
    end
    return run(...)
  end
end
local redis = setmetatable(
  {call = guarded(server.call), pcall = guarded(server.pcall)}, {__index = server}
)
"""


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Refuse undeclared keys in all scripts, except in those whose names are added."""
    spared: set[str] = set()
    scripts: dict[str, Script] = {}

    def script(name: str) -> Script:
        if name in spared:
            return _script(name)
        if name not in scripts:
            first, _, rest = _script(name).source.partition("\n")
            source = f"{first}\n{GUARD}{rest}"
            scripts[name] = Script(name, source, hashlib.sha1(source.encode()).hexdigest())
        return scripts[name]

    monkeypatch.setattr(client, "_script", script)
    _all_scripts.cache_clear()
    yield spared
    _all_scripts.cache_clear()


async def test_with_the_setting_no_script_derives_a_key(
    settings: Settings, guarded: set[str], tmp_path: Path
) -> None:
    chosen = settings.replace(home=f"{tmp_path}/store", redis={"declared_keys": True})
    await use_everything(chosen)


async def test_without_it_only_the_states_of_a_page_are_derived(
    settings: Settings, guarded: set[str], tmp_path: Path
) -> None:
    guarded.add("read")
    await use_everything(settings.replace(home=f"{tmp_path}/store"))


async def test_a_derived_key_would_be_refused(settings: Settings, guarded: set[str]) -> None:
    redis = client.Redis.of(settings.redis)
    await redis.open()
    keys = Keys(settings.redis.prefix, 4, "headwater").parts[0]
    names = [keys.group, keys.events, keys.idle]
    await redis.call(
        client.command(keys.group, "HSET", keys.group, "lease", "me:1", "cursor", "0-0")
    )
    await redis.call(
        client.command(keys.events, "XADD", keys.events, "*", "t", "buy", "k", "u1", "e", "{}")
    )
    try:
        for touches, refused in ((b"{}", False), (b'{"buy":["user"]}', True)):
            call = client.script_call("read", names, "me:1", 9, keys.entity, touches, 9_999)
            with pytest.raises(BackendError, match="not declared") if refused else nullcontext():
                await redis.call(call)
    finally:
        await redis.close()


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings.replace(redis={"declared_keys": True}))

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def bought(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("bought", user_id) or 0) + 1

    return store


async def buy(store: FeatureStore, users: int) -> None:
    await store.bus.publish_many([ServiceEvent("buy", f"u{user}", {}) for user in range(users)])


def is_read(call: Call, name: str) -> bool:
    return call.script is not None and call.script.name == "read" and name in call.key


async def test_states_that_could_not_be_read_are_read_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0
    send = Redis.calls

    async def calls(self: Redis, given: list[Call], **options: Any) -> list[Any]:
        nonlocal failures
        if not failures and given and given[0].command[0] == "MGET":
            failures += 1
            raise BackendUnavailableError("the connection is lost")
        return await send(self, given, **options)

    async with shop(settings) as store:
        await buy(store, 4)
        await store.drain()
        monkeypatch.setattr(Redis, "calls", calls)
        await buy(store, 4)
        await store.drain()
        assert await store.get_features(["bought"], ["u0"]) == {"u0": {"bought": 2}}
    assert failures == 1


@pytest.mark.cluster
async def test_a_page_that_arrives_while_other_states_are_read_waits_for_its_own(
    production: Settings, cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, late = asyncio.Event(), asyncio.Event()
    send = Redis.calls

    async def calls(self: Redis, given: list[Call], **options: Any) -> list[Any]:
        if given and is_read(given[0], "{p01}") and not late.is_set():
            await reading.wait()
            answers = await send(self, given, **options)
            late.set()
            return answers
        if given and given[0].command[0] == "MGET":
            reading.set()
            await late.wait()
        return await send(self, given, **options)

    chosen = production.replace(partitions=4, redis={"url": cluster_url})
    async with shop(chosen) as store:
        await buy(store, 40)
        await store.drain()
        monkeypatch.setattr(Redis, "calls", calls)
        await buy(store, 40)
        await store.drain()
        found = await store.get_features(["bought"], [f"u{user}" for user in range(40)])
    assert {row["bought"] for row in found.values()} == {2}
