"""An agent that decides about refunds with the tools of an MCP server.

python agent.py ada 40 "The lamp is broken."
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mcp import Client, StdioServerParameters


class Call(NamedTuple):
    """A call of a tool, which a model asks for."""

    tool: str
    arguments: dict[str, Any]


class Result(NamedTuple):
    """What a tool returned: structured content, and facts about it."""

    data: dict[str, Any]
    facts: dict[str, Any]


class Decision(NamedTuple):
    """What becomes of a case, and why."""

    label: str
    reason: str


class Case(NamedTuple):
    """What a customer asks for."""

    customer_id: str
    amount: float
    reason: str


def stand_in_for_the_model(case: Case, results: Sequence[Result]) -> Call | Decision:
    """Return the next call of a tool, or the decision, by a script in place of a model."""
    if not results:
        arguments = {"customer_id": case.customer_id, "reason": case.reason}
        return Call("context_refund_case", arguments)
    if len(results) == 1:
        names = ["spent_sum_90d", "refunds_count_90d"]
        return Call("get_features", {"features": names, "entity_ids": [case.customer_id]})
    (row,) = results[1].data["rows"]
    paid, refunds = (each["value"] for each in row["values"].values())
    if refunds >= 2:
        return Decision("person", f"{refunds} refunds in 90 days")
    if case.amount > paid:
        return Decision("refuse", f"{paid:.2f} EUR were paid in 90 days")
    return Decision("refund", f"{case.amount:.2f} EUR")


def next_step(case: Case, results: Sequence[Result]) -> Call | Decision:
    """Ask the model, unless a result is not fresh: no model decides on such data."""
    if any(each.facts.get("headwater/freshness") == "degraded" for each in results):
        return Decision("person", "the facts are missing or out of date")
    return stand_in_for_the_model(case, results)


async def decide(client: Client, case: Case) -> Decision:
    """Call tools until there is a decision, and keep it with the record of the facts."""
    results: list[Result] = []
    while isinstance(step := next_step(case, results), Call):
        print(f"call {step.tool}")
        results.append(await call(client, step))
    ref = results[0].facts["headwater/record_hash"]
    score = {"ref": ref, "name": "decision", "label": step.label, "explanation": step.reason}
    await call(client, Call("add_score", score))
    verified = await call(client, Call("verify_record", {"ref": ref}))
    print(f"verified: {verified.data['verdict']}")
    return step


async def call(client: Client, step: Call) -> Result:
    """Call a tool; raise RuntimeError with the server's words if it refuses."""
    result = await client.call_tool(step.tool, step.arguments)
    if result.is_error:
        raise RuntimeError(f"{step.tool}: {result.content}")
    return Result(result.structured_content or {}, dict(result.meta or {}))


def server() -> StdioServerParameters:
    """Return how a host starts the server: as a process of its own."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "headwater", "mcp", str(Path(__file__).with_name("desk.py"))],
        env={name: value for name, value in os.environ.items() if name.startswith("HEADWATER_")},
    )


async def main(customer_id: str, amount: str, reason: str) -> None:
    async with Client(server()) as client:
        decision = await decide(client, Case(customer_id, float(amount), reason))
        print(f"{decision.label}: {decision.reason}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
