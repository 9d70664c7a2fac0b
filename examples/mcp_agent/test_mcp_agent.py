"""The agent decides with the tools of a real server in its own process: `pytest` in this folder."""

import subprocess
import sys
from pathlib import Path

import pytest
from agent import Call, Case, Decision, call, decide, server
from mcp import Client

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a store with the past."""
    monkeypatch.setenv("HEADWATER_HOME", str(tmp_path))
    subprocess.run([sys.executable, HERE / "desk.py"], check=True)


async def test_an_agent_decides_by_the_facts_and_rules() -> None:
    refused = Decision("refuse", "60.00 EUR were paid in 90 days")
    async with Client(server()) as client:
        assert await decide(client, Case("ada", 40, "Broken.")) == Decision("refund", "40.00 EUR")
        assert await decide(client, Case("ada", 90, "Broken.")) == refused
        refunded = await decide(client, Case("bob", 40, "It leaks."))
    assert refunded == Decision("person", "2 refunds in 90 days")


async def test_no_model_decides_on_facts_that_are_missing() -> None:
    async with Client(server()) as client:
        decision = await decide(client, Case("nobody", 40, "Please."))
    assert decision == Decision("person", "the facts are missing or out of date")


async def test_a_decision_is_kept_with_what_was_known() -> None:
    async with Client(server()) as client:
        await decide(client, Case("ada", 40, "The lamp is broken."))
        (listed,) = (await call(client, Call("list_contexts", {}))).data["contexts"]
        explained = await call(client, Call("explain_context", {"ref": listed["context_id"]}))
    (outcome,) = explained.data["outcomes"]
    assert (outcome["judge"], outcome["score"]["label"]) == ("model", "refund")


async def test_the_docstring_of_a_context_is_what_a_model_reads() -> None:
    async with Client(server()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    tool = tools["context_refund_case"]
    assert "Call it before you decide about one." in (tool.description or "")
    assert tool.input_schema["required"] == ["customer_id", "reason"]
