"""Every public verb has an example in its docstring, and the examples give what they show."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

import headwater
from headwater import (
    Context,
    ContextItem,
    Feature,
    FeatureStore,
    Graph,
    Index,
    ServiceEvent,
    Settings,
    Worker,
)
from headwater.messages.parsing import messages_of
from headwater.testing import ManualClock, temporary
from tests.evaluations import write_evaluation

STORE = FeatureStore(settings=Settings())
GROUPS = (
    *(STORE, STORE.bus, STORE.records, STORE.dead_letters, STORE.indexes, STORE.history),
    *(STORE.catalog, STORE.backfills, STORE.admin, STORE.evaluations),
)
VERBS = {
    f"{kind.__name__}.{name}": verb
    for kind in (*map(type, GROUPS), Feature)
    for name, verb in inspect.getmembers(kind)
    if not name.startswith("_") and inspect.isfunction(verb)
} | {
    verb.__qualname__: verb
    for verb in (
        *(
            FeatureStore,
            Index,
            headwater.Document,
            headwater.entity,
            headwater.feature,
            headwater.create_app,
        ),
        *(headwater.parse_duration, headwater.format_duration, headwater.verify_record),
        *(Graph.to_mermaid, ManualClock.advance, Settings.replace, STORE.sync.run),
        *(Worker.run, Worker.stop, ContextItem.conversation, messages_of),
        *(Context.to_openai, Context.to_openai_responses),
        *(Context.to_anthropic, Context.to_gemini),
    )
}


FEATURES = """
from headwater import FeatureStore

store = FeatureStore()


@store.context()
def support(user_id: str, question: str) -> list[str]:
    return ["Parcels arrive within 3 days."]
"""


def declare() -> dict[str, Any]:
    """Return the names that the examples use: a store and its declarations."""
    store = FeatureStore(settings=Settings())

    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="purchase")
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        before: float = await store.get_feature("total_spend", user_id) or 0.0
        return before + float(event.payload["amount"])

    @store.feature(User, trigger="purchase", max_retries=0)
    def last_item(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["item"])

    @store.feature(User, trigger="payment", window=["1h", "7d"], aggregate="sum")
    def payments(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @store.feature(User, refresh="1h")
    def rank(user_id: str) -> int:
        return len(user_id)

    @store.retriever(top_k=3)
    def search(query: str) -> list[str]:
        return ["Parcels arrive within 3 days."]

    Index(store, "docs", embedder="lexical")

    @store.context(max_tokens=200)
    async def support(user_id: str, question: str) -> list[ContextItem]:
        (found,) = await search(question)
        return [ContextItem(found.text), ContextItem.template("Spent: {total_spend}")]

    return {name: getattr(headwater, name) for name in dir(headwater)} | {
        "asyncio": asyncio,
        "datetime": datetime,
        "UTC": UTC,
        "ManualClock": ManualClock,
        "store": store,
        "User": User,
        "total_spend": total_spend,
        "search": search,
        "support": support,
    }


async def execute(source: str, names: dict[str, Any]) -> Any:
    """Run one example, as in a REPL that can await; return the value of an expression."""
    (statement,) = ast.parse(source).body
    kind = "eval" if isinstance(statement, ast.Expr) else "exec"
    code = compile(source, "<docstring>", kind, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if "store.sync." in source:  # blocks, so it cannot run in the thread of the event loop
        return await asyncio.to_thread(eval, code, names)
    value = eval(code, names)
    return await value if isinstance(value, Awaitable) else value


@pytest.mark.parametrize("name", sorted(VERBS))
async def test_the_example_of_a_verb_gives_the_printed_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "features.py").write_text(FEATURES)
    (tmp_path / "orders.csv").write_text("user_id\nada\n")
    times = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    lines = [f"ada,{time},{number}.5" for number, time in enumerate(times)]
    (tmp_path / "spend.csv").write_text("\n".join(["user_id,timestamp,total_spend", *lines]))
    (tmp_path / "purchases.csv").write_text(
        "user,timestamp,amount,item\n"
        + "\n".join(f"ada,{time},{number}.5,pen" for number, time in enumerate(times))
    )
    with duckdb.connect(tmp_path / "shop.duckdb") as shop:
        columns = "user_id, total_spend AS spent, timestamp AS spent_at"
        shop.execute(f"CREATE TABLE totals AS SELECT {columns} FROM 'spend.csv'")
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(VERBS[name]) or "")
    assert examples, f"{name} has no example in its docstring"
    names = declare()
    async with temporary(names["store"]) as store:
        monkeypatch.setenv("HEADWATER_HOME", store.settings.home)
        await store.publish("purchase", "ada", {"amount": 25.0, "item": "book"})
        await store.publish("purchase", "eve", {"amount": 5.0})
        await store.drain()
        await store.index("docs", "parcels", "Parcels arrive within 3 days.")
        ctx = names["ctx"] = await names["support"]("ada", "Where is my parcel?")
        write_evaluation(tmp_path / "evals", await store.records.get(ctx.context_id))
        capsys.readouterr()
        for example in examples:
            value = await execute(example.source, names)
            got = capsys.readouterr().out + ("" if value is None else f"{value!r}\n")
            got = got.replace(store.settings.home, ".headwater")
            flags = doctest.ELLIPSIS
            assert doctest.OutputChecker().check_output(example.want, got, flags), got
