"""`headwater mcp FILE`: a real process, and the client of the SDK over its streams."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

from headwater import FeatureStore
from tests.engine.support import until
from tests.mcp.conftest import call


def process(features: Path, variables: dict[str, str]) -> StdioServerParameters:
    arguments = ["-m", "headwater", "mcp", str(features)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=variables)


@pytest.mark.both_environments
async def test_a_host_reads_features_and_contexts_over_stdio(
    shop: FeatureStore, features: Path, variables: dict[str, str]
) -> None:
    async with Client(process(features, variables)) as client:
        assert client.protocol_version == "2026-07-28"
        value, known = await call(client, "get_feature", feature="total_spend", entity_id="ada")
        assert (value["value"], known["freshness"]) == (5.0, "guaranteed")
        # What user functions print does not reach the protocol.
        loud, _ = await call(client, "get_feature", feature="shout", entity_id="ada")
        assert loud["value"] == "ADA!"
        found, known = await call(client, "context_support", user_id="ada", question="Why?")
    # The record is in the store that both processes share.
    past = await shop.get_context_at(found["context_id"])
    assert (past.record_hash, past.caller) == (known["record_hash"], "mcp stdio")


async def test_a_cancelled_call_ends_and_the_next_one_is_answered(
    shop: FeatureStore, features: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    async def exists(name: str) -> bool:
        return (tmp_path / name).exists()

    async with Client(process(features, variables)) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "context_endless", {"folder": str(tmp_path)})
                await until(lambda: exists("begun"))
                scope.cancel()
        await until(lambda: exists("cancelled"))
        value, _ = await call(client, "get_feature", feature="shout", entity_id="ada")
    assert value["value"] == "ADA!"


async def test_ctrl_c_closes_the_store_and_ends_the_process(
    features: Path, variables: dict[str, str]
) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headwater", "mcp", str(features)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin
    assert server.stdout
    server.stdin.write(b"no JSON\n")
    server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert b'"id":1' in await server.stdout.readline()
    server.send_signal(signal.SIGINT)
    assert await server.wait() == 0
