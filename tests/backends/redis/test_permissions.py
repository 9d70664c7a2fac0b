"""A user of Redis with the rights that the documentation lists, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis as peer

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import BackendUnavailableError
from headwater.settings.schema import Settings

DOCUMENTED = Path("docs/how-to/production.md").read_text("utf-8")


def documented_rights(prefix: str) -> list[str]:
    """Return the rules of the documented ACL for a prefix."""
    rules = re.search(r"ACL SETUSER headwater on >secret (.+)", DOCUMENTED)
    assert rules is not None
    return rules[1].replace("headwater:", f"{prefix}:").split()


def on_all_servers(url: str, *command: str) -> None:
    """Run a command of the operator on the server, or on all masters of its cluster."""
    with ExitStack() as stack:
        servers = [stack.enter_context(peer.Redis.from_url(url))]
        if servers[0].info("cluster")["cluster_enabled"]:
            ranges = servers[0].execute_command("CLUSTER SLOTS")
            servers = [stack.enter_context(peer.Redis(port=node[1])) for _, _, node, *_ in ranges]
        for server in servers:
            server.execute_command(*command)


@pytest.fixture
def limited(settings: Settings) -> Iterator[Settings]:
    """Settings whose URL has a user with the documented rights, named like the prefix."""
    url, name = settings.redis.url, settings.redis.prefix
    on_all_servers(url, "ACL", "SETUSER", name, "on", ">secret", *documented_rights(name))
    with_user = url.replace("redis://", f"redis://{name}:secret@")
    yield settings.replace(redis={"url": with_user})
    on_all_servers(url, "ACL", "DELUSER", name)


async def test_a_user_without_dangerous_commands_is_enough(limited: Settings) -> None:
    async with FeatureStore(settings=limited) as store:

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy", max_retries=0)
        async def total(user_id: str, event: ServiceEvent) -> int:
            return int(event.payload["amount"])

        for number in range(20):
            await store.publish("buy", f"u{number}", {"amount": number} if number else {})
        await store.drain()
        assert await store.get_feature("total", "u7") == 7
        (letter,) = await store.dead_letters.list()
        await store.dead_letters.discard(letter.id)
        await store.set_feature("total", "u0", 0)
        assert (await store.admin.audit()).differences == []
        await store.admin.rebuild()
        assert sum(lag.waiting for lag in await store.admin.lag()) == 0
        assert all(health.ok for health in await store.admin.health())


async def test_a_right_that_is_missing_is_named(settings: Settings, limited: Settings) -> None:
    on_all_servers(settings.redis.url, "ACL", "SETUSER", settings.redis.prefix, "resetchannels")
    with pytest.raises(BackendUnavailableError, match=r"NOPERM.*ACL SETUSER … \+@all -@dangerous"):
        await FeatureStore(settings=limited).open()
